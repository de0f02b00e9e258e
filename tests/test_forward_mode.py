"""Forward mode: what `tf.autodiff.ForwardAccumulator` carries through a call, also in graphs."""

import numpy as np
import pytest
import tensorflow as tf
from cases import random_x_and_upstream, relative_error
from modes import MODES, WAYS, dealt, tangent, tangent_of_gradient, traced_in

from keras_lrn import LocalResponseNormalization, local_response_normalization, reference

SHAPE = (2, 3, 4, 7)
ARGUMENTS = dict(alpha=1.5, beta=0.6, bias=0.8)
CALLS = ("function", "layer")
# The accumulator is inside the traced function, or outside of it, which is one thing if eager.
PLACED_WAYS = [
    (place, *way)
    for place in ("inside", "outside")
    for way in WAYS
    if (place, way[0]) != ("outside", "eager")
]


class MissingGradientError(Exception):
    """A tape had None for a gradient."""


def normalization(call, training, **arguments):
    if call == "function":
        return lambda x: local_response_normalization(x, training=training, **arguments)
    layer = LocalResponseNormalization(**arguments)
    return lambda x: layer(x, training=training)


def gradient_of(normalize):
    def gradient(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = normalize(x)
        return tape.gradient(y, x, upstream)

    return gradient


def carried(function, x, direction, *others, mode, place):
    """The tangent of the function of `x` and `others` as `x` moves along `direction`."""
    if place == "outside":
        function = traced_in(mode, function)

    def accumulate(x, direction, *others):
        with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
            y = function(x, *others)
        # With lda_coeff=0 the gradient does not depend on `x`.
        return accumulator.jvp(y, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    if place == "inside":
        accumulate = traced_in(mode, accumulate)
    return accumulate(*map(tf.constant, (x, direction, *others)))


@pytest.mark.parametrize(
    ("place", "mode", "training", "jit_compile", "call", "size", "lda_coeff"),
    dealt(PLACED_WAYS, CALLS, (5, 4), (1.0, -2.0, 0.0)),
)
def test_the_tangent_of_the_output_is_multiplied_by_lda_coeff(
    place, mode, training, jit_compile, call, size, lda_coeff
):
    arguments = dict(ARGUMENTS, size=size, lda_coeff=lda_coeff)
    normalize = normalization(call, training, jit_compile=jit_compile, **arguments)
    x, direction = random_x_and_upstream(SHAPE, "float32")
    actual = carried(normalize, x, direction, mode=mode, place=place)
    assert relative_error(actual, tangent(x, direction, **arguments)) <= 2e-6


@pytest.mark.parametrize(
    ("place", "mode", "training", "jit_compile", "call", "size", "lda_coeff"),
    dealt(PLACED_WAYS[::2], CALLS, (5, 4), (1.0, -2.0, 0.0)),
)
def test_the_tangent_of_the_gradient_is_right(
    place, mode, training, jit_compile, call, size, lda_coeff
):
    arguments = dict(ARGUMENTS, size=size, lda_coeff=lda_coeff)
    normalize = normalization(call, training, jit_compile=jit_compile, **arguments)
    x, direction = random_x_and_upstream(SHAPE, "float32")
    upstream, _ = random_x_and_upstream(SHAPE, "float32", seed=1)
    gradient = gradient_of(normalize)
    actual = carried(gradient, x, direction, upstream, mode=mode, place=place)
    expected = tangent_of_gradient(x, upstream, direction, **arguments)
    assert relative_error(actual, expected) <= 5e-6


@pytest.mark.parametrize(("mode", "training"), dealt([(mode,) for mode in MODES], (True, None)))
def test_tangents_pass_through_a_chain_of_calls(mode, training):
    first, second = dict(ARGUMENTS, size=4, lda_coeff=-2.0), dict(ARGUMENTS, size=5, lda_coeff=0.5)

    def chain(x):
        y = tf.tanh(normalization("function", training, **first)(2 * x))
        return 3 * normalization("layer", training, **second)(y)

    x, direction = random_x_and_upstream(SHAPE, "float32")
    actual = carried(chain, x, direction, mode=mode, place="inside")
    y = np.tanh(reference.local_response_normalization(2 * x, 4, **ARGUMENTS))
    change = (1 - y**2) * tangent(2 * x, 2 * direction, **first)
    assert relative_error(actual, 3 * tangent(y, change, **second)) <= 2e-6


@pytest.mark.parametrize(("mode", "training"), dealt([(mode,) for mode in MODES], (True, None)))
def test_forward_mode_over_forward_mode_is_multiplied_by_lda_coeff_once(mode, training):
    arguments = dict(ARGUMENTS, size=4, lda_coeff=-2.0)
    normalize = normalization("function", training, **arguments)

    def of_tangent(x, direction):
        with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
            y = normalize(x)
        return accumulator.jvp(y)

    x, direction = random_x_and_upstream(SHAPE, "float32")
    actual = carried(of_tangent, x, direction, direction, mode=mode, place="inside")
    step = 1e-3 * direction.astype("float64")
    expected = (tangent(x + step, step, **arguments) - tangent(x - step, step, **arguments)) / 2e-6
    assert relative_error(actual, expected) <= 5e-6


GRAPHS_DROP_IT = pytest.mark.xfail(
    raises=MissingGradientError,
    reason="TensorFlow has no gradient of a tangent that was carried through an inner function",
)


@pytest.mark.parametrize(
    ("mode", "training"),
    [
        ("eager", True),
        ("eager", None),
        pytest.param("graph", True, marks=GRAPHS_DROP_IT),
        pytest.param("XLA", None, marks=GRAPHS_DROP_IT),
    ],
)
def test_the_gradient_of_a_tangent_is_right(mode, training):
    arguments = dict(ARGUMENTS, size=4, lda_coeff=-2.0)
    normalize = normalization("function", training, **arguments)

    def gradient(x, direction, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
                y = normalize(x)
            change = accumulator.jvp(y)
        dx = tape.gradient(change, x, upstream)
        if dx is None:
            raise MissingGradientError
        return dx

    x, direction = random_x_and_upstream(SHAPE, "float32")
    upstream, _ = random_x_and_upstream(SHAPE, "float32", seed=1)
    actual = traced_in(mode, gradient)(*map(tf.constant, (x, direction, upstream)))
    # The order of the two derivatives does not matter.
    expected = tangent_of_gradient(x, upstream, direction, **arguments)
    assert relative_error(actual, expected) <= 5e-6
