"""Models that Keras exports, each run by the runtime it is meant for."""

import collections
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from cases import assert_accurate, random_x_and_upstream, relative_error, traced_ops
from serve import answer, without_keras
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_lrn import LocalResponseNormalization, reference

ARGUMENTS = {"alpha": 2.5, "beta": 0.75, "bias": 1.5}
Layer = collections.namedtuple("Layer", "shape size arguments dtype", defaults=({}, "float32"))
# Layers that TensorFlow's LRN op equals, and layers that it does not.
LRN_OP = {
    "smallest": Layer((6, 5, 7), 3),
    "largest": Layer((6, 5, 19), 15),
    "wider_than_the_channels": Layer((6, 5, 7), 9),
    "most_channels": Layer((2, 5, 384), 5),
    "unknown_height_and_width": Layer((None, None, 7), 5),
    "explicit_axis": Layer((6, 5, 7), 5, {"axis": 3}),
    "reversed_gradient": Layer((6, 5, 7), 5, {"lda_coeff": -2.5}),
    "blocked_gradient": Layer((6, 5, 7), 5, {"lda_coeff": 0.0}),
    "least_bias": Layer((6, 5, 7), 5, {"bias": 1e-5}),
    "half": Layer((6, 5, 7), 5, {}, "float16"),
    "brain": Layer((6, 5, 7), 5, {}, "bfloat16"),
}
PLAIN_OPS = {
    "even": Layer((6, 5, 7), 4, {"lda_coeff": -2.5}),
    "even_half": Layer((6, 5, 7), 4, {}, "float16"),
    "size_1": Layer((6, 5, 7), 1),
    "size_17": Layer((6, 5, 19), 17),
    "size_40": Layer((6, 5, 19), 40),
    "even_of_unknown_height_and_width": Layer((None, None, 7), 4),
    "channels_385": Layer((2, 5, 385), 5),
    "channels_unknown": Layer((6, 5, None), 5),
    "channels_first": Layer((7, 6, 5), 5, {"axis": 1}),
    "channels_between": Layer((6, 7, 5), 5, {"axis": 2}),
    "rank_2": Layer((7,), 5),
    "rank_3": Layer((6, 7), 5),
    "rank_5": Layer((2, 6, 5, 7), 5),
    "negative_beta": Layer((6, 5, 7), 5, {"beta": -0.5}),
    "little_bias": Layer((6, 5, 7), 5, {"bias": 1e-6}),
    "no_bias": Layer((6, 5, 7), 5, {"bias": 0.0}),
    "double": Layer((6, 5, 7), 5, {}, "float64"),
}
LAYERS = {**LRN_OP, **PLAIN_OPS}
# Of these also the layers that are compiled when a model predicts.
COMPILED = (
    *("smallest", "unknown_height_and_width", "half", "even", "size_40"),
    *("even_of_unknown_height_and_width", "channels_first", "no_bias", "rank_3"),
)


def one_layer(name, **more):
    shape, size, arguments, dtype = LAYERS[name]
    inputs = keras.Input(shape, dtype=dtype)
    layer = LocalResponseNormalization(
        size, dtype=dtype, name=name, **{**ARGUMENTS, **arguments, **more}
    )
    return inputs, layer(inputs)


def x_and_upstream(name, batch):
    """Arrays in the dtype of the layer, whose unknown lengths differ from batch to batch."""
    shape, _, _, dtype = LAYERS[name]
    shape = (batch, *(length or 7 + place + batch for place, length in enumerate(shape)))
    return [tf.cast(array, dtype).numpy() for array in random_x_and_upstream(shape)]


def oracle(name, x, upstream):
    """The exact output and gradient in float64."""
    _, size, arguments, _ = LAYERS[name]
    arguments = {**ARGUMENTS, **arguments}
    gradient = reference.gradient(x, upstream, size, **arguments)
    arguments.pop("lda_coeff", None)
    return reference.local_response_normalization(x, size, **arguments), gradient


