"""Ports a whole network with LRN layers, AlexNet, from ONNX to Keras and compares the two.

The `onnx` package ships the graph of BVLC's AlexNet without its weights. This script gives it
seeded random weights, runs it in onnxruntime, builds the same network in Keras with the channels
last, and prints how far apart the two are.

    pip install onnx onnxruntime
    python notebooks/port_alexnet_from_onnx.py
"""

from pathlib import Path

import keras
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from keras_lrn import LocalResponseNormalization, interop

ALEXNET = Path(onnx.__file__).parent / "backend/test/data/light/light_bvlc_alexnet.onnx"


# Values of the graph that are compared, besides its output, the probabilities `prob_1`.
AFTER_FIRST_LRN, AFTER_SECOND_LRN, LOGITS = "r2", "r6", "r24"


def main():
    model = alexnet_with_random_weights(seed=0)
    image = random_image(seed=1)
    expected = run_in_onnxruntime(model, image)
    ported = run_in_keras(port(model), image)
    print(f"{'value':>8} {'largest':>9} {'largest difference':>19}")
    for name in (AFTER_FIRST_LRN, AFTER_SECOND_LRN, LOGITS, "prob_1"):
        difference = np.abs(ported[name] - expected[name]).max()
        print(f"{name:>8} {np.abs(expected[name]).max():9.3g} {difference:19.1e}")


def alexnet_with_random_weights(seed):
    """The graph of the onnx package with weights instead of nodes that make constants."""
    rng = np.random.default_rng(seed)
    model = onnx.load(ALEXNET)
    # From version 4 on, the weights need not be listed among the inputs.
    model.ir_version = 4
    graph = model.graph
    del graph.input[1:]
    initializers = {i.name: i for i in graph.initializer}
    for filler in [node for node in graph.node if node.op_type == "ConstantOfShape"]:
        initializer = initializers[filler.input[0]]
        weights = random_weights(rng, filler.output[0], numpy_helper.to_array(initializer))
        initializer.CopyFrom(numpy_helper.from_array(weights, filler.output[0]))
        graph.node.remove(filler)
    for name in (AFTER_FIRST_LRN, AFTER_SECOND_LRN, LOGITS):
        graph.output.append(onnx.ValueInfoProto(name=name))
    return model


def random_weights(rng, name, shape):
    """Weights that keep the scale of pixels from layer to layer and end in small logits."""
    if len(shape) == 1:
        return rng.normal(scale=0.1, size=shape).astype("float32")
    # Pixels are large enough for LRN to do real work: S goes up to about 4.
    gain = 0.02 if name.startswith("fc8") else 1.0
    return rng.normal(scale=gain * np.sqrt(2 / np.prod(shape[1:])), size=shape).astype("float32")


def random_image(seed):
    """One image with its mean subtracted, the channels first."""
    return np.random.default_rng(seed).normal(scale=70, size=(1, 3, 224, 224)).astype("float32")


def run_in_onnxruntime(model, image):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"data_0": image}), strict=True))


def run_in_keras(network, image):
    outputs = network.predict(to_channels_last(image), verbose=0)
    return {name: to_channels_first(y) for name, y in outputs.items()}


def to_channels_last(x):
    return np.moveaxis(x, 1, -1)


def to_channels_first(x):
    return np.moveaxis(x, -1, 1)


def port(model):
    """The same network in Keras, channels last. Its outputs are a dict with the graph's names."""
    weights = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    values = {"data_0": keras.Input((224, 224, 3))}
    inputs = values["data_0"]
    for node in model.graph.node:
        values[node.output[0]] = port_node(node, values[node.input[0]], weights)
    return keras.Model(inputs, {y.name: values[y.name] for y in model.graph.output})


def port_node(node, x, weights):
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    match node.op_type:
        case "Conv":
            return port_convolution(x, attributes, *(weights[name] for name in node.input[1:]))
        case "Relu":
            return keras.layers.ReLU()(x)
        case "LRN":
            # The node normalizes axis 1, where ONNX has its channels; here they come last.
            arguments = {**interop.from_onnx(node), "axis": -1}
            return LocalResponseNormalization(**arguments)(x)
        case "MaxPool":
            # Zeros are as good as ONNX's minus infinity: a ReLU has made everything at least 0.
            x = pad(x, attributes["pads"])
            pool_size, strides = attributes["kernel_shape"], attributes["strides"]
            return keras.layers.MaxPooling2D(pool_size, strides=strides)(x)
        case "Reshape":
            # The weights of the first dense layer expect the pixels of channel 0 first.
            return keras.layers.Flatten()(keras.layers.Permute((3, 1, 2))(x))
        case "Gemm":
            kernel, bias = (weights[name] for name in node.input[1:])
            dense = keras.layers.Dense(len(bias))
            y = dense(x)
            dense.set_weights([kernel.T, bias])
            return y
        case "Dropout":
            return keras.layers.Dropout(attributes["ratio"])(x)
        case "Softmax":
            return keras.layers.Softmax()(x)
    raise ValueError(f"Expected an operator of AlexNet. Received: op_type={node.op_type!r}")


def port_convolution(x, attributes, kernel, bias):
    convolution = keras.layers.Conv2D(
        len(bias),
        attributes["kernel_shape"],
        strides=attributes["strides"],
        groups=attributes.get("group", 1),
    )
    y = convolution(pad(x, attributes["pads"]))
    # ONNX: out, in, height, width. Keras: height, width, in, out.
    convolution.set_weights([kernel.transpose(2, 3, 1, 0), bias])
    return y


def pad(x, pads):
    top, left, bottom, right = pads
    return keras.layers.ZeroPadding2D(((top, bottom), (left, right)))(x) if any(pads) else x


if __name__ == "__main__":
    main()
