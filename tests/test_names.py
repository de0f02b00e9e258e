"""Names of the output: what is accepted is what TensorFlow takes in every later graph."""

import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import random_x_and_upstream

from keras_lrn import LocalResponseNormalization, local_response_normalization

GOOD = [
    *("normalized", "9", ".", ".a", "a.b", "a-b", "a_b", "A9", "a>b", "a>b>c", "a/b", "a/b/c"),
    *("a/_b", "a/-b", "a/.b", "a//b", "a/b>c", "a>9", "./a", "a-"),
]
BAD = [
    *("", "/", ">", "_", "-", "/a", ">a", "_a", "-a", "\\a", "a/", "a>", "a>>b", "a>/b", "a>_b"),
    *("a\\b", "a b", " a", "a ", "a\n", "\na", "a\tb", "a:0", "a@b", "^a", "a#", "é", "aé", "名"),
    *("a\u0661", "a\0b"),
]
SHAPE = (2, 3, 4, 7)


def function(name):
    return functools.partial(local_response_normalization, size=5, name=name)


def layer(name):
    return LocalResponseNormalization(5, specified_outputs_name=[name])


CALLS = {"function": function, "layer": layer}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", GOOD, ids=repr)
def test_a_name_that_is_accepted_is_taken_by_graphs_and_their_imports(name, call):
    for training, shape in ((True, SHAPE), (None, SHAPE), (False, (None,) * 4)):
        traced = tf.function(functools.partial(call(name), training=training), autograph=False)
        graph = traced.get_concrete_function(tf.TensorSpec(shape)).graph
        (output,) = graph.outputs
        op = output.op.inputs[0].op
        assert f"/{op.name}".endswith(f"/{name}")
        with tf.Graph().as_default() as imported:
            tf.import_graph_def(graph.as_graph_def(), name="again")
        assert f"again/{op.name}" in {op.name for op in imported.get_operations()}


# A SavedModel takes a while, so only the names that differ most from plain words.
@pytest.mark.parametrize("name", ["9", ".", ".a", "a>b", "a/_b", "a//b", "a-"])
def test_a_name_that_is_accepted_is_taken_by_a_saved_model(name, tmp_path):
    x, _ = random_x_and_upstream(SHAPE, "float32")
    model = keras.Sequential([keras.Input(SHAPE[1:]), layer(name)])
    model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    np.testing.assert_array_equal(loaded.serve(x), model.predict(x, verbose=0))


@pytest.mark.parametrize("name", BAD, ids=repr)
def test_the_function_refuses_a_name_that_tensorflow_does_not_take(name):
    message = f"Expected `name` to be None or a valid tensor name. Received: name={name!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        local_response_normalization(tf.ones(SHAPE), 5, name=name)


@pytest.mark.parametrize("name", BAD, ids=repr)
def test_the_layer_refuses_a_name_that_tensorflow_does_not_take(name):
    message = (
        "Expected `specified_outputs_name` to be None or a sequence of exactly one valid tensor "
        f"name. Received: specified_outputs_name={[name]!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        layer(name)


@pytest.mark.parametrize("name", [["a"], ("a",), b"a", 9, True, 1.5, object], ids=repr)
def test_the_name_of_the_function_is_one_string(name):
    message = f"Expected `name` to be None or a valid tensor name. Received: name={name!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        local_response_normalization(tf.ones(SHAPE), 5, name=name)
