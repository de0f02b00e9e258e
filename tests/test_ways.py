"""Which way a call runs: the table of `ways.choose`, and what each way puts into a graph."""

import itertools

import pytest
import tensorflow as tf
from cases import (
    ARGUMENTS,
    TRAININGS,
    assert_accurate,
    equations,
    in_mode,
    lrn_and_gradient,
    oracle,
    random_x_and_upstream,
    relative_error,
    traced_ops,
)
from tensorflow.python.framework import ops as tensorflow_ops  # its gradient registry is private

from keras_lrn import local_response_normalization
from keras_lrn.backend.tensorflow import programs, ways

IMAGES = (None, 5, 6, 13)
JIT_COMPILES = ("auto", True, False)
DATA_DEPENDENT = {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase", "IsNan"}


def forward(**arguments):
    arguments = {"size": 5, **ARGUMENTS, **arguments}
    return lambda x: local_response_normalization(x, **arguments)


def both_passes(**arguments):
    arguments = {"size": 5, **ARGUMENTS, **arguments}
    return lambda x: lrn_and_gradient(x, x, **arguments)


# The table

PLAIN, COMPILED, BLOCKS = ("plain",) * 2, ("compiled",) * 2, ("blocks",) * 2
# Where a call runs, its `training`, its `jit_compile`, and how it runs forward and backward.
TABLE = [
    ("inside XLA", TRAININGS, JIT_COMPILES, PLAIN),
    ("eager, many elements", TRAININGS, ("auto", True), BLOCKS),
    ("eager, many elements", TRAININGS, (False,), PLAIN),
    ("eager, few elements", TRAININGS, JIT_COMPILES, PLAIN),
    ("graph of known size", (True,), ("auto", True), COMPILED),
    ("graph of known size", (False,), ("auto",), ("LRN", "compiled")),
    ("graph of known size", (False,), (True,), COMPILED),
    ("graph of known size", (None,), ("auto", True), ("LRN", "compiled")),
    ("graph of known size", (True,), (False,), PLAIN),
    ("graph of known size", (False, None), (False,), ("LRN", "plain")),
    ("graph of unknown size", (True,), ("auto", False), PLAIN),
    ("graph of unknown size", (True,), (True,), COMPILED),
    ("graph of unknown size", (False, None), JIT_COMPILES, ("LRN", "plain")),
]
ROWS = [
    (where, training, jit_compile, passes)
    for where, trainings, jit_compiles, passes in TABLE
    for training, jit_compile in itertools.product(trainings, jit_compiles)
]


def passes_of_graph(shape, arguments, **options):
    """How a graph runs the forward and the backward pass, told by its ops."""
    one = traced_ops(forward(**arguments), shape, **options)
    both = traced_ops(both_passes(**arguments), shape, **options)
    assert not DATA_DEPENDENT & set(+both)
    assert both["LRNGrad"] == 0
    backward = both - one
    kinds = []
    for ops in (one, backward):
        assert ops["LRN"] + ops["XLA"] <= 1
        # Plain or compiled, a pass of ours has one root of the scale.
        assert (ops["LRN"], ops["Rsqrt"]) in ((1, 0), (0, 1))
        kinds.append("LRN" if ops["LRN"] else "compiled" if ops["XLA"] else "plain")
    return tuple(kinds)


def passes_of_eager_call(x, arguments):
    """How an eager call runs the forward and the backward pass, told by the programs it makes."""

    def kind(before):
        blocks, wholes = made()
        return "blocks" if blocks > before[0] else "compiled" if wholes > before[1] else "plain"

    def made():
        return programs._loop.cache_info().misses, programs._program.cache_info().misses

    before = made()
    forward(**arguments)(x)
    after = made()
    one = kind(before)
    both_passes(**arguments)(x)
    return one, kind(after)


def test_the_table_says_of_every_call_how_it_runs():
    places = {where for where, *_ in TABLE}
    calls = [row[:3] for row in ROWS]
    assert sorted(map(repr, calls)) == sorted(
        map(repr, itertools.product(places, TRAININGS, JIT_COMPILES))
    )


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize(("where", "training", "jit_compile", "passes"), ROWS)
def test_a_call_runs_the_way_of_the_table(where, training, jit_compile, passes):
    for size in (5, 4):  # 4 is none of those that the LRN op takes
        arguments = dict(size=size, training=training, jit_compile=jit_compile)
        expected = tuple("plain" if (kind, size) == ("LRN", 4) else kind for kind in passes)
        if where == "inside XLA":
            assert passes_of_graph(IMAGES, arguments, jit_compile=True) == expected
        elif where == "graph of known size":
            assert passes_of_graph(IMAGES, arguments) == expected
        elif where == "graph of unknown size":
            # The image size, the whole of it, or the number of channels, which only plain ops take.
            assert passes_of_graph((None, 5, None, 13), arguments) == expected
            assert passes_of_graph((None, None, None, 13), arguments) == expected
            plain = ["plain" if kind == "LRN" else kind for kind in expected]
            assert passes_of_graph((None, 5, 6, None), arguments) == tuple(plain)
        else:
            missing = where == "eager, few elements"
            x = tf.ones((1, 2, ways.EAGER_BLOCKS_FROM // 2 - missing))
            assert passes_of_eager_call(x, arguments) == expected


@pytest.mark.parametrize("training", TRAININGS)
def test_the_batch_is_no_part_of_the_size(training):
    arguments = dict(training=training)
    for shape in (IMAGES, (1, 5, 6, 13), (2, 5, 6, 13), (500, 5, 6, 13)):
        assert passes_of_graph(shape, arguments) == passes_of_graph(IMAGES, arguments)
    for shape in ((None, 13), (7, 13), (None, 5, 13)):
        forward_pass = "compiled" if training else "plain"
        assert passes_of_graph(shape, arguments) == (forward_pass, "compiled")


@pytest.mark.parametrize("training", TRAININGS)
def test_a_call_within_other_functions_runs_the_way_of_where_they_run(training):
    def nested(depth):
        call = both_passes(training=training)
        for _ in range(depth):
            call = tf.function(call, autograph=False)
        return lambda x: call(x)

    for depth in (1, 2):
        inside = traced_ops(nested(depth), IMAGES, jit_compile=True)
        assert inside["XLA"] == inside["LRN"] == 0
        assert inside["Rsqrt"] == 2  # forward and backward
        outside = traced_ops(nested(depth), IMAGES)
        assert outside["LRN"] == (not training)
        assert outside["XLA"] == 1 + bool(training)


def test_tensors_of_another_device_than_the_cpu_do_not_run_in_blocks():
    class OnGpu:
        shape = tf.TensorShape([ways.EAGER_BLOCKS_FROM])
        device = "/job:localhost/replica:0/task:0/device:GPU:0"

    assert not ways._is_large(OnGpu)
    OnGpu.device = tf.zeros(1).device
    assert ways._is_large(OnGpu)


# Inference graphs


@pytest.mark.parametrize("training", [None, False])
@pytest.mark.parametrize("batch", [2, 500, None])
def test_an_inference_graph_is_the_lrn_op_alone(batch, training):
    ops = traced_ops(forward(training=training), (batch, 5, 6, 13))
    assert ops["LRN"] == 1
    assert set(+ops) <= {"Placeholder", "LRN", "Identity", "IdentityN", "NoOp"}


@pytest.mark.parametrize("training", [None, False])
@pytest.mark.parametrize("batch", [2, None])
def test_an_inference_graph_of_plain_ops_holds_nothing_that_depends_on_the_data(batch, training):
    for bias in (0.8, 0.0):
        ops = traced_ops(forward(size=4, training=training, bias=bias), (batch, 5, 6, 13))
        assert ops["LRN"] == ops["XLA"] == 0
        assert not DATA_DEPENDENT & set(+ops)


@pytest.mark.parametrize("jit_compile", JIT_COMPILES)
def test_what_an_exporter_traces_holds_no_compiled_function(jit_compile):
    # Exporters say nothing of `training`, and compiled functions are not converted.
    for shape in (IMAGES, (None, None, None, 13), (None, 13)):
        for size in (4, 5):
            assert traced_ops(forward(size=size, jit_compile=jit_compile), shape)["XLA"] == 0


def test_a_tape_around_a_call_that_says_nothing_of_training_gets_a_compiled_backward_pass():
    ops = traced_ops(both_passes(training=None), IMAGES)
    assert ops["LRN"] == ops["XLA"] == 1
    assert ops["LRNGrad"] == 0


# The LRN op


@pytest.mark.parametrize("training", [None, False])
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
def test_the_lrn_op_is_used_where_it_means_the_same(shape, dtype, arguments, training):
    assert traced_ops(forward(training=training, **arguments), shape, dtype)["LRN"] == 1
    # And it does.
    shape = [known or size for known, size in zip(shape, (2, 3, 4, 13), strict=True)]
    x, upstream = random_x_and_upstream(shape, dtype)
    actual = in_mode("graph", forward(training=training, **arguments))(x)
    arguments = {"size": 5, **ARGUMENTS, **arguments}
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
    ],
)
def test_the_lrn_op_is_not_used_where_it_means_something_else(shape, dtype, arguments):
    ops = traced_ops(forward(**arguments), shape, dtype)
    assert ops["LRN"] == ops["XLA"] == 0


# What the ways promise one another


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("way", [ways._plain, lambda *which, name: ways._compiled(*which)])
def test_what_is_kept_is_read_and_spares_the_backward_pass_nothing_else(way, dtype):
    x, upstream = random_x_and_upstream((3, 5, 13), dtype)
    _, expected = oracle(x, upstream, 4, **ARGUMENTS)
    x, upstream = tf.constant(x), tf.constant(upstream)
    for keeps in (True, False):
        run_forward, run_backward = way(equations(x, 4, **ARGUMENTS), keeps, name=None)
        _, kept = run_forward(x)
        assert (kept is not None) is keeps
        assert_accurate(run_backward(x, upstream, kept), expected, dtype)
        if keeps:
            other = run_backward(x, upstream, 2 * kept)
            assert relative_error(other, expected) > 0.1


def test_the_scale_of_a_16_bit_input_is_kept_unrounded():
    x = tf.constant(random_x_and_upstream((3, 13), "float16")[0])
    _, scale = ways._plain(equations(x, 4, **ARGUMENTS), keeps=True, name=None)[0](x)
    assert scale.dtype == "float32"
    assert not (tf.cast(tf.cast(scale, "float16"), "float32") == scale).numpy().all()


# Inside XLA


def answers_of_in_xla(**options):
    """What `ways._in_xla` says in a function, in a function that this calls, and in loops."""
    answers = []

    def answering(x):
        answers.append(ways._in_xla())
        return x + 1

    @tf.function(autograph=False, **options)
    def call(x):
        x = tf.function(answering, autograph=False)(answering(x))
        x = tf.cond(x > 0, lambda: answering(x), lambda: answering(x))
        return tf.while_loop(lambda x: x < 9, lambda x: [answering(x)], [x])[0]

    call(tf.constant(0))
    return answers


def test_this_tensorflow_tells_what_is_traced_for_xla():
    assert ways._in_xla() is False
    assert answers_of_in_xla() == [False] * 5
    assert answers_of_in_xla(jit_compile=True) == [True] * 5


# Repeated calls


@pytest.mark.parametrize("way", ["plain ops", "blocks", "graph"])
def test_repeated_calls_trace_once_and_do_not_grow_the_gradient_registry(
    way, monkeypatch, no_programs
):
    if way == "blocks":
        monkeypatch.setattr(ways, "EAGER_BLOCKS_FROM", 0)
    registry = tensorflow_ops._gradient_registry._registry
    traces = []

    def both(x, upstream):
        traces.append(not tf.executing_eagerly())
        return [
            lrn_and_gradient(x, upstream, 4, training=training, **ARGUMENTS)
            for training in TRAININGS
        ]

    signature = [tf.TensorSpec([None, 2, 7], "float64")] * 2
    traced = tf.function(both, input_signature=signature, autograph=False)
    run = traced if way == "graph" else both

    def call(rows):
        run(*map(tf.constant, random_x_and_upstream((rows, 2, 7))))
        made = [c.cache_info().misses for c in (programs._loop, programs._program)]
        return len(registry), made, sum(traces)

    first = call(3)
    assert first[0] > 0
    assert first[1] == {"plain ops": [0, 0], "blocks": [2, 2], "graph": [0, 3]}[way]
    assert [call(rows) for rows in (3, 3, 5, 11)] == [first] * 4


@pytest.mark.usefixtures("no_programs", "eager_blocks")
def test_a_network_of_many_layers_is_not_taken_for_one_that_retraces(caplog):
    for channels in range(7, 15):
        local_response_normalization(tf.ones((2, 3, channels)), 5, **ARGUMENTS)
    assert programs._loop.cache_info().misses == 8
    assert "retracing" not in caplog.text


@pytest.mark.usefixtures("no_programs", "eager_blocks")
def test_the_jacobian_of_eager_blocks_is_made_of_plain_ops():
    x = tf.constant(random_x_and_upstream((2, 3, 5))[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = local_response_normalization(x, 4, **ARGUMENTS)
    assert programs._loop.cache_info().misses == 1
    assert tape.jacobian(y, x).shape == (2, 3, 5, 2, 3, 5)
