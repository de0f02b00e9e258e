"""What releases have saved loads for ever, with the same outputs and gradients."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import imported, relative_error
from serve import answer, without_keras

from keras_lrn import LocalResponseNormalization

SAVED_MODELS = Path(__file__).parents[1] / "saved_models"
RELEASES = sorted(path.name for path in SAVED_MODELS.glob("v*"))


def test_the_first_release_is_here():
    assert "v0.1" in RELEASES


@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_saved_loads_with_equal_outputs_and_gradients(release, file):
    model = keras.saving.load_model(SAVED_MODELS / release / file)
    inputs, upstreams, expected = arrays_of(release)
    assert_answers_equal(answer(model, [], inputs, upstreams), expected)
    keeping = tf.function(lambda image: model(image, training=True))
    assert_answers_equal(answer(keeping, [], inputs, upstreams), expected)


@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_saved_loads_with_equal_arguments(release, file):
    model = keras.saving.load_model(SAVED_MODELS / release / file)
    loaded = {
        layer.name: layer.get_config()
        for layer in model.layers
        if isinstance(layer, LocalResponseNormalization)
    }
    saved = json.loads((SAVED_MODELS / release / "written.json").read_text())["layers"]
    assert loaded.keys() == saved.keys()
    for name, arguments in saved.items():
        assert {argument: loaded[name][argument] for argument in arguments} == arguments


@pytest.mark.parametrize("release", RELEASES)
def test_the_saved_model_of_a_release_needs_neither_keras_nor_this_package(release, tmp_path):
    inputs, upstreams, expected = arrays_of(release)
    saved_model = SAVED_MODELS / release / "saved_model"
    (served,) = without_keras(saved_model, (inputs, upstreams), folder=tmp_path)
    assert_answers_equal({**served, "weights": []}, expected)


def test_what_a_release_saved_is_not_written_again():
    write_artefacts = imported(SAVED_MODELS / "write_artefacts.py")
    assert write_artefacts.FORMAT in RELEASES
    with pytest.raises(SystemExit, match="never written again"):
        write_artefacts.main()


def arrays_of(release):
    """The inputs, the upstream gradients, and what `answer` said of them to the release."""
    with np.load(SAVED_MODELS / release / "arrays.npz") as arrays:
        found = {
            key: [arrays[name] for name in sorted(arrays) if name.startswith(key)]
            for key in ("image", "upstream", "output", "gradient")
        }
    expected = {"outputs": found["output"], "gradients": found["gradient"], "weights": []}
    return found["image"], found["upstream"], expected


def assert_answers_equal(actual, expected):
    assert actual.keys() == expected.keys()
    for key, arrays in expected.items():
        for got, saved in zip(actual[key], arrays, strict=True):
            assert got.dtype == saved.dtype
            # float16 numbers may differ by one in the last place.
            assert relative_error(got, saved) <= (1e-3 if saved.dtype == np.float16 else 1e-6)
