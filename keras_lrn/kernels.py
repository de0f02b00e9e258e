"""The formulas in plain TensorFlow ops, and their twins compiled by XLA.

`forward` and `backward` are what the layer means. `compiled` and `blockwise` run these two faster
on a CPU and change nothing else.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

# Elements in a block of `blockwise`: small enough to stay in a core's cache, large enough that
# stepping from block to block costs little beside it.
BLOCK_ELEMENTS = 2**18


class Formula(NamedTuple):
    """The numbers in the equations, as plain Python numbers."""

    size: int
    alpha: float
    beta: float
    bias: float
    lda_coeff: float


def forward(x, formula, axis, name=None, padded=None):
    """`Y = X * S^(-beta)`, and the scale `S`; `padded` is `x` between zeros, if at hand."""
    values = _at_least_float32(x)
    scale = _scale(values, formula, axis, padded)
    power, _ = _powers(scale, formula)
    if x.dtype == values.dtype:
        return tf.multiply(values, power, name=name), scale
    return tf.cast(values * power, x.dtype, name=name), scale


def backward(x, upstream, formula, axis, scale=None, padded=None):
    """`dX` for the derivative `upstream` of the output; computes the scale if it was not kept."""
    if formula.lda_coeff == 0:
        return tf.zeros_like(x)
    values, upstream = _at_least_float32(x), _at_least_float32(upstream)
    if scale is None:
        # Without the wait a graph would compute the scale in advance, and hold on to it.
        with tf.control_dependencies([upstream]):
            values = tf.identity(values)
        scale = _scale(values, formula, axis, padded)
    power, reciprocal = _powers(scale, formula)
    passed = upstream * power if formula.lda_coeff == 1 else formula.lda_coeff * upstream * power
    dx = passed
    if formula.size and formula.alpha and formula.beta:
        before, after = _reach(formula.size, x.shape[axis])
        # S^(-beta-1) as two factors, which neither overflow nor underflow where it would.
        mirror_sum = window_sum(passed * (values * reciprocal), after, before, axis)
        weight = 2 * formula.alpha * formula.beta / formula.size
        dx = passed - weight * values * mirror_sum
    return tf.cast(dx, x.dtype)


def backward_gradients(x, upstream, cotangent, formula, axis):
    """What `cotangent` of `dX` sends back through `backward` to `x` and to `upstream`.

    With `p = S^(-beta)`, `q = p / S`, `r = q / S`, `w = 2 * alpha * beta / size`, `V` the
    cotangent, `U` upstream, and window sums `W` and mirror sums `M`:

        to U: lda_coeff * (p * V - w * q * X * W(V * X))
        to X: lda_coeff * ((2 * alpha / size) * X * M(to S)
              - w * (V * M(U * X * q) + U * q * W(V * X)))
        to S: w * (beta + 1) * r * U * X * W(V * X) - beta * q * U * V
    """
    if formula.lda_coeff == 0:
        return tf.zeros_like(x), tf.zeros_like(upstream)
    dtype, (x, upstream, cotangent) = x.dtype, map(_at_least_float32, (x, upstream, cotangent))
    scale = _scale(x, formula, axis)
    power, reciprocal = _powers(scale, formula)
    cotangent = formula.lda_coeff * cotangent
    to_upstream, to_x = power * cotangent, tf.zeros_like(x)
    if formula.size and formula.alpha and formula.beta:
        before, after = _reach(formula.size, x.shape[axis])
        weight = 2 * formula.alpha * formula.beta / formula.size
        steeper = power * reciprocal
        competing = window_sum(cotangent * x, before, after, axis)
        to_upstream -= weight * steeper * x * competing
        passed = upstream * steeper
        mirror_sum = window_sum(passed * x, after, before, axis)
        to_scale = passed * (
            weight * (formula.beta + 1) * reciprocal * x * competing - formula.beta * cotangent
        )
        to_x = (2 * formula.alpha / formula.size) * x * window_sum(to_scale, after, before, axis)
        to_x -= weight * (cotangent * mirror_sum + passed * competing)
    return tf.cast(to_x, dtype), tf.cast(to_upstream, dtype)


def window_sum(values, before, after, axis):
    """Sums, for each channel, itself, `before` channels below it and `after` above it."""
    return _sum_by_doubling(_pad(values, before, after, axis), before + 1 + after, axis)


def unrecorded(tensor):
    """The tensor as a constant, so that an eager tape keeps nothing of what is done with it."""
    return tf.stop_gradient(tensor) if tf.executing_eagerly() else tensor


def compiled(kernel, formula, axis, x, *others, padded=None):
    """Runs `forward_only` or `backward` on whole tensors: one XLA program for each shape.

    Returns the result and, in a graph, `x` between zeros. A backward pass that gets it as `padded`
    neither pads again nor reads `x`.
    """
    if tf.executing_eagerly():
        return _traced(compiled, kernel, formula, axis, x, *others)[0], None
    channels = x.shape[axis]
    if padded is None:
        # Without the wait a graph would pad in advance, and hold on to it.
        with tf.control_dependencies(others):
            padded = _pad(_channels_second(x, axis), *_reach(formula.size, channels), 1)
    views = [padded, *(_channels_second(tensor, axis) for tensor in others)]
    shapes = [tuple(view.shape) for view in views]
    program = _program(_of_padded(kernel, channels), formula, padded.dtype, *shapes)
    return _with_shape_of(x, program(*views)), padded


def blockwise(kernel, formula, axis, *tensors):
    """Runs `forward_only` or `backward` block by block: one XLA program for every shape."""
    if tf.executing_eagerly():
        return _traced(blockwise, kernel, formula, axis, *tensors)
    rank = tensors[0].shape.rank
    if axis == rank - 1:
        views = [_channels_second(tensor, axis) for tensor in tensors]
        return _with_shape_of(tensors[0], _block_by_block(kernel, formula, views))
    there = [d for d in range(rank) if d != axis] + [axis]
    back = [there.index(d) for d in range(rank)]
    moved = [tf.transpose(tensor, there) for tensor in tensors]
    return tf.transpose(blockwise(kernel, formula, rank - 1, *moved), back)


def forward_only(x, formula, axis, padded=None):
    """`forward` without the scale."""
    return forward(x, formula, axis, padded=padded)[0]


def _at_least_float32(tensor):
    return tensor if tensor.dtype in (tf.float32, tf.float64) else tf.cast(tensor, tf.float32)


def _scale(values, formula, axis, padded=None):
    if formula.size == 0 or formula.alpha == 0:
        return tf.constant(formula.bias, values.dtype)
    before, after = _reach(formula.size, values.shape[axis])
    if padded is None:
        sum_of_squares = window_sum(values * values, before, after, axis)
    else:
        padded = _at_least_float32(padded)
        sum_of_squares = _sum_by_doubling(padded * padded, before + 1 + after, axis)
    return formula.bias + (formula.alpha / formula.size) * sum_of_squares


def _reach(size, channels):
    """How many channels a window holds below and above its own, of so many as there can be."""
    neighbours = max(size - 1, 0)
    reach = neighbours // 2, neighbours - neighbours // 2
    return reach if channels is None else tuple(min(n, max(channels - 1, 0)) for n in reach)


def _powers(scale, formula):
    """`S^(-beta)` and `1 / S`."""
    if formula.bias == 0:
        # Where a whole window is zero nothing passes; 1 stands in so that no NaN arises there.
        empty = tf.equal(scale, 0)
        power, reciprocal = _roots(tf.where(empty, tf.ones_like(scale), scale), formula.beta)
        return tf.where(empty, tf.zeros_like(power), power), reciprocal
    return _roots(scale, formula.beta)


def _roots(scale, beta):
    # The exponents of published models have roots, which cost a fraction of a general power.
    if beta == 0.75:
        root = tf.math.rsqrt(tf.sqrt(scale))
        square = root * root
        return square * root, square * square
    if beta == 0.5:
        root = tf.math.rsqrt(scale)
        return root, root * root
    reciprocal = tf.math.reciprocal(scale)
    return (reciprocal if beta == 1 else tf.pow(scale, -beta)), reciprocal


def _sum_by_doubling(values, length, axis):
    """Sums each channel and those above it, `length` in all, for all that have so many."""
    if length == 1:
        return values
    half, odd = divmod(length, 2)
    halves = _sum_by_doubling(values, half, axis)
    total = _cut(halves, axis, 0, half + odd) + _cut(halves, axis, half, odd)
    return total + _cut(values, axis, length - 1, 0) if odd else total


def _pad(tensor, before, after, axis):
    """The tensor with `before` zeros below its first channel and `after` above its last."""
    if before == after == 0:
        return tensor
    padding = [[0, 0]] * tensor.shape.rank
    padding[axis] = [before, after]
    return tf.pad(tensor, padding)


def _cut(tensor, axis, low, high):
    """The tensor without its first `low` and last `high` channels."""
    if low == high == 0:
        return tensor
    return tensor[(slice(None),) * axis + (slice(low, -high or None),)]


def _channels_second(tensor, axis):
    """A view [positions, channels], or [outer, channels, inner] where channels are not last."""
    shape, channels = tf.shape(tensor), tensor.shape[axis]
    outer = tf.reduce_prod(shape[:axis])
    if axis == tensor.shape.rank - 1:
        return tf.ensure_shape(tf.reshape(tensor, [outer, shape[axis]]), [None, channels])
    inner = tf.reduce_prod(shape[axis + 1 :])
    view = tf.reshape(tensor, [outer, shape[axis], inner])
    return tf.ensure_shape(view, [None, channels, None])


def _with_shape_of(tensor, view):
    return tf.ensure_shape(tf.reshape(view, tf.shape(tensor)), tensor.shape)


def _traced(run, kernel, formula, axis, *tensors):
    """Calls `compiled` or `blockwise` as one graph, which an eager caller enters in one step."""
    shape = [None] * tensors[0].shape.rank
    shape[axis] = tensors[0].shape[axis]
    graph = _graph(run, kernel, formula, axis, len(tensors), tensors[0].dtype, tuple(shape))
    return graph(*tensors)


@functools.cache
def _graph(run, kernel, formula, axis, count, dtype, shape):
    @tf.function(input_signature=[tf.TensorSpec(shape, dtype)] * count, autograph=False)
    def graph(*tensors):
        return run(kernel, formula, axis, *tensors)

    # Concrete, or TensorFlow would warn that several functions of this name are one that retraces.
    return graph.get_concrete_function()


@functools.cache
def _of_padded(kernel, channels):
    """The kernel as a function of `x` padded instead of `x`, which had so many channels."""

    def of_padded(padded, *others):
        *_, formula, axis = others
        x = _cut(padded, axis, *_reach(formula.size, channels))
        return kernel(x, *others, padded=padded)

    return of_padded


@functools.cache
def _program(kernel, formula, dtype, *shapes):
    signature = [tf.TensorSpec([None, *shape[1:]], dtype) for shape in shapes]

    @tf.function(input_signature=signature, jit_compile=True, autograph=False)
    def program(*views):
        return kernel(*views, formula, 1)

    return program.get_concrete_function()


def _block_by_block(kernel, formula, views):
    dtype, channels = views[0].dtype, views[0].shape[1]
    rows_per_block = max(1, BLOCK_ELEMENTS // max(channels, 1))
    program = _program(kernel, formula, dtype, *[(None, channels)] * len(views))
    rows = tf.shape(views[0])[0]
    full = tf.maximum(rows - 1, 0) // rows_per_block  # leaves 1 to `rows_per_block` rows
    start = full * rows_per_block
    blocks = tf.TensorArray(dtype, full + 1, element_shape=[None, channels], infer_shape=False)

    def step(block, blocks):
        low = block * rows_per_block
        part = [view[low : low + rows_per_block] for view in views]
        return block + 1, blocks.write(block, program(*part))

    _, blocks = tf.while_loop(lambda block, _: block < full, step, [0, blocks])
    # The rest is filled up with zeros to a whole block, so that it needs no program of its own.
    missing = rows_per_block - (rows - start)
    rest = program(*[tf.pad(view[start:], [[0, missing], [0, 0]]) for view in views])
    return blocks.write(full, rest[: rows - start]).concat()
