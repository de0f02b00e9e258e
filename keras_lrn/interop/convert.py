"""Arguments of other frameworks, both ways, for every row of the table."""

import warnings
from typing import Any

from keras_lrn.arguments import check_integer, check_real
from keras_lrn.interop import frameworks
from keras_lrn.interop.frameworks import FRAMEWORKS, Framework
from keras_lrn.layer import LocalResponseNormalization


def from_framework(name: str, **arguments: Any) -> dict[str, Any]:
    """Arguments of the layer that equals another framework's LRN.

    `print(interop.FRAMEWORKS)` shows every framework with its arguments and defaults;
    `interop.FRAMEWORKS[name].source` says where its definition was read.

    Args:
        name: Key of `interop.FRAMEWORKS`, such as `"caffe"`.
        **arguments: The framework's own arguments. What is left out has the framework's default.

    Returns:
        A dict of `size`, `alpha`, `beta`, `bias` and `axis`, for
        `LocalResponseNormalization(**arguments)`. `axis` is 1 where the channels come first; for a
        network rebuilt with the channels last, override it.

    Raises:
        ValueError: There is no such framework or argument, a value is illegal, or this layer
            cannot express it.

    Example:

    ```python
    from keras_lrn import interop

    # Chainer does not divide alpha by n: 1e-4 with five channels is 5e-4 here.
    arguments = interop.from_framework("chainer", n=5, k=1)
    assert arguments == {"size": 5, "alpha": 5e-4, "beta": 0.75, "bias": 1.0, "axis": 1}
    ```
    """
    row = row_of(name)
    _check_names(row, arguments)
    values = row.defaults() | arguments
    axis = row.axis
    for option, axes in row.options.items():
        axis = _axis_of_option(row, option, axes, values[option])
    size = _size(row, values)
    names = row.names
    alpha_name, beta_name, bias_name = names["alpha"], names["beta"], names.get("bias")
    alpha = check_real(alpha_name, values[alpha_name], minimum=0)
    beta = check_real(beta_name, values[beta_name])
    bias = check_real(bias_name, values[bias_name], minimum=0) if bias_name else 1.0
    if alpha == 0 and bias == 0:
        raise ValueError(
            f"Expected `{bias_name}` to be above 0 where alpha is 0: every scale would be 0. "
            f"Received: {bias_name}={bias}, {alpha_name}={alpha}"
        )
    alpha = alpha if row.divides else alpha * size
    return {"size": size, "alpha": alpha, "beta": beta, "bias": bias, "axis": axis}


def to_framework(name: str, layer: LocalResponseNormalization) -> dict[str, Any]:
    """Arguments with which another framework's LRN equals the layer.

    Args:
        name: Key of `interop.FRAMEWORKS`, such as `"caffe"`.
        layer: A `LocalResponseNormalization` over the framework's channel axis, with a `size` of
            at least 1 that the framework can express.

    Returns:
        A dict of the framework's own arguments, in the order of its signature.

    Raises:
        ValueError: There is no such framework, or it cannot express the layer.

    Warns:
        UserWarning: `lda_coeff` is not 1: other frameworks have no such factor, so their gradient
            is the plain one. Or `bias` is 0: where a whole window is zero, they give NaN and this
            layer gives 0.

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    layer = LocalResponseNormalization(5, alpha=5e-4, bias=2.0, axis=1)
    assert interop.to_framework("chainer", layer) == {
        "n": 5, "k": 2.0, "alpha": 1e-4, "beta": 0.75
    }
    ```
    """
    return arguments_for(row_of(name), layer)


def row_of(name: str) -> Framework:
    """The row of the table, or an error that lists the names of all."""
    if not isinstance(name, str) or name not in FRAMEWORKS:
        raise ValueError(
            f"Expected the name of a framework, one of {', '.join(FRAMEWORKS)}. "
            f"Received: name={name!r}"
        )
    return FRAMEWORKS[name]


def arguments_for(row: Framework, layer: LocalResponseNormalization) -> dict[str, Any]:
    """The framework's arguments for the layer; its warnings point to the caller's caller."""
    _check_layer(row, layer)
    options = _options_for_axis(row, layer)
    _warn_of_differences(row, layer)
    numbers = {
        "size": _window_argument(row, layer.size),
        "alpha": layer.alpha if row.divides else layer.alpha / layer.size,
        "beta": layer.beta,
        "bias": layer.bias,
    }
    for role, (smallest, largest) in row.limits.items():
        if not smallest <= numbers[role] <= largest:
            raise ValueError(
                f"Expected `{role}` to be between {smallest} and {largest}, the limits of "
                f"{row.title}. Received: {role}={numbers[role]}"
            )
    if "bias" not in row.names and layer.bias != 1:
        raise ValueError(
            f"Expected `bias` to be 1, which {row.title} always adds. Received: bias={layer.bias}"
        )
    return {name: numbers[role] for role, name in row.names.items()} | options


