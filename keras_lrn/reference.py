"""Local response normalization in NumPy float64: slow, obvious, and what the tests compare with."""

from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64s = NDArray[np.float64]
Number = float | np.floating[Any] | np.integer[Any]


# Infinity and NaN go where the formula takes them: that is the answer, not a reason to warn.
@np.errstate(all="ignore")
def local_response_normalization(
    x: ArrayLike,
    size: SupportsIndex,
    *,
    alpha: SupportsFloat = 1e-4,
    beta: SupportsFloat = 0.75,
    bias: Number = 1.0,
    axis: SupportsIndex = -1,
) -> Float64s:
    """Normalizes `x` over a sliding window of neighbouring channels.

    For `C` channels along `axis`, `before = floor((size - 1) / 2)` and
    `after = ceil((size - 1) / 2)`:

        window(c) = { i : max(0, c - before) <= i <= min(C - 1, c + after) }
        S[c]      = bias + (alpha / size) * sum over window(c) of X[i]^2
        Y[c]      = X[c] * S[c]^(-beta)

    An even `size` has its extra channel on the higher side. Windows are cut at the first and last
    channel, and `alpha` is divided by `size` there too. `size=0` sums over no channels, so
    `S = bias`. With `bias=0`, `Y` is 0 wherever `S` is 0.

    Use it to check another implementation. Its gradient is `gradient` in this module.

    Reference:

    - [Krizhevsky et al., 2012, section 3.3](https://papers.nips.cc/paper/4824)
    - [The ONNX operator LRN](https://onnx.ai/onnx/operators/onnx__LRN.html)

    Args:
        x: Array of real numbers of rank >= 1. It is converted to float64 first.
        size: Integer >= 0. How many channels a window holds. It may exceed the number of channels.
        alpha: Real number. The weight of the sum of squares; it is divided by `size`.
        beta: Real number. The exponent, not an offset.
        bias: Real number. What is added to the weighted sum of squares.
        axis: Integer. The channel axis, any axis of `x`; negative counts from the end.

    Returns:
        A float64 array of the shape of `x`. NaN or infinity in one channel reaches only the
        channels whose window holds it.

    Raises:
        ValueError: `size` is not an integer >= 0, or `x` has no such `axis`.

    Example:

    ```python
    import numpy as np
    from keras_lrn import reference

    x = np.array([1.0, 2.0, 3.0])
    y = reference.local_response_normalization(x, 3, alpha=3.0, beta=1.0)
    # The scale is 1 + [1 + 4, 1 + 4 + 9, 4 + 9] = [6, 15, 14].
    np.testing.assert_allclose(y, [1 / 6, 2 / 15, 3 / 14])
    ```
    """
    size, alpha, beta = _python_numbers(size, alpha, beta)
    x = _channels_first(x, axis)
    scale = _scale(x, size, alpha, bias)
    return np.moveaxis(x * _power(scale, -beta), 0, axis)


