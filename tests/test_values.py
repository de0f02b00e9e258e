"""Outputs and gradients of the function, in every mode, against the oracle and other judges."""

import inspect
import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from cases import (
    ARGUMENTS,
    DTYPES,
    MODES,
    SHAPES_AND_AXES,
    SIZES,
    TRAININGS,
    assert_accurate,
    assert_all_accurate,
    in_mode,
    lrn_and_gradient,
    oracle,
    public_cases,
    random_x_and_upstream,
    relative_error,
    value_and_gradient,
)

from keras_lrn import local_response_normalization

PUBLIC_CASES = public_cases()
in_every_mode = pytest.mark.parametrize("mode", MODES)
in_both_trainings = pytest.mark.parametrize("training", [False, True])


# The oracle


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), SHAPES_AND_AXES)
def test_eager_calls_are_what_the_oracle_says(shape, axis, dtype):
    x, upstream = random_x_and_upstream(shape, dtype)
    for size, beta in zip(SIZES, itertools.cycle([0.75, 0.5, 0.6, 1.0])):
        arguments = dict(size=size, axis=axis, alpha=1.5, beta=beta, bias=0.8)
        expected = oracle(x, upstream, **arguments)
        for training in TRAININGS:
            actual = lrn_and_gradient(x, upstream, training=training, **arguments)
            assert_all_accurate(actual, expected, dtype)


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
    rng = random.Random(0)

    def deal(choices):
        while True:
            yield from rng.sample(choices, len(choices))

    sizes, dtypes, trainings, betas = map(deal, (SIZES, DTYPES, TRAININGS, (0.75, 0.5, 0.6)))
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
    choices = (TRACED_MODES, range(2, 6), DTYPES, TRAININGS, (0.75, 0.5, 0.6), SIZES)
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
            lrn_and_gradient(x, upstream, size, training=training, **arguments) for size in sizes
        ]

    x, upstream = random_x_and_upstream(shape, dtype)
    for size, actual in zip(sizes, traced(x, upstream), strict=True):
        assert_all_accurate(actual, oracle(x, upstream, size, **arguments), dtype)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("training", TRAININGS)
@in_every_mode
def test_jit_compile_does_not_change_the_result(mode, training, jit_compile):
    x, upstream = random_x_and_upstream((2, 3, 13, 4), "float32")
    for size in (4, 5):
        arguments = dict(size=size, axis=-2, lda_coeff=-1.5, **ARGUMENTS)

        def call(x, upstream, arguments=arguments):
            return lrn_and_gradient(
                x, upstream, training=training, jit_compile=jit_compile, **arguments
            )

        actual = in_mode(mode, call)(tf.constant(x), tf.constant(upstream))
        assert_all_accurate(actual, oracle(x, upstream, **arguments), "float32")


@pytest.mark.usefixtures("eager_blocks", "rows_of_a_block")
@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "size"),
    [
        ("bfloat16", (3, 13), 1, 4),
        ("float16", (2, 3, 4, 13), -1, 5),
        ("float32", (2, 13, 4, 3), 1, 4),
        ("float64", (2, 3, 13), -1, 40),
        ("float32", (2, 3, 13, 4, 5), 2, 0),
    ],
)
def test_eager_blocks_are_what_the_oracle_says(dtype, shape, axis, size):
    x, upstream = random_x_and_upstream(shape, dtype)
    arguments = dict(size=size, axis=axis, lda_coeff=-1.5, **ARGUMENTS)
    for training in TRAININGS:
        actual = lrn_and_gradient(x, upstream, training=training, **arguments)
        assert_all_accurate(actual, oracle(x, upstream, **arguments), dtype)


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
        training=None,
        lda_coeff=1.0,
        jit_compile="auto",
        name=None,
    )
    # Large enough for alpha to matter.
    x, upstream = random_x_and_upstream((3, 13))
    actual = lrn_and_gradient(100 * x, upstream, 4)
    assert_all_accurate(actual, oracle(100 * x, upstream, 4), "float64")


def test_python_lists_and_arrays_are_tensors():
    # S = 1 + [1 + 4, 1 + 4 + 9, 4 + 9] = [6, 15, 14]
    arguments = dict(size=3, alpha=3.0, beta=1.0)
    expected = np.array([[1 / 6, 2 / 15, 3 / 14]])
    actual = local_response_normalization([[1.0, 2.0, 3.0]], **arguments)
    assert_accurate(actual, expected, "float32")
    actual = local_response_normalization(np.array([[1.0, 2.0, 3.0]]), **arguments)
    assert_accurate(actual, expected, "float64")


# Other judges


