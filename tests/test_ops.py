"""`local_response_normalization`: every way to run, against the oracle and against one another."""

import gc
import inspect
import itertools
import math
import operator
import random
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import (
    DTYPES,
    SHAPES_AND_AXES,
    SIZES,
    assert_accurate,
    public_cases,
    random_x_and_upstream,
    relative_error,
    traced_ops,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.python.framework import ops as tensorflow_ops  # its gradient registry is private

from keras_lrn import kernels, local_response_normalization, ops, reference

ARGUMENTS = dict(alpha=1.5, beta=0.75, bias=0.8)
PUBLIC_CASES = public_cases()


def value_and_gradient(x, upstream, *args, **kwargs):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = local_response_normalization(x, *args, **kwargs)
    return y, tape.gradient(y, x, upstream)


def oracle(x, upstream, size, *, lda_coeff=1.0, **arguments):
    return (
        reference.local_response_normalization(x, size, **arguments),
        reference.gradient(x, upstream, size, lda_coeff=lda_coeff, **arguments),
    )


def assert_both_accurate(actual, expected, dtype):
    for got, exact in zip(actual, expected, strict=True):
        assert_accurate(got, exact, dtype)


def in_mode(mode, function):
    """`function` itself, or what TensorFlow or XLA makes of it."""
    if mode == "eager":
        return function
    return tf.function(function, autograph=False, jit_compile=mode == "XLA")


# The oracle


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), SHAPES_AND_AXES)
def test_eager_calls_are_what_the_oracle_says(shape, axis, dtype):
    x, upstream = random_x_and_upstream(shape, dtype)
    for size, beta in zip(SIZES, itertools.cycle([0.75, 0.5, 0.6, 1.0])):
        arguments = dict(size=size, axis=axis, alpha=1.5, beta=beta, bias=0.8)
        expected = oracle(x, upstream, **arguments)
        for training in (False, True):
            actual = value_and_gradient(
                tf.constant(x), tf.constant(upstream), training=training, **arguments
            )
            assert_both_accurate(actual, expected, dtype)


# Whether XLA compiles the graph, and the dimensions that it is traced without.
TRACED_MODES = [
    (False, ()),
    (False, ("batch",)),
    (False, ("spatial",)),
    (False, ("batch", "spatial")),
    (False, ("channels",)),
    (False, ("batch", "channels", "spatial")),
    (True, ()),
    (True, ("batch",)),
]


def sample_of_traced_calls():
    """Every shape in every mode, with the other choices dealt like cards, all equally often."""
    rng = random.Random(4)

    def deal(choices):
        while True:
            yield from rng.sample(choices, len(choices))

    sizes, dtypes, trainings, betas = map(deal, (SIZES, DTYPES, (False, True), (0.75, 0.5, 0.6)))
    for mode in TRACED_MODES:
        for shape, axis in SHAPES_AND_AXES:
            if axis > 0:
                spelled = rng.choice([axis, axis - len(shape)])
                pair = next(sizes), next(sizes)
                yield mode, shape, spelled, next(dtypes), next(trainings), next(betas), pair


TRACED_CALLS = list(sample_of_traced_calls())


def test_every_pair_of_choices_is_traced():
    calls = [
        (mode, len(shape), dtype, training, beta, size)
        for mode, shape, _, dtype, training, beta, sizes in TRACED_CALLS
        for size in sizes
    ]
    choices = (TRACED_MODES, range(2, 6), DTYPES, (False, True), (0.75, 0.5, 0.6), SIZES)
    for a, b in itertools.combinations(range(len(choices)), 2):
        missing = set(itertools.product(choices[a], choices[b])) - {(c[a], c[b]) for c in calls}
        assert not missing


@pytest.mark.parametrize(
    ("mode", "shape", "axis", "dtype", "training", "beta", "sizes"), TRACED_CALLS
)
def test_traced_calls_are_what_the_oracle_says(mode, shape, axis, dtype, training, beta, sizes):
    jit_compile, unknown = mode
    kinds = ["batch"] + ["spatial"] * (len(shape) - 1)
    kinds[axis] = "channels"
    known = [None if kind in unknown else n for kind, n in zip(kinds, shape, strict=True)]
    arguments = dict(axis=axis, alpha=1.5, beta=beta, bias=0.8)

    @tf.function(
        input_signature=[tf.TensorSpec(known, dtype)] * 2, jit_compile=jit_compile, autograph=False
    )
    def traced(x, upstream):
        return [
            value_and_gradient(x, upstream, size, training=training, **arguments) for size in sizes
        ]

    x, upstream = random_x_and_upstream(shape, dtype)
    for size, actual in zip(sizes, traced(x, upstream), strict=True):
        assert_both_accurate(actual, oracle(x, upstream, size, **arguments), dtype)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("mode", ["eager", "graph", "XLA"])
