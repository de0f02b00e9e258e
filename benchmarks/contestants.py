"""Who takes part in the benchmark: one entry per implementation and way of running it."""

import dataclasses
import functools
import importlib.util
import math
from collections.abc import Callable
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from keras_lrn import LocalResponseNormalization, local_response_normalization, reference

FORWARD, BOTH = "forward", "forward + backward"


@dataclasses.dataclass(frozen=True)
class Case:
    """A tensor and arguments; `layers` normalizations are applied one after another."""

    shape: tuple[int, ...]
    axis: int = -1
    dtype: str = "float32"
    size: int = 5
    beta: float = 0.75
    layers: int = 1

    # Large enough that a wrong window is visible in every output.
    alpha: ClassVar[float] = 1.0
    bias: ClassVar[float] = 2.0

    @property
    def description(self):
        return {
            "shape": self.shape,
            "axis": self.axis,
            "dtype": self.dtype,
            "size": self.size,
            "beta": self.beta,
            "channels": self.channels,
            "elements": self.elements,
        }

    @property
    def channels(self):
        return self.shape[self.axis]

    @property
    def elements(self):
        return math.prod(self.shape)

    @property
    def arguments(self):
        return {"alpha": self.alpha, "beta": self.beta, "bias": self.bias, "axis": self.axis}

    @functools.cached_property
    def data(self):
        """The input and the upstream gradient (of both signs) in NumPy."""
        dtype = tf.as_dtype(self.dtype).as_numpy_dtype
        drawn_as = np.float64 if self.dtype == "float64" else np.float32
        generator = np.random.default_rng(0)
        return tuple(
            generator.standard_normal(self.shape, drawn_as).astype(dtype, copy=False)
            for _ in range(2)
        )

    @functools.cached_property
    def tensors(self):
        return tuple(tf.constant(array) for array in self.data)

    @functools.cached_property
    def channels_first_data(self):
        return tuple(np.ascontiguousarray(np.moveaxis(array, self.axis, 1)) for array in self.data)


@dataclasses.dataclass(frozen=True)
class Contestant:
    """An implementation (`library`) in one way of running it (`mode`).

    `prepare(case)` returns a function without arguments for each direction; it returns `(y,)` for
    the forward pass and `(y, dx)` for both. `rival` is the mode in which tf.nn is compared with it.
    """

    library: str
    mode: str
    rival: str
    prepare: Callable
    from_channels_first: bool = False

    @property
    def name(self):
        return f"{self.library} {self.mode}"


def contestants():
    """Returns all contestants, and the libraries that are left out because they are missing."""
    present = [
        *(_keras_lrn(run, keeping) for run in _RUNS for keeping in (True, False)),
        *(_tf_nn(run) for run in _RUNS),
        Contestant("x + 1", "graph", "graph", _prepare_floor),
    ]
    missing = []
    if importlib.util.find_spec("torch"):
        for mode in ("eager", "compile"):
            prepare = functools.partial(_prepare_torch, mode=mode)
            present.append(Contestant("torch", mode, "graph", prepare, from_channels_first=True))
    else:
        missing.append("torch")
    if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
        prepare = _prepare_onnxruntime
        present.append(
            Contestant("onnxruntime", "session", "graph", prepare, from_channels_first=True)
        )
    else:
        missing.append("onnxruntime")
    return present, missing


def error_against_the_oracle(contestant, case, direction, outputs):
    """Returns the largest error, relative to the largest magnitude, over the tensor's corners.

    Every row of channels is normalized by itself, so the first and last rows of each dimension show
    a wrong formula, a wrong layout and a forgotten tail.
    """
    x, upstream = (_corners(array, case.axis) for array in case.data)
    expected = [reference.local_response_normalization(x, case.size, **case.arguments)]
    if direction == BOTH:
        expected.append(reference.gradient(x, upstream, case.size, **case.arguments))
    errors = []
    for output, truth in zip(outputs, expected, strict=True):
        axis = 1 if contestant.from_channels_first else case.axis
        corners = _as_float64(_corners(output, axis))
        if contestant.from_channels_first:
            corners = np.moveaxis(corners, 1, case.axis)
        errors.append(np.max(np.abs(corners - truth)) / np.max(np.abs(truth)))
    return max(errors)


def _corners(array, axis):
    steps = [slice(None, None, max(1, length - 1)) for length in array.shape]
    steps[axis] = slice(None)
    return array[tuple(steps)]


def _as_float64(array):
    if isinstance(array, np.ndarray):
        return array.astype(np.float64)
    if tf.is_tensor(array):
        return tf.cast(array, tf.float64).numpy()
    return array.detach().double().numpy()


_RUNS = ("graph", "eager", "jit_compile")


