"""Asks a model for outputs, gradients and trained weights; a SavedModel in a fresh process."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import tensorflow as tf

# TensorFlow itself imports Keras unless that import fails, so it is made to fail.
PROGRAM = """
import sys
sys.modules.update({"keras": None, "tf_keras": None, "keras_lrn": None})
import serve
serve.main(*sys.argv[1:])
"""


def without_keras(saved_model, *questions, folder):
    """One answer to each pair of inputs and upstream gradients, given by a SavedModel.

    A fresh process that cannot import Keras loads it; every `answer` continues the training.
    """
    (folder / "questions").write_bytes(pickle.dumps(questions))
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, saved_model, folder / "questions", folder / "answers"],
        # This process may hold all the memory of a GPU.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return pickle.loads((folder / "answers").read_bytes())


def main(saved_model, questions, answers):
    model = tf.saved_model.load(saved_model)
    weights = model.trainable_variables
    asked = pickle.loads(Path(questions).read_bytes())
    Path(answers).write_bytes(pickle.dumps([answer(model.serve, weights, *a) for a in asked]))
    loaded = {name.partition(".")[0] for name, module in sys.modules.items() if module}
    if loaded & {"keras", "tf_keras", "keras_lrn"}:
        sys.exit("the serving process imported " + ", ".join(sorted(loaded)))


def answer(call, weights, inputs, upstreams):
    """Outputs, gradients to the inputs, and the weights after three steps of gradient descent.

    The loss is the sum of all outputs, each times its upstream gradient.
    """
    inputs = [tf.constant(array) for array in inputs]
    upstreams = [tf.constant(array) for array in upstreams]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = outputs_of(call, inputs)
    gradients = tape.gradient(outputs, inputs, upstreams)
    for _ in range(3 if weights else 0):
        with tf.GradientTape() as tape:
            stepped = outputs_of(call, inputs)
        steepest = tape.gradient(stepped, weights, upstreams)
        for weight, gradient in zip(weights, steepest, strict=True):
            weight.assign_sub(0.01 * gradient)
    tensors = {"outputs": outputs, "gradients": gradients, "weights": weights}
    return {key: [tensor.numpy() for tensor in tensors[key]] for key in tensors}


def outputs_of(call, inputs):
    return tf.nest.flatten(call(inputs if len(inputs) > 1 else inputs[0]))