def test_jit_compile_does_not_change_the_result(mode, jit_compile):
    x, upstream = random_x_and_upstream((2, 3, 13, 4), "float32")
    for size, training in [(4, True), (5, False)]:
        arguments = dict(size=size, axis=-2, lda_coeff=-1.5, **ARGUMENTS)

        def call(x, upstream, training=training, arguments=arguments):
            return value_and_gradient(
                x, upstream, training=training, jit_compile=jit_compile, **arguments
            )

        actual = in_mode(mode, call)(tf.constant(x), tf.constant(upstream))
        assert_both_accurate(actual, oracle(x, upstream, **arguments), "float32")


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "size"),
    [
        ("bfloat16", (3, 13), 1, 4),
        ("float16", (2, 3, 4, 13), -1, 5),
        ("float32", (2, 13, 4, 3), 1, 4),
        ("float64", (2, 3, 13), -1, 40),
    ],
)
def test_eager_blocks_are_what_the_oracle_says(monkeypatch, dtype, shape, axis, size):
    monkeypatch.setattr(ops, "EAGER_BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", 5 * 13)
    x, upstream = random_x_and_upstream(shape, dtype)
    # An alpha of its own, for programs are kept by their numbers, the length of blocks among them.
    arguments = dict(size=size, axis=axis, alpha=1.51, beta=0.75, bias=0.8)
    for training in (False, True):
        actual = value_and_gradient(
            tf.constant(x), tf.constant(upstream), training=training, **arguments
        )
        assert_both_accurate(actual, oracle(x, upstream, **arguments), dtype)


def test_defaults_are_the_documented_ones():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(local_response_normalization).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert defaults == dict(
        alpha=1e-4,
        beta=0.75,
        bias=1.0,
        axis=-1,
        training=False,
        lda_coeff=1.0,
        jit_compile="auto",
        name=None,
    )
    # Large enough for alpha to matter.
    x, upstream = random_x_and_upstream((3, 13))
    actual = value_and_gradient(tf.constant(100 * x), tf.constant(upstream), 4)
    assert_both_accurate(actual, oracle(100 * x, upstream, 4), "float64")


def test_python_lists_and_arrays_are_tensors():
    # S = 1 + [1 + 4, 1 + 4 + 9, 4 + 9] = [6, 15, 14]
    arguments = dict(size=3, alpha=3.0, beta=1.0)
    expected = np.array([[1 / 6, 2 / 15, 3 / 14]])
    actual = local_response_normalization([[1.0, 2.0, 3.0]], **arguments)
    assert_accurate(actual, expected, "float32")
    actual = local_response_normalization(np.array([[1.0, 2.0, 3.0]]), **arguments)
    assert_accurate(actual, expected, "float64")


# Other judges


@pytest.mark.parametrize("mode", ["eager", "graph", "XLA"])
@pytest.mark.parametrize("case", PUBLIC_CASES, ids=[case["id"] for case in PUBLIC_CASES])
def test_public_cases_give_the_published_numbers(case, mode):
    names = ("size", "alpha", "beta", "bias", "axis")
    arguments = {name: case[name] for name in names} | {"lda_coeff": case.get("lda_coeff", 1.0)}
    x = tf.constant(case["x"], case["dtype"])
    upstream = tf.constant(case.get("upstream", np.ones_like(case["x"])), case["dtype"])

    def call(x, upstream):
        return [
            local_response_normalization(x, training=training, **arguments)
            if case["kind"] == "forward"
            else value_and_gradient(x, upstream, training=training, **arguments)[1]
            for training in (False, True)
        ]

    checked = ~np.isnan(case["expected"])
    assert checked.any()
    for actual in in_mode(mode, call)(x, upstream):
        assert actual.dtype == case["dtype"]
        error = relative_error(actual.numpy()[checked], case["expected"][checked])
        assert error <= case["tol"]


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("radius", range(8))
def test_tensorflow_agrees_where_it_has_the_operation(radius, mode):
    x, upstream = map(tf.constant, random_x_and_upstream((2, 3, 4, 17), "float32"))
    with tf.GradientTape() as tape:
        tape.watch(x)
        # Its alpha is not divided by the size of the window.
        y = tf.nn.local_response_normalization(x, radius, bias=0.8, alpha=0.4, beta=0.75)
    expected = y, tape.gradient(y, x, upstream)
    size = 2 * radius + 1
    arguments = dict(size=size, alpha=0.4 * size, beta=0.75, bias=0.8)

    def call(x, upstream):
        return [
            value_and_gradient(x, upstream, training=training, **arguments)
            for training in (False, True)
        ]

    for actual in in_mode(mode, call)(x, upstream):
        for ours, theirs in zip(actual, expected, strict=True):
            # Each side may be off by 2e-6.
            assert relative_error(ours, theirs) <= 4e-6


# Closed forms


@pytest.mark.parametrize("training", [False, True])
def test_size_one_is_a_function_of_one_variable(training):
    x, upstream = random_x_and_upstream((3, 13))
    scale = 0.8 + 1.5 * x**2
    derivative = (0.8 + 1.5 * (1 - 2 * 0.75) * x**2) * scale**-1.75
    y, dx = value_and_gradient(
        tf.constant(x), tf.constant(upstream), 1, training=training, **ARGUMENTS
    )
    assert_accurate(y, x * scale**-0.75, "float64")
    assert_accurate(dx, upstream * derivative, "float64")


@pytest.mark.parametrize("size", [0, 3, 4])
@pytest.mark.parametrize("training", [False, True])
def test_alpha_zero_only_divides_by_a_power_of_the_bias(size, training):
    x, upstream = random_x_and_upstream((3, 13))
    arguments = dict(size=size, alpha=0.0, beta=0.75, bias=16.0, training=training)
    y, dx = value_and_gradient(tf.constant(x), tf.constant(upstream), **arguments)
    assert_accurate(y, x / 8, "float64")
    assert_accurate(dx, upstream / 8, "float64")