@pytest.fixture(scope="module")
def small_network():
    """Trained for a step; one of its layers sends back a reversed and amplified derivative."""
    keras.utils.set_random_seed(2012)
    image = keras.Input((6, 5, 4), name="image")
    x = keras.layers.Conv2D(7, 3, padding="same", activation="tanh")(image)
    x = LocalResponseNormalization(5, **ARGUMENTS, lda_coeff=-2.5)(x)
    x = keras.layers.Conv2D(8, 2)(x)
    x = LocalResponseNormalization(4, **ARGUMENTS, lda_coeff=0.5)(x)
    model = keras.Model(image, keras.layers.Dense(3)(keras.layers.Flatten()(x)))
    model.compile("sgd", "mse")
    images, targets = np.random.default_rng(0).normal(size=(2, 9, 6, 5, 4)).astype("float32")
    model.fit(images, targets[:, 0, 0, :3], verbose=0)
    return model


@pytest.fixture(scope="module")
def saved_network(small_network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small_network") / "saved_model"
    small_network.export(folder, verbose=False)
    return folder


# SavedModel


def saved(names, folder, **more):
    """A SavedModel of the layers side by side: how it answers without Keras, and its nodes."""
    inputs, outputs = zip(*(one_layer(name, **more) for name in names), strict=True)
    model = keras.Model(list(inputs), list(outputs))
    questions = [
        tuple(zip(*(x_and_upstream(name, batch) for name in names), strict=True))
        for batch in (1, 3)
    ]
    model.predict(list(questions[1][0]), verbose=0)  # where jit_compile=True compiles
    model.export(folder / "saved_model", verbose=False)
    answers = without_keras(folder / "saved_model", *questions, folder=folder)
    nodes = nodes_of_a_request(folder / "saved_model")
    return SimpleNamespace(answers=dict(zip((1, 3), answers, strict=True)), nodes=nodes)


def assert_exact(model, names, name, batch):
    """Checks output and gradient of the layer in the SavedModel of these."""
    x, upstream = x_and_upstream(name, batch)
    output, gradient = oracle(name, x, upstream)
    place = list(names).index(name)
    assert_accurate(model.answers[batch]["outputs"][place], output, LAYERS[name].dtype)
    assert_accurate(model.answers[batch]["gradients"][place], gradient, LAYERS[name].dtype)


def nodes_of(model, name):
    own = [node.op for node in model.nodes if re.search(rf"(^|/){name}(_\d+)?/", node.name)]
    assert own
    return own


@pytest.fixture(scope="module")
def all_layers(tmp_path_factory):
    return saved(LAYERS, tmp_path_factory.mktemp("all_layers"))


@pytest.fixture(scope="module")
def compiled_layers(tmp_path_factory):
    return saved(COMPILED, tmp_path_factory.mktemp("compiled_layers"), jit_compile=True)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_a_saved_model_has_exact_outputs_and_gradients_without_keras(all_layers, name, batch):
    assert_exact(all_layers, LAYERS, name, batch)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", COMPILED)
def test_a_saved_model_of_layers_that_compile_is_exact_too(compiled_layers, name, batch):
    assert_exact(compiled_layers, COMPILED, name, batch)


@pytest.mark.parametrize("name", LAYERS)
def test_a_saved_model_holds_the_lrn_op_where_it_means_the_same(all_layers, name):
    assert nodes_of(all_layers, name).count("LRN") == (name in LRN_OP)


@pytest.mark.parametrize("name", COMPILED)
def test_a_saved_model_of_layers_that_compile_holds_the_lrn_op_too(compiled_layers, name):
    assert nodes_of(compiled_layers, name).count("LRN") == (name in LRN_OP)


@pytest.mark.parametrize("layers", ["all_layers", "compiled_layers"])
def test_a_saved_model_has_no_compiled_function_gradient_or_branch_to_run(layers, request):
    nodes = request.getfixturevalue(layers).nodes
    ops = {node.op for node in nodes}
    assert ops.isdisjoint({"LRNGrad", "If", "StatelessIf", "While", "StatelessWhile", "IsNan"})
    assert not any(node.attr["_XlaMustCompile"].b for node in nodes)


def test_a_trained_network_is_saved_without_anything_that_xla_must_compile(saved_network):
    nodes = nodes_of_a_request(saved_network)
    counts = collections.Counter(node.op for node in nodes)
    assert (counts["Conv2D"], counts["LRN"], counts["LRNGrad"]) == (2, 1, 0)
    assert not any(node.attr["_XlaMustCompile"].b for node in nodes)


def nodes_of_a_request(folder):
    """All nodes that serving reaches, those of inner functions included."""
    (meta_graph,) = SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    functions = {f.signature.name: f for f in meta_graph.graph_def.library.function}
    signature = meta_graph.signature_def["serving_default"]
    outputs = {output.name.split(":")[0] for output in signature.outputs.values()}
    found = [node for node in meta_graph.graph_def.node if node.name in outputs]
    visited = set()
    for node in found:  # grows while it is read
        for attribute in node.attr.values():
            for called in (attribute.func, *attribute.list.func):
                if called.name in functions and called.name not in visited:
                    visited.add(called.name)
                    found.extend(functions[called.name].node_def)
    return found


def test_fine_tuning_a_saved_model_moves_its_weights_as_the_live_models(
    small_network, saved_network, tmp_path
):
    image = np.random.default_rng(1).normal(size=(3, 6, 5, 4)).astype("float32")
    upstream = np.random.default_rng(2).normal(size=(3, 3)).astype("float32")
    live = keras.models.clone_model(small_network)
    live.set_weights(small_network.get_weights())
    weights = [variable.value for variable in live.trainable_variables]
    expected = answer(live, weights, [image], [upstream])
    (actual,) = without_keras(saved_network, ([image], [upstream]), folder=tmp_path)
    for key, arrays in expected.items():
        for got, live_one in zip(actual[key], arrays, strict=True):
            assert relative_error(got, live_one) <= 2e-6
    for before, after in zip(small_network.get_weights(), expected["weights"], strict=True):
        assert relative_error(after, before) > 1e-3


def test_saved_model_cli_runs_a_saved_model(small_network, saved_network, tmp_path):
    image = np.random.default_rng(1).normal(size=(3, 6, 5, 4)).astype("float32")
    np.save(tmp_path / "image.npy", image)
    command = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli", "run"]
    command += ["--dir", saved_network, "--tag_set", "serve", "--signature_def", "serving_default"]
    command += ["--inputs", f"image={tmp_path / 'image.npy'}", "--outdir", tmp_path / "outputs"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    (output,) = (tmp_path / "outputs").iterdir()
    live = small_network.predict(image, verbose=0)
    assert relative_error(np.load(output), live) <= 2e-6


def test_eight_threads_get_the_same_bits_from_a_saved_model(saved_network):
    model = tf.saved_model.load(saved_network)
    rng = np.random.default_rng(1)
    # Each thread has a batch of its own size and values, so that a mix-up shows.
    images = [rng.normal(size=(batch, 6, 5, 4)).astype("float32") for batch in range(1, 9)]
    alone = [model.serve(image).numpy().tobytes() for image in images]

    def answers(image):
        return {model.serve(image).numpy().tobytes() for _ in range(200)}

    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(answers, images))
    assert together == [{bits} for bits in alone]


# ONNX


def export_onnx(model, path, x, **options):
    model(x)  # Keras exports to ONNX what was called once
    model.export(path, format="onnx", verbose=False, **options)
    onnx.checker.check_model(path, full_check=True)
    return onnx.load(path)


def run_onnx(model, *inputs):
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [argument.name for argument in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


# bfloat16 is not here: NumPy has no such type, so onnxruntime takes none from Python.
@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [*((name, "auto") for name in LAYERS if name != "brain"), *((name, True) for name in COMPILED)],
)
def test_onnx_holds_one_lrn_node_where_it_means_the_same(name, jit_compile, tmp_path):
    x, upstream = x_and_upstream(name, 3)
    network = keras.Model(*one_layer(name, jit_compile=jit_compile))
    network.predict(x, verbose=0)  # where jit_compile=True compiles
    model = export_onnx(network, tmp_path / "model.onnx", x)
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}  # none is TensorFlow's
    lrn = [node for node in model.graph.node if node.op_type == "LRN"]
    assert len(lrn) == (name in LRN_OP)
    if lrn:
        assert {node.op_type for node in model.graph.node} <= {"LRN", "Transpose", "Cast"}
    for node in lrn:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        expected = {**ARGUMENTS, "size": LAYERS[name].size, **LAYERS[name].arguments}
        for unknown_to_onnx in ("axis", "lda_coeff"):
            expected.pop(unknown_to_onnx, None)
        assert attributes == pytest.approx(expected, rel=1e-6)
    output, _ = oracle(name, x, upstream)
    actual = run_onnx(model, x)
    assert actual.dtype == LAYERS[name].dtype
    assert relative_error(actual, output) <= (1e-3 if actual.dtype == np.float16 else 1e-5)


