"""Models whose LRN is a `Lambda` around TensorFlow's function."""

import functools
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import relative_error

from keras_lrn import LocalResponseNormalization, interop

OLD_KERAS = Path(__file__).with_name("old_keras")
PAPER = {"depth_radius": 2, "bias": 2.0, "alpha": 1e-4, "beta": 0.75}


def lrn(name, **arguments):
    return keras.layers.Lambda(tf.nn.local_response_normalization, arguments=arguments, name=name)


def small_network(first, second):
    """The network of tests/write_old_keras_files.py."""
    return keras.Sequential(
        [
            keras.Input((9, 8, 3), name="image"),
            keras.layers.Conv2D(12, 3, activation="relu", name="conv1"),
            first,
            keras.layers.MaxPooling2D(2, name="pool1"),
            keras.layers.Conv2D(10, 2, activation="relu", name="conv2"),
            second,
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(5, name="logits"),
        ],
        name="small",
    )


def images(*shape, seed=0):
    """As large as pixels, so that an alpha of 1e-4 matters."""
    return np.random.default_rng(seed).normal(scale=100, size=shape).astype("float32")


def assert_same_outputs(new, old, x):
    tf.nest.map_structure(
        lambda actual, expected: np.testing.assert_array_equal(actual, expected),
        new.predict(x, verbose=0),
        old.predict(x, verbose=0),
    )


def assert_loads_in_safe_mode(model, x, path):
    model.save(path)
    assert_same_outputs(keras.saving.load_model(path), model, x)