@pytest.mark.parametrize("size", [0, 3, 4])
@pytest.mark.parametrize("training", [False, True])
def test_beta_zero_changes_nothing(size, training):
    x, upstream = random_x_and_upstream((3, 13))
    arguments = dict(size=size, alpha=1.5, beta=0.0, bias=0.8, training=training)
    y, dx = value_and_gradient(tf.constant(x), tf.constant(upstream), **arguments)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(dx, upstream)


@pytest.mark.parametrize("size", [25, 26, 100, 10**30])
@pytest.mark.parametrize("training", [False, True])
def test_a_window_that_always_holds_every_channel_shares_one_scale(size, training):
    x, upstream = random_x_and_upstream((3, 13))
    scale = 0.8 + 1.5 * (x**2).sum(axis=-1, keepdims=True)
    shared = 2 * 1.5 * 0.75 * (upstream * x).sum(axis=-1, keepdims=True) * scale**-1.75
    arguments = dict(size=size, alpha=1.5 * size, beta=0.75, bias=0.8, training=training)
    y, dx = value_and_gradient(tf.constant(x), tf.constant(upstream), **arguments)
    assert_accurate(y, x * scale**-0.75, "float64")
    assert_accurate(dx, upstream * scale**-0.75 - x * shared, "float64")


@pytest.mark.parametrize("mode", ["eager", "graph", "XLA"])
def test_bias_zero_over_all_channels_is_l2_normalization(mode):
    x, upstream = random_x_and_upstream((3, 5))
    x[1] = 0
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    norm[1] = np.inf
    y = x / norm
    dx = (upstream - y * (y * upstream).sum(axis=-1, keepdims=True)) / norm

    def call(x, upstream):
        arguments = dict(size=16, alpha=16.0, beta=0.5, bias=0.0)
        return [
            value_and_gradient(x, upstream, training=training, **arguments)
            for training in (False, True)
        ]

    for actual in in_mode(mode, call)(tf.constant(x), tf.constant(upstream)):
        assert_both_accurate(actual, (y, dx), "float64")
        for tensor in actual:
            np.testing.assert_array_equal(tensor[1], 0)


@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.6, -0.5])
@pytest.mark.parametrize("way", [dict(training=False), dict(training=True), dict(jit_compile=True)])
def test_bias_zero_gives_zero_where_a_whole_window_is_zero_and_no_nan_after(beta, way):
    x = np.array([[1.0, -2.0, 0, 0, 0, 0, 3.0], [0, 0, 0, 0, 0, 0, 0]])
    upstream = tf.constant(random_x_and_upstream(x.shape)[1])
    arguments = dict(size=4, alpha=4.0, beta=beta, bias=0.0)
    expected = oracle(x, upstream.numpy(), **arguments)
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch((x, upstream))
        y, dx = value_and_gradient(x, upstream, **way, **arguments)
    assert_both_accurate((y, dx), expected, "float64")
    # Size 4 sees one channel before and two after: channel 3 alone has an empty window.
    for tensor in (y, dx):
        np.testing.assert_array_equal(tensor[0, 3], 0)
        np.testing.assert_array_equal(tensor[1], 0)
    for second in tape.gradient(dx, (x, upstream), upstream):
        assert np.isfinite(second).all()
        np.testing.assert_array_equal(second[1], 0)


# Properties

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
        training=draw(st.booleans()),
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
    actual = value_and_gradient(
        tf.constant(x), tf.constant(upstream), lda_coeff=lda_coeff, **arguments
    )
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
    clean = local_response_normalization(tf.constant(x), **arguments).numpy()
    with np.errstate(over="ignore"):  # 1e30 is infinity in float16
        np.moveaxis(x, axis, 0)[poisoned] = value
    y = local_response_normalization(tf.constant(x), **arguments).numpy()
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
    _, dx = value_and_gradient(tf.constant(x), tf.constant(upstream), **arguments)
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
    y, dx = value_and_gradient(x, upstream, **arguments)
    same, scaled = value_and_gradient(x, upstream, lda_coeff=lda_coeff, **arguments)
    np.testing.assert_array_equal(same, y)
    largest = np.max(np.abs(upstream)) * max(1.0, np.max(np.abs(dx)))
    difference = np.max(np.abs(scaled - lda_coeff * dx))
    assert difference <= {"float32": 4e-6, "float64": 2e-12}[x.dtype.name] * largest


# Locality and lda_coeff in traced graphs


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mode", ["eager", "graph", "XLA"])
def test_what_is_not_finite_stays_in_its_windows_in_every_mode(mode, training):
    # One position for each pair of a value and a channel that holds it.
    x, upstream = random_x_and_upstream((3, 9, 2, 17), "float32")
    clean = x.copy()
    places = np.arange(0, 17, 2)
    for i, value in enumerate([np.nan, np.inf, -1e30]):
        x[i, range(9), 0, places] = value
    sizes = (4, 5)

    def call(x, upstream):
        return [
            value_and_gradient(x, upstream, size, training=training, **ARGUMENTS) for size in sizes
        ]

    results = in_mode(mode, call)(tf.constant(x), tf.constant(upstream))
    for size, (y, dx) in zip(sizes, results, strict=True):
        expected, _ = oracle(x, upstream, size, **ARGUMENTS)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
        assert np.isnan(y).any()
        finite = ~np.isnan(expected)
        assert relative_error(y.numpy()[finite], expected[finite]) <= 2e-6
        # The gradient of a channel meets all channels that share a window with it.
        far = np.ones(x.shape, bool)
        far[:, :, 0] = np.abs(places[:, None] - np.arange(17)) >= size
        _, expected = oracle(clean, upstream, size, **ARGUMENTS)
        assert relative_error(dx.numpy()[far], expected[far]) <= 2e-6


