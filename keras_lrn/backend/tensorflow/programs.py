"""The forward and the backward pass as XLA programs, on whole tensors or block by block.

A program depends on size, beta, dtype and shape. alpha, bias and lda_coeff are its inputs, so that
a search over them compiles nothing new.
"""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from keras_lrn.backend.tensorflow.tensors import shape_of, wide, wide_dtype
from keras_lrn.formulas import Equations

# `forward` or `backward`, and the functions made of them.
Kernel = Callable[..., tf.Tensor]

# So many programs are kept; the one that was not used for longest makes room for the next.
PROGRAMS = 128
# Elements in a block: few enough that their partial sums stay in a core's cache, and enough that
# stepping from block to block costs little beside them.
BLOCK_ELEMENTS = 2**18


def forward(equations: Equations, padded: tf.Tensor) -> tf.Tensor:
    """The output for an `x` that comes padded."""
    values = wide(padded)
    y = equations.forward(equations.without_padding(values), equations.scale_of_padded(values))
    return tf.cast(y, padded.dtype)


def backward(equations: Equations, padded: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """`dX` for an `x` that comes padded, and the derivative of its output."""
    values = wide(padded)
    x, scale = equations.without_padding(values), equations.scale_of_padded(values)
    return tf.cast(equations.backward(x, scale, wide(upstream)), padded.dtype)


def padded_view(x: tf.Tensor, equations: Equations) -> tf.Tensor:
    """What `run` takes for `x`: padded, with the channels second."""
    return _of_views(equations).padded(_view(x, equations.axis))


def run(
    kernel: Kernel,
    x: tf.Tensor,
    equations: Equations,
    padded: tf.Tensor,
    *others: tf.Tensor,
) -> tf.Tensor:
    """Runs `forward` or `backward` on whole tensors, for a graph; the result has the shape of `x`.

    XLA compiles once for each shape. `padded` is `padded_view(x)`; `others` have the shape of `x`.
    """
    program = _program(kernel, _of_views(equations), x.dtype, padded.shape.rank)
    views = [_view(tensor, equations.axis) for tensor in others]
    return _with_shape_of(x, program(_numbers(equations, x), padded, *views))


def run_in_blocks(
    kernel: Kernel, x: tf.Tensor, equations: Equations, *others: tf.Tensor
) -> tf.Tensor:
    """Runs `forward` or `backward` block by block, for eager calls: one program for all shapes."""
    axis, rank = equations.axis, x.shape.rank
    last = [*range(axis), *range(axis + 1, rank), axis]
    tensors = [x, *others] if axis == rank - 1 else [tf.transpose(t, last) for t in (x, *others)]
    views = [_view(tensor, rank - 1) for tensor in tensors]
    loop = _loop(kernel, _of_views(equations), x.dtype)
    result = _with_shape_of(tensors[0], loop(_numbers(equations, x), *views))
    return result if axis == rank - 1 else tf.transpose(result, tf.math.invert_permutation(last))


def _of_views(equations: Equations) -> Equations:
    """What a program depends on: the equations along axis 1, without their three numbers."""
    return dataclasses.replace(equations, weight=None, bias=None, lda_coeff=None, axis=1)


def _numbers(equations: Equations, x: tf.Tensor) -> tf.Tensor:
    return tf.constant([equations.weight, equations.bias, equations.lda_coeff], wide_dtype(x.dtype))


@functools.lru_cache(PROGRAMS)
def _program(kernel: Kernel, equations: Equations, dtype: tf.DType, rank: int) -> Kernel:
    """One compiled function of the three numbers, of `x` padded and of tensors of its shape."""
    channels, inner = equations.channels, [None] * (rank - 2)
    padded_channels = None if channels is None else channels + sum(equations.reach)
    signature = [
        tf.TensorSpec([3], wide_dtype(dtype)),
        tf.TensorSpec([None, padded_channels, *inner], dtype),
        tf.TensorSpec([None, channels, *inner], dtype),
    ]

    @tf.function(
        input_signature=signature[: 2 if kernel is forward else 3],
        jit_compile=True,
        autograph=False,
    )
    def program(numbers, padded, *others):
        weight, bias, lda_coeff = tf.unstack(numbers)
        complete = dataclasses.replace(equations, weight=weight, bias=bias, lda_coeff=lda_coeff)
        return kernel(complete, padded, *others)

    # Outside the graph of the first caller, which may be a loop or on another device.
    with tf.init_scope():
        return program.get_concrete_function()


@functools.lru_cache(PROGRAMS)
def _loop(kernel: Kernel, equations: Equations, dtype: tf.DType) -> Kernel:
    """A function of the three numbers and of [positions, channels], which it cuts into blocks."""
    channels = equations.channels
    rows = max(1, BLOCK_ELEMENTS // max(channels, 1))
    program = _program(kernel, equations, dtype, 2)
    view = tf.TensorSpec([None, channels], dtype)

    @tf.function(
        input_signature=[tf.TensorSpec([3], wide_dtype(dtype)), view, view][
            : 2 if kernel is forward else 3
        ],
        autograph=False,
    )
    def loop(numbers, *views):
        def of_block(x, *others):
            return program(numbers, equations.padded(x), *others)

        def step(block, blocks):
            low = block * rows
            parts = [view[low : low + rows] for view in views]
            return block + 1, blocks.write(block, of_block(*parts))

        positions = tf.shape(views[0])[0]
        full = tf.maximum(positions - 1, 0) // rows  # leaves 1 to `rows` positions
        blocks = tf.TensorArray(dtype, full + 1, element_shape=[None, channels], infer_shape=False)
        _, blocks = tf.while_loop(lambda block, _: block < full, step, [0, blocks])
        # The rest is filled up with zeros to a whole block, so that it needs no program of its own.
        start = full * rows
        missing = rows - (positions - start)
        rest = of_block(*[tf.pad(view[start:], [[0, missing], [0, 0]]) for view in views])
        return blocks.write(full, rest[: positions - start]).concat()

    return loop.get_concrete_function()


def _view(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """[positions, channels], or [outer, channels, inner] where channels are not last."""
    shape, rank = tf.shape(tensor), tensor.shape.rank
    channels = shape_of(tensor)[axis]
    lengths = [tf.reduce_prod(shape[:axis]), shape[axis]]
    if axis < rank - 1:
        lengths.append(tf.reduce_prod(shape[axis + 1 :]))
    view = tf.reshape(tensor, lengths)
    view.set_shape([None, channels, None][: len(lengths)])
    return view


def _with_shape_of(tensor: tf.Tensor, view: tf.Tensor) -> tf.Tensor:
    result = tf.reshape(view, tf.shape(tensor))
    result.set_shape(tensor.shape)
    return result
