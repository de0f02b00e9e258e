"""Models whose LRN is a `Lambda` around TensorFlow's function."""

import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_lrn.interop.conversions import from_tensorflow
from keras_lrn.layer import LocalResponseNormalization


def replace_lambdas(
    model: keras.Model, arguments: Mapping[str, Mapping[str, Any]] | None = None
) -> keras.Model:
    """A copy of a model in which every `Lambda` around TensorFlow's LRN is this layer.

    The copy has the weights, the layer names and the outputs of the model, saves and loads in safe
    mode, and is not compiled. Shared layers stay shared, models inside the model are copied too,
    and other `Lambda` layers stay what they are.

    The numbers of `Lambda(tf.nn.local_response_normalization, arguments={...})` are read from the
    layer. Those that a function of yours holds, as in `Lambda(lambda x: tf.nn.lrn(x, 2))`, cannot
    be read: give them in `arguments`. They are checked against the outputs of that `Lambda`.

    Args:
        model: A functional or `Sequential` model. To load one from a file, name TensorFlow's
            function: `keras.saving.load_model(path, custom_objects={"lrn": tf.nn.lrn})`.
        arguments: For each `Lambda` whose function holds the numbers, by the name of the layer, the
            arguments of this layer: `{"norm1": interop.from_tensorflow(2, alpha=1e-4)}`. `None`
            leaves a `Lambda` as it is, if it only looks like one of those.

    Returns:
        A model of the same kind, functional or `Sequential`.

    Raises:
        ValueError: `model` is of another kind, numbers are missing, `arguments` names a layer that
            is no `Lambda` of the model, or the outputs would differ.

    Example:

    ```python
    import keras
    import tensorflow as tf

    from keras_lrn import interop

    old = keras.Sequential(
        [
            keras.Input((8, 8, 16)),
            keras.layers.Lambda(tf.nn.lrn, arguments={"depth_radius": 2}, name="norm1"),
            keras.layers.Lambda(lambda x: tf.nn.lrn(x, 3, beta=0.75), name="norm2"),
        ]
    )
    new = interop.replace_lambdas(old, {"norm2": interop.from_tensorflow(3, beta=0.75)})
    assert [layer.size for layer in new.layers] == [5, 7]
    ```
    """
    if not _is_graph(model):
        raise ValueError(
            "Expected `model` to be a functional or Sequential model: the layers of a subclassed "
            f"model are called in its own code. Received: model={model!r}"
        )
    arguments = dict(arguments or {})
    lambdas = [layer for layer in _layers(model) if isinstance(layer, keras.layers.Lambda)]
    _check_arguments(lambdas, arguments)
    copies = {id(layer): _copy_of_lambda(layer, arguments.get(layer.name)) for layer in lambdas}
    copy = _copy(model, copies)
    if model.weights:
        copy.set_weights(model.get_weights())
    return copy


def _check_arguments(
    lambdas: list[keras.layers.Lambda], arguments: Mapping[str, Mapping[str, Any]]
) -> None:
    names = {layer.name for layer in lambdas}
    for name, value in arguments.items():
        if name not in names:
            raise ValueError(
                f"Expected `arguments` to name Lambda layers of the model, {sorted(names)}. "
                f"Received: arguments={{{name!r}: {value!r}}}"
            )
    missing = [
        layer.name
        for layer in lambdas
        if layer.name not in arguments and _numbers(layer) is None and _mentions_lrn(layer.function)
    ]
    if missing:
        raise ValueError(
            "Expected `arguments` to hold the numbers of the Lambda layers "
            f"{', '.join(missing)}: their functions hold TensorFlow's LRN together with its "
            "numbers, which cannot be read. Give them as in "
            f"replace_lambdas(model, {{{missing[0]!r}: from_tensorflow(2, alpha=1e-4)}}). "
            f"Received: arguments={arguments!r}"
        )


def _copy_of_lambda(layer: keras.layers.Lambda, arguments: Mapping[str, Any] | None) -> keras.Layer:
    if arguments is None:
        numbers = _numbers(layer)
        if numbers is None:
            return type(layer)(
                layer.function,
                output_shape=layer._output_shape,
                mask=layer.mask,
                arguments=layer.arguments,
                **_name_and_dtype(layer),
            )
        arguments = from_tensorflow(**numbers)
    else:
        _check_outputs(layer, arguments)
    return LocalResponseNormalization(**{**_name_and_dtype(layer), **arguments})