@pytest.mark.parametrize("lda_coeff", [0.0, -2.0])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mode", ["eager", "graph", "XLA"])
def test_lda_coeff_is_applied_once_in_every_mode(mode, training, lda_coeff):
    x, upstream = random_x_and_upstream((2, 3, 4, 13), "float32")
    arguments = dict(size=5, lda_coeff=lda_coeff, **ARGUMENTS)

    def call(x, upstream):
        return value_and_gradient(x, upstream, training=training, **arguments)

    actual = in_mode(mode, call)(tf.constant(x), tf.constant(upstream))
    assert_both_accurate(actual, oracle(x, upstream, **arguments), "float32")


# Higher orders


@pytest.fixture(
    params=["plain ops", "compiled", "eager blocks"],
)
def way(request, monkeypatch):
    """The arguments of a call that runs the given way in eager execution."""
    blocks = request.param == "eager blocks"
    monkeypatch.setattr(ops, "EAGER_BLOCK_ELEMENTS", 1 if blocks else math.inf)
    return {"jit_compile": True} if request.param == "compiled" else {}


# With rank 3 `jit_compile=True` compiles whole tensors.
SHAPE = (2, 3, 5)
both_training_modes = pytest.mark.parametrize("training", [False, True])


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
        _, dx = value_and_gradient(x, upstream, *args, **kwargs)
    return tape.gradient(dx, (x, upstream), weights)


@both_training_modes
@pytest.mark.parametrize(("size", "lda_coeff"), [(1, 1.0), (4, -2.5), (40, 1.0)])
def test_second_order_is_the_finite_difference_of_the_first(way, training, size, lda_coeff):
    x, upstream = random_x_and_upstream(SHAPE)
    weights = random_x_and_upstream(SHAPE, seed=1)[0]
    arguments = dict(size=size, lda_coeff=lda_coeff, **ARGUMENTS)
    over_x, over_upstream = second_order(
        *map(tf.constant, (x, upstream, weights)), training=training, **arguments, **way
    )
    numeric = numeric_gradient(
        lambda x: np.sum(weights * reference.gradient(x, upstream, **arguments)), x
    )
    assert relative_error(over_x, numeric) <= 1e-8
    jacobian = oracle_jacobian(x, **arguments)
    assert_accurate(over_upstream, (jacobian @ weights.ravel()).reshape(SHAPE), "float64")


@both_training_modes
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


@both_training_modes
def test_second_order_with_a_blocked_derivative_is_zero_and_not_missing(way, training):
    x, upstream = random_x_and_upstream(SHAPE)
    arguments = dict(size=4, training=training, lda_coeff=0.0, **ARGUMENTS)
    for second in second_order(*map(tf.constant, (x, upstream, x)), **arguments, **way):
        np.testing.assert_array_equal(second, np.zeros(SHAPE))


@both_training_modes
def test_third_order_is_the_finite_difference_of_the_second(way, training):
    x, upstream = random_x_and_upstream(SHAPE)
    weights, more = random_x_and_upstream(SHAPE, seed=1)
    arguments = dict(size=4, training=training, **ARGUMENTS, **way)
    others = tuple(map(tf.constant, (upstream, weights)))

    def second(x):
        return second_order(tf.constant(x), *others, **arguments)[0]

    variable = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        over_x, _ = second_order(variable, *others, **arguments)
    third = tape.gradient(over_x, variable, more)
    numeric = numeric_gradient(lambda x: np.sum(more * second(x).numpy()), x)
    assert relative_error(third, numeric) <= 1e-7


@both_training_modes
def test_jacobians(way, training):
    x, _ = random_x_and_upstream(SHAPE)
    expected = oracle_jacobian(x, 4, **ARGUMENTS).reshape(*SHAPE, *SHAPE)
    x = tf.constant(x)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = local_response_normalization(x, 4, training=training, **ARGUMENTS, **way)
    assert_accurate(tape.jacobian(y, x), expected, "float64")
    batch = np.stack([expected[i, ..., i, :, :] for i in range(2)])
    assert_accurate(tape.batch_jacobian(y, x), batch, "float64")


@both_training_modes
def test_vectorized_map(way, training):
    x, upstream = random_x_and_upstream((4, *SHAPE))
    arguments = dict(size=4, lda_coeff=-1.5, **ARGUMENTS)

    def call(pair):
        return value_and_gradient(*pair, training=training, **arguments, **way)

    actual = tf.vectorized_map(call, (tf.constant(x), tf.constant(upstream)))
    assert_both_accurate(actual, oracle(x, upstream, **arguments), "float64")


@both_training_modes
def test_forward_mode(way, training):
    x, tangent = random_x_and_upstream(SHAPE)
    expected = oracle_jacobian(x, 4, **ARGUMENTS) @ tangent.ravel()
    x, tangent = tf.constant(x), tf.constant(tangent)
    with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
        y = local_response_normalization(x, 4, training=training, **ARGUMENTS, **way)
    assert_accurate(accumulator.jvp(y), expected.reshape(SHAPE), "float64")


@both_training_modes
def test_forward_mode_over_a_gradient(way, training):
    x, upstream = random_x_and_upstream(SHAPE)
    tangent = random_x_and_upstream(SHAPE, seed=1)[0]
    above, below = (
        reference.gradient(x + h * tangent, upstream, 4, **ARGUMENTS) for h in (1e-6, -1e-6)
    )
    x = tf.constant(x)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(tangent)) as accumulator:
        _, dx = value_and_gradient(
            x, tf.constant(upstream), 4, training=training, **ARGUMENTS, **way
        )
    assert relative_error(accumulator.jvp(dx), (above - below) / 2e-6) <= 1e-8


