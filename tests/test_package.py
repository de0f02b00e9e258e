"""What importing the package gives, on TensorFlow and on any other backend."""

import importlib.resources
import re
import sys
import tomllib
from pathlib import Path

import pytest
from cases import run_python

import keras_lrn

ROOT = Path(keras_lrn.__file__).parent.parent


def test_the_public_names_are_three():
    assert sorted(keras_lrn.__all__) == [
        "LRN",
        "LocalResponseNormalization",
        "local_response_normalization",
    ]
    for name in keras_lrn.__all__:
        assert callable(getattr(keras_lrn, name))
    assert keras_lrn.LRN is keras_lrn.LocalResponseNormalization


def test_the_version_is_one_that_packaging_can_read():
    assert re.fullmatch(r"\d+\.\d+\.\d+", keras_lrn.__version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "keras_lrn/__init__.py"


def test_the_package_tells_type_checkers_that_it_is_typed():
    assert importlib.resources.files(keras_lrn).joinpath("py.typed").is_file()


# Keras of another backend imports that backend, which need not be installed here.
IMPORT_ON_ANOTHER_BACKEND = """
import sys
import types

keras = types.ModuleType("keras")
keras.backend = types.SimpleNamespace(backend=lambda: {backend!r})
sys.modules["keras"] = keras
try:
    import keras_lrn
except ImportError as error:
    print(error)
assert "tensorflow" not in sys.modules
"""


@pytest.mark.parametrize("backend", ["torch", "jax", "numpy", "openvino"])
def test_another_backend_is_one_error_that_says_what_to_set(backend):
    finished = run_python("-c", IMPORT_ON_ANOTHER_BACKEND.format(backend=backend))
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == (
        "keras_lrn needs Keras on its TensorFlow backend. Set the environment variable "
        'KERAS_BACKEND to "tensorflow" before Keras is imported. '
        f'Received: backend="{backend}"\n'
    )


IMPORT = """
import sys

import keras
import numpy
import tensorflow

before = set(sys.modules)
import keras_lrn

print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_the_import_asks_for_nothing_but_keras_numpy_and_tensorflow():
    finished = run_python("-c", IMPORT)
    assert finished.returncode == 0, finished.stderr
    imported = set(finished.stdout.split()) - set(sys.stdlib_module_names)
    assert imported <= {"keras_lrn", "keras", "numpy", "tensorflow"}
    assert "keras_lrn" in imported
