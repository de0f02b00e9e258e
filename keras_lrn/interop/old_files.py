"""Files whose LRN layer was a class of the person who wrote them."""

import warnings
from typing import Any, SupportsIndex

import keras

from keras_lrn.interop.convert import from_framework, row_of
from keras_lrn.interop.frameworks import REQUIRED, Framework
from keras_lrn.layer import LocalResponseNormalization

# What such classes are called in public code.
CLASS_NAMES = ("LRN", "LRN2D", "LocalResponseNormalization")
# What Keras itself writes about every layer.
_KERAS_ARGUMENTS = ("name", "trainable", "dtype")
# What Keras 1 and 2 wrote about a layer that came first in a Sequential model.
_INPUT_ARGUMENTS = ("batch_input_shape", "input_shape", "input_dim", "input_dtype")


def old_layers(framework: str, axis: SupportsIndex | None = None) -> dict[str, type[Any]]:
    """The `custom_objects` with which Keras loads `.h5` and `.keras` files that have an LRN class.

    Layers of the classes `LRN`, `LRN2D` and `LocalResponseNormalization` become this layer, with
    the numbers that they were saved with. What those numbers mean is not in the file: it is what
    the class computed, so look at its code. One that sums `n` channels, as Keras 0.x did, is
    `"lrn2d"`; one that calls `tf.nn.local_response_normalization` is `"tensorflow"`.

    Args:
        framework: Key of `interop.FRAMEWORKS`. Its argument names and defaults are those of the
            file.
        axis: Integer. The channel axis; `None` means that of the framework. Networks of Keras 2 on
            TensorFlow have their channels last: `axis=-1`.

    Returns:
        A dict for the argument `custom_objects` of `keras.saving.load_model`. For a class of
        another name, or one that was registered with a package, add a key:
        `{"mine>LRN": classes["LRN"]}`.

    Raises:
        ValueError: There is no such framework. While loading: the file holds an argument that the
            framework does not have, or a value that this layer cannot express.

    Warns:
        UserWarning: While loading: a layer was saved without some of the framework's arguments.
            They get the framework's defaults, and the warning says which.

    Example:

    ```python
    from keras_lrn import interop

    # model = keras.saving.load_model("old.h5", custom_objects=interop.old_layers("lrn2d", axis=-1))
    classes = interop.old_layers("lrn2d", axis=-1)
    layer = classes["LRN2D"].from_config({"alpha": 1e-4, "k": 2, "beta": 0.75, "n": 5})
    assert (layer.size, layer.alpha, layer.bias, layer.axis) == (5, 5e-4, 2.0, -1)
    ```
    """
    row = row_of(framework)

    class OldLayer(keras.layers.Layer):
        @classmethod
        def from_config(cls, config: dict[str, Any]) -> LocalResponseNormalization:
            return _layer(framework, row, axis, config)

    # A class that was registered without a package is in the package "Custom".
    return {f"{package}{name}": OldLayer for package in ("", "Custom>") for name in CLASS_NAMES}


def _layer(
    framework: str, row: Framework, axis: SupportsIndex | None, config: dict[str, Any]
) -> LocalResponseNormalization:
    keras_arguments = {name: config[name] for name in _KERAS_ARGUMENTS if name in config}
    saved = {
        name: value
        for name, value in config.items()
        if name not in (*_KERAS_ARGUMENTS, *_INPUT_ARGUMENTS)
    }
    missing = {
        name: default
        for name, default in row.arguments.items()
        if name not in saved and default is not REQUIRED
    }
    if missing:
        values = ", ".join(f"{name}={value}" for name, value in missing.items())
        warnings.warn(
            f"The layer {config.get('name')!r} was saved without {', '.join(missing)}: it gets the "
            f"defaults of {row.title}, {values}.",
            UserWarning,
            stacklevel=2,
        )
    arguments = from_framework(framework, **saved)
    if axis is not None:
        arguments["axis"] = axis
    return LocalResponseNormalization(**arguments, **keras_arguments)