@pytest.mark.parametrize("policy", ["float16", "mixed_float16"])
def test_onnx_computes_a_float16_network_in_float32_inside_the_layer(policy, tmp_path):
    # Squares of 300 overflow float16.
    image = 300 * np.random.default_rng(1).normal(size=(3, 6, 5, 7))
    image = image.astype("float16" if policy == "float16" else "float32")
    inputs = keras.Input((6, 5, 7), dtype=image.dtype.name)
    x = LocalResponseNormalization(5, **ARGUMENTS, dtype=policy)(inputs)
    x = LocalResponseNormalization(4, **ARGUMENTS, dtype=policy)(x)
    network = keras.Model(inputs, keras.layers.Conv2D(8, 3, dtype=policy)(x))
    model = export_onnx(network, tmp_path / "model.onnx", image)
    assert [node.op_type for node in model.graph.node].count("LRN") == 1
    actual = run_onnx(model, image)
    assert actual.dtype == np.float16
    assert relative_error(actual, network(image)) <= 5e-3


@pytest.mark.parametrize("name", ["smallest", "even", "half", "even_half"])
def test_the_output_has_the_specified_name_in_onnx(name, tmp_path):
    inputs, normalized = one_layer(name, specified_outputs_name=["normalized"])
    # In float32 it would begin with a cast, which the converter merges with the layer's own.
    activation = keras.layers.Activation("tanh", dtype=LAYERS[name].dtype)
    network = keras.Model(inputs, activation(normalized))
    x, upstream = x_and_upstream(name, 3)
    model = export_onnx(network, tmp_path / "model.onnx", x)
    values = [value for node in model.graph.node for value in node.output]
    # ONNX values are named after TensorFlow's, whose names end in the number of the output.
    (named,) = [value for value in values if value.removesuffix(":0").endswith("normalized")]
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(named))
    actual = run_onnx(model, x)
    if LAYERS[name].shape[-1] != actual.shape[-1]:
        actual = np.moveaxis(actual, 1, -1)  # ONNX puts the channels of an LRN node first
    output, _ = oracle(name, x, upstream)
    assert relative_error(actual, output) <= (1e-3 if LAYERS[name].dtype == "float16" else 1e-5)


