"""The compiled programs, on whole tensors and block by block: what they compute, and how many."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from cases import (
    ARGUMENTS,
    DTYPES,
    assert_accurate,
    assert_all_accurate,
    equations,
    in_mode,
    lrn_and_gradient,
    oracle,
    random_x_and_upstream,
    relative_error,
    traced_ops,
)

from keras_lrn.backend.tensorflow import programs


def whole(kernel, x, these, *others):
    return programs.run(kernel, x, these, x, *others)


def whole_padded(kernel, x, these, *others):
    kernel = {
        programs.forward: programs.forward_of_padded,
        programs.backward: programs.backward_of_padded,
    }[kernel]
    return programs.run(kernel, x, these, these.padded(x), *others)


def in_blocks(kernel, x, these, *others):
    return programs.run_in_blocks(kernel, x, these, x, *others)


RUNS = [whole, whole_padded, in_blocks]


def both_passes(run, x, upstream, size, **arguments):
    x, upstream = tf.convert_to_tensor(x), tf.convert_to_tensor(upstream)
    these = equations(x, size, **arguments)
    return run(programs.forward, x, these), run(programs.backward, x, these, upstream)


# What they compute


@pytest.mark.usefixtures("rows_of_a_block")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2, 13), 1), ((2, 13, 3), 1), ((2, 3, 4, 13), 3), ((2, 3, 13, 4), 2), ((2, 3, 13, 4, 5), 2)],
)
def test_programs_compute_the_equations_along_any_axis(run, shape, axis):
    x, upstream = random_x_and_upstream(shape, "float32")
    arguments = dict(size=4, axis=axis, lda_coeff=-1.5, **ARGUMENTS)
    expected = oracle(x, upstream, **arguments)
    assert_all_accurate(both_passes(run, x, upstream, **arguments), expected, "float32")


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_programs_compute_in_any_dtype(run, dtype):
    x, upstream = random_x_and_upstream((5, 13), dtype)
    expected = oracle(x, upstream, 4, **ARGUMENTS)
    assert_all_accurate(both_passes(run, x, upstream, 4, **ARGUMENTS), expected, dtype)


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 23])
def test_any_number_of_positions_is_cut_into_blocks(rows, rows_of_a_block):
    x, upstream = random_x_and_upstream((rows, 13), "float32")
    expected = oracle(x, upstream, 4, **ARGUMENTS)
    actual = both_passes(in_blocks, x, upstream, 4, **ARGUMENTS)
    assert_all_accurate(actual, expected, "float32")


@pytest.mark.parametrize(
    ("size", "width"), [(0, 7), (1, 7), (2, 8), (5, 11), (12, 18), (13, 19), (30, 19)]
)
def test_what_is_padded_for_the_forward_pass_serves_the_backward_pass(size, width):
    x, upstream = random_x_and_upstream((2, 3, 7, 5), "float32")
    arguments = dict(size=size, axis=2, **ARGUMENTS)

    @tf.function(autograph=False)
    def call(x, upstream):
        these = equations(x, **arguments)
        padded = these.padded(x)
        y = programs.run(programs.forward_of_padded, x, these, padded)
        dx, other = (
            programs.run(programs.backward_of_padded, x, these, factor * padded, upstream)
            for factor in (1, 2)
        )
        return padded, y, dx, other

    padded, y, dx, other = call(tf.constant(x), tf.constant(upstream))
    assert padded.shape == (2, 3, width, 5)
    assert_all_accurate((y, dx), oracle(x, upstream, **arguments), "float32")
    # And it is read.
    assert size == 0 or relative_error(other, dx.numpy()) > 0.1


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("shape", "axis"), [((0, 13), 1), ((2, 0), 1), ((2, 0, 3), 1)])
def test_programs_of_nothing_give_nothing(run, shape, axis):
    for tensor in both_passes(run, tf.zeros(shape), tf.zeros(shape), 4, axis=axis, **ARGUMENTS):
        assert tensor.shape == shape


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("known", [(2, 5, 3, 13), (None, 5, 3, 13), (None, None, 3, 13)])
def test_a_traced_graph_keeps_what_is_known_of_the_shape(run, known):
    @tf.function(input_signature=[tf.TensorSpec(known)] * 2, autograph=False)
    def call(x, upstream):
        return both_passes(run, x, upstream, 4, **ARGUMENTS)

    assert call.get_concrete_function().output_shapes == (tf.TensorShape(known),) * 2
    x, upstream = random_x_and_upstream((2, 5, 3, 13), "float32")
    assert_all_accurate(call(x, upstream), oracle(x, upstream, 4, **ARGUMENTS), "float32")


def test_a_number_of_channels_known_only_when_it_runs_can_be_compiled():
    @tf.function(input_signature=[tf.TensorSpec([None] * 4)] * 2, autograph=False)
    def call(x, upstream):
        return both_passes(whole, x, upstream, 4, axis=2, **ARGUMENTS)

    for shape in [(2, 3, 13, 5), (2, 5, 7, 3), (2, 5, 1, 3)]:
        x, upstream = random_x_and_upstream(shape, "float32")
        expected = oracle(x, upstream, 4, axis=2, **ARGUMENTS)
        assert_all_accurate(call(x, upstream), expected, "float32")


# What they get


def rows_seen(rows, scalars, x):
    """A kernel that says how many rows the program got that computed an element."""
    return tf.zeros_like(x) + tf.cast(tf.shape(x)[0], x.dtype)


def rows_by(run, shape, axis):
    x = tf.zeros(shape)
    return run(rows_seen, x, equations(x, 4, axis=axis, **ARGUMENTS))


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 13), 1), ((11, 13), 1), ((3, 5, 2, 13), 3), ((3, 13, 5), 1)]
)
def test_every_block_of_any_shape_has_the_rows_of_one_program(shape, axis, rows_of_a_block):
    rows = rows_by(in_blocks, shape, axis)
    np.testing.assert_array_equal(rows, np.full(shape, rows_of_a_block))


def test_a_block_holds_as_many_positions_as_its_elements_allow():
    elements = programs.BLOCK_ELEMENTS
    for channels, rows in [(2, elements // 2), (elements + 1, 1)]:
        seen = rows_by(in_blocks, (3, channels), 1)
        np.testing.assert_array_equal(seen, np.full((3, channels), rows))


def test_outside_of_blocks_a_program_gets_whole_tensors():
    np.testing.assert_array_equal(rows_by(whole, (3, 5, 2, 13), 3), np.full((3, 5, 2, 13), 30))


# How many there are


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize("run", [whole, in_blocks])
def test_a_program_is_traced_once_for_all_shapes_and_numbers(run):
    traces = []

    def kernel(rows, scalars, x):
        traces.append(x.shape)
        return rows.bias * x + scalars.weight + rows.lda_coeff

    for number, shape in enumerate([(2, 13), (5, 13), (2, 3, 13), (3, 2, 5, 13)], start=2):
        x, _ = map(tf.constant, random_x_and_upstream(shape, "float32"))
        numbers = dict(alpha=4.0 * number, bias=0.5 * number, lda_coeff=1.0 - number)
        actual = run(kernel, x, equations(x, 4, beta=0.75, **numbers))
        assert_accurate(actual, 0.5 * number * x.numpy() + 1.0, "float32")
    assert len(traces) == 1


def numbers_of_a_search(count):
    """Values of alpha, bias and lda_coeff of which no two are the same."""
    rng = np.random.default_rng(0)
    alphas, biases = rng.uniform(0.5, 2.0, size=(2, count))
    for numbers in zip(alphas, biases, np.linspace(-3.0, 3.0, count), strict=True):
        yield dict(zip(("alpha", "bias", "lda_coeff"), numbers, strict=True))


@pytest.mark.usefixtures("no_programs", "eager_blocks")
def test_a_search_over_alpha_bias_and_lda_coeff_compiles_nothing_new_for_eager_blocks():
    x, upstream = random_x_and_upstream((2, 7), "float32")
    for numbers in numbers_of_a_search(300):
        arguments = dict(size=4, beta=0.75, **numbers)
        actual = lrn_and_gradient(x, upstream, training=True, **arguments)
        assert_all_accurate(actual, oracle(x, upstream, **arguments), "float32")
    for cached in (programs._loop, programs._program):
        assert cached.cache_info().misses == 2  # one for each pass


@pytest.mark.usefixtures("no_programs")
def test_a_search_over_alpha_bias_and_lda_coeff_compiles_nothing_new_for_graphs():
    x, upstream = random_x_and_upstream((2, 3, 7), "float32")
    arguments = dict(size=4, beta=0.75)

    def search(x, count):
        return [
            lrn_and_gradient(x, upstream, training=True, **arguments, **numbers)
            for numbers in numbers_of_a_search(count)
        ]

    assert traced_ops(lambda x: search(x, 300), x.shape)["XLA"] == 2  # one for each pass
    results = in_mode("graph", lambda x: search(x, 5))(tf.constant(x))
    for numbers, actual in zip(numbers_of_a_search(5), results, strict=True):
        assert_all_accurate(actual, oracle(x, upstream, **arguments, **numbers), "float32")
    assert programs._program.cache_info().misses == 2


@pytest.mark.usefixtures("no_programs")
def test_size_beta_dtype_and_rank_have_programs_of_their_own():
    def misses(dtype="float32", shape=(2, 7, 3), **arguments):
        x = tf.zeros(shape, dtype)
        these = equations(x, **{"size": 4, "axis": 1, **ARGUMENTS, **arguments})
        whole(programs.forward, x, these)
        return programs._program.cache_info().misses

    assert misses() == 1
    assert misses() == 1
    assert misses(shape=(5, 7, 2, 3)) == 1  # of the same view
    assert misses(size=5) == 2
    assert misses(beta=0.5) == 3
    assert misses(dtype="float64") == 4
    assert misses(shape=(2, 7)) == 5
    assert misses(shape=(2, 5, 3)) == 6
    # Windows of zeros are looked for only where the bias is 0.
    assert misses(bias=0.0) == 7
    assert misses(bias=0.0, alpha=3.0) == 7


def test_so_many_programs_are_kept_and_no_more():
    for cached in (programs._loop, programs._program):
        assert cached.cache_info().maxsize == programs.PROGRAMS
    assert 16 <= programs.PROGRAMS <= 1024


@pytest.mark.usefixtures("no_programs")
def test_a_graph_still_runs_after_its_programs_made_room_for_others():
    x, upstream = random_x_and_upstream((2, 3, 7), "float32")
    arguments = dict(size=4, training=True, **ARGUMENTS)
    call = in_mode("graph", lambda x, upstream: lrn_and_gradient(x, upstream, **arguments))
    graph = call.get_concrete_function(x, upstream)
    assert programs._program.cache_info().currsize == 2
    programs._program.cache_clear()
    gc.collect()
    expected = oracle(x, upstream, 4, **ARGUMENTS)
    assert_all_accurate(graph(tf.constant(x), tf.constant(upstream)), expected, "float32")
    # And what is traced afterwards has programs of its own.
    assert_all_accurate(call(x[:1], upstream[:1]), [part[:1] for part in expected], "float32")


@pytest.mark.usefixtures("no_programs")
def test_a_program_that_was_first_asked_for_in_a_loop_serves_outside_of_it():
    x, upstream = random_x_and_upstream((2, 3, 7), "float32")

    @tf.function(autograph=False)
    def in_a_loop(x, upstream):
        def step(i, total):
            y, dx = lrn_and_gradient(x, upstream, 4, training=True, **ARGUMENTS)
            return i + 1, total + tf.stack([y, dx])

        return tf.while_loop(lambda i, _: i < 3, step, [0, tf.zeros((2, 2, 3, 7))])[1] / 3

    expected = oracle(x, upstream, 4, **ARGUMENTS)
    assert_all_accurate(tf.unstack(in_a_loop(x, upstream)), expected, "float32")
    assert_all_accurate(both_passes(whole, x, upstream, 4, **ARGUMENTS), expected, "float32")