@in_every_mode
@pytest.mark.parametrize("case", PUBLIC_CASES, ids=[case["id"] for case in PUBLIC_CASES])
def test_public_cases_give_the_published_numbers(case, mode):
    names = ("size", "alpha", "beta", "bias", "axis")
    arguments = {name: case[name] for name in names} | {"lda_coeff": case.get("lda_coeff", 1.0)}
    x = tf.constant(case["x"], case["dtype"])
    upstream = tf.constant(case.get("upstream", np.ones_like(case["x"])), case["dtype"])

    ways = [dict(training=True), dict(training=False, jit_compile=True), dict(training=False)]
    if not np.isfinite([case["x"], case["expected"]]).all():
        ways.pop()  # the LRN op of a graph spreads what is not finite

    def call(x, upstream):
        return [
            local_response_normalization(x, **way, **arguments)
            if case["kind"] == "forward"
            else lrn_and_gradient(x, upstream, **way, **arguments)[1]
            for way in ways
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
    # Its alpha is not divided by the size of the window.
    arguments = dict(depth_radius=radius, bias=0.8, alpha=0.4, beta=0.75)
    expected = value_and_gradient(tf.nn.local_response_normalization, x, upstream, **arguments)
    size = 2 * radius + 1
    arguments = dict(size=size, alpha=0.4 * size, beta=0.75, bias=0.8)

    def call(x, upstream):
        return [
            lrn_and_gradient(x, upstream, training=training, **arguments)
            for training in (False, True)
        ]

    for actual in in_mode(mode, call)(x, upstream):
        for ours, theirs in zip(actual, expected, strict=True):
            # Each side may be off by 2e-6.
            assert relative_error(ours, theirs) <= 4e-6


# Closed forms


@in_both_trainings
def test_size_one_is_a_function_of_one_variable(training):
    x, upstream = random_x_and_upstream((3, 13))
    scale = 0.8 + 1.5 * x**2
    derivative = (0.8 + 1.5 * (1 - 2 * 0.75) * x**2) * scale**-1.75
    y, dx = lrn_and_gradient(x, upstream, 1, training=training, **ARGUMENTS)
    assert_accurate(y, x * scale**-0.75, "float64")
    assert_accurate(dx, upstream * derivative, "float64")


@pytest.mark.parametrize("size", [0, 3, 4])
@in_both_trainings
def test_alpha_zero_only_divides_by_a_power_of_the_bias(size, training):
    x, upstream = random_x_and_upstream((3, 13))
    arguments = dict(size=size, alpha=0.0, beta=0.75, bias=16.0, training=training)
    y, dx = lrn_and_gradient(x, upstream, **arguments)
    assert_accurate(y, x / 8, "float64")
    assert_accurate(dx, upstream / 8, "float64")


@pytest.mark.parametrize("size", [0, 3, 4])
@in_both_trainings
def test_beta_zero_changes_nothing(size, training):
    x, upstream = random_x_and_upstream((3, 13))
    arguments = dict(size=size, alpha=1.5, beta=0.0, bias=0.8, training=training)
    y, dx = lrn_and_gradient(x, upstream, **arguments)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(dx, upstream)


@pytest.mark.parametrize("size", [25, 26, 100, 10**30])
@in_both_trainings
def test_a_window_that_always_holds_every_channel_shares_one_scale(size, training):
    x, upstream = random_x_and_upstream((3, 13))
    scale = 0.8 + 1.5 * (x**2).sum(axis=-1, keepdims=True)
    shared = 2 * 1.5 * 0.75 * (upstream * x).sum(axis=-1, keepdims=True) * scale**-1.75
    arguments = dict(size=size, alpha=1.5 * size, beta=0.75, bias=0.8, training=training)
    y, dx = lrn_and_gradient(x, upstream, **arguments)
    assert_accurate(y, x * scale**-0.75, "float64")
    assert_accurate(dx, upstream * scale**-0.75 - x * shared, "float64")


@in_every_mode
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
            lrn_and_gradient(x, upstream, training=training, **arguments)
            for training in (False, True)
        ]

    for actual in in_mode(mode, call)(tf.constant(x), tf.constant(upstream)):
        assert_all_accurate(actual, (y, dx), "float64")
        for tensor in actual:
            np.testing.assert_array_equal(tensor[1], 0)


