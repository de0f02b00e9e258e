"""The forward and the backward pass as XLA programs, on whole tensors or block by block.

A program depends on size, beta, dtype and shape. alpha, bias and lda_coeff are its inputs, so that
a search over them compiles nothing new.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_lrn.backend.tensorflow.tensors import shape_of, wide, wide_dtype
from keras_lrn.formulas import NUMBERS, Equations

# One of the four kernels below, or a function made of it.
Kernel = Callable[..., tf.Tensor]

# So many programs are kept; the one that was not used for longest makes room for the next.
PROGRAMS = 128
# Elements in a block. Of 32 images, 2^16 take 1.3 to 1.8 times the time and 2^20 0.9 to 1.0 times;
# of one image, whose last block is filled up with zeros, 2^16 take 0.9 and 2^20 1.3 to 1.6 times.
BLOCK_ELEMENTS = 2**18


# The numbers come to a kernel as rows, as long as the last axis of `x`, and as scalars. XLA's
# loops are as fast with a row as with a constant; with a scalar the backward pass takes 1.6 times
# the time. Only a loop over padded channels, where a row does not fit, has a scalar.


def forward(rows: Equations, scalars: Equations, x: tf.Tensor) -> tf.Tensor:
    """The output for `x`."""
    values = wide(x)
    return tf.cast(rows.forward(values, rows.scale(values)), x.dtype)


def backward(rows: Equations, scalars: Equations, x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """`dX` for `x` and the derivative of its output."""
    values = wide(x)
    return tf.cast(rows.backward(values, rows.scale(values), wide(upstream)), x.dtype)


def forward_of_padded(rows: Equations, scalars: Equations, padded: tf.Tensor) -> tf.Tensor:
    """The output for an `x` that comes padded."""
    values = wide(padded)
    scale = scalars.scale_of_padded(values)
    return tf.cast(scalars.forward(scalars.without_padding(values), scale), padded.dtype)


def backward_of_padded(
    rows: Equations, scalars: Equations, padded: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    """`dX` for an `x` that comes padded, and the derivative of its output."""
    values = wide(padded)
    scale = scalars.scale_of_padded(values)
    return tf.cast(rows.backward(rows.without_padding(values), scale, wide(upstream)), padded.dtype)


def run(kernel: Kernel, x: tf.Tensor, equations: Equations, *tensors: tf.Tensor) -> tf.Tensor:
    """Runs a kernel on whole tensors, for a graph; the result has the shape of `x`.

    XLA compiles it once for each shape.
    """
    axis = equations.axis
    lengths = [_lengths(tensor, axis) for tensor in tensors]
    views = [tf.reshape(*pair) for pair in zip(tensors, lengths, strict=True)]
    widths = tuple(tensor.shape.as_list()[axis] for tensor in tensors)
    program = _program(kernel, _of_views(equations), x.dtype, views[0].shape.rank, widths)
    rows = _rows(_numbers(equations, x.dtype), _lengths(x, axis)[-1])
    return _with_shape_of(x, program(rows, *views))


def run_in_blocks(
    kernel: Kernel, x: tf.Tensor, equations: Equations, *tensors: tf.Tensor
) -> tf.Tensor:
    """Runs a kernel block by block, for eager calls; one program serves every shape."""
    axis, rank = equations.axis, x.shape.rank
    there = [*range(axis), *range(axis + 1, rank), axis]
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    if axis < rank - 1:
        tensors = tuple(tf.transpose(tensor, there) for tensor in tensors)
    views = [tf.reshape(tensor, _lengths(tensor, rank - 1)) for tensor in tensors]
    loop = _loop(kernel, _of_views(equations), x.dtype, len(views))
    result = _with_shape_of(tensors[0], loop(_numbers(equations, x.dtype), *views))
    return tf.transpose(result, back) if axis < rank - 1 else result


def _of_views(equations: Equations) -> Equations:
    """What a program depends on: the equations along axis 1, without their numbers."""
    none: dict[str, Any] = dict.fromkeys(NUMBERS)
    return dataclasses.replace(equations, axis=1, **none)


def _numbers(equations: Equations, dtype: tf.DType) -> tf.Tensor:
    return tf.constant([[getattr(equations, name)] for name in NUMBERS], wide_dtype(dtype))


def _rows(numbers: tf.Tensor, length: Any) -> tf.Tensor:
    # Not empty where `x` is: a program takes the scalars from the rows.
    return tf.broadcast_to(numbers, [len(NUMBERS), tf.maximum(length, 1)])


@functools.lru_cache(PROGRAMS)
def _program(
    kernel: Kernel,
    equations: Equations,
    dtype: tf.DType,
    rank: int,
    widths: tuple[int | None, ...],
) -> Kernel:
    """One compiled function of the numbers and of tensors with so many channels each."""
    views = [tf.TensorSpec([None, width, None][:rank], dtype) for width in widths]
    numbers = tf.TensorSpec([len(NUMBERS), None], wide_dtype(dtype))

    @tf.function(input_signature=[numbers, *views], jit_compile=True, autograph=False)
    def program(numbers: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
        rows, scalars = (
            dataclasses.replace(equations, **dict(zip(NUMBERS, tf.unstack(of), strict=True)))
            for of in (numbers, numbers[:, 0])
        )
        return kernel(rows, scalars, *tensors)

    # Outside the graph of the first caller, which may be a loop or on another device.
    with tf.init_scope():
        return program.get_concrete_function()


@functools.lru_cache(PROGRAMS)
def _loop(kernel: Kernel, equations: Equations, dtype: tf.DType, count: int) -> Kernel:
    """A function of the numbers and of so many [positions, channels], cut into blocks."""
    channels = equations.channels or 0  # known, as everything is in eager execution
    rows = max(1, BLOCK_ELEMENTS // max(channels, 1))
    program = _program(kernel, equations, dtype, 2, (channels,) * count)
    view = tf.TensorSpec([None, channels], dtype)
    numbers = tf.TensorSpec([len(NUMBERS), 1], wide_dtype(dtype))

    @tf.function(input_signature=[numbers, *[view] * count], autograph=False)
    def loop(numbers: tf.Tensor, *views: tf.Tensor) -> tf.Tensor:
        numbers = _rows(numbers, channels)

        def step(block: tf.Tensor, blocks: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            low = block * rows
            parts = [view[low : low + rows] for view in views]
            return block + 1, blocks.write(block, program(numbers, *parts))

        positions = tf.shape(views[0])[0]
        full = tf.maximum(positions - 1, 0) // rows  # leaves 1 to `rows` positions
        blocks = tf.TensorArray(dtype, full + 1, element_shape=[None, channels], infer_shape=False)
        _, blocks = tf.while_loop(lambda block, _: block < full, step, [0, blocks])
        # The rest is filled up with zeros to a whole block, so that it needs no program of its own.
        start = full * rows
        missing = rows - (positions - start)
        rest = program(numbers, *[tf.pad(view[start:], [[0, missing], [0, 0]]) for view in views])
        return blocks.write(full, rest[: positions - start]).concat()

    with tf.init_scope():
        return loop.get_concrete_function()


def _lengths(tensor: tf.Tensor, axis: int) -> list[Any]:
    """Of a view: positions and channels; or outer, channels and inner where they are not last."""
    shape, product = _shape(tensor)
    lengths = [product(shape[:axis]), shape[axis]]
    if axis < tensor.shape.rank - 1:
        lengths.append(product(shape[axis + 1 :]))
    return lengths


def _with_shape_of(tensor: tf.Tensor, view: tf.Tensor) -> tf.Tensor:
    result = tf.reshape(view, _shape(tensor)[0])
    result.set_shape(tensor.shape)
    return result


def _shape(tensor: tf.Tensor) -> tuple[Any, Callable[[Any], Any]]:
    """The shape, and what multiplies lengths: in Python where all are known, as in eager calls."""
    if tensor.shape.is_fully_defined():
        return shape_of(tensor), math.prod
    return tf.shape(tensor), tf.reduce_prod
