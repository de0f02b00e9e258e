"""Arguments of other frameworks, both ways, and the parameters of published models.

| | sum of squares times | even sizes | channels |
|---|---|---|---|
| this layer | `alpha / size` | extra channel on the higher side | any axis |
| ONNX | `alpha / size` | extra channel on the higher side | axis 1 |
| TensorFlow | `alpha` | none: `size = 2 * depth_radius + 1` | last axis |
| PyTorch | `alpha / size` | extra channel on the lower side | axis 1 |
| Caffe | `alpha / local_size` | refused | axis 1 |

Every `from_*` returns plain arguments, for `LocalResponseNormalization(**arguments)`. A source
whose channels come first gives `axis=1`; for a network rebuilt with the channels last, override it:
`LocalResponseNormalization(**{**from_onnx(node), "axis": -1})`.
"""

import warnings

from keras_lrn.arguments import check_integer, check_real
from keras_lrn.layer import LocalResponseNormalization

# As arguments of this layer: name: ((size, alpha, beta, bias), source).
PUBLISHED = {
    "alexnet": (
        # The paper does not divide alpha by n, so its 1e-4 is 5e-4 here; see BVLC/caffe issue 1453.
        (5, 5e-4, 0.75, 2.0),
        "Krizhevsky et al., 2012, section 3.3: https://papers.nips.cc/paper/4824",
    ),
    "bvlc_alexnet": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_alexnet/deploy.prototxt",
    ),
    "caffenet": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_reference_caffenet/deploy.prototxt",
    ),
    "googlenet": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_googlenet/deploy.prototxt",
    ),
    "rcnn_ilsvrc13": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_reference_rcnn_ilsvrc13/deploy.prototxt",
    ),
    "zfnet512": (
        (5, 5e-4, 0.75, 2.0),
        "https://github.com/onnx/onnx: onnx/backend/test/data/light/light_zfnet512.onnx",
    ),
    "inception_v1": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/onnx/onnx: onnx/backend/test/data/light/light_inception_v1.onnx",
    ),
    "vgg_cnn_m": (
        (5, 5e-4, 0.75, 2.0),
        "https://github.com/rbgirshick/py-faster-rcnn: models/VGG_CNN_M_1024/test.prototxt",
    ),
    "vgg_cnn_s": (
        (5, 5e-4, 0.75, 2.0),
        "https://github.com/rbgirshick/py-faster-rcnn: models/VGG_CNN_S/deploy.prototxt",
    ),
    "matconvnet": (
        # Written there as [5 1 0.0001/5 0.75]: MatConvNet does not divide alpha.
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/vlfeat/matconvnet: examples/imagenet/cnn_imagenet_init.m",
    ),
    "cifar10_tensorflow": (
        # Written there as tf.nn.lrn(x, 4, alpha=0.001 / 9.0): TensorFlow does not divide alpha.
        (9, 1e-3, 0.75, 1.0),
        "https://github.com/tensorflow/models: tutorials/image/cifar10/cifar10.py",
    ),
    "openface": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/cmusatyalab/openface: models/openface/nn4.def.lua",
    ),
}


def from_tensorflow(*, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5):
    """Arguments of the layer that equals `tf.nn.local_response_normalization`.

    TensorFlow sums over `2 * depth_radius + 1` channels and does not divide `alpha` by that
    number, so `size` is `2 * depth_radius + 1` and `alpha` is multiplied by it.

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

    arguments = interop.from_tensorflow(depth_radius=2, bias=2.0, alpha=1e-4, beta=0.75)
    assert arguments["size"] == 5
    assert round(arguments["alpha"], 12) == 5e-4
    ```
    """
    size = 2 * check_integer("depth_radius", depth_radius, minimum=0) + 1
    alpha, beta, bias = _checked_numbers(alpha, beta, bias)
    return {"size": size, "alpha": alpha * size, "beta": beta, "bias": bias, "axis": -1}


def from_torch(module):
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
    missing = [name for name in ("size", "alpha", "beta", "k") if not hasattr(module, name)]
    if missing:
        raise ValueError(
            "Expected `module` to be a torch.nn.LocalResponseNorm: its parameters are read from "
            "its attributes size, alpha, beta and k, and there is no "
            f"{' and no '.join(missing)}. "
            f"Received: module={module!r}"
        )
    size = _odd("size", module.size, _TORCH_EVEN)
    alpha, beta, bias = _checked_numbers(module.alpha, module.beta, module.k, bias_name="k")
    return {"size": size, "alpha": alpha, "beta": beta, "bias": bias, "axis": 1}