@np.errstate(all="ignore")
def gradient(
    x: ArrayLike,
    upstream: ArrayLike,
    size: SupportsIndex,
    *,
    alpha: SupportsFloat = 1e-4,
    beta: SupportsFloat = 0.75,
    bias: Number = 1.0,
    axis: SupportsIndex = -1,
    lda_coeff: Number = 1.0,
) -> Float64s:
    """Carries the gradient `upstream` (dY) back through `local_response_normalization` to `x`.

    With `S`, `before` and `after` as in `local_response_normalization`:

        mirror(c) = { i : c is in window(i) }
                  = { i : max(0, c - after) <= i <= min(C - 1, c + before) }
        dX[c]     = lda_coeff * ( dY[c] * S[c]^(-beta)
                    - (2 * alpha * beta / size) * X[c]
                      * sum over mirror(c) of dY[i] * X[i] * S[i]^(-beta - 1) )

    `size=0` has no sum: `dX = lda_coeff * dY * bias^(-beta)`. With `bias=0`, channels where `S`
    is 0 contribute 0.

    Use it to check the gradient of another implementation.

    Reference:

    - [Krizhevsky et al., 2012, section 3.3](https://papers.nips.cc/paper/4824)
    - [The ONNX operator LRN](https://onnx.ai/onnx/operators/onnx__LRN.html)

    Args:
        x: Array of real numbers of rank >= 1. It is converted to float64 first.
        upstream: Array of the shape of `x`: the derivative of a loss with respect to the output.
        size: Integer >= 0. How many channels a window holds. It may exceed the number of channels.
        alpha: Real number. The weight of the sum of squares; it is divided by `size`.
        beta: Real number. The exponent, not an offset.
        bias: Real number. What is added to the weighted sum of squares.
        axis: Integer. The channel axis, any axis of `x`; negative counts from the end.
        lda_coeff: Real number. The whole derivative is multiplied by it.

    Returns:
        A float64 array of the shape of `x`: the derivative of the loss with respect to `x`.

    Raises:
        ValueError: `size` is not an integer >= 0, `x` has no such `axis`, or `upstream` differs
            from `x` in shape.

    Example:

    ```python
    import numpy as np
    from keras_lrn import reference

    x = np.array([1.0, 2.0, 3.0])
    upstream = np.array([0.0, 0.0, 1.0])
    dx = reference.gradient(x, upstream, 2, alpha=2.0, beta=1.0)
    # The last window holds the last channel alone: 1 / 10 - 2 * 3 * 3 / 10**2.
    np.testing.assert_allclose(dx, [0.0, 0.0, -0.08])
    ```
    """
    size, alpha, beta = _python_numbers(size, alpha, beta)
    if np.shape(upstream) != np.shape(x):
        raise ValueError(
            "`upstream` must have the shape of `x`. "
            f"Received: upstream.shape={np.shape(upstream)}, x.shape={np.shape(x)}"
        )
    x, upstream = _channels_first(x, axis), _channels_first(upstream, axis)
    scale = _scale(x, size, alpha, bias)
    terms = upstream * x * _power(scale, -beta - 1)
    mirror_sum = np.empty_like(x)
    channels = len(x)
    for c in range(channels):
        mirror_sum[c] = terms[_mirror(c, size, channels)].sum(axis=0)
    weight = 2 * beta * _alpha_over_size(alpha, size)
    dx = lda_coeff * (upstream * _power(scale, -beta) - weight * x * mirror_sum)
    return np.moveaxis(dx, 0, axis)


def _python_numbers(
    size: SupportsIndex, alpha: SupportsFloat, beta: SupportsFloat
) -> tuple[int, float, float]:
    if not isinstance(size, (int, np.integer)) or size < 0:
        raise ValueError(f"`size` must be an integer >= 0. Received: size={size!r}")
    # NumPy scalars would compute with one another in their own, perhaps narrow, dtype.
    return int(size), float(alpha), float(beta)


def _channels_first(x: ArrayLike, axis: SupportsIndex) -> Float64s:
    return np.moveaxis(np.asarray(x, np.float64), axis, 0)


def _scale(x: Float64s, size: int, alpha: float, bias: Number) -> Float64s:
    scale = np.empty_like(x)
    channels = len(x)
    for c in range(channels):
        window_sum = np.square(x[_window(c, size, channels)]).sum(axis=0)
        scale[c] = bias + _alpha_over_size(alpha, size) * window_sum
    return scale


def _window(c: int, size: int, channels: int) -> slice:
    before, after = _reach(size)
    return slice(max(0, c - before), min(channels - 1, c + after) + 1)


def _mirror(c: int, size: int, channels: int) -> slice:
    before, after = _reach(size)
    return slice(max(0, c - after), min(channels - 1, c + before) + 1)


def _reach(size: int) -> tuple[int, int]:
    # Size 0 reaches from one channel above itself up to itself: no channel at all.
    before = (size - 1) // 2
    return before, size - 1 - before


def _alpha_over_size(alpha: float, size: int) -> float:
    # With size 0 the sum that this multiplies is 0, so any finite value will do.
    return alpha / max(size, 1)


def _power(scale: Float64s, exponent: float) -> Float64s:
    # Only with bias 0 can a whole window sum to 0: nothing passes there, whatever the exponent.
    return np.where(scale == 0, 0.0, scale**exponent)