def _name_and_dtype(layer: keras.Layer) -> dict[str, Any]:
    return {"name": layer.name, "dtype": layer.dtype_policy, "trainable": layer.trainable}


def _numbers(layer: keras.layers.Lambda) -> dict[str, Any] | None:
    """The arguments of TensorFlow's function, or `None` if the Lambda has another function."""
    # A Lambda can only hold TensorFlow's function if something has imported TensorFlow.
    tf = sys.modules.get("tensorflow")
    function, numbers = layer.function, dict(layer.arguments)
    if isinstance(function, functools.partial) and not function.args:
        numbers, function = {**function.keywords, **numbers}, function.func
    if tf is None or function is not tf.nn.local_response_normalization:
        return None
    numbers.pop("name", None)
    return numbers


def _mentions_lrn(function: object) -> bool:
    """Whether the code of the function, or of one inside it, uses a name of TensorFlow's LRN."""
    if isinstance(function, functools.partial):
        return _mentions_lrn(function.func)
    codes = [code] if (code := getattr(function, "__code__", None)) else []
    while codes:
        code = codes.pop()
        if {"lrn", "local_response_normalization", "LRN"} & {*code.co_names, *code.co_freevars}:
            return True
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return False


def _check_outputs(layer: keras.layers.Lambda, arguments: Mapping[str, Any]) -> None:
    built = layer.get_build_config()
    if not built:
        return
    # Large enough for LRN to do something with the usual alpha of 1e-4.
    shape = [3 if size is None else size for size in built["input_shape"]]
    x = np.random.default_rng(0).normal(scale=100, size=shape).astype("float32")
    expected = keras.ops.convert_to_numpy(layer.call(keras.ops.convert_to_tensor(x)))
    checked = LocalResponseNormalization(**{**arguments, "dtype": "float32"})
    actual = keras.ops.convert_to_numpy(checked(x))
    if expected.shape == actual.shape:
        difference = np.abs(actual - expected).max() / np.abs(expected).max()
        if difference < 1e-4:
            return
    raise ValueError(
        f"Expected the arguments for {layer.name!r} to give the outputs of that Lambda layer, "
        f"which they do not. Received: arguments={{{layer.name!r}: {arguments!r}}}"
    )


def _copy(layer: keras.Layer, copies: dict[int, keras.Layer]) -> keras.Layer:
    """A copy of a layer or model; `copies` holds those that are made, by the id of the original."""
    if id(layer) not in copies:
        copies[id(layer)] = _new_copy(layer, copies)
    return copies[id(layer)]


def _new_copy(layer: keras.Layer, copies: dict[int, keras.Layer]) -> keras.Layer:
    if isinstance(layer, keras.Sequential):
        # Before it is built, a Sequential has no inputs.
        inputs = layer.inputs if layer.built else []
        inputs = [keras.Input(batch_shape=x.shape, dtype=x.dtype, name=x.name) for x in inputs]
        inner = [_copy(inner, copies) for inner in layer.layers]
        return keras.Sequential(inputs + inner, name=layer.name)
    if _is_graph(layer):
        # Not compiled, or Keras would compile the copy too.
        graph = keras.Model(layer.input, layer.output, name=layer.name)
        return keras.models.clone_model(
            graph, clone_function=lambda inner: _copy(inner, copies), call_function=_call
        )
    if _wraps(layer):
        config = layer.get_config()
        del config["layer"]
        return type(layer)(_copy(layer.layer, copies), **config)
    return type(layer).from_config(layer.get_config())


def _call(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
    if isinstance(layer, LocalResponseNormalization):
        # A Lambda is called with a mask, which this layer does not take.
        kwargs.pop("mask", None)
    return layer(*args, **kwargs)


def _layers(model: keras.Model) -> Iterator[keras.Layer]:
    """The layers of the model and of the models inside it."""
    for layer in model.layers:
        yield layer
        if _is_graph(layer):
            yield from _layers(layer)
        elif _wraps(layer):
            yield layer.layer


def _is_graph(layer: keras.Layer) -> bool:
    """Whether the layer is a functional or `Sequential` model, whose layers can be listed."""
    functional = isinstance(layer, keras.Model) and bool(getattr(layer, "inputs", None))
    return functional or isinstance(layer, keras.Sequential)


def _wraps(layer: keras.Layer) -> bool:
    """Whether the layer is a `TimeDistributed`, or another wrapper, around a `Lambda`."""
    return isinstance(layer, keras.layers.Wrapper) and isinstance(layer.layer, keras.layers.Lambda)
