"""The oracle against arithmetic done by hand, closed forms, finite differences and plain loops."""

import itertools
import json
import math
import pathlib

import numpy as np
import pytest

from keras_lrn import reference

# Warnings are errors here: the oracle must stay silent about infinity, NaN and a scale of 0.
pytestmark = pytest.mark.filterwarnings("error")

PUBLIC_CASES = json.loads(pathlib.Path(__file__).with_name("public_cases.json").read_text())

# Each scale is bias + (alpha / size) * sum, with alpha / size = 1 except where a comment says
# otherwise, so that it can be added up in the head.
FORWARD_BY_HAND = {
    # S = 1 + [1 + 4, 1 + 4 + 9, 4 + 9] = [6, 15, 14]
    "odd": (
        dict(x=[1, 2, 3], size=3, alpha=3, beta=1, bias=1),
        [1 / 6, 2 / 15, 3 / 14],
    ),
    # before 0, after 1: S = 1 + [1 + 4, 4 + 9, 9] = [6, 14, 10]
    "window of two": (
        dict(x=[1, 2, 3], size=2, alpha=2, beta=1, bias=1),
        [1 / 6, 2 / 14, 3 / 10],
    ),
    # before 1, after 2: S = 1 + [1 + 4 + 9, 1 + 4 + 9 + 16, 4 + 9 + 16, 9 + 16] = [15, 31, 30, 26]
    "window of four": (
        dict(x=[1, 2, 3, 4], size=4, alpha=4, beta=1, bias=1),
        [1 / 15, 2 / 31, 3 / 30, 4 / 26],
    ),
    # Squares [1, 0, 4, 1, 9, 1]. S = 2 + [1 + 0 + 4, 1 + 0 + 4 + 1, 1 + 0 + 4 + 1 + 9,
    # 0 + 4 + 1 + 9 + 1, 4 + 1 + 9 + 1, 1 + 9 + 1] = [7, 8, 17, 17, 17, 13]
    "negative and zero values": (
        dict(x=[1, 0, 2, -1, 3, 1], size=5, alpha=5, beta=1, bias=2),
        [1 / 7, 0, 2 / 17, -1 / 17, 3 / 17, 1 / 13],
    ),
    # Every window holds all: S = 7 + 1 + 4 + 4 = 16, and 16^-0.5 = 1/4
    "wider than the channels": (
        dict(x=[1, 2, 2], size=7, alpha=7, beta=0.5, bias=7),
        [1 / 4, 2 / 4, 2 / 4],
    ),
    # alpha / size = 12/4 = 3 at the edges too: S = 1 + 3 * [1 + 4, 1 + 4] = [16, 16]
    "even and wider than the channels": (
        dict(x=[1, -2], size=4, alpha=12, beta=0.5, bias=1),
        [1 / 4, -2 / 4],
    ),
    # S = 1 + [9, 1], squared: [100, 4]
    "size one, exponent two": (
        dict(x=[3, 1], size=1, alpha=1, beta=2, bias=1),
        [3 / 100, 1 / 4],
    ),
    # S = 1 + [4, 9] = [5, 10], multiplied instead of divided
    "negative exponent": (
        dict(x=[2, 3], size=1, alpha=1, beta=-1, bias=1),
        [2 * 5, 3 * 10],
    ),
    # No channel in any window: S = 4, 4^-0.5 = 1/2
    "size zero": (
        dict(x=[1, 2, 3], size=0, alpha=9, beta=0.5, bias=4),
        [1 / 2, 2 / 2, 3 / 2],
    ),
    # One channel is never more than its own window: S = 1 + 3 = 1 + (6/2) * 1 = 4
    "a single channel": (
        dict(x=[1], size=2, alpha=6, beta=0.5, bias=1),
        [1 / 2],
    ),
    # Channels are the two rows. Row 0 sees both: S = 1 + [1 + 4, 4 + 1, 9 + 0] = [6, 6, 10].
    # Row 1 sees itself: S = 1 + [4, 1, 0] = [5, 2, 1].
    "axis one": (
        dict(x=[[[1, 2, 3], [2, 1, 0]]], size=2, alpha=2, beta=1, bias=1, axis=1),
        [[[1 / 6, 2 / 6, 3 / 10], [2 / 5, 1 / 2, 0]]],
    ),
}

