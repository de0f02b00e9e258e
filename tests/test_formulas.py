"""The equations on the ops of TensorFlow: window sums, both passes and the second derivative."""

import math

import numpy as np
import pytest
import tensorflow as tf
from cases import (
    ARGUMENTS,
    assert_accurate,
    assert_all_accurate,
    equations,
    oracle,
    random_x_and_upstream,
    traced_ops,
)

BETAS = (0.5, 0.75, 1.0, 0.6, 2.0, -0.5, 0.0)


def in_window(size, channels):
    """A matrix of 0 and 1: row c has a 1 for each channel in the window of channel c."""
    c, i = np.ogrid[:channels, :channels]
    before = (size - 1) // 2
    return ((c - before <= i) & (i <= c + size - 1 - before)).astype("float64")


def both_passes(x, upstream, size, **arguments):
    x, upstream = tf.convert_to_tensor(x), tf.convert_to_tensor(upstream)
    these = equations(x, size, **arguments)
    scale = these.scale(x)
    return these.forward(x, scale), these.backward(x, scale, upstream)


# Window sums


@pytest.mark.parametrize("channels", [0, 1, 2, 7])
@pytest.mark.parametrize("size", [*range(18), 10**15])
def test_a_window_sum_holds_its_window_and_a_mirror_sum_those_that_hold_it(size, channels):
    values = np.random.default_rng(0).integers(-9, 10, size=(3, channels)).astype("float64")
    these = equations(tf.constant(values), size, **ARGUMENTS)
    matrix = in_window(size, channels)
    np.testing.assert_array_equal(these.window_sum(tf.constant(values)), values @ matrix.T)
    np.testing.assert_array_equal(these.mirror_sum(tf.constant(values)), values @ matrix)


@pytest.mark.parametrize(("shape", "axis"), [((2, 13, 3), 1), ((2, 3, 13, 4), 2), ((2, 13), -1)])
def test_the_sums_run_along_the_axis(shape, axis):
    values, _ = random_x_and_upstream(shape)
    these = equations(tf.constant(values), 6, axis=axis, **ARGUMENTS)
    for actual, matrix in (
        (these.window_sum(tf.constant(values)), in_window(6, 13)),
        (these.mirror_sum(tf.constant(values)), in_window(6, 13).T),
    ):
        expected = np.moveaxis(np.tensordot(matrix, values, axes=[1, axis]), 0, axis)
        assert_accurate(actual, expected, "float64")


@pytest.mark.parametrize("size", [2, 4, 5, 40])
def test_the_derivative_of_a_window_sum_is_a_mirror_sum_and_the_other_way_round(size):
    values, upstream = map(tf.constant, random_x_and_upstream((3, 7)))
    these = equations(values, size, **ARGUMENTS)
    for sums, adjoint in (
        (these.window_sum, these.mirror_sum),
        (these.mirror_sum, these.window_sum),
    ):
        with tf.GradientTape() as tape:
            tape.watch(values)
            total = sums(values)
        assert_accurate(tape.gradient(total, values, upstream), adjoint(upstream), "float64")


@pytest.mark.parametrize("channels", [1, 7, 30])
@pytest.mark.parametrize("size", [0, 2, 5, 40])
def test_the_sums_of_a_number_of_channels_known_only_when_they_run(size, channels):
    @tf.function(input_signature=[tf.TensorSpec([None, None], "float64")], autograph=False)
    def sums(values):
        these = equations(values, size, **ARGUMENTS)
        assert these.channels is None
        return these.window_sum(values), these.mirror_sum(values)

    values, _ = random_x_and_upstream((3, channels))
    matrix = in_window(size, channels)
    assert_all_accurate(sums(values), (values @ matrix.T, values @ matrix), "float64")


@pytest.mark.parametrize("size", [2, 3, 5, 11, 31, 255, 256])
def test_a_wide_window_takes_few_additions(size):
    def window_sum(values):
        return equations(values, size, **ARGUMENTS).window_sum(values)

    ops = traced_ops(window_sum, (3, 1024))
    assert math.log2(size) <= ops["AddV2"] <= 2 * math.log2(size)
    assert not {"Conv2D", "MatMul", "Cumsum", "While", "StatelessWhile"} & set(ops)


def test_a_window_beyond_the_channels_costs_no_more_than_all_of_them():
    ops = [
        traced_ops(lambda x, size=size: equations(x, size, **ARGUMENTS).window_sum(x), (3, 7))
        for size in (13, 14, 10**30)
    ]
    assert ops[0]["AddV2"] == ops[1]["AddV2"] == ops[2]["AddV2"] > 0


@pytest.mark.parametrize("size", [255, 256])
def test_a_wide_window_of_many_channels_is_accurate(size):
    x, upstream = random_x_and_upstream((2, 1024), "float32")
    arguments = dict(size=size, alpha=100.0, beta=0.75, bias=0.8)
    expected = oracle(x, upstream, **arguments)
    assert_all_accurate(both_passes(x, upstream, **arguments), expected, "float32")