# Each is a way of its own in a graph: plain ops but for the backward pass, and both compiled.
@in_both_trainings
@in_every_mode
def test_bias_zero_gives_zero_where_a_whole_window_is_zero_and_no_nan_after(mode, training):
    x = np.array([[1.0, -2.0, 0, 0, 0, 0, 3.0], [0, 0, 0, 0, 0, 0, 0]])
    upstream = random_x_and_upstream(x.shape)[1]
    betas = (0.5, 0.75, 1.0, 0.6, -0.5)
    arguments = dict(size=4, alpha=4.0, bias=0.0)

    def one(x, upstream, beta):
        with tf.GradientTape() as tape:
            tape.watch((x, upstream))
            y, dx = lrn_and_gradient(x, upstream, beta=beta, training=training, **arguments)
        return y, dx, tape.gradient(dx, (x, upstream), upstream)

    def call(x, upstream):
        return [one(x, upstream, beta) for beta in betas]

    results = in_mode(mode, call)(tf.constant(x), tf.constant(upstream))
    for beta, (y, dx, seconds) in zip(betas, results, strict=True):
        assert_all_accurate((y, dx), oracle(x, upstream, beta=beta, **arguments), "float64")
        # Size 4 sees one channel before and two after: channel 3 alone has an empty window.
        for tensor in (y, dx):
            np.testing.assert_array_equal(tensor[0, 3], 0)
            np.testing.assert_array_equal(tensor[1], 0)
        for second in seconds:
            assert np.isfinite(second).all()
            np.testing.assert_array_equal(second[1], 0)


# Locality and lda_coeff in every mode


@pytest.mark.parametrize("way", [dict(training=True), dict(training=False, jit_compile=True)])
@in_every_mode
def test_what_is_not_finite_stays_in_its_windows_in_every_mode(mode, way):
    # One position for each pair of a value and a channel that holds it.
    x, upstream = random_x_and_upstream((3, 9, 2, 17), "float32")
    clean = x.copy()
    places = np.arange(0, 17, 2)
    for i, value in enumerate([np.nan, np.inf, -1e30]):
        x[i, range(9), 0, places] = value
    sizes = (4, 5)

    def call(x, upstream):
        return [lrn_and_gradient(x, upstream, size, **way, **ARGUMENTS) for size in sizes]

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


def test_plain_ops_of_an_inference_graph_keep_what_is_not_finite_in_its_windows():
    x, _ = random_x_and_upstream((2, 3, 4, 13), "float32")
    x[:, 1, 2, 6] = np.nan, np.inf
    graph = in_mode("graph", lambda x: local_response_normalization(x, 4, **ARGUMENTS))
    expected = oracle(x, x, 4, **ARGUMENTS)[0]
    # Size 4 sees one channel before and two after; infinity is divided by itself.
    assert np.isnan(expected).sum() == 4 + 1
    np.testing.assert_array_equal(np.isnan(graph(x)), np.isnan(expected))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_an_inference_graph_with_the_lrn_op_spreads_what_is_not_finite_as_that_op_does(
    batch, known
):
    x, _ = random_x_and_upstream((batch, 5, 4, 13), "float32")
    x[0, 1, 2, 6], x[0, 3, 1, 2] = np.nan, np.inf
    spec = tf.TensorSpec([batch if known else None, *x.shape[1:]])
    graph = tf.function(
        lambda x: local_response_normalization(x, 5, **ARGUMENTS),
        input_signature=[spec],
        autograph=False,
    )
    theirs = tf.nn.local_response_normalization(x, 2, bias=0.8, alpha=1.5 / 5, beta=0.75)
    np.testing.assert_array_equal(graph(x), theirs)
    assert np.isnan(theirs).any()


@pytest.mark.parametrize("lda_coeff", [0.0, -2.0])
@in_both_trainings
@in_every_mode
def test_lda_coeff_is_applied_once_in_every_mode(mode, training, lda_coeff):
    x, upstream = random_x_and_upstream((2, 3, 4, 13), "float32")
    arguments = dict(size=5, lda_coeff=lda_coeff, **ARGUMENTS)

    def call(x, upstream):
        return lrn_and_gradient(x, upstream, training=training, **arguments)

    actual = in_mode(mode, call)(tf.constant(x), tf.constant(upstream))
    assert_all_accurate(actual, oracle(x, upstream, **arguments), "float32")


# Nothing to normalize


@in_every_mode
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
            lrn_and_gradient(x, upstream, 5, axis=axis, training=training, jit_compile=jit_compile)
            for training in (False, True)
            for jit_compile in ("auto", True)
        ]

    for pair in in_mode(mode, call)(tf.zeros(shape), tf.zeros(shape)):
        for tensor in pair:
            assert tensor.shape == shape
            assert tensor.dtype == "float32"


def test_an_empty_batch_of_a_graph_for_any_batch():
    @tf.function(input_signature=[tf.TensorSpec((None, 5, 6, 13))] * 2, autograph=False)
    def call(x, upstream):
        return [
            lrn_and_gradient(x, upstream, 5, training=training, **ARGUMENTS)
            for training in (False, True)
        ]

    for pair in call(tf.zeros((0, 5, 6, 13)), tf.zeros((0, 5, 6, 13))):
        assert all(tensor.shape == (0, 5, 6, 13) for tensor in pair)