# Routing. Each test has an alpha of its own where shapes are counted by the numbers of a call.

IMAGES = (None, 5, 6, 13)


def call_and_gradient(**arguments):
    arguments = {"size": 5, **ARGUMENTS, **arguments}
    return lambda x: value_and_gradient(x, x, **arguments)


def test_inference_in_a_graph_is_the_lrn_op_alone():
    ops_of_call = traced_ops(lambda x: local_response_normalization(x, 5, **ARGUMENTS), IMAGES)
    assert ops_of_call["LRN"] == 1
    assert set(+ops_of_call) <= {"Placeholder", "LRN", "Identity", "IdentityN", "NoOp"}


def test_the_gradient_of_the_lrn_op_is_ours():
    ops_of_call = traced_ops(call_and_gradient(), IMAGES)
    assert ops_of_call["LRN"] == 1
    assert ops_of_call["LRNGrad"] == 0
    assert ops_of_call["XLA"] == 0


@pytest.mark.parametrize(
    ("shape", "dtype", "arguments"),
    [
        (IMAGES, "float32", dict(axis=3)),
        (IMAGES, "float16", {}),
        (IMAGES, "bfloat16", {}),
        (IMAGES, "float32", dict(size=3)),
        (IMAGES, "float32", dict(size=15)),
        (IMAGES, "float32", dict(beta=0.01)),
        (IMAGES, "float32", dict(bias=1e-5)),
        (IMAGES, "float32", dict(jit_compile=False)),
        (IMAGES, "float32", dict(lda_coeff=-2.0)),
        ((None, None, None, 13), "float32", {}),
        ((None, 5, 6, 384), "float32", {}),
        ((2, 5, 6, 13), "float32", {}),
    ],
)
def test_the_lrn_op_is_used_where_it_means_the_same(shape, dtype, arguments):
    ops_of_call = traced_ops(call_and_gradient(**arguments), shape, dtype)
    assert ops_of_call["LRN"] == 1
    # And it does.
    shape = [known or size for known, size in zip(shape, (2, 3, 4, 13), strict=True)]
    x, upstream = random_x_and_upstream(shape, dtype)
    arguments = {"size": 5, **ARGUMENTS, **arguments}
    actual = in_mode("graph", lambda x: local_response_normalization(x, **arguments))(x)
    arguments.pop("jit_compile", None)
    assert_accurate(actual, oracle(x, upstream, **arguments)[0], dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "arguments"),
    [
        ((None, 5, 13), "float32", {}),
        ((None, 5, 6, 7, 13), "float32", {}),
        ((None, 5, 6, 13, 7), "float32", dict(axis=3)),
        (IMAGES, "float32", dict(axis=1)),
        (IMAGES, "float32", dict(axis=-2)),
        (IMAGES, "float32", dict(size=0)),
        (IMAGES, "float32", dict(size=1)),
        (IMAGES, "float32", dict(size=4)),
        (IMAGES, "float32", dict(size=17)),
        (IMAGES, "float32", dict(beta=0.005)),
        (IMAGES, "float32", dict(beta=-0.75)),
        (IMAGES, "float32", dict(bias=1e-6)),
        (IMAGES, "float32", dict(bias=0.0)),
        (IMAGES, "float64", {}),
        ((None, 5, 6, 385), "float32", {}),
        ((None, 5, 6, None), "float32", {}),
        (IMAGES, "float32", dict(training=True)),
        (IMAGES, "float32", dict(jit_compile=True)),
    ],
)
def test_the_lrn_op_is_not_used_elsewhere(shape, dtype, arguments):
    ops_of_call = traced_ops(call_and_gradient(**arguments), shape, dtype)
    assert ops_of_call["LRN"] == 0
    if not {"training", "jit_compile"} & set(arguments):
        assert ops_of_call["XLA"] == 0


@pytest.mark.parametrize("shape", [(2, 5, 6, 13), IMAGES, (None, 5, 13), (None, 13)])
def test_the_keeping_mode_in_a_graph_is_compiled(shape):
    ops_of_call = traced_ops(call_and_gradient(training=True, alpha=1.52), shape)
    assert ops_of_call["XLA"] == 2  # forward and backward
    assert ops_of_call["LRN"] == 0


@pytest.mark.parametrize("shape", [(None, None, 6, 13), (None, 5, None, 13), (None, 5, 6, None)])
def test_a_graph_for_any_shape_compiles_nothing_and_keeps_the_scale(shape):
    ops_of_call = traced_ops(call_and_gradient(training=True), shape)
    assert ops_of_call["XLA"] == ops_of_call["LRN"] == 0
    # A window sum pads: one for the scale, one for the gradient.
    assert ops_of_call["Pad"] == 2


@pytest.mark.parametrize("training", [False, True])
def test_jit_compile_decides_in_a_graph(training):
    forced = traced_ops(call_and_gradient(training=training, jit_compile=True), IMAGES)
    assert forced["XLA"] == 2
    assert forced["LRN"] == 0
    never = traced_ops(call_and_gradient(training=training, jit_compile=False), IMAGES)
    assert never["XLA"] == 0