# t[i] is dY[i] * X[i] / S[i]^(beta + 1): what channel i sends to every channel of its window.
GRADIENT_BY_HAND = {
    # S = [6, 15, 14], t = [1/36, -2/225, 6/196], 2 * alpha * beta / size = 2.
    # 1/6 - 2 * 1 * (1/36 - 2/225) = 75/450 - 25/450 + 8/450 = 58/450 = 29/225
    # -1/15 - 2 * 2 * (1/36 - 2/225 + 6/196) = -1/15 - 1/9 + 8/225 - 6/49 = -32/225 - 6/49
    # 2/14 - 2 * 3 * (-2/225 + 6/196) = 1/7 + 4/75 - 9/49 = (525 + 196 - 675)/3675 = 46/3675
    "odd": (
        dict(x=[1, 2, 3], upstream=[1, -1, 2], size=3, alpha=3, beta=1, bias=1),
        [29 / 225, -32 / 225 - 6 / 49, 46 / 3675],
    ),
    # S = [6, 14, 10], t = [1/36, -2/196, 6/100], and channel c hears c - 1 and c.
    # 1/6 - 2 * 1 * 1/36 = 1/9
    # -1/14 - 2 * 2 * (1/36 - 2/196) = -1/14 - 1/9 + 2/49 = (-63 - 98 + 36)/882 = -125/882
    # 2/10 - 2 * 3 * (-2/196 + 6/100) = 1/5 + 3/49 - 9/25 = (245 + 75 - 441)/1225 = -121/1225
    "window of two": (
        dict(x=[1, 2, 3], upstream=[1, -1, 2], size=2, alpha=2, beta=1, bias=1),
        [1 / 9, -125 / 882, -121 / 1225],
    ),
    # S[0] = 15, t[0] = 1/225. The window of channel 0 holds 0, 1 and 2, and not 3.
    # 1/15 - 2 * 1/225 = 13/225, then -2 * 2/225 and -2 * 3/225
    "window of four, first channel": (
        dict(x=[1, 2, 3, 4], upstream=[1, 0, 0, 0], size=4, alpha=4, beta=1, bias=1),
        [13 / 225, -4 / 225, -6 / 225, 0],
    ),
    # S[3] = 26, t[3] = -4/676 = -1/169. The window of channel 3 holds 2 and 3 only.
    # -2 * 3 * -1/169 = 6/169, and -1/26 - 2 * 4 * -1/169 = -13/338 + 16/338 = 3/338
    "window of four, last channel": (
        dict(x=[1, 2, 3, 4], upstream=[0, 0, 0, -1], size=4, alpha=4, beta=1, bias=1),
        [0, 0, 6 / 169, 3 / 338],
    ),
    # S[1] = 8 and X[1] = 0: 1/8 and nothing else. S[5] = 13, t[5] = -1/169, heard by 3, 4 and 5:
    # -2 * -1 * -1/169, -2 * 3 * -1/169, and -1/13 - 2 * 1 * -1/169 = -11/169
    "negative and zero values": (
        dict(x=[1, 0, 2, -1, 3, 1], upstream=[0, 1, 0, 0, 0, -1], size=5, alpha=5, beta=1, bias=2),
        [0, 1 / 8, 0, -2 / 169, 6 / 169, -11 / 169],
    ),
    # S = 16, S^-0.5 = 1/4, S^-1.5 = 1/64, 2 * alpha * beta / size = 1.
    # The sum of t is (4 * 1 - 4 * 2) / 64 = -1/16 everywhere: dX = dY / 4 + X / 16
    "wider than the channels": (
        dict(x=[1, 2, 2], upstream=[4, -4, 0], size=7, alpha=7, beta=0.5, bias=7),
        [1 + 1 / 16, -1 + 2 / 16, 2 / 16],
    ),
    # Y = X + X^3, so dX = dY * (1 + 3 * X^2)
    "negative exponent": (
        dict(x=[2, 3], upstream=[1, -1], size=1, alpha=1, beta=-1, bias=1),
        [13, -28],
    ),
    # Y = X / 2
    "size zero": (
        dict(x=[1, 2, 3], upstream=[1, -2, 3], size=0, alpha=9, beta=0.5, bias=4),
        [1 / 2, -1, 3 / 2],
    ),
    # Column 0: S = [6, 5], t = [1/36, 2/25]. Row 0 hears itself: 1/6 - 2 * 1/36 = 1/9. Row 1 hears
    # both: 1/5 - 2 * 2 * (1/36 + 2/25) = 1/5 - 1/9 - 8/25 = -52/225. Column 1: S = [6, 2],
    # upstream [0, -1], t = [0, -1/4]. Row 1: -1/2 - 2 * 1 * -1/4 = 0. Column 2: S = [10, 1],
    # upstream [2, 0], t = [6/100, 0]. Row 0: 2/10 - 2 * 3 * 6/100 = -4/25. Row 1 holds 0.
    "axis one": (
        dict(
            x=[[[1, 2, 3], [2, 1, 0]]],
            upstream=[[[1, 0, 2], [1, -1, 0]]],
            size=2,
            alpha=2,
            beta=1,
            bias=1,
            axis=1,
        ),
        [[[1 / 9, 0, -4 / 25], [-52 / 225, 0, 0]]],
    ),
    # The odd case times -3
    "reversed and amplified": (
        dict(x=[1, 2, 3], upstream=[1, -1, 2], size=3, alpha=3, beta=1, bias=1, lda_coeff=-3),
        [-29 / 75, 32 / 75 + 18 / 49, -46 / 1225],
    ),
}