def test_one_large_channel_leaves_the_windows_without_it_accurate():
    # A running sum would be left with what cancellation leaves.
    x, upstream = random_x_and_upstream((2, 40), "float32")
    x[:, 7] = 1e8
    y, _ = both_passes(x, upstream, 6, **ARGUMENTS)
    expected, _ = oracle(x, upstream, 6, **ARGUMENTS)
    assert_accurate(y[:, 10:], expected[:, 10:], "float32")


# Both passes


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forward_and_backward_are_the_equations(dtype, beta):
    x, upstream = random_x_and_upstream((3, 13), dtype)
    for size in (0, 1, 4, 5, 40):
        arguments = dict(size=size, alpha=1.5, beta=beta, bias=0.8, lda_coeff=-1.5)
        expected = oracle(x, upstream, **arguments)
        assert_all_accurate(both_passes(x, upstream, **arguments), expected, dtype)


def test_the_scale_can_be_had_of_what_is_padded():
    x = tf.constant(random_x_and_upstream((3, 13, 5))[0])
    these = equations(x, 6, axis=1, **ARGUMENTS)
    padded = these.padded(x)
    assert padded.shape == (3, 2 + 13 + 3, 5)
    np.testing.assert_array_equal(these.without_padding(padded), x)
    np.testing.assert_array_equal(these.scale_of_padded(padded), these.scale(x))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.6])
def test_powers_are_accurate_for_scales_of_any_magnitude(beta, jit_compile):
    # A window of one channel has an output that is a function of one number.
    x = np.geomspace(1e-12, 1e12, 97, dtype="float32")[:, None]
    arguments = dict(size=1, alpha=1.0, beta=beta, bias=1e-20)
    passes = tf.function(both_passes, jit_compile=jit_compile, autograph=False)
    y, _ = passes(tf.constant(x), tf.ones_like(x), **arguments)
    np.testing.assert_allclose(y, oracle(x, x, **arguments)[0], rtol=2e-6)


@pytest.mark.parametrize("magnitude", [1e-13, 1e14])
def test_the_gradient_survives_where_a_power_of_the_scale_would_not(magnitude):
    # S^-1.75 is beyond float32 at both ends, and the gradient is not.
    x, upstream = random_x_and_upstream((3, 13), "float32")
    x *= np.float32(magnitude)
    arguments = dict(size=4, alpha=1.5, beta=0.75, bias=0.0)
    _, expected = oracle(x, upstream, **arguments)
    assert_accurate(both_passes(x, upstream, **arguments)[1], expected, "float32")


@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.6])
@pytest.mark.parametrize(
    ("alpha", "magnitude", "bias"),
    [
        (1e-30, 1e15, 0.8),
        (1e30, 1e-15, 0.8),
        # The squares alone are beyond float32, and times the weight they are not.
        (1e-30, 1e20, 0.8),
        (1e30, 1e-20, 0.0),
        # So are the terms of the mirror sum.
        (1e-30, 1.0, 1e-30),
        (1e30, 1.0, 1e30),
    ],
)
def test_any_alpha_is_right_where_its_product_with_the_squares_is_a_number(
    alpha, magnitude, bias, beta
):
    x, upstream = random_x_and_upstream((3, 13), "float32")
    x *= np.float32(magnitude)
    arguments = dict(size=4, alpha=alpha, beta=beta, bias=bias, lda_coeff=-1.5)
    expected = oracle(x, upstream, **arguments)
    assert_all_accurate(both_passes(x, upstream, **arguments), expected, "float32")


def test_a_bias_above_zero_does_not_pay_for_windows_of_zeros():
    for bias, guarded in [(0.8, False), (0.0, True)]:

        def passes(x, bias=bias):
            return both_passes(x, x, 4, alpha=1.5, beta=0.75, bias=bias)

        assert ("SelectV2" in traced_ops(passes, (3, 13))) is guarded


def test_a_bias_too_small_for_a_number_of_the_dtype_counts_as_zero():
    # XLA and some processors take such numbers for 0.
    x = np.zeros((2, 7), "float32")
    x[0, 0] = 2.0
    y, dx = both_passes(x, np.ones_like(x), 4, alpha=1.5, beta=0.75, bias=1e-39)
    expected = oracle(x, np.ones_like(x), 4, alpha=1.5, beta=0.75, bias=0.0)
    assert_all_accurate((y, dx), expected, "float32")


# The second derivative


@pytest.mark.parametrize(
    ("size", "bias"), [(0, 0.8), (1, 0.8), (4, 0.8), (5, 0.8), (40, 0.8), (4, 0.0), (5, 0.0)]
)
@pytest.mark.parametrize("beta", BETAS)
def test_the_second_derivative_is_what_a_tape_makes_of_the_first(beta, size, bias):
    x, upstream = map(tf.constant, random_x_and_upstream((3, 13)))
    cotangent = tf.constant(random_x_and_upstream((3, 13), seed=1)[0])
    these = equations(x, size, alpha=1.5, beta=beta, bias=bias, lda_coeff=-1.5)
    with tf.GradientTape() as tape:
        tape.watch((x, upstream))
        dx = these.backward(x, these.scale(x), upstream)
    expected = tape.gradient(dx, (x, upstream), cotangent, unconnected_gradients="zero")
    actual = these.second_order(x, these.scale(x), upstream, cotangent)
    assert_all_accurate(actual, [exact.numpy() for exact in expected], "float64")