def _check_names(row: Framework, arguments: dict[str, Any]) -> None:
    known = row.defaults()
    for name, value in arguments.items():
        if name not in known:
            raise ValueError(
                f"Expected arguments of {row.title}: {', '.join(known)}. Received: {name}={value!r}"
            )
    for name, default in row.arguments.items():
        if name not in arguments and default is frameworks.REQUIRED:
            raise ValueError(
                f"Expected `{name}` too: {row.title} has no default for it. "
                f"Received: arguments={list(arguments)}"
            )


def _axis_of_option(row: Framework, option: str, axes: dict[str, int], value: object) -> int:
    if isinstance(value, str) and value in axes:
        return axes[value]
    why = f": {row.other_values}" if row.other_values else ""
    raise ValueError(
        f"Expected `{option}` to be {' or '.join(map(repr, axes))}{why}. "
        f"Received: {option}={value!r}"
    )


def _size(row: Framework, values: dict[str, Any]) -> int:
    name = row.names["size"]
    if row.window == frameworks.RADIUS:
        return 2 * check_integer(name, values[name], minimum=0) + 1
    window = check_integer(name, values[name], minimum=1)
    if row.window == frameworks.ONE_MORE:
        return 2 * (window // 2) + 1
    return window if row.window == frameworks.HIGHER else _odd(row, name, window)


def _window_argument(row: Framework, size: int) -> int:
    if row.window == frameworks.HIGHER:
        return size
    if row.window == frameworks.RADIUS:
        return _odd(row, "size", size) // 2
    return _odd(row, row.names["size"], size)


def _odd(row: Framework, name: str, size: int) -> int:
    if size % 2:
        return size
    window = row.names["size"]
    why = {
        frameworks.RADIUS: f"{row.title} sums over 2 * {window} + 1 channels",
        frameworks.ONE_MORE: f"{row.title} sums over 2 * ({window} // 2) + 1 channels",
        frameworks.LOWER: f"{row.title}'s even windows have their extra channel on the lower side, "
        "this layer's on the higher",
        frameworks.REFUSED: f"{row.title} refuses even sizes",
        frameworks.UNKNOWN: f"{row.title} does not say what its even windows hold",
    }
    raise ValueError(f"Expected `{name}` to be odd: {why[row.window]}. Received: {name}={size}")


def _check_layer(row: Framework, layer: object) -> None:
    if not isinstance(layer, LocalResponseNormalization):
        raise ValueError(
            "Expected `layer` to be a keras_lrn.LocalResponseNormalization. "
            f"Received: layer={layer!r}"
        )
    if layer.size == 0:
        raise ValueError(
            f"Expected `size` to be at least 1: {row.title} has no LRN that sums over no channels. "
            "Received: size=0"
        )


def _options_for_axis(row: Framework, layer: LocalResponseNormalization) -> dict[str, str | None]:
    """The framework's options for the layer's channel axis."""
    built = layer.get_build_config()
    rank = len(built["input_shape"]) if built else None
    spellings = {layer.axis} if rank is None else {layer.axis, layer.axis + rank, layer.axis - rank}
    options: dict[str, str | None] = {}
    for option, axes in row.options.items():
        options[option] = next((value for value, axis in axes.items() if axis in spellings), None)
    expressible = None not in options.values() if options else row.axis in spellings
    if expressible:
        return options
    unresolved = "" if rank else ", or build the layer so that its axis is known from both ends"
    channels = "first (axis 1)" if row.axis == 1 else "last (axis -1)"
    raise ValueError(
        f"Expected the channels to come {channels}: {row.title}'s LRN knows no other axis. "
        f"Transpose around it{unresolved}. Received: axis={layer.axis}"
    )


def _warn_of_differences(row: Framework, layer: LocalResponseNormalization) -> None:
    if layer.lda_coeff != 1:
        warnings.warn(
            f"{row.title}'s LRN has no lda_coeff: its gradient will be the plain one, not "
            f"multiplied by {layer.lda_coeff}.",
            stacklevel=4,
        )
    if layer.bias == 0 and layer.beta > 0:
        warnings.warn(
            f"With bias=0, {row.title}'s LRN gives NaN where a whole window is zero; this layer "
            "gives 0 there.",
            stacklevel=4,
        )