# (shape, axis, size): every rank, first, middle and last axes, odd and even, cut and uncut windows.
FINITE_DIFFERENCE_CASES = [
    ((7,), 0, 4),
    ((3, 8), -1, 1),
    ((3, 8), 1, 2),
    ((3, 8), -1, 3),
    ((8, 3), 0, 4),
    ((2, 6, 3), 1, 5),
    ((2, 3, 6), -1, 4),
    ((2, 3, 6), 2, 40),
    ((2, 7, 3, 4), 1, 4),
    ((2, 3, 7, 4), -2, 6),
    ((2, 3, 4, 9), -1, 8),
    ((2, 3, 4, 9), 3, 11),
    ((1, 6, 2, 3, 4), 1, 2),
    ((1, 2, 3, 4, 5), -1, 0),
    ((1, 2, 3, 4, 5), -1, 40),
]

SIZES = [0, 1, 2, 3, 4, 5, 8, 11, 40]


@pytest.mark.parametrize(("arguments", "expected"), FORWARD_BY_HAND.values(), ids=FORWARD_BY_HAND)
def test_forward_is_what_a_hand_calculation_gives(arguments, expected):
    actual = reference.local_response_normalization(**arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=0)
    assert actual.shape == np.shape(expected)


@pytest.mark.parametrize(("arguments", "expected"), GRADIENT_BY_HAND.values(), ids=GRADIENT_BY_HAND)
def test_gradient_is_what_a_hand_calculation_gives(arguments, expected):
    actual = reference.gradient(**arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=1e-16)
    assert actual.shape == np.shape(expected)


@pytest.mark.parametrize("case", PUBLIC_CASES, ids=[case["id"] for case in PUBLIC_CASES])
def test_public_case_gives_the_published_numbers(case):
    arguments = {name: case[name] for name in ("size", "alpha", "beta", "bias", "axis")}
    x = np.array(case["x"], np.float64).reshape(case["shape"])
    if case["kind"] == "forward":
        actual = reference.local_response_normalization(x, **arguments)
    else:
        upstream = np.reshape(case["upstream"], case["shape"])
        actual = reference.gradient(x, upstream, lda_coeff=case["lda_coeff"], **arguments)
    assert actual.shape == tuple(case["shape"])
    # The published tolerance is for the dtype of the case; this is float64.
    for value, expected in zip(actual.ravel(), case["expected"], strict=True):
        if expected is not None:
            assert value == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("beta", [0.75, 2.0, -0.5])
