"""The Keras layer: arguments, dtype policy and configuration around `keras_lrn.ops`."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, SupportsIndex

import keras

from keras_lrn import arguments, foreign, ops
from keras_lrn.arguments import Bool, JitCompile

if TYPE_CHECKING:
    import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_lrn")
class LocalResponseNormalization(keras.layers.Layer):
    """Local response normalization: divides each channel by its and its neighbours' energy.

    For `C` channels along `axis`, `before = floor((size - 1) / 2)` and
    `after = ceil((size - 1) / 2)`, the output `Y` and the derivative `dX` sent back are:

        window(c) = { i : max(0, c - before) <= i <= min(C - 1, c + after) }
        mirror(c) = { i : c is in window(i) }
        S[c]  = bias + (alpha / size) * sum over window(c) of X[i]^2
        Y[c]  = X[c] * S[c]^(-beta)
        dX[c] = lda_coeff * ( dY[c] * S[c]^(-beta) - (2 * alpha * beta / size) * X[c]
                              * sum over mirror(c) of dY[i] * X[i] * S[i]^(-beta - 1) )

    This is the definition of ONNX: `alpha` is divided by `size`, also at the first and last
    channels, where windows are cut, and an even `size` has its extra channel on the higher side.
    TensorFlow and the AlexNet paper do not divide: their `alpha` times `size` is the `alpha` here.

    Use it to rebuild AlexNet, ZFNet or GoogLeNet, to run models trained in Caffe, PyTorch or ONNX
    with the same numbers, and for divisive normalization. With `size >= 2 * C - 1` (every window
    then holds all channels), `alpha = size`, `beta = 0.5` and `bias = 0` it is an L2 normalization
    over channels.

    Reference:

    - [Krizhevsky et al., 2012, section 3.3](https://papers.nips.cc/paper/4824)
    - [The ONNX operator LRN](https://onnx.ai/onnx/operators/onnx__LRN.html)

    Args:
        size: Integer >= 0. How many channels a window holds; it may exceed their number. With the
            default 0 nothing is summed, so `S = bias`, and a warning says so at build.
        alpha: Finite real number >= 0. The weight of the sum of squares.
        beta: Finite real number. The exponent, not the offset that other normalization layers
            call beta.
        bias: Finite real number >= 0. 0 is legal where `alpha` and `size` are above 0; where a
            whole window is zero, output and gradient are then 0.
        axis: Integer. The channel axis; negative counts from the end. Not the batch axis 0.
        training: Boolean. Whether the layer may keep intermediate results for the backward pass
            when it is called with `training=True`. It decides nothing else: outputs, gradients and
            the way the layer runs do not depend on it.
        lda_coeff: Finite real number. Multiplies the derivative that is sent back, and never the
            output: 0 blocks it, a negative number reverses it, above 1 amplifies it.
        specified_outputs_name: `None`, or a sequence of exactly one name for the output tensor.
        jit_compile: `"auto"` compiles with XLA what gains by it: the passes of training in a graph
            of known image size, and eager calls of many elements. `True` also compiles `predict`
            and `evaluate` for a known image size, and `fit` for an unknown one (once for each
            size). `False` compiles nothing, unless the model around the layer is compiled.
        **kwargs: `name`, `dtype`, `trainable` and the other arguments of a Keras layer.

    Call arguments:
        inputs: Tensor of dtype bfloat16, float16, float32 or float64. 16-bit inputs are computed in
            float32 and rounded once at the end.
        training: Boolean or `None`. Keras sets it: `True` in `fit`, `False` in `predict`. In a
            training loop of your own pass `True`, which is the fastest.

    Input shape:
        Any rank >= 2; batch, spatial and channel dimensions may be unknown.

    Output shape:
        The input shape. The dtype is the layer's `compute_dtype`.

    Raises:
        ValueError: An argument, the rank or the dtype of the input is not as described.
        TypeError: An argument is one of other code, such as `k`, `n` or `depth_radius`.

    Example:

    ```python
    import numpy as np
    from keras_lrn import LocalResponseNormalization

    x = np.array([[1.0, 2.0, 3.0]], "float32")
    y = LocalResponseNormalization(3, alpha=3.0, beta=1.0)(x)
    # The scale is 1 + [1 + 4, 1 + 4 + 9, 4 + 9] = [6, 15, 14].
    np.testing.assert_allclose(y, [[1 / 6, 2 / 15, 3 / 14]], rtol=1e-6)
    ```
    """

    def __init__(
        self,
        size: SupportsIndex = 0,
        *,
        alpha: SupportsFloat = 1e-4,
        beta: SupportsFloat = 0.75,
        bias: SupportsFloat = 1.0,
        axis: SupportsIndex = -1,
        training: Bool = True,
        lda_coeff: SupportsFloat = 1.0,
        specified_outputs_name: Sequence[str] | None = None,
        jit_compile: JitCompile = "auto",
        **kwargs: Any,
    ) -> None:
        foreign.refuse(kwargs)
        super().__init__(**kwargs)
        # The sum of squares must see the input before it is rounded to a 16-bit compute dtype.
        self.autocast = False
        self.supports_masking = True
        self.specified_outputs_name = arguments.check_outputs_name(specified_outputs_name)
        formula = arguments.checked(
            size,
            alpha=alpha,
            beta=beta,
            bias=bias,
            axis=axis,
            training=training,
            lda_coeff=lda_coeff,
            name=self._output_name(),
            jit_compile=jit_compile,
        )
        self.size = formula.size
        self.alpha = formula.alpha
        self.beta = formula.beta
        self.bias = formula.bias
        self.axis = formula.axis
        self.training = formula.training
        self.lda_coeff = formula.lda_coeff
        self.jit_compile: Literal["auto"] | bool = formula.jit_compile

    def build(self, input_shape: Any) -> None:
        several = isinstance(input_shape, dict) or any(
            isinstance(length, (tuple, list)) for length in input_shape or ()
        )
        if input_shape is None or several:
            raise ValueError(
                f"{self._caller()} expects one input tensor. Received: input_shape={input_shape}"
            )
        self._check_input(input_shape, self.compute_dtype)
        if self.size == 0:
            warnings.warn(
                f"{self._caller()} has size=0: nothing is normalized until `size` is set to the "
                "number of channels in a window. For the numbers of the AlexNet paper: "
                'LocalResponseNormalization(**keras_lrn.interop.from_published("alexnet")).',
                UserWarning,
                stacklevel=2,
            )
        self.built = True

    def call(self, inputs: Any, training: Bool | None = None) -> "tf.Tensor":
        if isinstance(inputs, (list, tuple, dict)):
            raise ValueError(f"{self._caller()} expects one input tensor. Received: {inputs!r}")
        # The attributes may have been changed since, so they are checked again.
        formula = arguments.checked(
            self.size,
            alpha=self.alpha,
            beta=self.beta,
            bias=self.bias,
            axis=self.axis,
            training=self.training,
            lda_coeff=self.lda_coeff,
            name=self._output_name(),
            jit_compile=self.jit_compile,
        )
        training = arguments.check_call_training(training)
        caller = self._caller()
        return ops.normalize(inputs, formula, training, caller=caller, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def compute_output_spec(
        self, inputs: keras.KerasTensor, training: Bool | None = None
    ) -> keras.KerasTensor:
        self._check_input(inputs.shape, inputs.dtype)
        return keras.KerasTensor(inputs.shape, self.compute_dtype, name=self._output_name())

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "size": self.size,
            "alpha": self.alpha,
            "beta": self.beta,
            "bias": self.bias,
            "axis": self.axis,
            "training": self.training,
            "lda_coeff": self.lda_coeff,
            "specified_outputs_name": self.specified_outputs_name
            and list(self.specified_outputs_name),
            "jit_compile": self.jit_compile,
        }

    def _check_input(self, shape: Any, dtype: str) -> None:
        arguments.check_input(shape, dtype, self.axis, self._caller())

    def _caller(self) -> str:
        return f'{type(self).__name__} "{self.name}"'

    def _output_name(self) -> str | None:
        return self.specified_outputs_name[0] if self.specified_outputs_name else None