@pytest.mark.parametrize("training", [False, True])
def test_inside_xla_there_are_plain_ops_only(training):
    def nested(depth):
        call = call_and_gradient(training=training)
        for _ in range(depth):
            call = tf.function(call, autograph=False)
        return lambda x: call(x)

    for depth in range(3):
        inside = traced_ops(nested(depth), IMAGES, jit_compile=True)
        assert inside["XLA"] == inside["LRN"] == 0
        assert inside["Rsqrt"] == 2  # forward and backward
        outside = traced_ops(nested(depth), IMAGES)
        assert outside["XLA"] == 2 * training
        assert outside["LRN"] == (not training)


def loops(function, shape, **options):
    """How many loops over blocks a call traces to."""
    counts = traced_ops(function, shape, **options)
    return counts["While"] + counts["StatelessWhile"]


def test_only_known_spatial_dimensions_get_programs_of_their_own():
    def in_blocks(shape, **arguments):
        return loops(call_and_gradient(jit_compile=True, alpha=1.53, **arguments), shape) == 2

    assert not in_blocks(IMAGES)
    assert not in_blocks((2, 5, 6, 13))
    assert not in_blocks((None, 13, 6), axis=1)
    assert in_blocks((None, None, 6, 13))
    assert in_blocks((None, 5, None, 13))
    assert in_blocks((None, 13, None), axis=1)
    # Of two dimensions the batch alone is a shape, and it changes.
    assert in_blocks((None, 13))
    assert in_blocks((2, 13))
    # A loop needs to know the length of its rows, and XLA can do without.
    assert not in_blocks((None, 5, 6, None))
    assert loops(call_and_gradient(jit_compile=True), (None, 13), jit_compile=True) == 0


def test_wide_windows_run_in_blocks():
    widest = call_and_gradient(training=True, size=ops.WIDE_WINDOW)
    assert loops(widest, IMAGES) == 0
    wider = call_and_gradient(training=True, size=ops.WIDE_WINDOW + 1)
    assert loops(wider, IMAGES) == 2


def test_ever_changing_shapes_share_one_program():
    call = call_and_gradient(training=True, alpha=1.54)
    shapes = [(None, height, 6, 13) for height in range(1, ops.WHOLE_SHAPES + 4)]
    assert [loops(call, shape) for shape in shapes] == [0] * ops.WHOLE_SHAPES + [2] * 3
    # The first shapes keep their programs, and other numbers have programs of their own.
    assert loops(call, shapes[0]) == 0
    assert loops(call_and_gradient(training=True, alpha=1.55), shapes[-1]) == 0


def test_a_gpu_compiles_whole_tensors_only(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda device_type=None: ["a GPU"])
    monkeypatch.setattr(ops, "EAGER_BLOCK_ELEMENTS", 1)
    for shape in [IMAGES, (None, None, 6, 13), (None, 13)]:
        call = call_and_gradient(jit_compile=True, alpha=1.56)
        assert traced_ops(call, shape)["XLA"] == 2
        assert loops(call, shape) == 0
    monkeypatch.setattr(kernels, "blockwise", None)
    x, upstream = random_x_and_upstream((2, 13))
    actual = value_and_gradient(tf.constant(x), tf.constant(upstream), 5, **ARGUMENTS)
    assert_both_accurate(actual, oracle(x, upstream, 5, **ARGUMENTS), "float64")