@pytest.mark.parametrize(("shape", "axis", "size"), FINITE_DIFFERENCE_CASES)
def test_gradient_is_the_central_finite_difference_of_the_forward(shape, axis, size, beta):
    x, upstream = random_x_and_upstream(shape)
    arguments = dict(size=size, alpha=1.5, beta=beta, bias=0.8, axis=axis)
    numeric = finite_difference(x, upstream, **arguments)
    actual = reference.gradient(x, upstream, **arguments)
    assert (actual.shape, actual.dtype) == (numeric.shape, "float64")
    np.testing.assert_allclose(actual, numeric, rtol=0, atol=1e-8 * np.abs(numeric).max())


@pytest.mark.parametrize("size", [3, 4, 40])
def test_gradient_with_bias_zero_is_the_central_finite_difference(size):
    x, upstream = random_x_and_upstream((3, 8))
    # Far from 0, where the derivative has no value.
    x += np.sign(x)
    arguments = dict(size=size, alpha=1.5, beta=0.75, bias=0.0)
    numeric = finite_difference(x, upstream, **arguments)
    np.testing.assert_allclose(
        reference.gradient(x, upstream, **arguments),
        numeric,
        rtol=0,
        atol=1e-8 * np.abs(numeric).max(),
    )


@pytest.mark.parametrize("size", SIZES)
def test_four_nested_loops_give_the_same_numbers(size):
    x, upstream = random_x_and_upstream((2, 3, 4, 7))
    arguments = dict(alpha=1.5, beta=0.75, bias=0.8)
    y, dx = nested_loops(x, upstream, size, **arguments)
    np.testing.assert_allclose(
        reference.local_response_normalization(x, size, **arguments), y, rtol=1e-13
    )
    np.testing.assert_allclose(
        reference.gradient(x, upstream, size, **arguments), dx, rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("axis", range(-4, 4))
def test_any_axis_is_the_last_axis_of_a_transposed_array(axis):
    shape = (2, 3, 4, 5)
    x, upstream = random_x_and_upstream(shape)
    arguments = dict(size=4, alpha=1.5, beta=0.75, bias=0.8)
    order = [i for i in range(4) if i != axis % 4] + [axis % 4]
    back = np.argsort(order)
    y = reference.local_response_normalization(x.transpose(order), **arguments)
    dx = reference.gradient(x.transpose(order), upstream.transpose(order), **arguments)
    np.testing.assert_array_equal(
        reference.local_response_normalization(x, axis=axis, **arguments), y.transpose(back)
    )
    np.testing.assert_array_equal(
        reference.gradient(x, upstream, axis=axis, **arguments), dx.transpose(back)
    )


def test_defaults_are_the_published_ones():
    x, upstream = random_x_and_upstream((3, 8))
    # Large enough for alpha = 1e-4 to matter.
    x *= 100
    defaults = dict(alpha=1e-4, beta=0.75, bias=1.0, axis=-1)
    np.testing.assert_array_equal(
        reference.local_response_normalization(x, 4),
        reference.local_response_normalization(x, 4, **defaults),
    )
    np.testing.assert_array_equal(
        reference.gradient(x, upstream, 4),
        reference.gradient(x, upstream, 4, lda_coeff=1.0, **defaults),
    )


def test_size_one_is_a_function_of_one_variable():
    x, upstream = random_x_and_upstream((3, 8))
    arguments = dict(size=1, alpha=1.5, beta=0.75, bias=0.8)
    scale = 0.8 + 1.5 * x**2
    derivative = (0.8 + 1.5 * (1 - 2 * 0.75) * x**2) * scale**-1.75
    np.testing.assert_allclose(
        reference.local_response_normalization(x, **arguments), x * scale**-0.75, rtol=1e-14
    )
    np.testing.assert_allclose(
        reference.gradient(x, upstream, **arguments), upstream * derivative, rtol=1e-12
    )


@pytest.mark.parametrize("size", [0, 3, 4])
def test_alpha_zero_only_divides_by_a_power_of_the_bias(size):
    x, upstream = random_x_and_upstream((3, 8))
    arguments = dict(size=size, alpha=0.0, beta=0.75, bias=16.0)
    np.testing.assert_allclose(
        reference.local_response_normalization(x, **arguments), x / 8, rtol=1e-14
    )
    np.testing.assert_allclose(
        reference.gradient(x, upstream, **arguments), upstream / 8, rtol=1e-14
    )


@pytest.mark.parametrize("size", [0, 3, 4])
def test_beta_zero_changes_nothing(size):
    x, upstream = random_x_and_upstream((3, 8))
    arguments = dict(size=size, alpha=1.5, beta=0.0, bias=0.8)
    np.testing.assert_array_equal(reference.local_response_normalization(x, **arguments), x)
    np.testing.assert_array_equal(reference.gradient(x, upstream, **arguments), upstream)


@pytest.mark.parametrize("size", [13, 14, 15, 100, 10**30])
def test_a_window_that_always_holds_every_channel_shares_one_scale(size):
    x, upstream = random_x_and_upstream((3, 7))
    arguments = dict(size=size, alpha=1.5 * size, beta=0.75, bias=0.8)
    scale = 0.8 + 1.5 * (x**2).sum(axis=-1, keepdims=True)
    shared = 2 * 1.5 * 0.75 * (upstream * x).sum(axis=-1, keepdims=True) * scale**-1.75
    np.testing.assert_allclose(
        reference.local_response_normalization(x, **arguments), x * scale**-0.75, rtol=1e-13
    )
    np.testing.assert_allclose(
        reference.gradient(x, upstream, **arguments),
        upstream * scale**-0.75 - x * shared,
        rtol=1e-12,
        atol=1e-14,
    )


def test_one_channel_less_and_only_the_last_window_is_cut():
    x, _ = random_x_and_upstream((3, 7))
    arguments = dict(beta=0.75, bias=0.8)
    whole = reference.local_response_normalization(x, 13, alpha=1.5 * 13, **arguments)
    cut = reference.local_response_normalization(x, 12, alpha=1.5 * 12, **arguments)
    np.testing.assert_allclose(cut[:, :6], whole[:, :6], rtol=1e-13)
    assert (np.abs(cut[:, 6]) > np.abs(whole[:, 6])).all()


def test_bias_zero_over_all_channels_is_l2_normalisation():
    x, upstream = random_x_and_upstream((3, 5))
    arguments = dict(size=16, alpha=16.0, beta=0.5, bias=0.0)
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    y = x / norm
    np.testing.assert_allclose(
        reference.local_response_normalization(x, **arguments), y, rtol=1e-13
    )
    np.testing.assert_allclose(
        reference.gradient(x, upstream, **arguments),
        (upstream - y * (y * upstream).sum(axis=-1, keepdims=True)) / norm,
        rtol=1e-12,
        atol=1e-14,
    )


@pytest.mark.parametrize("beta", [0.75, 2.0, -0.5, 0.0])
def test_bias_zero_gives_zero_where_a_whole_window_is_zero(beta):
    # Size 4 sees one channel before and two after: the windows of 3 and 4 hold zeros only.
    x = np.array([1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0])
    upstream = np.array([1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0])
    arguments = dict(size=4, alpha=4.0, beta=beta, bias=0.0)
    scale = np.array([5.0, 5.0, 4.0, np.nan, np.nan, 9.0, 9.0, 9.0])
    alive = ~np.isnan(scale)
    y = reference.local_response_normalization(x, **arguments)
    dx = reference.gradient(x, upstream, **arguments)
    np.testing.assert_array_equal(y[~alive], 0)
    np.testing.assert_array_equal(dx[~alive], 0)
    np.testing.assert_allclose(y[alive], (x * scale**-beta)[alive], rtol=1e-14)
    # Where X is 0 only the first term of the gradient is left.
    silent = alive & (x == 0)
    np.testing.assert_allclose(dx[silent], (upstream * scale**-beta)[silent], rtol=1e-14)
    # Channel 7 hears 5, 6 and itself; 5 and 6 hold 0 and send nothing.
    assert dx[7] == pytest.approx(-4 * 9.0**-beta + 2 * beta * 3 * 4 * 3 * 9.0 ** (-beta - 1))


def test_a_scale_that_underflows_gives_zero():
    x = np.array([1e-200, -1e-200, 0.0])
    arguments = dict(size=3, alpha=3.0, beta=0.75, bias=0.0)
    np.testing.assert_array_equal(reference.local_response_normalization(x, **arguments), 0)
    np.testing.assert_array_equal(reference.gradient(x, np.ones(3), **arguments), 0)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 11, 40])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_nan_reaches_only_the_windows_that_hold_it(place, size):
    x, _ = random_x_and_upstream((3, 7))
    clean = reference.local_response_normalization(x, size, alpha=1.5)
    x[1, place] = np.nan
    y = reference.local_response_normalization(x, size, alpha=1.5)
    holds = np.zeros(x.shape, bool)
    holds[1] = [in_window(place, c, size) for c in range(7)]
    np.testing.assert_array_equal(np.isnan(y), holds)
    np.testing.assert_array_equal(y[~holds], clean[~holds])


