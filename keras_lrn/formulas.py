"""The equations of local response normalization, once, for every backend.

With `weight = alpha / size`, `before = floor((size - 1) / 2)`, `after = ceil((size - 1) / 2)`:

    window(c) = { i : c - before <= i <= c + after }, cut at the first and last channel
    mirror(c) = { i : c is in window(i) }
    S[c]  = bias + sum over window(c) of weight * X[i]^2
    Y[c]  = X[c] * S[c]^(-beta)
    dX[c] = lda_coeff * ( dY[c] * S[c]^(-beta) - 2 * beta * X[c]
                          * sum over mirror(c) of dY[i] * S[i]^(-beta) * weight * X[i] / S[i] )

The weight stands inside the sums: outside it they would overflow or vanish with a large or small
`alpha`. The terms of the second sum are summed `LARGER` times larger, for with a bias above 0 they
may vanish and cannot overflow.

What is computed in float32 cannot be right where `S` is outside 1.2e-38 to 3.4e38, nor the gradient
where such a term `LARGER * dY * S^(-beta) * weight * X / S` that counts is outside. With
`size=1, alpha=1, beta=1` and `dY=1` it is about `1024 / X^3`: the gradient is right for `X=4e13`,
and for `X=1e15` it lacks its sum. A `bias` below 1.2e-38 counts as 0.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

Tensor = Any
NUMBERS = ("weight", "bias", "lda_coeff")
LARGER = 2.0**10


@dataclasses.dataclass(frozen=True)
class Ops:
    """What the equations need of a backend beside `+`, `-`, `*`, `<` and slices."""

    pad: Callable[[Tensor, int, int, int], Tensor]  # of a tensor: zeros before, after, on the axis
    multiply: Callable[[Tensor, Tensor, str | None], Tensor]  # and the name of the product
    sqrt: Callable[[Tensor], Tensor]
    rsqrt: Callable[[Tensor], Tensor]
    reciprocal: Callable[[Tensor], Tensor]
    power: Callable[[Tensor, float], Tensor]
    where: Callable[[Tensor, Tensor, Tensor], Tensor]
    zeros_like: Callable[[Tensor], Tensor]
    ones_like: Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equations:
    """The equations for tensors of float32 or float64 with so many channels along an axis.

    `NUMBERS` names the fields that may be tensors of the backend. `channels` is None where it is
    known only when the equations run. Scales below `least`, which is None where `bias` rules them
    out, count as 0: there a whole window is zero, and so are output and gradient.
    """

    ops: Ops
    size: int
    beta: float
    weight: Any
    bias: Any
    lda_coeff: Any
    axis: int
    channels: int | None
    least: float | None

    def scale(self, x: Tensor) -> Tensor:
        """`S`."""
        return self.bias + self.window_sum(self.weight * x * x)

    def forward(self, x: Tensor, scale: Tensor, name: str | None = None) -> Tensor:
        """`Y`, called `name` on a backend whose tensors have names."""
        power, _ = self.powers(scale)
        return self.ops.multiply(x, power, name)

    def backward(self, x: Tensor, scale: Tensor, upstream: Tensor) -> Tensor:
        """`dX` for the derivative `upstream` (`dY`) of the output."""
        power, reciprocal = self.powers(scale)
        passed = _times(self.lda_coeff, upstream) * power
        mirror_sum = self.mirror_sum(passed * (LARGER * self.weight * x * reciprocal))
        return passed - (2 * self.beta / LARGER) * x * mirror_sum

    def second_order(
        self, x: Tensor, scale: Tensor, upstream: Tensor, cotangent: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What `cotangent` (`V`) of `dX` sends back to `X` and to `dY` (`U`).

        With `p = S^(-beta)`, `q = 2 * beta * weight / S`, window sums `W` and mirror sums `M`:

            to U: lda_coeff * (p * V - p * q * X * W(V * X))
            to S: lda_coeff * U * p / S * ((beta + 1) * q * X * W(V * X) - beta * V)
            to X: 2 * X * M(weight * to S)
                  - lda_coeff * (V * M(U * p * q * X) + U * p * q * W(V * X))
        """
        power, reciprocal = self.powers(scale)
        cotangent = _times(self.lda_coeff, cotangent)
        passed, steepness = upstream * power, 2 * self.beta * self.weight * reciprocal
        window_sum = self.window_sum(cotangent * x)
        sloped = steepness * x * window_sum
        to_scale = passed * reciprocal * ((self.beta + 1) * sloped - self.beta * cotangent)
        to_x = 2 * x * self.mirror_sum(self.weight * to_scale) - (
            cotangent * self.mirror_sum(passed * steepness * x) + passed * steepness * window_sum
        )
        return to_x, power * (cotangent - sloped)

    def padded(self, x: Tensor) -> Tensor:
        """`x` between as many channels of zeros as windows reach beyond its own."""
        return self.ops.pad(x, *self.reach, self.axis)

    def scale_of_padded(self, padded: Tensor) -> Tensor:
        """`S` of an `x` that is padded already."""
        return self.bias + self._sum(self.weight * padded * padded)

    def without_padding(self, padded: Tensor) -> Tensor:
        """`x` of an `x` that is padded."""
        return _cut(padded, *self.reach, self.axis)

    def window_sum(self, values: Tensor) -> Tensor:
        """For each channel the sum over its window."""
        return self._sum(self.ops.pad(values, *self.reach, self.axis))

    def mirror_sum(self, values: Tensor) -> Tensor:
        """For each channel the sum over the channels whose windows hold it."""
        before, after = self.reach
        return self._sum(self.ops.pad(values, after, before, self.axis))

    def powers(self, scale: Tensor) -> tuple[Tensor, Tensor]:
        """`S^(-beta)` and `1 / S`; of an empty window 0 and 1."""
        if self.least is None:
            return self._powers_of_positive(scale)
        empty = scale < self.least
        power, reciprocal = self._powers_of_positive(
            self.ops.where(empty, self.ops.ones_like(scale), scale)
        )
        return self.ops.where(empty, self.ops.zeros_like(power), power), reciprocal

    @property
    def reach(self) -> tuple[int, int]:
        """How many channels a window holds below and above its own, where there are as many."""
        neighbours = max(self.size - 1, 0)
        before = neighbours // 2
        after = neighbours - before
        if self.channels is None:
            return before, after
        most = max(self.channels - 1, 0)
        return min(before, most), min(after, most)

    def _powers_of_positive(self, scale: Tensor) -> tuple[Tensor, Tensor]:
        # The exponents of published models have roots, which cost a fraction of a general power.
        if self.beta == 0.75:
            root = self.ops.rsqrt(self.ops.sqrt(scale))
            square = root * root
            return square * root, square * square
        if self.beta == 0.5:
            root = self.ops.rsqrt(scale)
            return root, root * root
        reciprocal = self.ops.reciprocal(scale)
        return (reciprocal if self.beta == 1 else self.ops.power(scale, -self.beta)), reciprocal

    def _sum(self, padded: Tensor) -> Tensor:
        if self.size == 0:
            return self.ops.zeros_like(padded)
        before, after = self.reach
        return sum_by_doubling(padded, before + 1 + after, self.axis)


def sum_by_doubling(values: Tensor, length: int, axis: int) -> Tensor:
    """Sums each channel and those above it, `length` in all, for all that have so many."""
    if length == 1:
        return values
    half, odd = length // 2, length % 2
    halves = sum_by_doubling(values, half, axis)
    total = _cut(halves, 0, half + odd, axis) + _cut(halves, half, odd, axis)
    return total + _cut(values, length - 1, 0, axis) if odd else total


def _cut(tensor: Tensor, low: int, high: int, axis: int) -> Tensor:
    """The tensor without its first `low` and last `high` channels."""
    if low == high == 0:
        return tensor
    return tensor[(slice(None),) * axis + (slice(low, -high or None),)]


def _times(number: Any, tensor: Tensor) -> Tensor:
    """`number * tensor`, where a plain 1 costs no multiplication."""
    return tensor if isinstance(number, float) and number == 1 else number * tensor