class Recorder:
    """Counts how often a function is traced."""

    def __init__(self, monkeypatch, name):
        self.function, self.traces = getattr(kernels, name), 0
        monkeypatch.setattr(kernels, name, self)

    def __call__(self, *args, **kwargs):
        self.traces += not tf.executing_eagerly()
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("jit_compile", ["auto", True, False])
def test_large_eager_tensors_run_in_compiled_blocks(monkeypatch, jit_compile):
    blockwise, compiled = (Recorder(monkeypatch, name) for name in ("blockwise", "compiled"))
    for missing in (0, 1):
        blockwise.traces = compiled.traces = 0
        x = tf.ones((1, 2, ops.EAGER_BLOCK_ELEMENTS // 2 - missing))
        value_and_gradient(x, x, 5, alpha=1.57, jit_compile=jit_compile)
        assert (blockwise.traces > 0) == (jit_compile == "auto" and not missing)
        assert (compiled.traces > 0) == (jit_compile is True)


def test_the_jacobian_of_eager_blocks_is_made_of_plain_ops(monkeypatch):
    monkeypatch.setattr(ops, "EAGER_BLOCK_ELEMENTS", 1)
    blockwise = Recorder(monkeypatch, "blockwise")
    x = tf.constant(random_x_and_upstream(SHAPE)[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = local_response_normalization(x, 4, **ARGUMENTS)
    assert blockwise.traces == 1
    assert tape.jacobian(y, x).shape == SHAPE + SHAPE
    assert blockwise.traces == 1


def test_repeated_calls_trace_once_and_do_not_grow_the_gradient_registry(way, monkeypatch):
    registry = tensorflow_ops._gradient_registry._registry
    names = ("forward", "backward", "blockwise", "compiled")
    recorders = [Recorder(monkeypatch, name) for name in names]

    def call(rows):
        x, upstream = map(tf.constant, random_x_and_upstream((rows, 2, 7)))
        for training in (False, True):
            value_and_gradient(x, upstream, 4, alpha=1.58, training=training, **way)
        return len(registry), [recorder.traces for recorder in recorders]

    first = call(3)
    assert first[0] > 0
    assert [call(rows) for rows in (3, 3, 5, 11)] == [first] * 4


def test_a_network_of_many_layers_is_not_taken_for_one_that_retraces(way, caplog):
    for channels in range(7, 15):
        local_response_normalization(tf.ones((2, 3, channels)), 5, alpha=1.59, **way)
    assert "retracing" not in caplog.text


def test_a_traced_function_is_traced_once_for_any_batch():
    @tf.function(input_signature=[tf.TensorSpec(IMAGES)] * 2, autograph=False)
    def call(x, upstream):
        return value_and_gradient(x, upstream, 5, training=True, **ARGUMENTS)

    for batch in (2, 3, 4, 2):
        call(*random_x_and_upstream((batch, 5, 6, 13), "float32"))
    assert call.experimental_get_tracing_count() == 1


# Memory


@pytest.fixture
def new_buffers():
    """Counts the buffers of a shape or larger that were made in the test and are alive."""

    def count(shape):
        gc.collect()
        tensors = [o for o in gc.get_objects() if type(o) is type(tf.constant(0))]
        views = [memoryview(t) for t in tensors if t.shape.num_elements() >= math.prod(shape)]
        return len({np.frombuffer(view, "uint8").ctypes.data for view in views})

    gc.freeze()  # what there was before is not looked at, which would take seconds
    yield count
    gc.unfreeze()


@pytest.mark.parametrize(
    ("mode", "arguments", "kept"),
    [
        ("eager", dict(training=False), 0),
        ("eager", dict(training=True), 1),  # the scale
        ("eager", dict(training=False, jit_compile=True), 0),
        ("eager", dict(training=True, jit_compile=True), 0),
        ("graph", dict(training=False), 0),
        ("graph", dict(training=False, size=4), 0),
        ("graph", dict(training=False, jit_compile=True), 0),
        ("graph", dict(training=True), 1),  # the input, padded
        ("graph", dict(training=True, size=33), 0),  # blocks
    ],
)
def test_what_is_retained_for_the_backward_pass(new_buffers, mode, arguments, kept):
    shape = (2, 3, 5, 19)
    arguments = {"size": 5, **ARGUMENTS, **arguments}
    call = in_mode(mode, lambda x: local_response_normalization(x, **arguments))
    x = tf.constant(random_x_and_upstream(shape, "float32")[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(x)
    # Beyond the input and the output.
    assert new_buffers(shape) == 2 + kept
    assert tape.gradient(y, x) is not None


@pytest.mark.parametrize("training", [False, True])
def test_what_is_retained_for_the_second_order(new_buffers, training):
    shape = (2, 3, 5, 19)
    x, upstream = map(tf.constant, random_x_and_upstream(shape, "float32"))
    with tf.GradientTape() as tape:
        tape.watch((x, upstream))
        y, dx = value_and_gradient(x, upstream, 5, training=training, **ARGUMENTS)
    # Beyond the two inputs and the two results: the scale of the keeping mode.
    assert new_buffers(shape) == 4 + training
    assert y is not None
    assert tape.gradient(dx, x) is not None


@pytest.mark.parametrize(("jit_compile", "type_of_op"), [(False, "Rsqrt"), (True, "Pad")])
def test_a_graph_waits_for_the_gradient_before_it_computes_the_scale_again(jit_compile, type_of_op):
    @tf.function(autograph=False)
    def call(x, upstream):
        return value_and_gradient(x, upstream, 4, jit_compile=jit_compile, **ARGUMENTS)

    graph = call.get_concrete_function(tf.TensorSpec(IMAGES), tf.TensorSpec(IMAGES)).graph
    waiting = {graph.inputs[1].op}
    for op in graph.get_operations():  # in the order of their dependencies
        if waiting & {*op.control_inputs, *(tensor.op for tensor in op.inputs)}:
            waiting.add(op)
    of_the_scale = [op for op in graph.get_operations() if op.type == type_of_op]
    assert [op in waiting for op in of_the_scale] == [False, True]


# Nothing to normalize


@pytest.mark.parametrize("mode", ["eager", "graph", "XLA"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((0, 13), 1),
        ((0, 3, 5, 13), -1),
        ((2, 0, 5, 13), -1),
        ((2, 3, 5, 0), -1),
        ((2, 13, 0, 5), 1),
    ],
)
def test_an_empty_tensor_gives_an_empty_result_and_gradient(shape, axis, mode):
    def call(x, upstream):
        return [
            value_and_gradient(
                x, upstream, 5, axis=axis, training=training, jit_compile=jit_compile
            )
            for training in (False, True)
            for jit_compile in ("auto", True)
        ]

    for pair in in_mode(mode, call)(tf.zeros(shape), tf.zeros(shape)):
        for tensor in pair:
            assert tensor.shape == shape
            assert tensor.dtype == "float32"


def test_an_empty_batch_of_a_graph_for_any_batch():
    @tf.function(input_signature=[tf.TensorSpec(IMAGES)] * 2, autograph=False)
    def call(x, upstream):
        return [
            value_and_gradient(x, upstream, 5, training=training, **ARGUMENTS)
            for training in (False, True)
        ]

    for pair in call(tf.zeros((0, 5, 6, 13)), tf.zeros((0, 5, 6, 13))):
        assert all(tensor.shape == (0, 5, 6, 13) for tensor in pair)


# Arguments

NO_INTEGERS = [2.0, True, np.True_, "5", None, math.nan, 1j, [5]]
NO_REALS = ["0.5", None, True, np.False_, math.nan, math.inf, -math.inf, 1j, [1.0], 10**400]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *[("size", value, "`size` to be an integer >= 0") for value in [*NO_INTEGERS, -1]],
        *[("axis", value, "`axis` to be an integer") for value in NO_INTEGERS],
        *[
            (name, value, f"`{name}` to be a finite real number >= 0")
            for name in ("alpha", "bias")
            for value in [*NO_REALS, -0.5, -1]
        ],
        *[
            (name, value, f"`{name}` to be a finite real number")
            for name in ("beta", "lda_coeff")
            for value in NO_REALS
        ],
        *[("training", v, "`training` to be a boolean") for v in (None, 0, 1, "yes", 1.0)],
        *[
            ("jit_compile", value, '`jit_compile` to be "auto", True or False')
            for value in (None, 0, 1, "yes", "Auto", ["auto"])
        ],
    ],
)
def test_an_illegal_argument_is_named_with_what_was_expected_and_received(name, value, expected):
    arguments = {"size": 5, name: value}
    message = f"Expected {expected}. Received: {name}={value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        local_response_normalization(tf.ones((2, 3, 13)), **arguments)


@pytest.mark.parametrize("arguments", [dict(size=5, alpha=0.0), dict(size=0, alpha=1.5)])
def test_bias_zero_needs_something_to_sum(arguments):
    received = f"bias=0.0, alpha={arguments['alpha']}, size={arguments['size']}"
    message = rf"^Expected `bias` to be above 0 unless .*\. Received: {re.escape(received)}$"
    with pytest.raises(ValueError, match=message):
        local_response_normalization(tf.ones((2, 13)), bias=0.0, **arguments)


def test_numpy_numbers_mean_what_python_numbers_mean():
    x = tf.constant(random_x_and_upstream((3, 13))[0])
    python = dict(size=5, alpha=1.5, beta=0.75, bias=2, axis=-1, training=True, lda_coeff=-2)
    numpy = dict(
        size=np.int64(5),
        alpha=np.float16(1.5),
        beta=np.float32(0.75),
        bias=np.int32(2),
        axis=np.int8(-1),
        training=np.True_,
        lda_coeff=np.float64(-2),
    )
    for jit_compile in (False, True):
        expected = value_and_gradient(x, x, jit_compile=jit_compile, **python)
        actual = value_and_gradient(x, x, jit_compile=np.bool_(jit_compile), **numpy)
        for got, exact in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "complex64", "string"])
def test_an_illegal_dtype_is_named_with_the_four_legal_ones(dtype):
    x = tf.constant("x", shape=(2, 13)) if dtype == "string" else tf.zeros((2, 13), dtype)
    message = (
        "^local_response_normalization expects an input of dtype bfloat16, float16, float32 or "
        f"float64. Received: dtype={dtype}$"
    )
    with pytest.raises(ValueError, match=message):
        local_response_normalization(x, 5)


@pytest.mark.parametrize("shape", [(), (13,)])
def test_an_illegal_rank_is_named(shape):
    message = (
        "local_response_normalization expects an input of known rank >= 2. "
        f"Received: rank={len(shape)}, shape={shape}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        local_response_normalization(tf.zeros(shape), 5)


def test_an_unknown_rank_is_named():
    traced = tf.function(lambda x: local_response_normalization(x, 5), autograph=False)
    message = r"expects an input of known rank >= 2\. Received: rank=None, shape=<unknown>$"
    with pytest.raises(ValueError, match=message):
        traced.get_concrete_function(tf.TensorSpec(None))


@pytest.mark.parametrize("axis", [0, 4, -4, -5])
def test_an_illegal_axis_is_named_with_the_rank(axis):
    message = (
        "local_response_normalization expects `axis` to be a channel axis, other than the batch "
        f"axis 0, of an input of rank 4. Received: axis={axis}, shape=(2, 3, 4, 13)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        local_response_normalization(tf.zeros((2, 3, 4, 13)), 5, axis=axis)


@pytest.mark.parametrize(
    ("x", "convert"),
    [
        (tf.ragged.constant([[1.0, 2.0], [3.0]]), "`to_tensor()`"),
        (tf.sparse.from_dense([[1.0, 0.0, 2.0]]), "`tf.sparse.to_dense`"),
    ],
    ids=["ragged", "sparse"],
)
def test_a_tensor_that_is_not_dense_is_refused_with_what_to_do(x, convert):
    message = (
        "^local_response_normalization expects a dense input; convert it with "
        f"{re.escape(convert)} first. Received: .*{type(x).__name__}$"
    )
    with pytest.raises(ValueError, match=message):
        local_response_normalization(x, 3)
    with pytest.raises(ValueError, match=message):
        tf.function(lambda x: local_response_normalization(x, 3), autograph=False)(x)


@pytest.mark.parametrize("training", [False, True])
def test_name_is_the_name_of_the_op(training):
    names = []

    def call(x):
        y = local_response_normalization(x, 5, training=training, name="normalized")
        names.append(y.op.name)
        return y

    traced_ops(call, IMAGES)
    assert names == ["normalized"]
    # An eager tensor has no name.
    x = tf.constant(random_x_and_upstream((3, 13))[0])
    named = local_response_normalization(x, 5, training=training, name="normalized")
    np.testing.assert_array_equal(named, local_response_normalization(x, 5, training=training))


def test_the_symbol_of_a_functional_model_is_for_the_layer():
    message = (
        "^local_response_normalization expects a tensor with values; in a functional model use "
        "the layer LocalResponseNormalization. Received: x=<KerasTensor"
    )
    with pytest.raises(ValueError, match=message):
        local_response_normalization(keras.Input((5, 6, 13)), 5)