FIXED_BATCH = pytest.mark.parametrize(
    ("batch", "jit_compile"), [(1, "auto"), (3, "auto"), (3, True), (3, False)]
)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("jit_compile", "training"),
    [("auto", None), ("auto", False), (True, None), (False, None), (False, False)],
)
def test_a_graph_of_a_fixed_batch_holds_one_lrn_op_and_no_branch(batch, jit_compile, training):
    layer = LocalResponseNormalization(5, **ARGUMENTS, jit_compile=jit_compile)
    ops = traced_ops(lambda x: layer(x, training=training), (batch, 6, 5, 7))
    assert ops["LRN"] == 1
    assert set(ops) <= {"LRN", "Placeholder", "Identity", "IdentityN", "NoOp"}


@FIXED_BATCH
def test_onnx_of_a_fixed_batch_holds_one_lrn_node_and_no_branch(batch, jit_compile, tmp_path):
    x, upstream = x_and_upstream("smallest", batch)
    signature = [keras.InputSpec(shape=x.shape, dtype="float32")]
    network = keras.Model(*one_layer("smallest", jit_compile=jit_compile))
    model = export_onnx(network, tmp_path / "model.onnx", x, input_signature=signature)
    assert sorted(node.op_type for node in model.graph.node) == ["LRN", "Transpose", "Transpose"]
    assert relative_error(run_onnx(model, x), oracle("smallest", x, upstream)[0]) <= 1e-5


# LiteRT