def _keras_lrn(run, keeping):
    def prepare(case):
        def normalize(x):
            return local_response_normalization(x, case.size, training=keeping, **case.arguments)

        return _prepare_tensorflow(case, normalize, run)

    mode = f"{run}, {'keeping' if keeping else 'inference'}"
    return Contestant("keras_lrn", mode, run, prepare)


def _tf_nn(run):
    def prepare(case):
        def normalize(x):
            return _tf_nn_normalize(x, case)

        def normalize_channels_first(x):
            return tf.transpose(normalize(tf.transpose(x, [0, 2, 3, 1])), [0, 3, 1, 2])

        return _prepare_tensorflow(
            case, normalize if case.axis == -1 else normalize_channels_first, run
        )

    return Contestant("tf.nn", run, run, prepare)


def _prepare_tensorflow(case, normalize, run):
    def forward(x):
        for _ in range(case.layers):
            x = normalize(x)
        return (x,)

    def both(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            (y,) = forward(x)
        return y, tape.gradient(y, x, output_gradients=upstream)

    return _runs(case, forward, both, run)


def _prepare_floor(case):
    """The least that any layer does: read each input once and write each output once."""
    return _runs(case, lambda x: (x + 1,), lambda x, upstream: (x + 1, x + upstream), "graph")


def _runs(case, forward, both, run):
    x, upstream = case.tensors
    if run != "eager":
        # `fit` traces its step with an unknown batch size.
        spec = tf.TensorSpec([None, *case.shape[1:]], case.dtype)
        compiled = functools.partial(tf.function, jit_compile=run == "jit_compile", autograph=False)
        forward = compiled(forward, input_signature=[spec])
        both = compiled(both, input_signature=[spec, spec])
    return {FORWARD: lambda: forward(x), BOTH: lambda: both(x, upstream)}


def _prepare_torch(case, mode):
    import torch

    if case.size % 2 == 0:
        raise NotImplementedError("an even size has its extra channel on the lower side")
    x, upstream = (
        # PyTorch does not read NumPy's bfloat16.
        torch.from_numpy(array.astype(np.promote_types(array.dtype, np.float32), copy=False)).to(
            getattr(torch, case.dtype)
        )
        for array in case.channels_first_data
    )
    x_with_gradient = x.detach().requires_grad_()
    normalize = torch.nn.LocalResponseNorm(case.size, alpha=case.alpha, beta=case.beta, k=case.bias)
    if mode == "compile":
        torch._dynamo.reset()  # Otherwise a second shape would be compiled for any shape.
        normalize = torch.compile(normalize, dynamic=False)

    def apply(x):
        for _ in range(case.layers):
            x = normalize(x)
        return x

    def forward():
        with torch.no_grad():
            return (apply(x),)

    def both():
        y = apply(x_with_gradient)
        return y.detach(), *torch.autograd.grad(y, x_with_gradient, upstream)

    return {FORWARD: forward, BOTH: both}


def _prepare_onnxruntime(case):
    import onnx
    import onnxruntime

    x = case.channels_first_data[0]
    element_type = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    node = onnx.helper.make_node(
        "LRN", ["x"], ["y"], size=case.size, alpha=case.alpha, beta=case.beta, bias=case.bias
    )
    values = [onnx.helper.make_tensor_value_info(name, element_type, x.shape) for name in "xy"]
    graph = onnx.helper.make_graph([node], "lrn", values[:1], values[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    options = onnxruntime.SessionOptions()
    # Idle threads that wait in a loop would slow down whoever is timed next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return {FORWARD: lambda: tuple(session.run(None, {"x": x}))}


def _tf_nn_normalize(x, like):
    """Calls tf.nn with the arguments of a layer or of a `Case`."""
    if like.size % 2 == 0:
        raise NotImplementedError("it has odd sizes only")
    return tf.nn.local_response_normalization(
        x,
        depth_radius=(like.size - 1) // 2,
        bias=like.bias,
        alpha=like.alpha / like.size,
        beta=like.beta,
    )


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


def any_image_size():
    """A small network that takes images of every size."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((None, None, 3)),
            layers.Conv2D(16, 3, activation="relu"),
            LocalResponseNormalization(5, alpha=5e-4, bias=2.0),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            LocalResponseNormalization(5, alpha=5e-4, bias=2.0),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def with_normalization(model, normalization):
    """Returns a copy of `model` whose `LocalResponseNormalization` layers are replaced."""

    def clone(layer):
        if isinstance(layer, LocalResponseNormalization):
            if normalization == "tf.nn":
                return keras.layers.Lambda(lambda x: _tf_nn_normalize(x, layer))
            if normalization == "none":
                return keras.layers.Identity()
        return layer.__class__.from_config(layer.get_config())

    copy = keras.models.clone_model(model, clone_function=clone)
    copy.set_weights(model.get_weights())
    copy.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy")
    return copy
