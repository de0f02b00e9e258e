"""Numbers that are very large or small: where the result is right, and the limits of that."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from cases import assert_accurate, random_x_and_upstream, relative_error
from modes import MODES, WAYS, dealt, traced_in

from keras_lrn import local_response_normalization, reference
from keras_lrn.formulas import LARGER

TINY, HUGE = np.finfo("float32").tiny, np.finfo("float32").max
SHAPE = (3, 4, 13)  # of a rank that TensorFlow's own op, which is less accurate, does not take
IMAGES = (2, 3, 4, 13)


def value_and_gradient(x, upstream, size, **arguments):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = local_response_normalization(x, size, **arguments)
    return y, tape.gradient(y, x, upstream)


def exact(x, upstream, size, **arguments):
    return (
        reference.local_response_normalization(x, size, **arguments),
        reference.gradient(x, upstream, size, **arguments),
    )


def arrays(shape, alpha, energy):
    """An `x` for which `alpha * x^2` is of the order of `energy`, or `x` itself of order 1."""
    x, upstream = random_x_and_upstream(shape, "float32")
    return (x * (energy / alpha) ** 0.5).astype("float32") if energy else x, upstream


def is_held(array):
    """Whether what float32 holds of the array is as accurate as is promised."""
    return TINY / 2e-6 <= np.max(np.abs(array)) <= HUGE


def is_possible(x, upstream, size, alpha, beta, bias):
    """Whether float32 holds the result, the scale and every term that counts in the gradient."""
    y, dx = exact(x, upstream, size, alpha=alpha, beta=beta, bias=bias)
    scale = (y / x) ** (-1 / beta)
    terms = np.abs(LARGER * upstream * y * alpha / size / scale)
    lost = np.max(terms[(terms < TINY) | (terms > HUGE)], initial=0)
    return (
        all(map(is_held, (x, y, dx)))
        and (scale >= TINY).all()
        and (scale <= HUGE).all()
        and lost * np.max(np.abs(x)) <= 1e-8 * np.max(np.abs(dx))
    )


def formulas():
    """Formulas whose result is possible in float32, and the energy of their `x`."""
    alphas = [float(f"1e{exponent}") for exponent in range(-30, 31, 5)]
    betas, biases, energies = (0.5, 0.6, 0.75, 1.0, 2.0, -0.5), (0.0, 1.0, 2.0), (None, 1, 1e20)
    for alpha, beta, bias in itertools.product(alphas, betas, biases):
        for energy in (*energies, 1e-20) if bias == 0 else energies:
            arguments = dict(size=5, alpha=alpha, beta=beta, bias=bias)
            if is_possible(*arrays(SHAPE, alpha, energy), **arguments):
                yield arguments, energy


FORMULAS = list(formulas())


def test_most_results_are_possible_for_any_alpha():
    assert len(FORMULAS) >= 500
    assert {f["alpha"] for f, _ in FORMULAS} == {float(f"1e{e}") for e in range(-30, 31, 5)}


@pytest.mark.parametrize("alpha", sorted({formula["alpha"] for formula, _ in FORMULAS}))
def test_any_alpha_is_right_with_any_beta_and_bias(alpha):
    for arguments, energy in FORMULAS:
        if arguments["alpha"] == alpha:
            x, upstream = arrays(SHAPE, alpha, energy)
            actual = value_and_gradient(tf.constant(x), tf.constant(upstream), **arguments)
            for got, expected in zip(actual, exact(x, upstream, **arguments), strict=True):
                assert relative_error(got, expected) <= 2e-6, arguments


@pytest.mark.parametrize(
    ("mode", "training", "jit_compile", "formula"), dealt([*WAYS, *WAYS], FORMULAS), ids=str
)
def test_any_alpha_is_right_in_every_way_to_run(mode, training, jit_compile, formula):
    arguments, energy = formula
    x, upstream = arrays(SHAPE, arguments["alpha"], energy)

    def call(x, upstream):
        options = dict(training=training, jit_compile=jit_compile)
        return value_and_gradient(x, upstream, **arguments, **options)

    actual = traced_in(mode, call)(tf.constant(x), tf.constant(upstream))
    for got, expected in zip(actual, exact(x, upstream, **arguments), strict=True):
        assert_accurate(got, expected, "float32")


# The forward pass is TensorFlow's own op, which is up to 5e-6 off for the largest alpha.
@pytest.mark.parametrize("jit_compile", ["auto", False])
@pytest.mark.parametrize("mode", ["graph", "batch unknown", "image unknown"])
@pytest.mark.parametrize("alpha", [1e-30, 1e-20, 1e20, 1e30])
def test_the_gradient_of_an_inference_graph_is_right_for_any_alpha(alpha, mode, jit_compile):
    def gradient(x, upstream):
        return value_and_gradient(x, upstream, **arguments, jit_compile=jit_compile)[1]

    arguments = dict(size=5, alpha=alpha, beta=1.0, bias=1.0)
    for energy in (None, 1):
        x, upstream = arrays(IMAGES, alpha, energy)
        actual = traced_in(mode, gradient)(tf.constant(x), tf.constant(upstream))
        assert_accurate(actual, reference.gradient(x, upstream, **arguments), "float32")


@pytest.mark.parametrize("energy", [None, 1])
@pytest.mark.parametrize("alpha", [1e-30, 1e20])
def test_any_alpha_is_right_for_as_many_elements_as_eager_calls_run_in_blocks(alpha, energy):
    arguments = dict(size=4, alpha=alpha, beta=1.0, bias=2.0)
    x, upstream = arrays((70, 72, 13), alpha, energy)
    actual = value_and_gradient(tf.constant(x), tf.constant(upstream), **arguments)
    for got, expected in zip(actual, exact(x, upstream, **arguments), strict=True):
        assert_accurate(got, expected, "float32")


# The limits of float32


def at_size_one(x, *, beta, bias, mode):
    """Output and gradient where each channel is a window, and what they are exactly."""
    x = np.full((2, 3), x, "float32")
    upstream = np.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], "float32")
    arguments = dict(size=1, alpha=1.0, beta=beta, bias=bias)
    actual = traced_in(mode, lambda *xu: value_and_gradient(*xu, training=True, **arguments))(
        tf.constant(x), tf.constant(upstream)
    )
    return actual, exact(x, upstream, **arguments)


# `1024 / x^3`, a term of the gradient's sum, is a normal number for x from 1.5e-12 to 4.4e13.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("x", "bias"), [(1e13, 1.0), (4e13, 1.0), (1e-11, 0.0), (2e-12, 0.0), (-4e13, 0.0)]
)
def test_the_gradient_is_right_up_to_where_its_terms_are_no_normal_numbers(x, bias, mode):
    for got, expected in zip(*at_size_one(x, beta=1.0, bias=bias, mode=mode), strict=True):
        assert_accurate(got, expected, "float32")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("x", "bias"), [(1e15, 1.0), (1e-13, 0.0)])
def test_the_gradient_is_lost_where_its_terms_are_no_normal_numbers(x, bias, mode):
    (y, dx), (exact_y, exact_dx) = at_size_one(x, beta=1.0, bias=bias, mode=mode)
    assert_accurate(y, exact_y, "float32")
    assert is_held(exact_dx)
    assert not relative_error(dx, exact_dx) <= 2e-6


# `x^2`, the scale, is a normal number for x from 1.1e-19 to 1.8e19.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("x", [1.1e-19, -2e-19, 1e19, -1.8e19])
def test_the_output_is_right_up_to_where_the_scale_is_no_normal_number(x, mode):
    (y, _), (exact_y, _) = at_size_one(x, beta=0.5, bias=0.0, mode=mode)
    assert_accurate(y, exact_y, "float32")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("x", [1e-19, 1.9e19])
def test_the_output_is_zero_where_the_scale_is_no_normal_number(x, mode):
    (y, _), (exact_y, _) = at_size_one(x, beta=0.5, bias=0.0, mode=mode)
    np.testing.assert_allclose(exact_y, 1, rtol=1e-12)
    np.testing.assert_array_equal(y, 0)


# A bias that float32 does not hold


@pytest.mark.parametrize(("dtype", "bias"), [("float32", 1e-40), ("float64", 1e-310)])
@pytest.mark.parametrize(
    ("mode", "training", "jit_compile", "beta"), dealt(WAYS, (0.5, 0.6, 0.75, 1.0, 2.0, -0.5))
)
def test_a_bias_that_is_no_normal_number_counts_as_zero(
    mode, training, jit_compile, beta, dtype, bias
):
    x, upstream = random_x_and_upstream(SHAPE, dtype)
    x[1, 2:, 3:12] = 0  # so windows are of zeros from channel 5 to 9
    arguments = dict(size=5, alpha=1.5, beta=beta)

    def call(x, upstream):
        options = dict(training=training, jit_compile=jit_compile)
        return value_and_gradient(x, upstream, bias=bias, **arguments, **options)

    actual = traced_in(mode, call)(tf.constant(x), tf.constant(upstream))
    for got, expected in zip(actual, exact(x, upstream, bias=0.0, **arguments), strict=True):
        assert_accurate(got, expected, dtype)
        np.testing.assert_array_equal(got[1, 2:, 5:10], 0)
