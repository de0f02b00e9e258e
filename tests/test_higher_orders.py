"""Derivatives of every kind and order, eager, in blocks and in graphs."""

import numpy as np
import pytest
import tensorflow as tf
from cases import (
    ARGUMENTS,
    MODES,
    assert_accurate,
    assert_all_accurate,
    in_mode,
    lrn_and_gradient,
    oracle,
    random_x_and_upstream,
    relative_error,
)

from keras_lrn import local_response_normalization, reference
from keras_lrn.backend.tensorflow import gradient, ways

SHAPE = (2, 3, 5)
both_trainings = pytest.mark.parametrize("training", [False, True])


@pytest.fixture(params=["eager", "eager blocks", "graph", "graph of unknown size"])
def run(request, monkeypatch):
    """Runs a function of tensors, the calls in which go the given way."""
    monkeypatch.setattr(ways, "EAGER_BLOCKS_FROM", 0 if request.param == "eager blocks" else np.inf)

    def run(function, *tensors):
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if request.param.startswith("eager"):
            return function(*tensors)
        unknown = request.param == "graph of unknown size"
        # The channels are known, as they must be where `jacobian` loops over the outputs.
        shapes = [[None, None, t.shape[-1]] if unknown else t.shape for t in tensors]
        signature = [tf.TensorSpec(s, t.dtype) for s, t in zip(shapes, tensors, strict=True)]
        return tf.function(function, input_signature=signature, autograph=False)(*tensors)

    return run


def oracle_jacobian(x, size, **arguments):
    """The derivative of each output, a row each, with respect to every input."""
    rows = np.eye(x.size).reshape(-1, *x.shape)
    return np.stack([reference.gradient(x, row, size, **arguments).ravel() for row in rows])


def numeric_gradient(function, x, step=1e-6):
    gradient = np.empty_like(x)
    for place in np.ndindex(x.shape):
        low, high = x.copy(), x.copy()
        low[place] -= step
        high[place] += step
        gradient[place] = (function(high) - function(low)) / (2 * step)
    return gradient


def second_order(x, upstream, weights, *args, **kwargs):
    """The derivatives of `sum(weights * dX)` with respect to `x` and `upstream`."""
    with tf.GradientTape() as tape:
        tape.watch((x, upstream))
        _, dx = lrn_and_gradient(x, upstream, *args, **kwargs)
    return tape.gradient(dx, (x, upstream), weights)


@both_trainings
@pytest.mark.parametrize(("size", "lda_coeff"), [(1, 1.0), (4, -2.5), (40, 1.0)])
def test_second_order_is_the_finite_difference_of_the_first(run, training, size, lda_coeff):
    x, upstream = random_x_and_upstream(SHAPE)
    weights = random_x_and_upstream(SHAPE, seed=1)[0]
    arguments = dict(size=size, lda_coeff=lda_coeff, **ARGUMENTS)

    def call(*tensors):
        return second_order(*tensors, training=training, **arguments)

    over_x, over_upstream = run(call, x, upstream, weights)
    numeric = numeric_gradient(
        lambda x: np.sum(weights * reference.gradient(x, upstream, **arguments)), x
    )
    assert relative_error(over_x, numeric) <= 1e-8
    jacobian = oracle_jacobian(x, **arguments)
    assert_accurate(over_upstream, (jacobian @ weights.ravel()).reshape(SHAPE), "float64")


