"""Tensors of TensorFlow: the input, the dtype of its computation, and the equations for it."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_lrn.arguments import Formula
from keras_lrn.formulas import Equations, Ops


def convert_to_tensor(x: Any, caller: str) -> tf.Tensor:
    """The input as a dense tensor, or an error that names the caller."""
    for kind, convert in (
        (tf.RaggedTensor, "`to_tensor()`"),
        (tf.SparseTensor, "`tf.sparse.to_dense`"),
    ):
        if isinstance(x, kind):
            raise ValueError(
                f"{caller} expects a dense input; convert it with {convert} first. "
                f"Received: a {kind.__name__}"
            )
    try:
        return tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{caller} expects one tensor. Received: {x!r}") from error


def shape_of(tensor: tf.Tensor) -> tuple[int | None, ...] | None:
    """The lengths of the dimensions, as plain numbers in TensorFlow 1 too; None is unknown."""
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


def equations(x: tf.Tensor, formula: Formula) -> Equations:
    """The equations along the channel axis of `x`, which are computed on `wide(x)`."""
    axis = formula.axis % x.shape.rank
    least = float(np.finfo(wide_dtype(x.dtype).as_numpy_dtype).tiny)
    return Equations(
        ops=OPS,
        size=formula.size,
        beta=formula.beta,
        weight=formula.alpha / max(formula.size, 1),
        bias=formula.bias,
        lda_coeff=formula.lda_coeff,
        axis=axis,
        channels=x.shape.as_list()[axis],
        least=least if formula.bias < least else None,
    )


def wide(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor in float32 if its dtype has 16 bits."""
    return tf.cast(tensor, wide_dtype(tensor.dtype))


def wide_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype in which a tensor of `dtype` is computed."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def _pad(tensor: tf.Tensor, before: int, after: int, axis: int) -> tf.Tensor:
    if before == after == 0:
        return tensor
    paddings = [[0, 0]] * tensor.shape.rank
    paddings[axis] = [before, after]
    return tf.pad(tensor, paddings)


OPS = Ops(
    pad=_pad,
    multiply=tf.multiply,
    sqrt=tf.sqrt,
    rsqrt=tf.math.rsqrt,
    reciprocal=tf.math.reciprocal,
    power=tf.pow,
    where=tf.where,
    zeros_like=tf.zeros_like,
    ones_like=tf.ones_like,
)
