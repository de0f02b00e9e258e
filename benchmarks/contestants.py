"""Who takes part: implementations of LRN, each in a way of running it, and networks with them."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import keras_lrn
from keras_lrn import LocalResponseNormalization, reference

FORWARD, BOTH = "forward", "forward + backward"
FLOOR = "x + 1, graph"
FLOORS = {FORWARD: "x + 1", BOTH: "(x + 1, x + dy)"}
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

    name: str
    way: str
    normalize: Callable

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
        runs = {FORWARD: (forward, x), BOTH: (both, x, upstream)}
        if self.way != "eager":
            # `fit` traces its step with an unknown batch size.
            spec = tf.TensorSpec([None, *case.shape[1:]], case.dtype)
            how = {"autograph": False, "jit_compile": self.way == "inside XLA"}
            for direction, (run, *given) in runs.items():
                runs[direction] = tf.function(run, [spec] * len(given), **how), *given
        return {direction: functools.partial(*run) for direction, run in runs.items()}


def contestants():
    def ours(**options):
        options |= NUMBERS
        lrn = keras_lrn.local_response_normalization
        return lambda x, case: lrn(x, case.size, axis=case.axis, **options)

    compiled = ours(training=False, jit_compile=True)
    return [
        *(
            Contestant(f"keras_lrn, graph, training={training}", "graph", ours(training=training))
            for training in (True, None, False)
        ),
        Contestant("keras_lrn, graph, training=False, jit_compile=True", "graph", compiled),
        Contestant("keras_lrn, eager", "eager", ours(training=True)),
        Contestant("keras_lrn, inside XLA", "inside XLA", ours(training=True)),
        # It keeps nothing, whatever the call says.
        Contestant("layer with training=False, graph, training=True", "graph", _not_keeping),
        *(Contestant(f"tf.nn, {way}", way, _tf_nn) for way in ("graph", "eager", "inside XLA")),
        Contestant(FLOOR, "graph", lambda x, case: x + 1),
    ]


def error_against_the_oracle(case, outputs):
    """The largest error, relative to the largest magnitude, over the tensor's corners.

    Every row of channels is normalized by itself, so the first and last rows of each dimension show
    a wrong formula, a wrong layout and a forgotten tail.
    """
    corners = [slice(None, None, max(1, length - 1)) for length in case.shape]
    corners[case.axis] = slice(None)
    tensors = [tf.cast(t[tuple(corners)], tf.float64).numpy() for t in (*case.tensors, *outputs)]
    x, upstream, y, *dx = tensors
    arguments = {"size": case.size, "axis": case.axis, **NUMBERS}
    errors = [_error(y, reference.local_response_normalization(x, **arguments))]
    errors += [_error(dx[0], reference.gradient(x, upstream, **arguments))] if dx else []
    return np.max(errors)  # NaN if one is


def _error(output, exact):
    return np.max(np.abs(output - exact)) / np.max(np.abs(exact))


def _not_keeping(x, case):
    options = {"axis": case.axis, "dtype": case.dtype, "training": False, **NUMBERS}
    return LocalResponseNormalization(case.size, **options)(x, training=True)


def _tf_nn(x, case):
    if case.size % 2 == 0:
        raise ValueError("tf.nn takes a radius, which no even size has")
    numbers = case.size // 2, NUMBERS["bias"], NUMBERS["alpha"] / case.size, NUMBERS["beta"]
    if case.axis == -1:
        return tf.nn.local_response_normalization(x, *numbers)
    channels_last = tf.transpose(x, [0, 2, 3, 1])
    return tf.transpose(tf.nn.local_response_normalization(channels_last, *numbers), [0, 3, 1, 2])


OURS = {
    "keras_lrn": {"training": True},
    "keras_lrn, training=False": {"training": False},
    "keras_lrn, jit_compile=True": {"jit_compile": True},
}
NETWORKS = (*OURS, "tf.nn", "none")


def with_normalization(network, normalization):
    """A compiled copy of `network` whose LRN layers are replaced."""

    def clone(layer):
        config = layer.get_config()
        if isinstance(layer, LocalResponseNormalization):
            if normalization == "none":
                return layers.Identity()
            if normalization == "tf.nn":
                numbers = layer.size // 2, layer.bias, layer.alpha / layer.size, layer.beta
                return layers.Lambda(lambda x: tf.nn.local_response_normalization(x, *numbers))
            config |= OURS[normalization]
        return layer.__class__.from_config(config)

    copy = keras.models.clone_model(network, clone_function=clone)
    copy.set_weights(network.get_weights())
    copy.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy", jit_compile=False)
    return copy


def alexnet(image_size=227, units=4096, classes=1000):
    """AlexNet in one tower."""
    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3)),
            *_normalized(96, 11, strides=4),
            layers.MaxPooling2D(3, 2),
            *_normalized(256, 5, padding="same"),
            layers.MaxPooling2D(3, 2),
            *(layers.Conv2D(n, 3, padding="same", activation="relu") for n in (384, 384, 256)),
            layers.MaxPooling2D(3, 2),
            layers.Flatten(),
            *(layers.Dense(units, activation="relu") for _ in range(2)),
            layers.Dense(classes, activation="softmax"),
        ]
    )


def two_layers(image_size=None):
    """A small network with two LRN layers, for images of one size or of any."""
    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3)),
            *_normalized(16, 3),
            layers.MaxPooling2D(),
            *_normalized(32, 3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def _normalized(filters, kernel, **options):
    yield layers.Conv2D(filters, kernel, activation="relu", **options)
    yield LocalResponseNormalization(5, alpha=5e-4, bias=2.0)
