"""Writes a model in every format that is saved, with its inputs, outputs and gradients.

Run once for each released format, with the oldest supported versions; see the README here.
"""

import inspect
import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_lrn import LocalResponseNormalization

FORMAT = "v0.1"


def main():
    folder = Path(__file__).with_name(FORMAT)
    try:
        folder.mkdir()
    except FileExistsError:
        sys.exit(f"{folder} exists, and what a release wrote is never written again.")
    keras.utils.set_random_seed(2012)
    model = several_layers()
    rng = np.random.default_rng(2012)
    image = tf.constant(rng.normal(size=(3, 6, 5, 4)), "float32")
    with tf.GradientTape() as tape:
        tape.watch(image)
        outputs = model(image)
    upstream = [tf.cast(rng.normal(size=output.shape), output.dtype) for output in outputs]
    np.savez_compressed(
        folder / "arrays.npz",
        image=image,
        output_0=outputs[0],
        output_1=outputs[1],
        upstream_0=upstream[0],
        upstream_1=upstream[1],
        gradient=tape.gradient(outputs, image, upstream),
    )
    model.save(folder / "model.keras")
    model.save(folder / "model.h5")
    model.export(folder / "saved_model")
    written = {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "layers": {
            layer.name: arguments_of(layer)
            for layer in model.layers
            if isinstance(layer, LocalResponseNormalization)
        },
    }
    (folder / "written.json").write_text(json.dumps(written, indent=1) + "\n")


def several_layers():
    """Each argument of the layer has a value other than its default at least once."""
    image = keras.Input((6, 5, 4), name="image")
    x = keras.layers.Conv2D(7, 3, padding="same", bias_initializer="random_normal")(image)
    x = LocalResponseNormalization(
        4,
        alpha=2.5,
        beta=0.6,
        bias=1.5,
        training=False,
        lda_coeff=-2.5,
        specified_outputs_name=["normalized"],
        jit_compile=False,
        name="even",
    )(x)
    x = keras.layers.Permute((3, 1, 2))(x)
    x = LocalResponseNormalization(
        11, alpha=11.0, beta=0.5, bias=0.0, axis=1, lda_coeff=0.5, name="unit_length"
    )(x)
    x = keras.layers.Permute((2, 3, 1))(x)
    x = LocalResponseNormalization(5, alpha=12.0, bias=2.0, axis=3, name="odd")(x)
    x = keras.layers.Conv2D(8, 2, bias_initializer="random_normal")(x)
    x = LocalResponseNormalization(
        6, alpha=7.5, beta=1.0, bias=0.75, jit_compile=True, name="compiled"
    )(x)
    half = LocalResponseNormalization(
        3, alpha=1.5, bias=0.5, dtype="mixed_float16", name="mixed_float16"
    )(image)
    return keras.Model(image, [x, half], name="several_layers")


def arguments_of(layer):
    parameters = inspect.signature(LocalResponseNormalization).parameters.values()
    return {p.name: getattr(layer, p.name) for p in parameters if p.kind != p.VAR_KEYWORD}


if __name__ == "__main__":
    main()
