"""The custom gradient around whichever way a call runs."""

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util  # not public, see `_carries_a_tangent`

from keras_lrn.arguments import Formula, wider
from keras_lrn.backend.tensorflow import ways
from keras_lrn.backend.tensorflow.tensors import equations, wide
from keras_lrn.formulas import Equations


def normalize(
    x: tf.Tensor, formula: Formula, training: bool | None, dtype: str | None = None
) -> tf.Tensor:
    """Normalizes `x`; the result has `dtype`, or that of `x`, and is rounded to it once."""
    dtype = dtype or x.dtype.name
    # In a scope of their own no other op has the name of the output, so that it is not numbered.
    with tf.name_scope("local_response_normalization"):
        x = tf.cast(x, wider(x.dtype.name, dtype))
        name = formula.name if x.dtype == dtype else None
        these = equations(x, formula)
        y = _with_gradient(x, these, *ways.choose(x, these, formula, training, name))
    if x.dtype != dtype:
        return tf.cast(y, dtype, name=formula.name)
    return y if formula.name is None else tf.identity(y, name=formula.name)


def _with_gradient(
    x: tf.Tensor, equations: Equations, forward: ways.Forward, backward: ways.Backward
) -> tf.Tensor:
    # The second derivative is a formula too, not the tape's of the first: in eager execution that
    # holds 5 tensors instead of 34, forward mode needs it, and no compiled program is taken apart.
    @tf.custom_gradient
    def normalized(x: tf.Tensor) -> Any:
        y, kept = forward(_unrecorded(x))

        @tf.custom_gradient
        def derivative(x: tf.Tensor, upstream: tf.Tensor) -> Any:
            if equations.lda_coeff == 0:
                dx = tf.zeros_like(x)
            else:
                dx = backward(_unrecorded(x), _unrecorded(upstream), kept)
            return dx, lambda cotangent: _second_order(x, upstream, cotangent, equations)

        # As a tensor of the backward graph: forward mode over a traced call looks for `x` there.
        return y, lambda upstream: derivative(tf.identity(x), _dense(upstream, x))

    if not tf.executing_eagerly() and _carries_a_tangent(x):
        # In a graph forward mode goes past a custom gradient, but not past that of a function.
        return tf.function(normalized, autograph=False)(x)
    return normalized(x)


def _second_order(
    x: tf.Tensor, upstream: tf.Tensor, cotangent: tf.Tensor, equations: Equations
) -> tuple[tf.Tensor, tf.Tensor]:
    if equations.lda_coeff == 0:
        return tf.zeros_like(x), tf.zeros_like(upstream)
    values = wide(x)
    to_x, to_upstream = equations.second_order(
        values, equations.scale(values), wide(upstream), wide(_dense(cotangent, x))
    )
    return tf.cast(to_x, x.dtype), tf.cast(to_upstream, x.dtype)


def _dense(derivative: tf.Tensor | tf.IndexedSlices, like: tf.Tensor) -> tf.Tensor:
    """The derivative of `like` as a tensor; behind a gather it arrives in slices."""
    if not isinstance(derivative, tf.IndexedSlices):
        return derivative
    rows = tf.shape(like, out_type=derivative.indices.dtype)[0]
    dense = tf.math.unsorted_segment_sum(derivative.values, derivative.indices, rows)
    return tf.reshape(dense, tf.shape(like))


def _unrecorded(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor as a constant, so that an eager tape keeps nothing of what is done with it."""
    return tf.stop_gradient(tensor) if tf.executing_eagerly() else tensor


def _carries_a_tangent(x: tf.Tensor) -> bool:
    # Not public API: a test fails on a TensorFlow where it no longer answers.
    return bool(forwardprop_util.pack_tangents([x]).tangents)
