"""Files of an old Keras whose LRN layers were classes of their own."""

from pathlib import Path

import keras
import numpy as np
import pytest
from cases import relative_error

from keras_lrn import LocalResponseNormalization, interop

OLD_KERAS = Path(__file__).with_name("old_keras")


def load(name, *arguments):
    return keras.saving.load_model(
        OLD_KERAS / f"{name}.h5", custom_objects=interop.old_layers(*arguments), compile=False
    )


def lrn_layers(model):
    return [layer for layer in model.layers if isinstance(layer, LocalResponseNormalization)]


def error(model, name):
    """The relative error of the model's outputs against those of the old Keras."""
    old = np.load(OLD_KERAS / f"{name}.npz")
    assert str(old["keras"]).startswith("2.")
    # What Keras 3 expects of a functional model that it reads from an old file.
    x = old["x"] if isinstance(model, keras.Sequential) else [old["x"]]
    return relative_error(model(x), old["y"])


@pytest.mark.parametrize(
    ("name", "framework", "axis"),
    [
        ("lrn2d", "lrn2d", -1),
        ("lrn2d_first", "lrn2d", None),
        ("lrn", "tensorflow", None),
        ("local_response_normalization", "caffe", -1),
    ],
)
def test_files_of_an_old_keras_give_its_outputs(name, framework, axis, tmp_path):
    model = load(name, framework, axis)
    assert lrn_layers(model)
    assert error(model, name) < 1e-5
    # From here on it is a model like any other: in safe mode, with no custom objects.
    model.save(tmp_path / "new.keras")
    reloaded = keras.saving.load_model(tmp_path / "new.keras")
    assert error(reloaded, name) < 1e-5


@pytest.mark.parametrize(("framework", "axis"), [("lrn2d", None), ("lrn2d", 2)])
def test_another_reading_of_the_same_file_gives_other_outputs(framework, axis):
    assert error(load("lrn2d", framework, axis), "lrn2d") > 1e-2


def test_layers_keep_their_names_and_their_numbers():
    first, second = lrn_layers(load("lrn2d", "lrn2d", -1))
    assert (first.name, first.size, first.alpha, first.beta, first.bias, first.axis) == (
        "norm1", 5, 5e-4, 0.75, 2.0, -1
    )  # fmt: skip
    assert (second.name, second.size, second.beta, second.bias) == ("norm2", 3, 0.6, 1.0)
    assert second.alpha == pytest.approx(9e-4, rel=1e-15)


def test_a_shared_layer_stays_shared():
    model = load("local_response_normalization", "caffe", -1)
    (norm,) = lrn_layers(model)
    left = model.get_layer("left").output
    right = model.get_layer("right").output
    consumers = [node.operation for x in (left, right) for node in keras_consumers(model, x)]
    assert consumers == [norm, norm]


def keras_consumers(model, x):
    return [
        node
        for layer in model.layers
        for node in layer._inbound_nodes
        if any(argument is x for argument in node.arguments.keras_tensors)
    ]


def test_a_layer_saved_without_arguments_gets_the_defaults_with_a_warning():
    with pytest.warns(UserWarning, match="saved without") as caught:
        model = load("without_arguments", "tensorflow")
    assert error(model, "without_arguments") < 1e-5
    messages = [str(warning.message) for warning in caught]
    assert messages == [
        f"The layer '{name}' was saved without depth_radius, bias, alpha, beta: it gets the "
        "defaults of TensorFlow, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5."
        for name in ("norm1", "norm2")
    ]


def test_a_layer_saved_with_some_arguments_is_told_which_are_missing():
    layer_class = interop.old_layers("lrn2d")["LRN"]
    with pytest.warns(UserWarning, match=r"without k, beta: .* Keras 0.x, k=2.0, beta=0.75"):
        layer = layer_class.from_config({"name": "norm", "alpha": 1e-4, "n": 3})
    assert (layer.size, layer.bias) == (3, 2.0)


def test_a_size_that_no_framework_has_a_default_for_is_asked_for():
    layer_class = interop.old_layers("torch")["LRN"]
    with (
        pytest.warns(UserWarning, match="saved without"),
        pytest.raises(ValueError, match="PyTorch has no default for it"),
    ):
        layer_class.from_config({"name": "norm"})


def test_an_argument_that_the_framework_does_not_have_is_refused():
    with (
        pytest.warns(UserWarning, match="saved without"),
        pytest.raises(ValueError, match=r"arguments of TensorFlow: .*Received: k=2"),
    ):
        interop.old_layers("tensorflow")["LRN2D"].from_config({"k": 2, "n": 5})


def test_an_unknown_framework_is_refused_at_once():
    with pytest.raises(ValueError, match="Received: name='keras'"):
        interop.old_layers("keras")


# Files of Keras 3


class LRN(keras.layers.Layer):
    """As in public code, without this package."""

    def __init__(self, alpha=1e-4, k=2, beta=0.75, n=5, **kwargs):
        super().__init__(**kwargs)
        self.arguments = {"alpha": alpha, "k": k, "beta": beta, "n": n}

    def call(self, x):
        half, channels = self.arguments["n"] // 2, x.shape[-1]
        squares = keras.ops.pad(keras.ops.square(x), [[0, 0]] * 3 + [[half, half]])
        scale = self.arguments["k"]
        for i in range(self.arguments["n"]):
            scale += self.arguments["alpha"] * squares[..., i : i + channels]
        return x / scale ** self.arguments["beta"]

    def get_config(self):
        return {**super().get_config(), **self.arguments}


@keras.saving.register_keras_serializable()
class LRN2D(LRN):
    """Registered without a package, as most classes are."""


@pytest.fixture(autouse=True)
def class_is_unknown_when_the_file_is_loaded(monkeypatch):
    monkeypatch.delitem(keras.saving.get_custom_objects(), "Custom>LRN2D")


@pytest.mark.parametrize("layer_class", [LRN, LRN2D])
@pytest.mark.parametrize("suffix", ["keras", "h5"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_files_of_keras_3_with_such_a_class_load_in_safe_mode(layer_class, suffix, dtype, tmp_path):
    layer = layer_class(3e-4, 1, 0.6, 3, dtype=dtype, name="norm")
    layer.trainable = False
    model = keras.Sequential([keras.Input((4, 5, 7)), layer])
    x = np.random.default_rng(0).normal(scale=60, size=(2, 4, 5, 7)).astype("float32")
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / f"old.{suffix}")
    loaded = keras.saving.load_model(
        tmp_path / f"old.{suffix}", custom_objects=interop.old_layers("lrn2d", axis=-1)
    )
    (norm,) = lrn_layers(loaded)
    assert (norm.name, norm.dtype_policy.name, norm.trainable) == ("norm", dtype, False)
    tolerance = 1e-5 if dtype == "float32" else 1e-2
    assert relative_error(loaded.predict(x, verbose=0), expected) < tolerance


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_files_of_this_layer_load_as_ever(suffix, tmp_path):
    layer = LocalResponseNormalization(4, alpha=0.7, bias=1.5, axis=2, lda_coeff=-2.0)
    model = keras.Sequential([keras.Input((4, 5, 7)), layer])
    model.save(tmp_path / f"own.{suffix}")
    loaded = keras.saving.load_model(
        tmp_path / f"own.{suffix}", custom_objects=interop.old_layers("lrn2d", axis=-1)
    )
    assert loaded.layers[0].get_config() == layer.get_config()