@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 11, 40])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_infinity_silences_its_neighbours_and_only_them(place, size, infinity):
    x, _ = random_x_and_upstream((3, 7))
    clean = reference.local_response_normalization(x, size, alpha=1.5)
    x[1, place] = infinity
    y = reference.local_response_normalization(x, size, alpha=1.5)
    expected = clean.copy()
    expected[1, [c for c in range(7) if in_window(place, c, size)]] = 0
    expected[1, place] = np.nan
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_gradient_carries_nan_no_further_than_one_window_from_a_window(size, value):
    x, upstream = random_x_and_upstream((3, 12))
    clean = reference.gradient(x, upstream, size, alpha=1.5)
    x[1, 6] = value
    dx = reference.gradient(x, upstream, size, alpha=1.5)
    far = np.ones(x.shape, bool)
    for i in range(12):
        if in_window(6, i, size):
            far[1, [c for c in range(12) if in_window(c, i, size)]] = False
    np.testing.assert_array_equal(dx[far], clean[far])
    assert np.isnan(dx[1, 6])


@pytest.mark.parametrize("lda_coeff", [0.0, -2.0, 0.25, 5.0])
def test_lda_coeff_multiplies_the_whole_gradient_once(lda_coeff):
    x, upstream = random_x_and_upstream((2, 3, 6))
    arguments = dict(size=4, alpha=1.5, beta=0.75, bias=0.8)
    plain = reference.gradient(x, upstream, **arguments)
    scaled = reference.gradient(x, upstream, lda_coeff=lda_coeff, **arguments)
    np.testing.assert_allclose(scaled, lda_coeff * plain, rtol=1e-14)


