"""What holds for every legal call, of which Hypothesis draws some."""

import operator

import numpy as np
import tensorflow as tf
from cases import (
    DTYPES,
    TRAININGS,
    assert_accurate,
    lrn_and_gradient,
    oracle,
    random_x_and_upstream,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_lrn import local_response_normalization

MAGNITUDES = st.floats(0.25, 4.0)
COEFFICIENTS = MAGNITUDES | MAGNITUDES.map(operator.neg) | st.just(0.0)


@st.composite
def legal_calls(draw, dtypes=DTYPES):
    """Two arrays with any legal arguments whose results float16 can hold."""
    shape = draw(st.lists(st.integers(1, 7), min_size=2, max_size=5, unique=True))
    size, bias = draw(
        st.tuples(st.integers(0, 16), MAGNITUDES) | st.tuples(st.integers(1, 16), st.just(0.0))
    )
    arguments = dict(
        size=size,
        alpha=draw(MAGNITUDES) * max(size, 1),
        beta=draw(st.sampled_from([0.5, 0.75, 1.0]) | st.floats(-1.0, 2.0)),
        bias=bias,
        axis=draw(st.integers(1 - len(shape), len(shape) - 1).filter(bool)),
        training=draw(st.sampled_from(TRAININGS)),
    )
    x, upstream = random_x_and_upstream(shape, seed=draw(st.integers(0, 99)))
    x += np.copysign(0.5, x)
    dtype = draw(st.sampled_from(dtypes))
    return x.astype(dtype), upstream.astype(dtype), arguments


@settings(max_examples=150)
@given(legal_calls(), COEFFICIENTS)
def test_any_legal_call_is_what_the_oracle_says(call, lda_coeff):
    x, upstream, arguments = call
    dtype = x.dtype.name
    actual = lrn_and_gradient(x, upstream, lda_coeff=lda_coeff, **arguments)
    arguments.pop("training")
    y, dx = oracle(x, upstream, lda_coeff=lda_coeff, **arguments)
    assert_accurate(actual[0], y, dtype)
    # The gradient is a difference that may cancel: what it subtracts from sets its accuracy.
    passed = lda_coeff * upstream.astype("float64") * y / x.astype("float64")
    largest = np.max(np.abs([dx, passed]))
    tolerance = {"float64": 1e-12, "float32": 2e-6, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
    assert actual[1].dtype == dtype
    assert np.max(np.abs(actual[1].numpy().astype("float64") - dx)) <= tolerance * largest


@settings(max_examples=50)
@given(legal_calls(), st.data())
def test_what_is_not_finite_changes_only_the_windows_that_hold_it(call, data):
    x, _, arguments = call
    axis, size = arguments["axis"], arguments["size"]
    channels = x.shape[axis]
    poisoned = data.draw(st.integers(0, channels - 1))
    value = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e30]))
    clean = local_response_normalization(x, **arguments).numpy()
    with np.errstate(over="ignore"):  # 1e30 is infinity in float16
        np.moveaxis(x, axis, 0)[poisoned] = value
    y = local_response_normalization(x, **arguments).numpy()
    before = (size - 1) // 2
    c = np.arange(channels)
    outside = (poisoned < c - before) | (poisoned > c + size - 1 - before)
    # A window of no channel holds nothing, and yet a channel is its own output.
    outside &= c != poisoned
    np.testing.assert_array_equal(
        np.moveaxis(y, axis, 0)[outside], np.moveaxis(clean, axis, 0)[outside]
    )


@settings(max_examples=50)
@given(legal_calls(dtypes=["float64"]))
def test_the_gradient_is_the_finite_difference_of_the_forward(call):
    x, upstream, arguments = call
    direction = random_x_and_upstream(x.shape, seed=1)[0]
    _, dx = lrn_and_gradient(x, upstream, **arguments)
    above, below = (
        local_response_normalization(tf.constant(x + h * direction), **arguments)
        for h in (1e-5, -1e-5)
    )
    numeric = np.sum((above - below).numpy() / 2e-5 * upstream)
    terms = dx.numpy() * direction
    # The terms may all be 0; the accuracy of the difference is that of the outputs.
    largest = max(np.abs(terms).max(), np.abs(upstream * above).max())
    assert abs(terms.sum() - numeric) <= 1e-7 * largest


@settings(max_examples=50)
@given(legal_calls(dtypes=["float32", "float64"]), COEFFICIENTS)
def test_lda_coeff_multiplies_the_gradient_and_never_the_output(call, lda_coeff):
    x, upstream, arguments = call
    x, upstream = tf.constant(x), tf.constant(upstream)
    y, dx = lrn_and_gradient(x, upstream, **arguments)
    same, scaled = lrn_and_gradient(x, upstream, lda_coeff=lda_coeff, **arguments)
    np.testing.assert_array_equal(same, y)
    largest = np.max(np.abs(upstream)) * max(1.0, np.max(np.abs(dx)))
    difference = np.max(np.abs(scaled - lda_coeff * dx))
    assert difference <= {"float32": 4e-6, "float64": 2e-12}[x.dtype.name] * largest
