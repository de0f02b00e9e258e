"""What an error says of an argument that other code has."""

import subprocess
import sys

import pytest

from keras_lrn import LocalResponseNormalization, interop
from keras_lrn.foreign import FOREIGN, explain


def test_the_names_are_those_that_lrn_has_elsewhere():
    assert set(FOREIGN) == {
        *("k", "knorm", "n", "nsize", "local_size", "depth_radius", "radius"),
        "window_channel_size",
    }
    ours = LocalResponseNormalization(3).get_config()
    assert not set(FOREIGN) & set(ours)


@pytest.mark.parametrize("name", ["k", "knorm"])
def test_an_offset_is_bias(name):
    assert explain(name, 2) == (
        f"Expected `bias`, which other code calls `{name}`. keras_lrn.interop converts. "
        f"Received: {name}=2"
    )


@pytest.mark.parametrize("name", ["nsize", "local_size", "window_channel_size"])
def test_a_size_whose_alpha_is_divided_is_size(name):
    message = explain(name, 5)
    assert message.startswith(f"Expected `size`, which other code calls `{name}`. ")
    assert "alpha" not in message
    assert message.endswith(f"Received: {name}=5")


def test_n_is_size_and_its_alpha_is_not_divided():
    message = explain("n", 5)
    assert message.startswith("Expected `size`, which other code calls `n`. ")
    assert "Keras 0.x" in message
    assert "do not divide alpha by the size, as this layer does: multiply that alpha" in message
    assert message.endswith("Received: n=5")


@pytest.mark.parametrize("name", ["depth_radius", "radius"])
def test_a_radius_is_half_a_size_and_its_alpha_is_not_divided(name):
    message = explain(name, 2)
    assert f"`{name}` is `(size - 1) / 2`, so size is 2 * {name} + 1, here 5. " in message
    assert "TensorFlow does not divide alpha by the size" in message
    assert message.endswith(f"Received: {name}=2")


@pytest.mark.parametrize("value", ["2", None, 2.5, True])
def test_a_value_that_is_no_integer_is_shown_and_not_computed_with(value):
    message = explain("depth_radius", value)
    assert "so size is 2 * depth_radius + 1. " in message
    assert message.endswith(f"Received: depth_radius={value!r}")


@pytest.mark.parametrize("name", FOREIGN)
def test_every_name_says_what_the_table_of_frameworks_says(name):
    # The argument of MATLAB, spelled as in Python.
    theirs = {"window_channel_size": "WindowChannelSize"}.get(name, name)
    rows = [row for row in interop.FRAMEWORKS.values() if theirs in row.arguments]
    assert rows
    for row in rows:
        role = dict(zip(row.arguments, row.roles.split(), strict=True))[theirs]
        assert role == FOREIGN[name].argument
        assert (row.window == "none: a radius" and role == "size") == FOREIGN[name].radius
        # CNTK has a depth_radius too and divides; who has one is far more often TensorFlow's.
        if role == "size" and row.title != "CNTK":
            assert row.divides == (not FOREIGN[name].undivided)


def test_the_module_imports_no_framework():
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "assert not {'keras', 'numpy', 'tensorflow'} & set(sys.modules)"
    )
    path = sys.modules["keras_lrn.foreign"].__file__
    subprocess.run([sys.executable, "-c", code, path], check=True)
