"""Conversions with the signature of one framework, or that read and make its own objects."""

from typing import Any, SupportsFloat, SupportsIndex

from keras_lrn.interop.convert import arguments_for, from_framework
from keras_lrn.interop.frameworks import FRAMEWORKS
from keras_lrn.layer import LocalResponseNormalization


def from_tensorflow(
    depth_radius: SupportsIndex = 5,
    bias: SupportsFloat = 1.0,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.5,
) -> dict[str, Any]:
    """Arguments of the layer that equals `tf.nn.local_response_normalization`.

    TensorFlow sums over `2 * depth_radius + 1` channels and does not divide `alpha` by that
    number, so `size` is `2 * depth_radius + 1` and `alpha` is multiplied by it. The order of the
    arguments is TensorFlow's.

    Args:
        depth_radius: Integer >= 0.
        bias: Finite real number >= 0; 0 only where `alpha` is above 0.
        alpha: Finite real number >= 0.
        beta: Finite real number.

    Returns:
        A dict of `size`, `alpha`, `beta`, `bias` and `axis=-1`.

    Raises:
        ValueError: A value is none of those.

    Example:

    ```python
    from keras_lrn import interop

    arguments = interop.from_tensorflow(2, bias=2.0, alpha=1e-4, beta=0.75)
    assert arguments["size"] == 5
    assert round(arguments["alpha"], 12) == 5e-4
    ```
    """
    return from_framework(
        "tensorflow", depth_radius=depth_radius, bias=bias, alpha=alpha, beta=beta
    )


def from_torch(module: Any) -> dict[str, Any]:
    """Arguments of the layer that equals a `torch.nn.LocalResponseNorm`.

    It reads the attributes `size`, `alpha`, `beta` and `k` and does not import PyTorch.

    Args:
        module: A `torch.nn.LocalResponseNorm`, or any object with its four attributes. Its `size`
            must be odd: PyTorch's even windows have their extra channel on the lower side, this
            layer's on the higher side.

    Returns:
        A dict of `size`, `alpha`, `beta`, `bias` (from `k`) and `axis=1`.

    Raises:
        ValueError: An attribute is missing, `size` is not odd, or a value is illegal here.

    Example:

    ```python
    from types import SimpleNamespace

    from keras_lrn import interop

    # With PyTorch: module = torch.nn.LocalResponseNorm(5, k=2.0)
    module = SimpleNamespace(size=5, alpha=1e-4, beta=0.75, k=2.0)
    assert interop.from_torch(module)["bias"] == 2.0
    ```
    """
    names = FRAMEWORKS["torch"].arguments
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise ValueError(
            "Expected `module` to be a torch.nn.LocalResponseNorm: its parameters are read from "
            "its attributes size, alpha, beta and k, and there is no "
            f"{' and no '.join(missing)}. "
            f"Received: module={module!r}"
        )
    return from_framework("torch", **{name: getattr(module, name) for name in names})


def from_caffe(
    *,
    local_size: SupportsIndex = 5,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.75,
    k: SupportsFloat = 1.0,
    norm_region: str = "ACROSS_CHANNELS",
) -> dict[str, Any]:
    """Arguments of the layer that equals a Caffe `LRN` layer, from the fields of its `lrn_param`.

    What a `.prototxt` leaves out has Caffe's defaults, which are the defaults here.

    Args:
        local_size: Odd integer >= 1. Caffe refuses even ones.
        alpha: Finite real number >= 0. Caffe divides it by `local_size`, as this layer does.
        beta: Finite real number.
        k: Finite real number >= 0; 0 only where `alpha` is above 0.
        norm_region: "ACROSS_CHANNELS". Caffe's "WITHIN_CHANNEL" is a different operator; the
            porting page, PORTING.md, builds it from plain Keras layers.

    Returns:
        A dict of `size`, `alpha`, `beta`, `bias` (from `k`) and `axis=1`.

    Raises:
        ValueError: A value is none of those.

    Example:

    ```python
    from keras_lrn import interop

    # lrn_param { local_size: 5 alpha: 0.0005 k: 2 }
    assert interop.from_caffe(local_size=5, alpha=0.0005, k=2) == {
        "size": 5, "alpha": 0.0005, "beta": 0.75, "bias": 2.0, "axis": 1
    }
    ```
    """
    return from_framework(
        "caffe", local_size=local_size, alpha=alpha, beta=beta, k=k, norm_region=norm_region
    )


def from_onnx(node: Any) -> dict[str, Any]:
    """Arguments of the layer that equals an ONNX `LRN` node.

    The definitions are the same, even sizes included. An attribute that the node leaves out has
    the default of the ONNX operator. ONNX stores 32-bit numbers: the 1e-4 of a node reads
    9.999999747378752e-05, and that is what the arguments hold.

    Args:
        node: An `onnx.NodeProto`, or any object with its `op_type`, `domain` and `attribute`,
            each attribute with `name`, `type`, `i` and `f`. The onnx package is not imported.

    Returns:
        A dict of `size`, `alpha`, `beta`, `bias` and `axis=1`.

    Raises:
        ValueError: The node is not an `LRN` of the standard domain, has no `size`, has an
            attribute that `LRN` does not have, or a value is illegal here.

    Example:

    ```python
    import onnx

    from keras_lrn import interop

    node = onnx.helper.make_node("LRN", ["x"], ["y"], size=5, bias=2.0)
    assert interop.from_onnx(node)["bias"] == 2.0
    ```
    """
    op_type, domain = getattr(node, "op_type", None), getattr(node, "domain", "")
    if op_type != "LRN" or domain not in ("", "ai.onnx"):
        raise ValueError(
            "Expected `node` to be an LRN node of the standard ONNX domain (''), the only one with "
            f"this definition. Received: op_type={op_type!r}, domain={domain!r}"
        )
    values = {a.name: _onnx_value(a) for a in node.attribute}
    if "size" not in values:
        raise ValueError(
            "Expected `node` to have the attribute size: ONNX has no default for it. "
            f"Received: attributes={list(values)}"
        )
    return from_framework("onnx", **values)


