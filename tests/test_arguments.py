"""The arguments and the input of the function: what is legal, and how the rest is refused."""

import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import TRAININGS, lrn_and_gradient, random_x_and_upstream, traced_ops

from keras_lrn import local_response_normalization

IMAGES = (None, 5, 6, 13)
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
        *[
            ("training", v, "`training` to be a boolean or None")
            for v in (0, 1, "yes", 1.0, [True])
        ],
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
        expected = lrn_and_gradient(x, x, jit_compile=jit_compile, **python)
        actual = lrn_and_gradient(x, x, jit_compile=np.bool_(jit_compile), **numpy)
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
    message = r"expects an input of known rank >= 2\. Received: rank=None, shape=None$"
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


@pytest.mark.parametrize("training", TRAININGS)
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