def from_caffe(*, local_size=5, alpha=1.0, beta=0.75, k=1.0, norm_region="ACROSS_CHANNELS"):
    """Arguments of the layer that equals a Caffe `LRN` layer, from the fields of its `lrn_param`.

    What a `.prototxt` leaves out has Caffe's defaults, which are the defaults here.

    Args:
        local_size: Odd integer >= 1. Caffe refuses even ones.
        alpha: Finite real number >= 0. Caffe divides it by `local_size`, as this layer does.
        beta: Finite real number.
        k: Finite real number >= 0; 0 only where `alpha` is above 0.
        norm_region: "ACROSS_CHANNELS". Caffe's "WITHIN_CHANNEL" is a different operator.

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
    if norm_region != "ACROSS_CHANNELS":
        raise ValueError(
            "Expected `norm_region` to be 'ACROSS_CHANNELS': 'WITHIN_CHANNEL' is a different "
            "operator, which sums over neighbouring pixels of one channel. "
            f"Received: norm_region={norm_region!r}"
        )
    size = _odd("local_size", local_size, _CAFFE_EVEN)
    alpha, beta, bias = _checked_numbers(alpha, beta, k, bias_name="k")
    return {"size": size, "alpha": alpha, "beta": beta, "bias": bias, "axis": 1}


def from_onnx(node):
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
    values = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    values.update((a.name, _onnx_value(a)) for a in node.attribute)
    if "size" not in values:
        raise ValueError(
            "Expected `node` to have the attribute size: ONNX has no default for it. "
            f"Received: attributes={[a.name for a in node.attribute]}"
        )
    size = check_integer("size", values["size"], minimum=1)
    alpha, beta, bias = _checked_numbers(values["alpha"], values["beta"], values["bias"])
    return {"size": size, "alpha": alpha, "beta": beta, "bias": bias, "axis": 1}


def from_published(name):
    """Parameters of a published model's LRN layers, as arguments of this layer.

    `alexnet` is the paper; Caffe's reference models, `bvlc_alexnet` among them, were trained with
    other numbers. Weights only fit the numbers that they were trained with. The source of each is
    the second item of `interop.PUBLISHED[name]`.

    Args:
        name: One of `alexnet`, `bvlc_alexnet`, `caffenet`, `googlenet`, `rcnn_ilsvrc13`,
            `zfnet512`, `inception_v1`, `vgg_cnn_m`, `vgg_cnn_s`, `matconvnet`,
            `cifar10_tensorflow` and `openface`.

    Returns:
        A dict of `size`, `alpha`, `beta` and `bias`. There is no `axis` in it: that is a matter
        of how you lay out your network, not of the published numbers.

    Raises:
        ValueError: There is no such name.

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    layer = LocalResponseNormalization(**interop.from_published("zfnet512"))
    assert (layer.size, layer.alpha, layer.beta, layer.bias) == (5, 5e-4, 0.75, 2.0)
    ```
    """
    if not isinstance(name, str) or name not in PUBLISHED:
        raise ValueError(
            f"Expected `name` to be a published model, one of {', '.join(PUBLISHED)}. "
            f"Received: name={name!r}"
        )
    (size, alpha, beta, bias), _ = PUBLISHED[name]
    return {"size": size, "alpha": alpha, "beta": beta, "bias": bias}


def to_tensorflow(layer):
    """Arguments with which `tf.nn.local_response_normalization` equals the layer.

    TensorFlow takes inputs of rank 4. On GPUs it needs `bias >= 1e-5` and `beta >= 0.01` too.

    Args:
        layer: A `LocalResponseNormalization` with an odd `size`, over the last axis.

    Returns:
        A dict of `depth_radius`, `bias`, `alpha` (divided by `size`) and `beta`.

    Raises:
        ValueError: `layer` is none of those.

    Warns:
        UserWarning: `lda_coeff` is not 1, or `bias` is 0 (see `to_torch`).

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    layer = LocalResponseNormalization(5, alpha=0.5)
    assert interop.to_tensorflow(layer) == {
        "depth_radius": 2, "bias": 1.0, "alpha": 0.1, "beta": 0.75
    }
    ```
    """
    _check_layer(layer, "TensorFlow", channels="last (axis -1)", axis=-1)
    size = _odd("size", layer.size, "TensorFlow sums over 2 * depth_radius + 1 channels")
    return {
        "depth_radius": size // 2,
        "bias": layer.bias,
        "alpha": layer.alpha / size,
        "beta": layer.beta,
    }


def to_torch(layer):
    """Arguments with which `torch.nn.LocalResponseNorm` equals the layer.

    Args:
        layer: A `LocalResponseNormalization` with an odd `size`, over axis 1.

    Returns:
        A dict of `size`, `alpha`, `beta` and `k` (from `bias`).

    Raises:
        ValueError: `layer` is none of those.

    Warns:
        UserWarning: `lda_coeff` is not 1: PyTorch has no such factor, so its gradient is the
            plain one. Or `bias` is 0: where a whole window is zero, PyTorch gives NaN and this
            layer gives 0.

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    layer = LocalResponseNormalization(5, bias=2.0, axis=1)
    assert interop.to_torch(layer) == {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 2.0}
    ```
    """
    _check_layer(layer, "PyTorch", channels="first (axis 1)", axis=1)
    size = _odd("size", layer.size, _TORCH_EVEN)
    return {"size": size, "alpha": layer.alpha, "beta": layer.beta, "k": layer.bias}


def to_caffe(layer):
    """Fields of the `lrn_param` with which a Caffe `LRN` layer equals the layer.

    Args:
        layer: A `LocalResponseNormalization` with an odd `size`, over axis 1.

    Returns:
        A dict of `local_size`, `alpha`, `beta`, `k` (from `bias`) and `norm_region`.

    Raises:
        ValueError: `layer` is none of those.

    Warns:
        UserWarning: `lda_coeff` is not 1, or `bias` is 0 (see `to_torch`).

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    fields = interop.to_caffe(LocalResponseNormalization(5, alpha=0.5, axis=1))
    assert fields["local_size"] == 5
    assert fields["norm_region"] == "ACROSS_CHANNELS"
    ```
    """
    _check_layer(layer, "Caffe", channels="first (axis 1)", axis=1)
    size = _odd("local_size", layer.size, _CAFFE_EVEN)
    return {
        "local_size": size,
        "alpha": layer.alpha,
        "beta": layer.beta,
        "k": layer.bias,
        "norm_region": "ACROSS_CHANNELS",
    }


def to_onnx(layer, input_name, output_name):
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
        UserWarning: `lda_coeff` is not 1, or `bias` is 0 (see `to_torch`).

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    node = interop.to_onnx(LocalResponseNormalization(5, axis=1), "x", "y")
    assert node.op_type == "LRN"
    ```
    """
    _check_layer(layer, "ONNX", channels="first (axis 1)", axis=1)
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
    return helper.make_node(
        "LRN",
        [input_name],
        [output_name],
        name=layer.name,
        size=layer.size,
        alpha=layer.alpha,
        beta=layer.beta,
        bias=layer.bias,
    )


