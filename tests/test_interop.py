"""Conversions against the real frameworks, every refusal, and the published parameters."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import helper

from keras_lrn import LocalResponseNormalization, interop

TORCH_OUTPUTS = np.load(Path(__file__).with_name("torch_outputs.npz"))
TORCH_CASES = range(sum(name.endswith("/x") for name in TORCH_OUTPUTS.files))
LIGHT_MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

# The arguments that every framework but TensorFlow can express; none at its default.
CHANNELS_FIRST = [
    {"size": 1, "alpha": 0.7, "beta": 0.5, "bias": 2.0, "axis": 1},
    {"size": 3, "alpha": 0.9, "beta": 1.0, "bias": 0.5, "axis": 1},
    {"size": 5, "alpha": 5e-4, "beta": 0.6, "bias": 2.0, "axis": 1},
    {"size": 15, "alpha": 1.3, "beta": 1.3, "bias": 0.1, "axis": 1},
]


def torch_case(number):
    size, alpha, beta, k = TORCH_OUTPUTS[f"{number}/parameters"].tolist()
    module = SimpleNamespace(size=int(size), alpha=alpha, beta=beta, k=k)
    arrays = [TORCH_OUTPUTS[f"{number}/{name}"] for name in ("x", "upstream", "y", "dx")]
    return module, *arrays


def output_and_gradient(arguments, x, upstream, dtype):
    layer = LocalResponseNormalization(**arguments, dtype=dtype)
    return value_and_gradient(layer, x, upstream)


def value_and_gradient(function, x, upstream):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y.numpy(), tape.gradient(y, x, upstream).numpy()


def run_node(node, x):
    """What onnxruntime makes of a graph of this node alone."""
    value = [helper.make_tensor_value_info(n, 1, x.shape) for n in (*node.input, *node.output)]
    graph = helper.make_graph([node], "lrn", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {node.input[0]: x})[0]


def random(*shape, scale=2.0, dtype="float32"):
    return np.random.default_rng(0).normal(scale=scale, size=shape).astype(dtype)


def assert_close(actual, expected, relative):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=relative * np.abs(expected).max())


# TensorFlow


@pytest.mark.parametrize("radius", range(8))
def test_from_tensorflow_gives_the_outputs_and_gradients_of_tensorflow(radius):
    arguments = {"depth_radius": radius, "bias": 1.5, "alpha": 0.3, "beta": 0.6}
    x, upstream = random(2, 3, 5, 11), random(2, 3, 5, 11, scale=1.0)[..., ::-1].copy()
    expected = value_and_gradient(
        lambda x: tf.nn.local_response_normalization(x, **arguments), x, upstream
    )
    actual = output_and_gradient(interop.from_tensorflow(**arguments), x, upstream, dtype="float32")
    assert_close(actual[0], expected[0], 1e-5)
    assert_close(actual[1], expected[1], 1e-5)


def test_from_tensorflow_has_the_defaults_of_tensorflow():
    x = random(2, 3, 5, 17)
    layer = LocalResponseNormalization(**interop.from_tensorflow())
    assert_close(layer(x).numpy(), tf.nn.local_response_normalization(x).numpy(), 1e-5)


@pytest.mark.parametrize("arguments", CHANNELS_FIRST)
def test_to_tensorflow_gives_the_outputs_of_the_layer(arguments):
    layer = LocalResponseNormalization(**{**arguments, "axis": -1})
    x = random(2, 3, 5, 11)
    y = tf.nn.local_response_normalization(x, **interop.to_tensorflow(layer))
    assert_close(y.numpy(), layer(x).numpy(), 1e-5)


@pytest.mark.parametrize("arguments", CHANNELS_FIRST)
def test_tensorflow_round_trip_keeps_the_arguments(arguments):
    arguments = {**arguments, "axis": -1}
    layer = LocalResponseNormalization(**arguments)
    back = interop.from_tensorflow(**interop.to_tensorflow(layer))
    # Divided by size and multiplied again, alpha may lose its last bit.
    assert back == {**arguments, "alpha": pytest.approx(arguments["alpha"], rel=1e-15)}


# PyTorch


@pytest.mark.parametrize("number", TORCH_CASES)
def test_from_torch_gives_the_committed_outputs_and_gradients_of_torch(number):
    module, x, upstream, y, dx = torch_case(number)
    if module.size % 2:
        arguments = interop.from_torch(module)
        assert arguments["axis"] == 1
    else:
        with pytest.raises(ValueError, match="lower side"):
            interop.from_torch(module)
        # Why they are refused: PyTorch's even windows are this layer's with the channels reversed.
        arguments = interop.from_torch(SimpleNamespace(**{**vars(module), "size": 1}))
        arguments["size"] = module.size
        straight, _ = output_and_gradient(arguments, x, upstream, dtype="float64")
        assert np.abs(straight - y).max() > 1e-2 * np.abs(y).max()
        x, upstream, y, dx = (a[:, ::-1].copy() for a in (x, upstream, y, dx))
    actual = output_and_gradient(arguments, x, upstream, dtype="float64")
    assert_close(actual[0], y, 1e-12)
    assert_close(actual[1], dx, 1e-12)


def test_committed_outputs_say_which_torch_wrote_them():
    assert re.match(r"\d+\.\d+\.\d+", str(TORCH_OUTPUTS["torch_version"]))


@pytest.mark.parametrize("number", TORCH_CASES)
def test_committed_outputs_are_those_of_the_installed_torch(number):
    torch = pytest.importorskip("torch", reason="the committed outputs stand for it")
    parameters, x, upstream, y, dx = torch_case(number)
    x = torch.tensor(x, requires_grad=True)
    live = torch.nn.LocalResponseNorm(**vars(parameters))(x)
    live.backward(torch.tensor(upstream))
    assert_close(live.detach().numpy(), y, 1e-12)
    assert_close(x.grad.numpy(), dx, 1e-12)


@pytest.mark.parametrize("arguments", CHANNELS_FIRST)
def test_modules_of_the_installed_torch_convert_both_ways(arguments):
    torch = pytest.importorskip("torch", reason="the committed outputs stand for it")
    layer = LocalResponseNormalization(**arguments, dtype="float64")
    module = torch.nn.LocalResponseNorm(**interop.to_torch(layer))
    assert interop.from_torch(module) == arguments
    x = random(2, 11, 3, 5, dtype="float64")
    assert_close(layer(x).numpy(), module(torch.tensor(x)).numpy(), 1e-12)


def test_from_torch_reads_the_defaults_of_the_installed_torch():
    torch = pytest.importorskip("torch", reason="the committed outputs stand for it")
    arguments = interop.from_torch(torch.nn.LocalResponseNorm(5))
    assert arguments == {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0, "axis": 1}


@pytest.mark.parametrize("arguments", CHANNELS_FIRST)
def test_torch_round_trip_keeps_the_arguments(arguments):
    layer = LocalResponseNormalization(**arguments)
    assert interop.from_torch(SimpleNamespace(**interop.to_torch(layer))) == arguments


def test_from_torch_does_not_import_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    module = SimpleNamespace(size=5, alpha=1e-4, beta=0.75, k=2)
    assert interop.from_torch(module)["bias"] == 2.0


# Caffe


def test_from_caffe_follows_the_definition_of_caffe():
    layer = LocalResponseNormalization(
        **interop.from_caffe(local_size=3, alpha=1.5, beta=0.5, k=3.0)
    )
    # Channels 1, 2, 2, 4 of one pixel: 3 + 1.5 / 3 * [1 + 4, 1 + 4 + 4, 4 + 4 + 16, 4 + 16].
    x = np.array([1.0, 2.0, 2.0, 4.0], "float32").reshape(1, 4, 1, 1)
    expected = x.ravel() / np.sqrt([5.5, 7.5, 15.0, 13.0])
    assert_close(layer(x).numpy().ravel(), expected, 1e-6)


def test_from_caffe_has_the_defaults_of_caffe():
    defaults = {"size": 5, "alpha": 1.0, "beta": 0.75, "bias": 1.0, "axis": 1}
    assert interop.from_caffe() == defaults


@pytest.mark.parametrize("arguments", CHANNELS_FIRST)
def test_caffe_round_trip_keeps_the_arguments(arguments):
    fields = interop.to_caffe(LocalResponseNormalization(**arguments))
    assert fields["norm_region"] == "ACROSS_CHANNELS"
    assert interop.from_caffe(**fields) == arguments


# ONNX


@pytest.mark.parametrize("arguments", CHANNELS_FIRST)
def test_to_onnx_gives_the_outputs_of_the_layer_in_onnxruntime(arguments):
    layer = LocalResponseNormalization(**arguments)
    node = interop.to_onnx(layer, "before", "after")
    assert (list(node.input), list(node.output)) == (["before"], ["after"])
    x = random(2, 11, 3, 5)
    assert_close(layer(x).numpy(), run_node(node, x), 1e-5)


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_onnx_round_trip_keeps_the_arguments_to_32_bits(size):
    arguments = {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 2.0, "axis": 1}
    node = interop.to_onnx(LocalResponseNormalization(**arguments), "x", "y")
    rounded = {name: float(np.float32(arguments[name])) for name in ("alpha", "beta", "bias")}
    assert interop.from_onnx(node) == {**arguments, **rounded}


def test_to_onnx_writes_whole_numbers_as_floats():
    layer = LocalResponseNormalization(3, alpha=2, beta=1, bias=3, axis=1)
    arguments = interop.from_onnx(interop.to_onnx(layer, "x", "y"))
    assert arguments == {"size": 3, "alpha": 2.0, "beta": 1.0, "bias": 3.0, "axis": 1}


def test_from_onnx_has_the_defaults_of_the_operator():
    arguments = interop.from_onnx(helper.make_node("LRN", ["x"], ["y"], size=5))
    schema = onnx.defs.get_schema("LRN").attributes
    for name in ("alpha", "beta", "bias"):
        assert arguments[name] == pytest.approx(schema[name].default_value.f, rel=1e-7)
    assert (arguments["size"], arguments["axis"]) == (5, 1)


def test_from_onnx_reads_an_even_window_as_onnx_defines_it():
    module, x, upstream, y, dx = torch_case(TORCH_CASES[-1])
    assert module.size == 4
    attributes = {"size": 4, "alpha": module.alpha, "beta": module.beta, "bias": module.k}
    arguments = interop.from_onnx(helper.make_node("LRN", ["x"], ["y"], **attributes))
    # PyTorch's even window leans the other way, so it sees the channels in reverse.
    actual = output_and_gradient(arguments, x[:, ::-1].copy(), upstream[:, ::-1].copy(), "float64")
    assert_close(actual[0][:, ::-1], y, 1e-12)
    assert_close(actual[1][:, ::-1], dx, 1e-12)


def test_from_onnx_needs_no_onnx_and_no_types(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    attributes = [SimpleNamespace(name="size", i=3), SimpleNamespace(name="bias", f=2.0)]
    node = SimpleNamespace(op_type="LRN", attribute=attributes)
    expected = {"size": 3, "alpha": 1e-4, "beta": 0.75, "bias": 2.0, "axis": 1}
    assert interop.from_onnx(node) == expected


def test_to_onnx_says_that_it_needs_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match="pip install onnx"):
        interop.to_onnx(LocalResponseNormalization(3, axis=1), "x", "y")


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("bvlc_alexnet", "bvlc_alexnet"),
        ("inception_v1", "inception_v1"),
        ("zfnet512", "zfnet512"),
    ],
)
def test_lrn_nodes_of_real_models_convert_and_agree_with_onnxruntime(model, published):
    graph = onnx.load(LIGHT_MODELS / f"light_{model}.onnx").graph
    nodes = [node for node in graph.node if node.op_type == "LRN"]
    assert len(nodes) == 2
    for node in nodes:
        arguments = interop.from_onnx(node)
        expected = {**interop.from_published(published), "axis": 1}
        assert arguments == pytest.approx(expected, rel=1e-7)
        layer = LocalResponseNormalization(**arguments)
        # The scale of pixels, at which alpha=1e-4 divides by more than 1.
        x = random(2, 11, 3, 5, scale=200.0)
        y = layer(x).numpy()
        assert np.abs(y).max() < 0.7 * np.abs(x).max()
        assert_close(y, run_node(node, x), 1e-5)


# Published models


def test_published_models_are_those_that_the_message_and_the_docs_name():
    names = "alexnet bvlc_alexnet caffenet googlenet rcnn_ilsvrc13 zfnet512 inception_v1 "
    names += "vgg_cnn_m vgg_cnn_s matconvnet cifar10_tensorflow openface inception5h"
    assert list(interop.PUBLISHED) == names.split()
    for name, (_, source) in interop.PUBLISHED.items():
        assert f"`{name}`" in interop.from_published.__doc__
        assert source.count("https://") == 1


@pytest.mark.parametrize("name", interop.PUBLISHED)
def test_published_parameters_build_a_layer_in_either_layout(name):
    arguments = interop.from_published(name)
    assert set(arguments) == {"size", "alpha", "beta", "bias"}
    for axis in (-1, 1):
        config = LocalResponseNormalization(**arguments, axis=axis).get_config()
        assert {key: config[key] for key in arguments} == arguments


# What the sources say, in the words of the framework that they are written in.
CAFFE_MODELS = {"local_size": 5, "alpha": 0.0001, "beta": 0.75}
VGG_CNN = {"local_size": 5, "alpha": 0.0005, "beta": 0.75, "k": 2}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("alexnet", interop.from_tensorflow(depth_radius=2, bias=2, alpha=1e-4, beta=0.75)),
        ("bvlc_alexnet", interop.from_caffe(**CAFFE_MODELS)),
        ("caffenet", interop.from_caffe(**CAFFE_MODELS)),
        ("googlenet", interop.from_caffe(**CAFFE_MODELS)),
        ("rcnn_ilsvrc13", interop.from_caffe(**CAFFE_MODELS)),
        ("vgg_cnn_m", interop.from_caffe(**VGG_CNN)),
        ("vgg_cnn_s", interop.from_caffe(**VGG_CNN)),
        ("matconvnet", interop.from_tensorflow(depth_radius=2, alpha=0.0001 / 5, beta=0.75)),
        ("cifar10_tensorflow", interop.from_tensorflow(depth_radius=4, alpha=1e-3 / 9, beta=0.75)),
        (
            "openface",
            interop.from_torch(SimpleNamespace(size=5, alpha=0.0001, beta=0.75, k=1)),
        ),
        ("inception5h", interop.from_tensorflow(depth_radius=5, bias=2, alpha=1e-4, beta=0.5)),
    ],
)
def test_published_parameters_are_those_of_the_source(name, arguments):
    del arguments["axis"]
    assert interop.from_published(name) == pytest.approx(arguments, rel=1e-15)


def test_published_arguments_can_be_changed_without_changing_the_table():
    interop.from_published("alexnet")["size"] = 7
    assert interop.from_published("alexnet")["size"] == 5


# Plain numbers, refusals, warnings


def test_arguments_are_plain_numbers_whatever_came_in():
    five, half = np.int64(5), np.float32(0.5)
    expected = {"size": 5, "alpha": 0.5, "beta": 0.5, "bias": 0.5, "axis": 1}
    for arguments in (
        interop.from_caffe(local_size=five, alpha=half, beta=half, k=half),
        interop.from_torch(SimpleNamespace(size=five, alpha=half, beta=half, k=half)),
    ):
        assert json.loads(json.dumps(arguments)) == expected
        assert [type(value) for value in arguments.values()] == [int, float, float, float, int]
    arguments = interop.from_tensorflow(depth_radius=np.int32(1), alpha=half, beta=half, bias=1)
    assert json.loads(json.dumps(arguments)) == {
        **expected,
        "size": 3,
        "alpha": 1.5,
        "bias": 1.0,
        "axis": -1,
    }


def lrn_node(op_type="LRN", domain="", **attributes):
    return helper.make_node(op_type, ["x"], ["y"], domain=domain, **attributes)


def torch_module(size=5, alpha=1e-4, beta=0.75, k=1.0):
    return SimpleNamespace(size=size, alpha=alpha, beta=beta, k=k)


def node_with_reference():
    node = lrn_node(size=5)
    node.attribute.append(onnx.AttributeProto(name="alpha", type=1, ref_attr_name="weight"))
    return node


def layer(size=3, *, built=None, **arguments):
    made = LocalResponseNormalization(size, **arguments)
    if built:
        made.build(built)
    return made


REFUSALS = [
    # from_tensorflow
    *[
        (
            lambda value=value: interop.from_tensorflow(depth_radius=value),
            "an integer >= 0",
            f"Received: depth_radius={value!r}",
        )
        for value in (-1, 2.0, True, "2", None)
    ],
    *[
        (
            lambda name=name, value=value: interop.from_tensorflow(**{name: value}),
            "a finite real number",
            f"Received: {name}={value!r}",
        )
        for name in ("alpha", "beta", "bias")
        for value in (float("nan"), float("inf"), True, "1", None, 1j)
    ],
    (
        lambda: interop.from_tensorflow(alpha=-0.5),
        "a finite real number >= 0",
        "Received: alpha=-0.5",
    ),
    (
        lambda: interop.from_tensorflow(bias=-1),
        "a finite real number >= 0",
        "Received: bias=-1",
    ),
    (
        lambda: interop.from_tensorflow(bias=0, alpha=0),
        "every scale would be 0",
        "Received: bias=0.0, alpha=0.0",
    ),
    # from_torch
    (lambda: interop.from_torch(torch_module(size=4)), "on the lower side", "Received: size=4"),
    (lambda: interop.from_torch(torch_module(size=0)), "an integer >= 1", "Received: size=0"),
    (lambda: interop.from_torch(torch_module(size=True)), "an integer", "Received: size=True"),
    (lambda: interop.from_torch(torch_module(alpha="1")), "a finite", "Received: alpha='1'"),
    (lambda: interop.from_torch(torch_module(k=-1)), "a finite real number >= 0", "Received: k=-1"),
    (
        lambda: interop.from_torch(SimpleNamespace(size=5, alpha=1.0)),
        "there is no beta and no k",
        "Received: module=namespace(size=5, alpha=1.0)",
    ),
    (lambda: interop.from_torch(None), "a torch.nn.LocalResponseNorm", "Received: module=None"),
    # from_caffe
    (
        lambda: interop.from_caffe(local_size=4),
        "Caffe refuses even sizes",
        "Received: local_size=4",
    ),
    (lambda: interop.from_caffe(local_size=0), "an integer >= 1", "Received: local_size=0"),
    (
        lambda: interop.from_caffe(norm_region="WITHIN_CHANNEL"),
        "'WITHIN_CHANNEL' is a different operator",
        "Received: norm_region='WITHIN_CHANNEL'",
    ),
    (
        lambda: interop.from_caffe(norm_region=None),
        "to be 'ACROSS_CHANNELS'",
        "Received: norm_region=None",
    ),
    (lambda: interop.from_caffe(k=-2), "a finite real number >= 0", "Received: k=-2"),
    (
        lambda: interop.from_caffe(k=0, alpha=0),
        "`k` to be above 0",
        "Received: k=0.0, alpha=0.0",
    ),
    # from_onnx
    (
        lambda: interop.from_onnx(lrn_node("Relu")),
        "to be an LRN node of the standard ONNX domain",
        "Received: op_type='Relu', domain=''",
    ),
    (
        lambda: interop.from_onnx(lrn_node(domain="com.example", size=5)),
        "to be an LRN node of the standard ONNX domain",
        "Received: op_type='LRN', domain='com.example'",
    ),
    (
        lambda: interop.from_onnx(None),
        "to be an LRN node of the standard ONNX domain",
        "Received: op_type=None, domain=''",
    ),
    (
        lambda: interop.from_onnx(lrn_node(alpha=0.5)),
        "ONNX has no default for it",
        "Received: attributes=['alpha']",
    ),
    (
        lambda: interop.from_onnx(lrn_node(size=5, depth=2)),
        "an LRN node has no other",
        "Received: attribute='depth'",
    ),
    (
        lambda: interop.from_onnx(lrn_node(size=5.0)),
        "to be an integer that the LRN node holds itself",
        "",
    ),
    (
        lambda: interop.from_onnx(lrn_node(size=5, alpha=1)),
        "to be a float that the LRN node holds itself",
        "",
    ),
    (
        lambda: interop.from_onnx(node_with_reference()),
        "to be a float that the LRN node holds itself",
        "",
    ),
    (lambda: interop.from_onnx(lrn_node(size=0)), "an integer >= 1", "Received: size=0"),
    (
        lambda: interop.from_onnx(lrn_node(size=5, alpha=-1.0)),
        "a finite real number >= 0",
        "Received: alpha=-1.0",
    ),
    # from_published
    *[
        (
            lambda value=value: interop.from_published(value),
            "one of alexnet, bvlc_alexnet, caffenet",
            f"Received: name={value!r}",
        )
        for value in ("resnet50", None, ["alexnet"])
    ],
    # to_*
    *[
        (
            lambda convert=convert: convert("lrn"),
            "to be a keras_lrn.LocalResponseNormalization",
            "Received: layer='lrn'",
        )
        for convert in (
            interop.to_tensorflow,
            interop.to_torch,
            interop.to_caffe,
            lambda layer: interop.to_onnx(layer, "x", "y"),
        )
    ],
    *[
        (
            lambda convert=convert, axis=axis: convert(layer(0, axis=axis)),
            f"{framework} has no LRN that sums over no channels",
            "Received: size=0",
        )
        for framework, convert, axis in (
            ("TensorFlow", interop.to_tensorflow, -1),
            ("PyTorch", interop.to_torch, 1),
            ("Caffe", interop.to_caffe, 1),
            ("ONNX", lambda layer: interop.to_onnx(layer, "x", "y"), 1),
        )
    ],
    (
        lambda: interop.to_tensorflow(layer(4)),
        "TensorFlow sums over 2 * depth_radius + 1 channels",
        "Received: size=4",
    ),
    (lambda: interop.to_torch(layer(4, axis=1)), "on the lower side", "Received: size=4"),
    (
        lambda: interop.to_caffe(layer(4, axis=1)),
        "Caffe refuses even sizes",
        "Received: local_size=4",
    ),
    (
        lambda: interop.to_tensorflow(layer(axis=1)),
        "the channels to come last (axis -1)",
        "Received: axis=1",
    ),
    *[
        (
            lambda convert=convert: convert(layer(axis=-1)),
            f"the channels to come first (axis 1): {framework}'s LRN knows no other axis",
            "Received: axis=-1",
        )
        for framework, convert in (
            ("PyTorch", interop.to_torch),
            ("Caffe", interop.to_caffe),
            ("ONNX", lambda layer: interop.to_onnx(layer, "x", "y")),
        )
    ],
    (
        lambda: interop.to_torch(layer(axis=-3)),
        "or build the layer so that its axis is known from both ends",
        "Received: axis=-3",
    ),
    (
        lambda: interop.to_torch(layer(axis=-3, built=(2, 3, 4, 5, 6))),
        "Transpose around it. Received",
        "Received: axis=-3",
    ),
    (
        lambda: interop.to_tensorflow(layer(axis=3, built=(2, 3, 4, 5, 6))),
        "the channels to come last",
        "Received: axis=3",
    ),
    *[
        (
            lambda value=value: interop.to_onnx(layer(axis=1), value, "y"),
            "`input_name` to be a non-empty string",
            f"Received: input_name={value!r}",
        )
        for value in ("", None)
    ],
    (
        lambda: interop.to_onnx(layer(axis=1), "x", 3),
        "`output_name` to be a non-empty string",
        "Received: output_name=3",
    ),
]


@pytest.mark.parametrize(("refused", "reason", "received"), REFUSALS)
def test_what_cannot_be_represented_is_refused_with_the_reason(refused, reason, received):
    with pytest.raises(ValueError, match="Received: ") as raised:
        refused()
    assert reason in str(raised.value)
    assert str(raised.value).endswith(received)


def test_from_tensorflow_takes_its_arguments_in_the_order_of_tensorflow():
    x = random(2, 3, 5, 11)
    positional = (3, 1.5, 0.3, 0.6)
    layer = LocalResponseNormalization(**interop.from_tensorflow(*positional))
    expected = tf.nn.local_response_normalization(x, *positional)
    assert_close(layer(x).numpy(), expected.numpy(), 1e-5)


def test_the_fields_of_caffe_are_keywords_only():
    with pytest.raises(TypeError, match="positional"):
        interop.from_caffe(5)


def test_an_axis_counted_from_the_other_end_converts_once_the_layer_is_built():
    assert interop.to_torch(layer(axis=-3, built=(2, 3, 4, 5)))["size"] == 3
    assert interop.to_caffe(layer(axis=-1, built=(2, 3)))["local_size"] == 3
    assert interop.to_tensorflow(layer(axis=3, built=(2, 3, 4, 5)))["depth_radius"] == 1


CONVERSIONS = [
    ("TensorFlow", interop.to_tensorflow, -1),
    ("PyTorch", interop.to_torch, 1),
    ("Caffe", interop.to_caffe, 1),
    ("ONNX", lambda layer: interop.to_onnx(layer, "x", "y"), 1),
]


@pytest.mark.parametrize(("framework", "convert", "axis"), CONVERSIONS)
def test_a_scaled_derivative_converts_with_a_warning(framework, convert, axis):
    with pytest.warns(UserWarning, match=f"{framework}'s LRN has no lda_coeff.*by 0.5"):
        scaled = convert(layer(axis=axis, lda_coeff=0.5))
    assert str(scaled) == str(convert(layer(axis=axis, name=getattr(scaled, "name", None))))


@pytest.mark.parametrize(("framework", "convert", "axis"), CONVERSIONS)
def test_a_bias_of_zero_converts_with_a_warning(framework, convert, axis):
    with pytest.warns(UserWarning, match=f"With bias=0, {framework}'s LRN gives NaN"):
        convert(layer(axis=axis, bias=0))
    # 0 to a positive power is 0 everywhere: nothing to warn of.
    convert(layer(axis=axis, bias=0, beta=-0.5))


def test_frameworks_give_nan_where_the_warning_says_so():
    x = np.zeros((2, 3, 4, 5), "float32")
    with pytest.warns(UserWarning, match="NaN"):
        arguments = interop.to_tensorflow(layer(bias=0))
    with pytest.warns(UserWarning, match="NaN"):
        node = interop.to_onnx(layer(bias=0, axis=1), "x", "y")
    assert np.isnan(tf.nn.local_response_normalization(x, **arguments).numpy()).all()
    assert np.isnan(run_node(node, x)).all()
    assert (layer(bias=0)(x).numpy() == 0).all()