def litert_run(path, x):
    """The output, and the names of the builtin ops; 8-bit arrays are converted here."""
    interpreter = Interpreter(str(path))
    (given,), (got,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(given["index"], x.shape)
    interpreter.allocate_tensors()
    if given["dtype"] == np.int8:
        scale, zero = given["quantization"]
        x = np.clip(np.round(x / scale) + zero, -128, 127).astype("int8")
    interpreter.set_tensor(given["index"], x)
    interpreter.invoke()
    y = interpreter.get_tensor(got["index"])
    if got["dtype"] == np.int8:
        scale, zero = got["quantization"]
        y = np.float32(scale) * (np.float32(y) - zero)
    # Not public, and the only way to see the ops. A delegate runs ops that are listed beside it.
    ops = [op["op_name"] for op in interpreter._get_ops_details()]
    return y, [op for op in ops if op != "DELEGATE"]


def export_litert(model, path, **options):
    # Without its fallback to ops of TensorFlow, the converter refuses what is not builtin.
    builtins_only = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    model.export(str(path), format="litert", verbose=False, target_spec=builtins_only, **options)
    return path


LITERT = [name for name in LAYERS if LAYERS[name].dtype in ("float16", "float32")]


@pytest.mark.parametrize(
    ("name", "batch", "jit_compile"),
    [
        *((name, None, "auto") for name in LITERT),
        *((name, None, True) for name in LITERT if name in COMPILED),
        *(("even", 3, jit_compile) for jit_compile in ("auto", True)),
    ],
)
def test_litert_needs_builtin_ops_only(name, batch, jit_compile, tmp_path):
    x, upstream = x_and_upstream(name, 3)
    signature = [keras.InputSpec(shape=(batch, *LAYERS[name].shape), dtype=LAYERS[name].dtype)]
    network = keras.Model(*one_layer(name, jit_compile=jit_compile))
    network.predict(x, verbose=0)  # where jit_compile=True compiles
    path = export_litert(network, tmp_path / "model.tflite", input_signature=signature)
    actual, ops = litert_run(path, x)
    if jit_compile == "auto" or None in LAYERS[name].shape:
        assert ops.count("LOCAL_RESPONSE_NORMALIZATION") == (name in LRN_OP)
    output, _ = oracle(name, x, upstream)
    assert relative_error(actual, output) <= (1e-3 if actual.dtype == np.float16 else 1e-5)


@pytest.mark.parametrize(
    ("batch", "jit_compile"),
    [(1, "auto"), (3, "auto"), (3, False)],
)
def test_litert_of_a_fixed_batch_holds_one_lrn_op_and_no_branch(batch, jit_compile, tmp_path):
    x, upstream = x_and_upstream("smallest", batch)
    signature = [keras.InputSpec(shape=x.shape, dtype="float32")]
    network = keras.Model(*one_layer("smallest", jit_compile=jit_compile))
    path = export_litert(network, tmp_path / "model.tflite", input_signature=signature)
    actual, ops = litert_run(path, x)
    assert ops == ["LOCAL_RESPONSE_NORMALIZATION"]
    assert relative_error(actual, oracle("smallest", x, upstream)[0]) <= 1e-5


# Keras 3.13 converts in a way that looks for the statistics elsewhere than in the dataset.
@pytest.mark.filterwarnings("ignore:Statistics for quantized inputs:UserWarning")
@pytest.mark.parametrize("quantized", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("order", ["layer first", "layer last"])
@pytest.mark.parametrize("size", [5, 4])
def test_litert_runs_two_branches_that_are_added(size, order, quantized, tmp_path):
    image = keras.Input((6, 5, 4))
    convolved = keras.layers.Conv2D(7, 3)(image)
    branches = [
        LocalResponseNormalization(size, **ARGUMENTS)(convolved),
        keras.layers.Conv2D(7, 3, activation="relu")(image),
    ]
    without_layer = keras.Model(image, keras.layers.Add()([convolved, branches[1]]))
    if order == "layer last":
        branches.reverse()
    network = keras.Model(image, keras.layers.Add()(branches))
    images = np.random.default_rng(1).normal(size=(50, 6, 5, 4)).astype("float32")
    options = int8_after_training(images) if quantized else {}
    path = export_litert(network, tmp_path / "model.tflite", **options)
    actual, ops = litert_run(path, images)
    assert ops.count("LOCAL_RESPONSE_NORMALIZATION") == (size == 5)
    expected = network.predict(images, verbose=0)
    lost = np.max(np.abs(actual - expected)) / np.ptp(expected)
    assert 1e-4 < lost <= 0.02 if quantized else lost <= 1e-6
    # What the layer does is far more than what 8 bits lose.
    done = np.max(np.abs(without_layer.predict(images, verbose=0) - expected)) / np.ptp(expected)
    assert done > 0.2


def int8_after_training(images):
    return {
        "optimizations": [tf.lite.Optimize.DEFAULT],
        "representative_dataset": lambda: ([image[np.newaxis]] for image in images),
        "inference_input_type": tf.int8,
        "inference_output_type": tf.int8,
    }
