"""`tf.vectorized_map`: the derivative is multiplied by `lda_coeff` where the tape is inside."""

import pytest
import tensorflow as tf
from cases import assert_accurate, random_x_and_upstream
from modes import TRAININGS, traced_in

from keras_lrn import local_response_normalization, reference

SHAPE = (2, 3, 4, 7)
ARGUMENTS = dict(size=4, alpha=1.5, beta=0.6, bias=0.8)


def normalized(x, training, lda_coeff):
    return local_response_normalization(x, **ARGUMENTS, training=training, lda_coeff=lda_coeff)


def tape_inside(x, upstream, training, lda_coeff):
    def of_one(x_and_upstream):
        x, upstream = x_and_upstream
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = normalized(x, training, lda_coeff)
        return tape.gradient(y, x, upstream)

    return tf.vectorized_map(of_one, (x, upstream))


def tape_outside(x, upstream, training, lda_coeff):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.vectorized_map(lambda x: normalized(x, training, lda_coeff), x)
    # The elements were gathered from a batch of unknown size, so it may arrive in slices.
    return tf.convert_to_tensor(tape.gradient(y, x, upstream))


DROPPED = pytest.mark.xfail(
    raises=AssertionError,
    reason="TensorFlow drops custom gradients of a vectorized_map that a tape around it records",
)


@pytest.mark.parametrize(
    ("gradient", "lda_coeff"),
    [(tape_inside, -2.0), (tape_outside, 1.0), pytest.param(tape_outside, -2.0, marks=DROPPED)],
)
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("mode", ["eager", "graph", "shape unknown", "XLA"])
def test_a_vectorized_gradient_is_multiplied_by_lda_coeff(mode, training, gradient, lda_coeff):
    x, upstream = random_x_and_upstream(SHAPE, "float32")
    function = traced_in(mode, lambda x, upstream: gradient(x, upstream, training, lda_coeff))
    dx = function(tf.constant(x), tf.constant(upstream))
    expected = reference.gradient(x, upstream, lda_coeff=lda_coeff, **ARGUMENTS)
    assert_accurate(dx, expected, "float32")