def test_lambdas_become_layers_with_equal_outputs_and_weights(tmp_path):
    old = small_network(lrn("norm1", **PAPER), lrn("norm2"))
    x = images(2, 9, 8, 3)
    before = old.get_weights()
    new = interop.replace_lambdas(old)
    assert isinstance(new, keras.Sequential)
    assert [layer.name for layer in new.layers] == [layer.name for layer in old.layers]
    assert (new.name, new.input_shape, new.output_shape) == ("small", (None, 9, 8, 3), (None, 5))
    norm1, norm2 = (new.get_layer(name) for name in ("norm1", "norm2"))
    assert (norm1.size, norm1.alpha, norm1.bias, norm1.axis) == (5, 5e-4, 2.0, -1)
    assert (norm2.size, norm2.alpha, norm2.bias, norm2.beta) == (11, 11.0, 1.0, 0.5)
    assert_same_outputs(new, old, x)
    assert_loads_in_safe_mode(new, x, tmp_path / "new.keras")
    # The old model is as it was.
    assert [type(layer) for layer in old.layers if "norm" in layer.name] == 2 * [
        keras.layers.Lambda
    ]
    new.set_weights([weight + 1 for weight in before])
    for actual, expected in zip(old.get_weights(), before, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert old.get_layer("norm1").output.shape == (None, 7, 6, 12)


# Of the first, an old Keras wrote the weights alone; of the second, the whole model.
@pytest.mark.parametrize(("name", "second"), [("lambdas", {}), ("lrn", {"alpha": 1e-3})])
def test_a_model_of_an_old_keras_comes_home_with_its_weights(name, second):
    model = small_network(lrn("norm1", **PAPER), lrn("norm2", **second))
    model.load_weights(OLD_KERAS / f"{name}.h5")
    old = np.load(OLD_KERAS / f"{name}.npz")
    assert relative_error(interop.replace_lambdas(model)(old["x"]), old["y"]) < 1e-5


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_file_with_such_a_lambda_comes_home(suffix, tmp_path):
    path = tmp_path / f"old.{suffix}"
    old = small_network(lrn("norm1", **PAPER), lrn("norm2"))
    old.save(path)
    loaded = keras.saving.load_model(path, custom_objects={"lrn": tf.nn.lrn})
    new = interop.replace_lambdas(loaded)
    assert new.get_layer("norm1").size == 5
    assert_same_outputs(new, old, images(2, 9, 8, 3))


def test_a_functional_model_keeps_sharing_nesting_and_other_lambdas(tmp_path):
    shared = lrn("shared", **PAPER)
    inner_input = keras.Input((7, 6, 12), name="inner_input")
    inner = keras.Model(inner_input, lrn("inner_norm")(inner_input), name="inner")
    stack = keras.Sequential([keras.Input((7, 6, 12)), lrn("stacked", alpha=0.1)], name="stack")
    doubled = keras.layers.Lambda(lambda x: 2 * x, name="doubled")
    image = keras.Input((9, 8, 3), name="image")
    features = keras.layers.Conv2D(12, 3, name="conv")(image)
    left, right = shared(features), shared(doubled(features))
    outputs = {
        "sum": keras.layers.Add(name="add")([left, right]),
        "inner": keras.layers.Add(name="twice")([inner(features), inner(left)]),
        "stack": stack(features),
    }
    old = keras.Model({"image": image}, outputs, name="branches")
    new = interop.replace_lambdas(old)
    x = {"image": images(2, 9, 8, 3)}
    assert (new.name, sorted(new.output)) == ("branches", ["inner", "stack", "sum"])
    assert [layer.name for layer in new.layers] == [layer.name for layer in old.layers]
    assert len(new.get_layer("shared")._inbound_nodes) == 2
    assert len(old.get_layer("shared")._inbound_nodes) == 2
    assert isinstance(new.get_layer("inner").get_layer("inner_norm"), LocalResponseNormalization)
    assert isinstance(new.get_layer("stack").layers[0], LocalResponseNormalization)
    assert isinstance(new.get_layer("stack"), keras.Sequential)
    assert new.get_layer("doubled").function is doubled.function
    assert new.get_layer("doubled") is not doubled
    assert_same_outputs(new, old, x)


def test_a_nested_model_that_is_shared_stays_shared():
    inner = keras.Sequential([keras.Input((4, 5, 8)), lrn("norm", **PAPER)], name="inner")
    first, second = keras.Input((4, 5, 8)), keras.Input((4, 5, 8))
    old = keras.Model([first, second], [inner(first), inner(second)])
    new = interop.replace_lambdas(old)
    assert [layer.name for layer in new.layers].count("inner") == 1
    assert_same_outputs(new, old, [images(2, 4, 5, 8), images(2, 4, 5, 8, seed=1)])


def test_a_lambda_inside_a_wrapper_is_replaced():
    wrapper = keras.layers.TimeDistributed(lrn("norm", **PAPER), name="frames")
    plain = keras.layers.TimeDistributed(keras.layers.Lambda(lambda x: x + 1), name="plus")
    old = keras.Sequential([keras.Input((2, 4, 5, 8)), wrapper, plain])
    new = interop.replace_lambdas(old)
    assert isinstance(new.get_layer("frames").layer, LocalResponseNormalization)
    assert_same_outputs(new, old, images(3, 2, 4, 5, 8))


def test_dtype_and_frozen_layers_are_kept():
    norm = keras.layers.Lambda(
        tf.nn.local_response_normalization, arguments=PAPER, dtype="mixed_bfloat16", name="norm"
    )
    frozen = keras.layers.Conv2D(8, 1, name="frozen")
    frozen.trainable = norm.trainable = False
    old = keras.Sequential([keras.Input((4, 5, 8)), frozen, norm])
    new = interop.replace_lambdas(old)
    assert new.get_layer("norm").dtype_policy.name == "mixed_bfloat16"
    assert not new.get_layer("norm").trainable
    assert new.trainable_variables == []


def test_the_copy_is_not_compiled():
    def loss(expected, actual):
        return tf.reduce_mean(actual)

    sequential = small_network(lrn("norm1"), lrn("norm2"))
    functional = keras.Model(sequential.inputs, sequential.outputs)
    for old in (sequential, functional):
        old.compile("adam", loss)
        assert not interop.replace_lambdas(old).compiled
        assert old.compiled


def test_a_sequential_model_without_an_input_is_copied():
    old = keras.Sequential([keras.layers.Conv2D(12, 1), lrn("norm", **PAPER)])
    new = interop.replace_lambdas(old)
    assert not new.built
    assert [type(layer).__name__ for layer in new.layers] == [
        "Conv2D",
        "LocalResponseNormalization",
    ]
    old.build((None, 4, 5, 8))
    assert_same_outputs(interop.replace_lambdas(old), old, images(2, 4, 5, 8))


def test_numbers_in_a_partial_are_read():
    function = functools.partial(tf.nn.local_response_normalization, depth_radius=2, alpha=1e-4)
    old = keras.Sequential(
        [keras.Input((4, 5, 8)), keras.layers.Lambda(function, arguments={"alpha": 0.5})]
    )
    new = interop.replace_lambdas(old)
    assert (new.layers[0].size, new.layers[0].alpha) == (5, 2.5)
    assert_same_outputs(new, old, images(2, 4, 5, 8))


def test_the_name_of_an_op_is_no_number():
    old = small_network(lrn("norm1", **PAPER), lrn("norm2"))
    old.get_layer("norm1").arguments["name"] = "op"
    assert interop.replace_lambdas(old).get_layer("norm1").size == 5


# Functions that hold the numbers


def closure(radius):
    return lambda x: tf.nn.lrn(x, radius, bias=2.0, alpha=1e-4, beta=0.75)


def with_default(x, radius=2):
    def inside(x):
        return tf.nn.local_response_normalization(x, radius, 2.0, 1e-4, 0.75)

    return inside(x)


def raw_op(x):
    return tf.raw_ops.LRN(input=x, depth_radius=2, bias=2.0, alpha=1e-4, beta=0.75)


HOLDERS = [closure(2), with_default, raw_op, functools.partial(with_default, radius=2)]


@pytest.mark.parametrize("function", HOLDERS, ids=["closure", "default", "raw op", "partial"])
def test_numbers_that_a_function_holds_are_asked_for_and_can_be_given(function):
    old = small_network(keras.layers.Lambda(function, name="norm1"), lrn("norm2"))
    with pytest.raises(ValueError, match="numbers of the Lambda layers norm1: ") as raised:
        interop.replace_lambdas(old)
    assert "replace_lambdas(model, {'norm1': from_tensorflow(2, alpha=1e-4)})" in str(raised.value)
    assert str(raised.value).endswith("Received: arguments={}")
    new = interop.replace_lambdas(old, {"norm1": interop.from_tensorflow(**PAPER)})
    assert new.get_layer("norm1").size == 5
    x = images(2, 9, 8, 3)
    assert relative_error(new.predict(x, verbose=0), old.predict(x, verbose=0)) < 1e-5


def test_all_layers_whose_numbers_are_missing_are_named():
    old = small_network(
        keras.layers.Lambda(closure(2), name="one"), keras.layers.Lambda(closure(3), name="two")
    )
    with pytest.raises(ValueError, match="Lambda layers one, two: "):
        interop.replace_lambdas(old)


@pytest.mark.parametrize(
    "wrong",
    [
        interop.from_tensorflow(3, 2.0, 1e-4, 0.75),
        {**interop.from_tensorflow(**PAPER), "alpha": 1e-4},
        {**interop.from_tensorflow(**PAPER), "axis": 1},
    ],
)
def test_given_numbers_that_change_the_outputs_are_refused(wrong):
    old = small_network(keras.layers.Lambda(closure(2), name="norm1"), lrn("norm2"))
    with pytest.raises(ValueError, match="to give the outputs of that Lambda") as raised:
        interop.replace_lambdas(old, {"norm1": wrong})
    assert f"Received: arguments={{'norm1': {wrong!r}}}" in str(raised.value)


def test_a_lambda_that_does_more_than_lrn_is_refused():
    def relu_too(x):
        return tf.nn.lrn(tf.nn.relu(x), **PAPER)

    def pooled(x):
        return tf.nn.max_pool2d(tf.nn.lrn(x, **PAPER), 2, 1, "VALID")

    for function in (relu_too, pooled):
        old = keras.Sequential([keras.Input((4, 5, 8)), keras.layers.Lambda(function, name="norm")])
        with pytest.raises(ValueError, match="to give the outputs of that Lambda"):
            interop.replace_lambdas(old, {"norm": interop.from_tensorflow(**PAPER)})


def test_a_function_that_only_looks_like_lrn_can_be_left_as_it_is():
    def lrn(x):
        return 2 * x

    old = keras.Sequential([keras.Input((4, 5, 8)), keras.layers.Lambda(lambda x: lrn(x))])
    with pytest.raises(ValueError, match="numbers of the Lambda layers"):
        interop.replace_lambdas(old)
    new = interop.replace_lambdas(old, {old.layers[0].name: None})
    assert_same_outputs(new, old, images(2, 4, 5, 8))


@pytest.mark.parametrize("name", ["conv1", "norm3"])
def test_arguments_for_a_layer_that_is_no_lambda_are_refused(name):
    old = small_network(lrn("norm1"), lrn("norm2"))
    with pytest.raises(ValueError, match="to name Lambda layers of the model") as raised:
        interop.replace_lambdas(old, {name: {"size": 5}})
    assert str(raised.value).endswith(f"Received: arguments={{'{name}': {{'size': 5}}}}")


def test_a_subclassed_model_is_refused():
    class Subclassed(keras.Model):
        pass

    for wrong in (Subclassed(), lrn("norm"), None):
        with pytest.raises(ValueError, match="a functional or Sequential model"):
            interop.replace_lambdas(wrong)