_TORCH_EVEN = (
    "PyTorch's even windows have their extra channel on the lower side, this layer's on the higher"
)
_CAFFE_EVEN = "Caffe refuses even sizes"
# What AttributeProto.type says of an attribute: 0 is left out, as in the first ONNX files.
_ONNX_FLOAT, _ONNX_INT = (0, 1), (0, 2)
_ONNX_ATTRIBUTES = {
    "size": ("i", _ONNX_INT),
    "alpha": ("f", _ONNX_FLOAT),
    "beta": ("f", _ONNX_FLOAT),
    "bias": ("f", _ONNX_FLOAT),
}


def _onnx_value(attribute):
    name = attribute.name
    if name not in _ONNX_ATTRIBUTES:
        raise ValueError(
            "Expected no attributes but size, alpha, beta and bias: an LRN node has no other. "
            f"Received: attribute={name!r}"
        )
    field, types = _ONNX_ATTRIBUTES[name]
    # The other fields of a protobuf attribute read as 0, so the wrong one would pass for a value.
    if getattr(attribute, "type", 0) not in types or getattr(attribute, "ref_attr_name", ""):
        kind = "an integer" if field == "i" else "a float"
        raise ValueError(
            f"Expected the attribute {name} to be {kind} that the LRN node holds itself. "
            f"Received: attribute={attribute!r}"
        )
    return getattr(attribute, field)


def _check_layer(layer, framework, *, channels, axis):
    if not isinstance(layer, LocalResponseNormalization):
        raise ValueError(
            "Expected `layer` to be a keras_lrn.LocalResponseNormalization. "
            f"Received: layer={layer!r}"
        )
    if layer.size == 0:
        raise ValueError(
            f"Expected `size` to be at least 1: {framework} has no LRN that sums over no channels. "
            "Received: size=0"
        )
    rank = _built_rank(layer)
    spellings = {layer.axis} if rank is None else {layer.axis, layer.axis + rank, layer.axis - rank}
    if axis not in spellings:
        unresolved = ", or build the layer so that its axis is known from both ends"
        raise ValueError(
            f"Expected the channels to come {channels}: {framework}'s LRN knows no other axis. "
            f"Transpose around it{unresolved if rank is None else ''}. Received: axis={layer.axis}"
        )
    if layer.lda_coeff != 1:
        warnings.warn(
            f"{framework}'s LRN has no lda_coeff: its gradient will be the plain one, not "
            f"multiplied by {layer.lda_coeff}.",
            stacklevel=3,
        )
    if layer.bias == 0 and layer.beta > 0:
        warnings.warn(
            f"With bias=0, {framework}'s LRN gives NaN where a whole window is zero; this layer "
            "gives 0 there.",
            stacklevel=3,
        )


def _built_rank(layer):
    built = layer.get_build_config()
    return len(built["input_shape"]) if built else None


def _odd(name, value, why):
    value = check_integer(name, value, minimum=1)
    if value % 2 == 0:
        raise ValueError(f"Expected `{name}` to be odd: {why}. Received: {name}={value}")
    return value


def _checked_numbers(alpha, beta, bias, bias_name="bias"):
    alpha = check_real("alpha", alpha, minimum=0)
    beta = check_real("beta", beta)
    bias = check_real(bias_name, bias, minimum=0)
    if alpha == 0 and bias == 0:
        raise ValueError(
            f"Expected `{bias_name}` to be above 0 where alpha is 0: every scale would be 0. "
            f"Received: {bias_name}={bias}, alpha={alpha}"
        )
    return alpha, beta, bias
