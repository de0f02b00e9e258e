"""Inputs that are no tensor, and an input of several."""

import re

import pytest
import tensorflow as tf

from keras_lrn import LocalResponseNormalization, local_response_normalization

NO_TENSOR = {"None": None, "list": [], "tuple": (), "dict": {}, "list_of_None": [None]}
NO_TENSORS = pytest.mark.parametrize("x", NO_TENSOR.values(), ids=NO_TENSOR)
TRACED = pytest.mark.parametrize("traced", [False, True], ids=["eager", "graph"])


def call(function, x, traced):
    """Calls the function of `x`, which a graph closes over, for it is no tensor to trace."""
    if not traced:
        return function(x)
    return tf.function(lambda: function(x), autograph=False)()


@TRACED
@pytest.mark.parametrize(
    "x", [*NO_TENSOR.values(), object(), {"x": 1.0}], ids=[*NO_TENSOR, "object", "dict_of_one"]
)
def test_the_function_refuses_what_is_no_tensor_by_its_own_name(x, traced):
    with pytest.raises(ValueError, match=r"^local_response_normalization expects .* Received: "):
        call(lambda x: local_response_normalization(x, 5), x, traced)


@TRACED
@NO_TENSORS
def test_a_layer_that_is_not_built_refuses_what_is_no_tensor_by_its_name(x, traced):
    layer = LocalResponseNormalization(5, name="norm")
    message = r'^LocalResponseNormalization "norm" expects .* Received: '
    with pytest.raises(ValueError, match=message):
        call(layer, x, traced)
    assert not layer.built


@TRACED
@NO_TENSORS
def test_a_built_layer_refuses_what_is_no_tensor_by_its_name(x, traced):
    layer = LocalResponseNormalization(5, name="norm")
    layer.build((None, 7))
    message = r'LocalResponseNormalization "norm" expects .* Received: '
    with pytest.raises(ValueError, match=message):
        call(layer, x, traced)


def test_what_was_received_is_told():
    with pytest.raises(ValueError, match=re.escape("expects one tensor. Received: {'x': 1.0}")):
        local_response_normalization({"x": 1.0}, 5)
