"""Local response normalization of tensors: the checks, and the call of Keras's backend."""

from typing import TYPE_CHECKING, Any, Never, SupportsFloat, SupportsIndex

import keras

from keras_lrn import arguments, backend, foreign
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
    **unknown: Never,
) -> "tf.Tensor":
    """Normalizes a tensor over a sliding window of neighbouring channels.

    For `C` channels along `axis`, `before = floor((size - 1) / 2)` and
    `after = ceil((size - 1) / 2)`, the output `Y` and the derivative `dX` sent back are:

        window(c) = { i : max(0, c - before) <= i <= min(C - 1, c + after) }
        mirror(c) = { i : c is in window(i) }
        S[c]  = bias + (alpha / size) * sum over window(c) of X[i]^2
        Y[c]  = X[c] * S[c]^(-beta)
        dX[c] = lda_coeff * ( dY[c] * S[c]^(-beta) - (2 * alpha * beta / size) * X[c]
                              * sum over mirror(c) of dY[i] * X[i] * S[i]^(-beta - 1) )

    It is `keras_lrn.LocalResponseNormalization` without a layer. The output keeps the dtype of `x`
    exactly.

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
        training: Boolean or `None`. `True` in training: intermediate results may be kept for the
            backward pass, and in a graph of known image size both passes are compiled. `False` in
            inference, `None` where nothing is known.
        lda_coeff: Finite real number that multiplies the derivative sent back to `x`.
        jit_compile: `"auto"` compiles with XLA what gains by it. `True` also compiles inference
            (`training=False`) in a graph of known image size, and training in one of unknown image
            size. `False` compiles nothing, unless a function around it is compiled.
        name: Optional name of the output tensor in a traced graph.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: An argument, the rank or the dtype of `x` is not as described.
        TypeError: An argument is one of other code, such as `k`, `n` or `depth_radius`.

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
    foreign.refuse(unknown)
    if unknown:
        raise TypeError(
            "local_response_normalization got an argument that it does not have. "
            f"Received: {', '.join(f'{key}={unknown[key]!r}' for key in unknown)}"
        )
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