@both_trainings
@pytest.mark.parametrize("mode", ["graph", "XLA"])
def test_second_order_of_a_traced_call(mode, training):
    # Of a shape that the LRN op takes.
    arrays = *random_x_and_upstream((2, 3, 4, 7)), random_x_and_upstream((2, 3, 4, 7), seed=1)[0]
    arguments = dict(size=5, lda_coeff=-2.5, **ARGUMENTS)
    expected = second_order(*map(tf.constant, arrays), **arguments)

    def call(x, upstream, weights):
        return second_order(x, upstream, weights, training=training, **arguments)

    arrays = [tf.constant(array, "float32") for array in arrays]
    actual = in_mode(mode, call)(*arrays)
    for got, exact in zip(actual, expected, strict=True):
        assert relative_error(got, exact) <= 4e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_second_order_has_the_dtype_of_the_input_and_is_rounded_once(dtype, mode):
    arrays = *random_x_and_upstream((3, 13), dtype), random_x_and_upstream((3, 13), dtype, 1)[0]
    exact = [tf.constant(array, "float64") for array in arrays]
    expected = second_order(*exact, 4, **ARGUMENTS)
    actual = in_mode(mode, lambda *tensors: second_order(*tensors, 4, **ARGUMENTS))(
        *map(tf.constant, arrays)
    )
    assert_all_accurate(actual, [exact.numpy() for exact in expected], dtype)


@both_trainings
def test_second_order_with_a_blocked_derivative_is_zero_and_not_missing(run, training):
    x, upstream = random_x_and_upstream(SHAPE)
    arguments = dict(size=4, training=training, lda_coeff=0.0, **ARGUMENTS)
    for second in run(lambda *tensors: second_order(*tensors, **arguments), x, upstream, x):
        np.testing.assert_array_equal(second, np.zeros(SHAPE))


@both_trainings
def test_third_order_is_the_finite_difference_of_the_second(run, training):
    x, upstream = random_x_and_upstream(SHAPE)
    weights, more = random_x_and_upstream(SHAPE, seed=1)
    arguments = dict(size=4, training=training, **ARGUMENTS)

    def third_order(x, upstream, weights, more):
        with tf.GradientTape() as tape:
            tape.watch(x)
            over_x, _ = second_order(x, upstream, weights, **arguments)
        return tape.gradient(over_x, x, more)

    def second(x):
        return second_order(*map(tf.constant, (x, upstream, weights)), **arguments)[0].numpy()

    third = run(third_order, x, upstream, weights, more)
    numeric = numeric_gradient(lambda x: np.sum(more * second(x)), x)
    assert relative_error(third, numeric) <= 1e-7