def test_gradient_is_linear_in_the_upstream_gradient():
    x, upstream = random_x_and_upstream((2, 3, 6))
    other = np.random.default_rng(1).normal(size=x.shape)
    arguments = dict(size=4, alpha=1.5, beta=0.75, bias=0.8)
    np.testing.assert_allclose(
        reference.gradient(x, 3 * upstream - other, **arguments),
        3 * reference.gradient(x, upstream, **arguments)
        - reference.gradient(x, other, **arguments),
        rtol=1e-12,
        atol=1e-14,
    )


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((0,), 0), ((0, 5), -1), ((3, 0), -1), ((0, 3, 5), 1), ((2, 0, 5), 2), ((2, 0, 3, 5), 1)],
)
@pytest.mark.parametrize("size", [0, 3, 4, 40])
def test_empty_arrays_give_empty_results(shape, axis, size):
    x = np.zeros(shape)
    for result in (
        reference.local_response_normalization(x, size, axis=axis),
        reference.gradient(x, x, size, axis=axis),
    ):
        assert result.shape == shape
        assert result.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.float32, np.float64])
def test_every_input_dtype_is_computed_in_float64(dtype):
    # 300 squared does not fit float16.
    x = np.array([[300, 200, -100, 7], [5, -6, 300, 300]], dtype)
    upstream = np.array([[1, -2, 3, -4], [-5, 6, -7, 8]], dtype)
    y = reference.local_response_normalization(x, 4)
    dx = reference.gradient(x, upstream, 4)
    assert y.dtype == dx.dtype == np.float64
    in_float64 = x.astype(np.float64), upstream.astype(np.float64)
    np.testing.assert_array_equal(y, reference.local_response_normalization(in_float64[0], 4))
    np.testing.assert_array_equal(dx, reference.gradient(*in_float64, 4))


