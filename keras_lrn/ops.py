"""Local response normalization of tensors: the checks, and the call of Keras's backend."""

from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

import keras

from keras_lrn import arguments, backend
from keras_lrn.arguments import Bool, Formula, JitCompile

if TYPE_CHECKING:
    import tensorflow as tf


def local_response_normalization(
    x: Any,
    size: SupportsIndex,
    *,
    alpha: SupportsFloat = 1e-4,
    beta: SupportsFloat = 0.75,
    bias: SupportsFloat = 1.0,
    axis: SupportsIndex = -1,
    training: Bool | None = None,
    lda_coeff: SupportsFloat = 1.0,
    jit_compile: JitCompile = "auto",
    name: str | None = None,
) -> "tf.Tensor":
    """Normalizes a tensor over a sliding window of neighbouring channels.

    The same as `keras_lrn.LocalResponseNormalization`, whose page has the equations, without a
    layer. The output keeps the dtype of `x` exactly.

    Reference:

    - [Krizhevsky et al., 2012, section 3.3](https://papers.nips.cc/paper/4824)
    - [The ONNX operator LRN](https://onnx.ai/onnx/operators/onnx__LRN.html)

    Args:
        x: Tensor of rank >= 2 and dtype bfloat16, float16, float32 or float64. The 16-bit types
            are computed in float32 and rounded once at the end.
        size: Integer >= 0. How many channels a window holds; it may exceed their number.
        alpha: Finite real number >= 0. The weight of the sum of squares, divided by `size`.
        beta: Finite real number. The exponent, not the offset that other normalizations call beta.
        bias: Finite real number >= 0, added to the weighted sum of squares. 0 is legal where
            `alpha` and `size` are above 0; where a whole window is zero, output and gradient are 0.
        axis: Integer. The channel axis; negative counts from the end. Not the batch axis 0.
        training: Boolean. Whether intermediate results may be kept for the backward pass.
        lda_coeff: Finite real number that multiplies the derivative sent back to `x`.
        jit_compile: `"auto"`, `True` (always run compiled by XLA) or `False` (never, unless a
            function around it is).
        name: Optional name of the output tensor in a traced graph.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: An argument, the rank or the dtype of `x` is not as described.

    Example:

    ```python
    import tensorflow as tf
    from keras_lrn import local_response_normalization

    x = tf.constant([[1.0, 2.0, 3.0]])
    y = local_response_normalization(x, 3, alpha=3.0, beta=1.0)
    # The scale is 1 + [1 + 4, 1 + 4 + 9, 4 + 9] = [6, 15, 14].
    tf.debugging.assert_near(y, [[1 / 6, 2 / 15, 3 / 14]])
    ```
    """
    formula = arguments.checked(
        size,
        alpha=alpha,
        beta=beta,
        bias=bias,
        axis=axis,
        lda_coeff=lda_coeff,
        name=name,
        jit_compile=jit_compile,
    )
    training = arguments.check_call_training(training)
    return normalize(x, formula, training, caller="local_response_normalization")


def normalize(
    x: Any, formula: Formula, training: bool | None, *, caller: str, dtype: str | None = None
) -> "tf.Tensor":
    """Checks the input and normalizes it; the result has `dtype`, or that of `x`."""
    if isinstance(x, keras.KerasTensor):
        raise ValueError(
            f"{caller} expects a tensor with values; in a functional model use the layer "
            f"LocalResponseNormalization. Received: x={x}"
        )
    x = backend.convert_to_tensor(x, caller)
    arguments.check_input(backend.shape_of(x), x.dtype.name, formula.axis, caller)
    return backend.normalize(x, formula, training, dtype)