@both_trainings
def test_jacobians(run, training):
    x, _ = random_x_and_upstream(SHAPE)
    expected = oracle_jacobian(x, 4, **ARGUMENTS).reshape(*SHAPE, *SHAPE)

    def jacobians(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = local_response_normalization(x, 4, training=training, **ARGUMENTS)
        return tape.jacobian(y, x), tape.batch_jacobian(y, x)

    whole, batch = run(jacobians, x)
    assert_accurate(whole, expected, "float64")
    expected = np.stack([expected[i, ..., i, :, :] for i in range(2)])
    assert_accurate(batch, expected, "float64")


@both_trainings
def test_vectorized_map_with_the_tape_inside(run, training):
    x, upstream = random_x_and_upstream((4, *SHAPE[1:]))
    arguments = dict(size=4, lda_coeff=-1.5, **ARGUMENTS)

    def call(pair):
        return lrn_and_gradient(*pair, training=training, **arguments)

    actual = run(lambda *tensors: tf.vectorized_map(call, tensors), x, upstream)
    assert_all_accurate(actual, oracle(x, upstream, **arguments), "float64")


# Derivatives in slices


def derivatives_through_a_look_up(x, rows, weights, **arguments):
    """The gradient of what `rows` of the output, times `weights`, sum to, and its derivative."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = local_response_normalization(x, **arguments)
            total = tf.reduce_sum(weights * tf.gather(y, rows))
        dx = inner.gradient(total, x)
        looked_up = tf.reduce_sum(weights * tf.gather(dx, rows))
    return tf.convert_to_tensor(dx), outer.gradient(looked_up, x)


@both_trainings
def test_a_derivative_in_slices_is_that_of_the_dense_tensor_in_both_orders(run, training):
    x, _ = random_x_and_upstream((4, 3, 5))
    weights, _ = random_x_and_upstream((5, 3, 5), seed=1)
    rows = np.array([2, 0, 2, 3, 2])  # row 1 is not looked up, and row 2 three times
    dense = np.zeros_like(x)
    np.add.at(dense, rows, weights)
    arguments = dict(size=4, lda_coeff=-1.5, **ARGUMENTS)

    def call(x, weights):
        return derivatives_through_a_look_up(x, rows, weights, training=training, **arguments)

    first, second = run(call, x, weights)
    assert_accurate(first, reference.gradient(x, dense, **arguments), "float64")
    expected, _ = second_order(*map(tf.constant, (x, dense, dense)), **arguments)
    assert_accurate(second, expected.numpy(), "float64")
    np.testing.assert_array_equal(first[1], 0)
    np.testing.assert_array_equal(second[1], 0)


# Forward mode


@both_trainings
def test_forward_mode(run, training):
    x, tangent = random_x_and_upstream(SHAPE)
    arguments = dict(size=4, lda_coeff=-1.5, **ARGUMENTS)
    expected = oracle_jacobian(x, **arguments) @ tangent.ravel()

    def call(x, tangent):
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            y = local_response_normalization(x, training=training, **arguments)
        return accumulator.jvp(y)

    assert_accurate(run(call, x, tangent), expected.reshape(SHAPE), "float64")


@both_trainings
def test_forward_mode_over_a_gradient(run, training):
    x, upstream = random_x_and_upstream(SHAPE)
    tangent = random_x_and_upstream(SHAPE, seed=1)[0]
    arguments = dict(size=4, lda_coeff=-1.5, **ARGUMENTS)
    above, below = (
        reference.gradient(x + h * tangent, upstream, **arguments) for h in (1e-6, -1e-6)
    )

    def call(x, upstream, tangent):
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            _, dx = lrn_and_gradient(x, upstream, training=training, **arguments)
        return accumulator.jvp(dx)

    actual = run(call, x, upstream, tangent)
    assert relative_error(actual, (above - below) / 2e-6) <= 1e-8


@pytest.mark.parametrize("around", [False, True])
@both_trainings
@pytest.mark.parametrize("mode", ["graph", "XLA"])
def test_forward_mode_within_and_around_a_traced_call(mode, training, around):
    # Of a shape that the LRN op takes.
    arrays = *random_x_and_upstream((2, 3, 4, 7)), random_x_and_upstream((2, 3, 4, 7), seed=1)[0]
    x, upstream, tangent = (array.astype("float32") for array in arrays)
    low, high = (
        oracle(x.astype("float64") + h * tangent, upstream, 5, **ARGUMENTS) for h in (-1e-6, 1e-6)
    )
    expected = [(above - below) / 2e-6 for below, above in zip(low, high, strict=True)]

    def call(x, upstream):
        return lrn_and_gradient(x, upstream, 5, training=training, **ARGUMENTS)

    def forward_mode(call, x, upstream, tangent):
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            results = call(x, upstream)
        return [accumulator.jvp(result) for result in results]

    tensors = map(tf.constant, (x, upstream, tangent))
    if around:
        actual = forward_mode(in_mode(mode, call), *tensors)
    else:
        actual = in_mode(mode, lambda *tensors: forward_mode(call, *tensors))(*tensors)
    for got, exact in zip(actual, expected, strict=True):
        assert relative_error(got, exact) <= 4e-6


@pytest.mark.parametrize("mode", MODES)
def test_this_tensorflow_tells_which_tensor_carries_a_tangent(mode):
    answers = []

    def call(x, other):
        answers.append(gradient._carries_a_tangent(x))
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)):
            answers.extend(map(gradient._carries_a_tangent, (x, 2 * x, other)))
        return x

    in_mode(mode, call)(tf.constant([1.0, 2.0]), tf.constant([3.0]))
    assert answers == [False, True, True, False]