def to_tensorflow(layer: LocalResponseNormalization) -> dict[str, Any]:
    """Arguments with which `tf.nn.local_response_normalization` equals the layer.

    TensorFlow takes inputs of rank 4. On GPUs it needs `bias >= 1e-5` and `beta >= 0.01` too.

    Args:
        layer: A `LocalResponseNormalization` with an odd `size`, over the last axis.

    Returns:
        A dict of `depth_radius`, `bias`, `alpha` (divided by `size`) and `beta`.

    Raises:
        ValueError: `layer` is none of those.

    Warns:
        UserWarning: `lda_coeff` is not 1, or `bias` is 0 (see `to_framework`).

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    layer = LocalResponseNormalization(5, alpha=0.5)
    assert interop.to_tensorflow(layer) == {
        "depth_radius": 2, "bias": 1.0, "alpha": 0.1, "beta": 0.75
    }
    ```
    """
    return arguments_for(FRAMEWORKS["tensorflow"], layer)


def to_torch(layer: LocalResponseNormalization) -> dict[str, Any]:
    """Arguments with which `torch.nn.LocalResponseNorm` equals the layer.

    Args:
        layer: A `LocalResponseNormalization` with an odd `size`, over axis 1.

    Returns:
        A dict of `size`, `alpha`, `beta` and `k` (from `bias`).

    Raises:
        ValueError: `layer` is none of those.

    Warns:
        UserWarning: `lda_coeff` is not 1, or `bias` is 0 (see `to_framework`).

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    layer = LocalResponseNormalization(5, bias=2.0, axis=1)
    assert interop.to_torch(layer) == {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 2.0}
    ```
    """
    return arguments_for(FRAMEWORKS["torch"], layer)


def to_caffe(layer: LocalResponseNormalization) -> dict[str, Any]:
    """Fields of the `lrn_param` with which a Caffe `LRN` layer equals the layer.

    Args:
        layer: A `LocalResponseNormalization` with an odd `size`, over axis 1.

    Returns:
        A dict of `local_size`, `alpha`, `beta`, `k` (from `bias`) and `norm_region`.

    Raises:
        ValueError: `layer` is none of those.

    Warns:
        UserWarning: `lda_coeff` is not 1, or `bias` is 0 (see `to_framework`).

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    fields = interop.to_caffe(LocalResponseNormalization(5, alpha=0.5, axis=1))
    assert fields["local_size"] == 5
    assert fields["norm_region"] == "ACROSS_CHANNELS"
    ```
    """
    return arguments_for(FRAMEWORKS["caffe"], layer)


def to_onnx(layer: LocalResponseNormalization, input_name: str, output_name: str) -> Any:
    """The ONNX `LRN` node that equals the layer. Needs the onnx package.

    To export a whole model, use `model.export(path, format="onnx")`. This is for graphs that you
    build by hand. Even sizes are legal ONNX; runtimes may refuse them.

    Args:
        layer: A `LocalResponseNormalization` with a `size` of at least 1, over axis 1.
        input_name: String. The name of the value that the node reads.
        output_name: String. The name of the value that the node writes.

    Returns:
        An `onnx.NodeProto`. ONNX stores `alpha`, `beta` and `bias` as 32-bit numbers.

    Raises:
        ValueError: An argument is none of those.
        ImportError: The onnx package is not installed.

    Warns:
        UserWarning: `lda_coeff` is not 1, or `bias` is 0 (see `to_framework`).

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    node = interop.to_onnx(LocalResponseNormalization(5, axis=1), "x", "y")
    assert node.op_type == "LRN"
    ```
    """
    attributes = arguments_for(FRAMEWORKS["onnx"], layer)
    for argument, value in (("input_name", input_name), ("output_name", output_name)):
        if not isinstance(value, str) or not value:
            raise ValueError(
                f"Expected `{argument}` to be a non-empty string: it names a value of the ONNX "
                f"graph. Received: {argument}={value!r}"
            )
    try:
        from onnx import helper
    except ImportError as error:
        raise ImportError("to_onnx needs the onnx package: `pip install onnx`.") from error
    return helper.make_node("LRN", [input_name], [output_name], name=layer.name, **attributes)


# What AttributeProto.type says of an attribute: 0 is left out, as in the first ONNX files.
_ONNX_FLOAT, _ONNX_INT = (0, 1), (0, 2)
_ONNX_ATTRIBUTES = {
    "size": ("i", _ONNX_INT),
    "alpha": ("f", _ONNX_FLOAT),
    "beta": ("f", _ONNX_FLOAT),
    "bias": ("f", _ONNX_FLOAT),
}


def _onnx_value(attribute: Any) -> Any:
    name = attribute.name
    if name not in _ONNX_ATTRIBUTES:
        raise ValueError(
            "Expected no attributes but size, alpha, beta and bias: an LRN node has no other. "
            f"Received: attribute={name!r}"
        )
    field, types = _ONNX_ATTRIBUTES[name]
    # The other fields of a protobuf attribute read as 0, so the wrong one would pass for a value.
    if getattr(attribute, "type", 0) not in types or getattr(attribute, "ref_attr_name", None):
        kind = "an integer" if field == "i" else "a float"
        raise ValueError(
            f"Expected the attribute {name} to be {kind} that the LRN node holds itself. "
            f"Received: attribute={attribute!r}"
        )
    return getattr(attribute, field)
