"""Who takes part: implementations of LRN, each in a way of running it, and networks with them."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import keras_lrn
from keras_lrn import LocalResponseNormalization, reference

FORWARD, BOTH = "forward", "forward + backward"
FLOOR = "x + 1, graph"
# Large enough that a wrong window is visible in every output.
NUMBERS = {"alpha": 1.0, "beta": 0.75, "bias": 2.0}


@dataclasses.dataclass(frozen=True)
class Case:
    """A tensor and a window; `layers` normalizations are applied one after another."""

    shape: tuple[int, ...]
    axis: int = -1
    dtype: str = "float32"
    size: int = 5
    layers: int = 1

    @functools.cached_property
    def tensors(self):
        """The input and a derivative of both signs."""
        rng = np.random.default_rng(0)
        return [tf.cast(rng.standard_normal(self.shape, np.float32), self.dtype) for _ in range(2)]


@dataclasses.dataclass(frozen=True)
class Contestant:
    """`normalize(x, case)`, run in a "graph", "eager" or "inside XLA"."""

    library: str
    way: str
    normalize: Callable
    called: str = ""

    @property
    def name(self):
        return ", ".join(filter(None, [self.library, self.way, self.called]))

    def prepare(self, case):
        """A function without arguments for each direction; it returns `(y,)` or `(y, dx)`."""

        def forward(x):
            for _ in range(case.layers):
                x = self.normalize(x, case)
            return (x,)

        def both(x, upstream):
            if self.name == FLOOR:  # the least that any layer does: read and write each tensor once
                return x + 1, x + upstream
            with tf.GradientTape() as tape:
                tape.watch(x)
                (y,) = forward(x)
            return y, tape.gradient(y, x, upstream)

        x, upstream = case.tensors
        if self.way != "eager":
            # `fit` traces its step with an unknown batch size.
            spec = tf.TensorSpec([None, *case.shape[1:]], case.dtype)
            traced = functools.partial(
                tf.function, jit_compile=self.way == "inside XLA", autograph=False
            )
            forward = traced(forward, input_signature=[spec])
            both = traced(both, input_signature=[spec, spec])
        return {FORWARD: lambda: forward(x), BOTH: lambda: both(x, upstream)}


def contestants():
    def ours(**options):
        return lambda x, case: keras_lrn.local_response_normalization(
            x, case.size, axis=case.axis, **NUMBERS, **options
        )

    in_graphs = {
        "training=True": {"training": True},
        "training=None": {"training": None},
        "training=False": {"training": False},
        "training=False, jit_compile=True": {"training": False, "jit_compile": True},
    }
    return [
        *(Contestant("keras_lrn", "graph", ours(**o), called) for called, o in in_graphs.items()),
        Contestant("keras_lrn", "eager", ours(training=True)),
        Contestant("keras_lrn", "inside XLA", ours(training=True)),
        # It keeps nothing, whatever the call says.
        Contestant("layer with training=False", "graph", _not_keeping, "training=True"),
        *(Contestant("tf.nn", way, _tf_nn) for way in ("graph", "eager", "inside XLA")),
        Contestant("x + 1", "graph", lambda x, case: x + 1),
    ]


def error_against_the_oracle(case, outputs):
    """The largest error, relative to the largest magnitude, over the tensor's corners.

    Every row of channels is normalized by itself, so the first and last rows of each dimension show
    a wrong formula, a wrong layout and a forgotten tail.
    """
    corners = [slice(None, None, max(1, length - 1)) for length in case.shape]
    corners[case.axis] = slice(None)
    x, upstream, *outputs = (
        tf.cast(t[tuple(corners)], tf.float64).numpy() for t in (*case.tensors, *outputs)
    )
    arguments = {"size": case.size, "axis": case.axis, **NUMBERS}
    expected = [reference.local_response_normalization(x, **arguments)]
    expected.append(reference.gradient(x, upstream, **arguments))
    return max(
        np.max(np.abs(output - exact)) / np.max(np.abs(exact))
        for output, exact in zip(outputs, expected, strict=False)
    )


def _not_keeping(x, case):
    layer = LocalResponseNormalization(
        case.size, axis=case.axis, dtype=case.dtype, training=False, **NUMBERS
    )
    return layer(x, training=True)


def _tf_nn(x, case):
    if case.axis != -1:
        there = [0, 2, 3, 1]
        channels_last = dataclasses.replace(case, axis=-1)
        return tf.transpose(_tf_nn(tf.transpose(x, there), channels_last), [0, 3, 1, 2])
    return tf.nn.local_response_normalization(
        x, case.size // 2, NUMBERS["bias"], NUMBERS["alpha"] / case.size, NUMBERS["beta"]
    )


NETWORKS = ("keras_lrn", "keras_lrn, training=False", "tf.nn", "none")


def with_normalization(network, normalization):
    """A compiled copy of `network` whose LRN layers are replaced."""

    def clone(layer):
        if isinstance(layer, LocalResponseNormalization):
            numbers = layer.size // 2, layer.bias, layer.alpha / layer.size, layer.beta
            if normalization == "tf.nn":
                return keras.layers.Lambda(
                    lambda x: tf.nn.local_response_normalization(x, *numbers)
                )
            if normalization == "none":
                return keras.layers.Identity()
            changed = {"training": normalization == "keras_lrn"}
            if "jit_compile" in normalization:
                changed["jit_compile"] = True
            return layer.__class__.from_config({**layer.get_config(), **changed})
        return layer.__class__.from_config(layer.get_config())

    copy = keras.models.clone_model(network, clone_function=clone)
    copy.set_weights(network.get_weights())
    copy.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy", jit_compile=False)
    return copy


def alexnet(image_size=227, units=4096, classes=1000):
    """AlexNet in one tower."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3)),
            layers.Conv2D(96, 11, strides=4, activation="relu"),
            LocalResponseNormalization(5, alpha=5e-4, bias=2.0),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(256, 5, padding="same", activation="relu"),
            LocalResponseNormalization(5, alpha=5e-4, bias=2.0),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(384, 3, padding="same", activation="relu"),
            layers.Conv2D(384, 3, padding="same", activation="relu"),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(3, 2),
            layers.Flatten(),
            layers.Dense(units, activation="relu"),
            layers.Dense(units, activation="relu"),
            layers.Dense(classes, activation="softmax"),
        ]
    )


def two_layers(image_size=None):
    """A small network with two LRN layers, for images of one size or of any."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3)),
            layers.Conv2D(16, 3, activation="relu"),
            LocalResponseNormalization(5, alpha=5e-4, bias=2.0),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            LocalResponseNormalization(5, alpha=5e-4, bias=2.0),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
