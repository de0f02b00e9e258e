"""The formulas and the window sum, and that compiled they say the same."""

import math

import numpy as np
import pytest
import tensorflow as tf
from cases import (
    DTYPES,
    assert_accurate,
    random_x_and_upstream,
    relative_error,
    traced_ops,
)

from keras_lrn import kernels, reference

FORMULA = kernels.Formula(size=4, alpha=1.5, beta=0.75, bias=0.8, lda_coeff=1.0)


def compiled(*arguments):
    return kernels.compiled(*arguments)[0]


RUNS = [compiled, kernels.blockwise]
BLOCK_ROWS = 4


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 4 positions of 13 channels, and room for a part of a fifth."""
    monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", BLOCK_ROWS * 13 + 12)


def oracle(x, upstream, formula, axis):
    size, alpha, beta, bias, lda_coeff = formula
    arguments = dict(size=size, alpha=alpha, beta=beta, bias=bias, axis=axis)
    return (
        reference.local_response_normalization(x, **arguments),
        reference.gradient(x, upstream, lda_coeff=lda_coeff, **arguments),
    )


def in_window(before, after, channels):
    """A matrix of 0 and 1: row c has a 1 for each channel in the window of channel c."""
    c, i = np.ogrid[:channels, :channels]
    return ((c - before <= i) & (i <= c + after)).astype("float64")


# Window sum


@pytest.mark.parametrize("channels", [0, 1, 2, 7])
def test_window_sum_holds_itself_and_the_channels_within_both_reaches(channels):
    values = np.random.default_rng(0).integers(-9, 10, size=(3, channels)).astype("float64")
    for before in range(10):
        for after in range(10):
            actual = kernels.window_sum(tf.constant(values), before, after, 1)
            expected = values @ in_window(before, after, channels).T
            np.testing.assert_array_equal(actual, expected, err_msg=f"{before=} {after=}")


@pytest.mark.parametrize(("shape", "axis"), [((13, 2), 0), ((2, 13, 3), 1), ((2, 3, 13, 4), 2)])
def test_window_sum_runs_along_its_axis(shape, axis):
    values, _ = random_x_and_upstream(shape)
    actual = kernels.window_sum(tf.constant(values), 2, 3, axis)
    expected = np.tensordot(in_window(2, 3, 13), values, axes=[1, axis])
    assert_accurate(actual, np.moveaxis(expected, 0, axis), "float64")


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (2, 2), (5, 0), (20, 19)])
def test_the_gradient_of_a_window_sum_has_both_reaches_swapped_at_every_order(before, after):
    values, upstream = random_x_and_upstream((3, 7))
    weights = tf.constant(random_x_and_upstream((3, 7), seed=1)[0])
    values, upstream = tf.constant(values), tf.constant(upstream)
    with tf.GradientTape() as outer:
        outer.watch(upstream)
        with tf.GradientTape() as inner:
            inner.watch(values)
            total = kernels.window_sum(values, before, after, 1)
        first = inner.gradient(total, values, upstream)
    second = outer.gradient(first, upstream, weights)
    matrix = in_window(before, after, 7)
    assert_accurate(first, upstream.numpy() @ matrix, "float64")
    assert_accurate(second, weights.numpy() @ matrix.T, "float64")


@pytest.mark.parametrize("channels", [1, 7, 30])
@pytest.mark.parametrize(("before", "after"), [(0, 1), (2, 2), (20, 19)])
def test_window_sum_of_a_number_of_channels_known_only_when_it_runs(channels, before, after):
    values, _ = random_x_and_upstream((3, channels))

    @tf.function(input_signature=[tf.TensorSpec([None, None], "float64")], autograph=False)
    def window_sum(values):
        return kernels.window_sum(values, before, after, 1)

    expected = values @ in_window(before, after, channels).T
    assert_accurate(window_sum(values), expected, "float64")


@pytest.mark.parametrize("size", [2, 3, 5, 11, 31, 255, 256])
def test_a_wide_window_takes_few_additions(size):
    before = (size - 1) // 2
    ops = traced_ops(
        lambda values: kernels.window_sum(values, before, size - 1 - before, 1), (3, 1024)
    )
    assert math.log2(size) <= ops["AddV2"] <= 2 * math.log2(size)
    assert not {"Conv2D", "MatMul", "Cumsum", "While", "StatelessWhile"} & set(ops)


@pytest.mark.parametrize("size", [255, 256])
def test_a_wide_window_of_many_channels_is_accurate(size):
    x, upstream = random_x_and_upstream((2, 1024), "float32")
    formula = FORMULA._replace(size=size, alpha=100.0)
    y, dx = oracle(x, upstream, formula, 1)
    x, upstream = tf.constant(x), tf.constant(upstream)
    assert_accurate(kernels.forward(x, formula, 1)[0], y, "float32")
    assert_accurate(kernels.backward(x, upstream, formula, 1), dx, "float32")


# Formulas


@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.6, 2.0, -0.5, 0.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_and_backward_are_the_equations(dtype, beta):
    x, upstream = random_x_and_upstream((3, 13), dtype)
    formula = FORMULA._replace(beta=beta, lda_coeff=-1.5)
    y, dx = oracle(x, upstream, formula, 1)
    x, upstream = tf.constant(x), tf.constant(upstream)
    assert_accurate(kernels.forward(x, formula, 1)[0], y, dtype)
    assert_accurate(kernels.backward(x, upstream, formula, 1), dx, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_scale_of_the_forward_pass_serves_the_backward_pass(dtype):
    x, upstream = map(tf.constant, random_x_and_upstream((3, 13), dtype))
    scale = kernels.forward(x, FORMULA, 1)[1]
    # That of a 16-bit type is not rounded to it.
    assert scale.dtype == ("float64" if dtype == "float64" else "float32")
    kept = kernels.backward(x, upstream, FORMULA, 1, scale)
    assert_accurate(kept, kernels.backward(x, upstream, FORMULA, 1).numpy(), dtype)
    # And it is read: another scale gives another gradient.
    other = kernels.backward(x, upstream, FORMULA, 1, 2 * scale)
    assert relative_error(other, kept) > 0.1


@pytest.mark.parametrize("formula", [FORMULA, FORMULA._replace(bias=0.0, lda_coeff=-1.5)])
@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.6, -0.5, 0.0])
def test_the_gradients_of_backward_are_what_a_tape_makes_of_it(formula, beta):
    formula = formula._replace(beta=beta)
    x, upstream = map(tf.constant, random_x_and_upstream((3, 13)))
    cotangent = tf.constant(random_x_and_upstream((3, 13), seed=1)[0])
    with tf.GradientTape() as tape:
        tape.watch((x, upstream))
        dx = kernels.backward(x, upstream, formula, 1)
    expected = tape.gradient(dx, (x, upstream), cotangent, unconnected_gradients="zero")
    actual = kernels.backward_gradients(x, upstream, cotangent, formula, 1)
    for gradient, exact in zip(actual, expected, strict=True):
        assert_accurate(gradient, exact.numpy(), "float64")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_gradients_of_backward_keep_the_dtype(dtype):
    arrays = *random_x_and_upstream((3, 13), dtype), random_x_and_upstream((3, 13), dtype, 1)[0]
    exact = [tf.constant(array, "float64") for array in arrays]
    expected = kernels.backward_gradients(*exact, FORMULA, 1)
    actual = kernels.backward_gradients(*map(tf.constant, arrays), FORMULA, 1)
    for gradient, exact in zip(actual, expected, strict=True):
        assert_accurate(gradient, exact.numpy(), dtype)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0, 0.6])
def test_powers_are_accurate_for_scales_of_any_magnitude(beta, jit_compile):
    # A window of one channel has an output that is a function of one number.
    x = np.geomspace(1e-12, 1e12, 97, dtype="float32")[:, None]
    formula = kernels.Formula(size=1, alpha=1.0, beta=beta, bias=1e-20, lda_coeff=1.0)
    forward = tf.function(kernels.forward, jit_compile=jit_compile, autograph=False)
    y = forward(tf.constant(x), formula, 1)[0].numpy()
    expected, _ = oracle(x, x, formula, 1)
    np.testing.assert_allclose(y, expected, rtol=2e-6)


@pytest.mark.parametrize("magnitude", [1e-13, 1e14])
def test_the_gradient_survives_where_a_power_of_the_scale_would_not(magnitude):
    # S^-1.75 is beyond float32 at both ends, and the gradient is not.
    x, upstream = random_x_and_upstream((3, 13), "float32")
    x *= np.float32(magnitude)
    formula = FORMULA._replace(bias=0.0)
    _, dx = oracle(x, upstream, formula, 1)
    actual = kernels.backward(tf.constant(x), tf.constant(upstream), formula, 1)
    assert_accurate(actual, dx, "float32")


def test_a_bias_above_zero_does_not_pay_for_windows_of_zeros():
    for formula, guarded in [(FORMULA, False), (FORMULA._replace(bias=0.0), True)]:
        for ops in (
            traced_ops(lambda x, formula=formula: kernels.forward(x, formula, 1), (3, 13)),
            traced_ops(lambda x, formula=formula: kernels.backward(x, x, formula, 1), (3, 13)),
        ):
            assert ("SelectV2" in ops) is guarded


def test_an_eager_tape_keeps_nothing_of_what_is_unrecorded():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = kernels.unrecorded(x) * x
    np.testing.assert_array_equal(y, [1.0, 4.0])
    # One of the two factors is a constant.
    np.testing.assert_array_equal(tape.gradient(y, x), [1.0, 2.0])


def test_a_graph_gets_no_op_for_what_is_unrecorded():
    assert "StopGradient" not in traced_ops(lambda x: 2 * kernels.unrecorded(x), (3,))


# Compiled


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2, 13), 1), ((2, 13, 3), 1), ((2, 3, 4, 13), 3), ((2, 3, 13, 4), 2), ((2, 3, 13, 4, 5), 2)],
)
def test_compiled_kernels_compute_the_same(run, shape, axis, small_blocks):
    x, upstream = random_x_and_upstream(shape, "float32")
    formula = FORMULA._replace(alpha=1.51)
    y, dx = oracle(x, upstream, formula, axis)
    x, upstream = tf.constant(x), tf.constant(upstream)
    assert_accurate(run(kernels.forward_only, formula, axis, x), y, "float32")
    assert_accurate(run(kernels.backward, formula, axis, x, upstream), dx, "float32")


@pytest.mark.parametrize(
    ("size", "width"), [(0, 7), (1, 7), (2, 8), (5, 11), (12, 18), (13, 19), (30, 19)]
)
def test_what_is_padded_in_the_forward_pass_serves_the_backward_pass(size, width):
    x, upstream = random_x_and_upstream((2, 3, 7, 5), "float32")
    formula = FORMULA._replace(size=size, alpha=1.6)

    @tf.function(autograph=False)
    def call(x, upstream):
        y, padded = kernels.compiled(kernels.forward_only, formula, 2, x)
        dx, same = kernels.compiled(kernels.backward, formula, 2, x, upstream, padded=padded)
        assert same is padded
        other, _ = kernels.compiled(kernels.backward, formula, 2, x, upstream, padded=2 * padded)
        return y, padded, dx, other

    y, padded, dx, other = call(tf.constant(x), tf.constant(upstream))
    expected_y, expected_dx = oracle(x, upstream, formula, 2)
    assert padded.shape == (6, width, 5)
    assert_accurate(y, expected_y, "float32")
    assert_accurate(dx, expected_dx, "float32")
    # And it is read.
    assert size == 0 or relative_error(other, dx.numpy()) > 0.1


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_kernels_compute_in_any_dtype(dtype):
    x, upstream = random_x_and_upstream((5, 13), dtype)
    formula = FORMULA._replace(alpha=1.52)
    y, dx = oracle(x, upstream, formula, 1)
    x, upstream = tf.constant(x), tf.constant(upstream)
    assert_accurate(compiled(kernels.forward_only, formula, 1, x), y, dtype)
    assert_accurate(compiled(kernels.backward, formula, 1, x, upstream), dx, dtype)


@pytest.mark.parametrize(
    "rows",
    [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS, 5 * BLOCK_ROWS + 3],
)
def test_any_number_of_positions_is_cut_into_blocks(rows, small_blocks):
    x, upstream = random_x_and_upstream((rows, 13), "float32")
    formula = FORMULA._replace(alpha=1.53)
    y, dx = oracle(x, upstream, formula, 1)
    x, upstream = tf.constant(x), tf.constant(upstream)
    assert_accurate(kernels.blockwise(kernels.forward_only, formula, 1, x), y, "float32")
    assert_accurate(kernels.blockwise(kernels.backward, formula, 1, x, upstream), dx, "float32")


def rows_of_the_program(x, formula, axis, padded=None):
    """A kernel that says how many rows the program was compiled for that computed an element."""
    return tf.zeros_like(x) + tf.cast(tf.shape(x)[0], x.dtype)


def test_one_program_serves_blocks_of_any_shape(small_blocks):
    formula = FORMULA._replace(alpha=1.54)
    for shape, axis in [((1, 13), 1), ((11, 13), 1), ((3, 5, 2, 13), 3), ((3, 13, 5), 1)]:
        rows = kernels.blockwise(rows_of_the_program, formula, axis, tf.zeros(shape))
        np.testing.assert_array_equal(rows, np.full(shape, BLOCK_ROWS))


def test_a_block_holds_as_many_positions_as_its_elements_allow():
    formula = FORMULA._replace(alpha=1.55)
    for channels, rows in [(2, kernels.BLOCK_ELEMENTS // 2), (kernels.BLOCK_ELEMENTS + 1, 1)]:
        seen = kernels.blockwise(rows_of_the_program, formula, 1, tf.zeros((3, channels)))
        np.testing.assert_array_equal(seen, np.full((3, channels), rows))


def test_a_compiled_kernel_gets_whole_tensors():
    formula = FORMULA._replace(alpha=1.56)
    rows = compiled(rows_of_the_program, formula, 3, tf.zeros((3, 5, 2, 13)))
    np.testing.assert_array_equal(rows, np.full((3, 5, 2, 13), 30))


@pytest.mark.parametrize("run", RUNS)
def test_a_kernel_is_traced_once_for_all_shapes(run):
    traces = []

    def kernel(x, formula, axis, padded=None):
        traces.append(x.shape)
        return 2 * x

    for shape in [(2, 13), (5, 13), (2, 3, 13), (3, 2, 5, 13)]:
        x, _ = random_x_and_upstream(shape, "float32")
        np.testing.assert_array_equal(run(kernel, FORMULA, len(shape) - 1, tf.constant(x)), 2 * x)
    assert len(traces) == 1


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("shape", "axis"), [((0, 13), 1), ((2, 0), 1), ((2, 0, 3), 1)])
def test_compiled_kernels_of_nothing_give_nothing(run, shape, axis):
    x = tf.zeros(shape)
    formula = FORMULA._replace(alpha=1.57)
    assert run(kernels.forward_only, formula, axis, x).shape == shape
    assert run(kernels.backward, formula, axis, x, x).shape == shape


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("known", [(2, 5, 3, 13), (None, 5, 3, 13), (None, None, 3, 13)])
def test_a_traced_graph_keeps_what_is_known_of_the_shape(run, known):
    formula = FORMULA._replace(alpha=1.58)

    @tf.function(input_signature=[tf.TensorSpec(known)], autograph=False)
    def forward(x):
        return run(kernels.forward_only, formula, 3, x)

    assert forward.get_concrete_function().output_shapes == tf.TensorShape(known)
    x, upstream = random_x_and_upstream((2, 5, 3, 13), "float32")
    assert_accurate(forward(x), oracle(x, upstream, formula, 3)[0], "float32")


def test_a_number_of_channels_known_only_when_it_runs_can_be_compiled():
    formula = FORMULA._replace(alpha=1.59)
    specs = [tf.TensorSpec([None] * 4)] * 2

    @tf.function(input_signature=specs, autograph=False)
    def backward(x, upstream):
        return compiled(kernels.backward, formula, 2, x, upstream)

    for shape in [(2, 3, 13, 5), (2, 5, 7, 3)]:
        x, upstream = random_x_and_upstream(shape, "float32")
        assert_accurate(backward(x, upstream), oracle(x, upstream, formula, 2)[1], "float32")