def test_numpy_scalar_arguments_do_not_lower_the_precision():
    x, upstream = random_x_and_upstream((3, 130))
    narrow = dict(
        size=np.int8(127), alpha=np.float32(1.5), beta=np.float32(0.7), bias=np.float32(0.8)
    )
    wide = {name: value.item() for name, value in narrow.items()}
    np.testing.assert_array_equal(
        reference.local_response_normalization(x, **narrow),
        reference.local_response_normalization(x, **wide),
    )
    np.testing.assert_array_equal(
        reference.gradient(x, upstream, **narrow, lda_coeff=np.float32(0.3)),
        reference.gradient(x, upstream, **wide, lda_coeff=np.float32(0.3).item()),
    )


def test_inputs_are_left_as_they_were():
    x, upstream = random_x_and_upstream((2, 5, 3))
    kept = x.copy(), upstream.copy()
    y = reference.local_response_normalization(x, 4, beta=0.0, axis=1)
    dx = reference.gradient(x, upstream, 4, beta=0.0, axis=1)
    y += 1
    dx += 1
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(upstream, kept[1])


@pytest.mark.parametrize("size", [-1, 2.0, "3", None])
def test_a_size_that_is_not_a_count_is_refused(size):
    x = np.ones((2, 3))
    message = rf"`size` must be an integer >= 0\. Received: size={size!r}"
    with pytest.raises(ValueError, match=message):
        reference.local_response_normalization(x, size)
    with pytest.raises(ValueError, match=message):
        reference.gradient(x, x, size)


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_the_array_lacks_is_refused(axis):
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match="out of bounds"):
        reference.local_response_normalization(x, 3, axis=axis)
    with pytest.raises(ValueError, match="out of bounds"):
        reference.gradient(x, x, 3, axis=axis)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 2)])
def test_an_upstream_gradient_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"Received: upstream\.shape=.*, x\.shape=\(2, 3\)"):
        reference.gradient(np.ones((2, 3)), np.ones(shape), 3)


def random_x_and_upstream(shape):
    rng = np.random.default_rng(0)
    x, upstream = rng.normal(size=(2, *shape))
    assert upstream.min() < 0 < upstream.max()
    return x, upstream


def finite_difference(x, upstream, **arguments):
    step = 1e-5
    numeric = np.empty_like(x)
    for index in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[index] = step
        change = reference.local_response_normalization(
            x + nudge, **arguments
        ) - reference.local_response_normalization(x - nudge, **arguments)
        numeric[index] = (upstream * change).sum() / (2 * step)
    return numeric


def in_window(i, c, size):
    # floor and ceil as the definition writes them.
    return c - math.floor((size - 1) / 2) <= i <= c + math.ceil((size - 1) / 2)


def nested_loops(x, upstream, size, alpha, beta, bias):
    """Forward, and the gradient from the full Jacobian: no mirrored window, no array arithmetic."""
    y, dx = np.zeros(x.shape), np.zeros(x.shape)
    batches, rows, columns, channels = x.shape
    for n, h, w in itertools.product(range(batches), range(rows), range(columns)):
        pixel = [float(value) for value in x[n, h, w]]
        for c in range(channels):
            window = [i for i in range(channels) if in_window(i, c, size)]
            scale = bias + sum(alpha / size * pixel[i] ** 2 for i in window)
            y[n, h, w, c] = pixel[c] / scale**beta
            dx[n, h, w, c] += upstream[n, h, w, c] / scale**beta
            for i in window:
                slope = -beta * pixel[c] * scale ** (-beta - 1) * alpha / size * 2 * pixel[i]
                dx[n, h, w, i] += upstream[n, h, w, c] * slope
    return y, dx
