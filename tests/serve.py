"""Asks a model for outputs, gradients and trained weights, in a process without Keras if need be."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

# TensorFlow itself imports Keras unless that import fails, so it is made to fail.
PROGRAM = """
import sys
sys.modules.update({"keras": None, "tf_keras": None, "keras_lrn": None})
import serve
serve.main(*sys.argv[1:])
"""


def without_keras(saved_model, inputs, upstreams, folder):
    """What `answer` says of the SavedModel in a fresh process that cannot import Keras."""
    questions, answers = folder / "questions.npz", folder / "answers.npz"
    arrays = {f"input_{i}": array for i, array in enumerate(inputs)}
    arrays |= {f"upstream_{i}": array for i, array in enumerate(upstreams)}
    np.savez(questions, **arrays)
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, saved_model, questions, answers],
        # This process may hold all the memory of a GPU.
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    with np.load(answers) as arrays:
        return dict(arrays)


def main(saved_model, questions, answers):
    with np.load(questions) as arrays:
        inputs = [arrays[key] for key in arrays if key.startswith("input_")]
        upstreams = [arrays[key] for key in arrays if key.startswith("upstream_")]
    model = tf.saved_model.load(saved_model)
    np.savez(answers, **answer(model.serve, model.trainable_variables, inputs, upstreams))
    loaded = {name.partition(".")[0] for name, module in sys.modules.items() if module}
    if loaded & {"keras", "tf_keras", "keras_lrn"}:
        sys.exit("the serving process imported " + ", ".join(sorted(loaded)))


def answer(call, weights, inputs, upstreams, steps=3):
    """Outputs, gradients to the inputs, and the weights after so many steps of gradient descent.

    The loss is the sum of the outputs, each times its upstream gradient.
    """
    inputs = [tf.constant(array) for array in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = outputs_of(call, inputs)
    gradients = tape.gradient(outputs, inputs, upstreams)
    for _ in range(steps if weights else 0):
        with tf.GradientTape() as tape:
            stepped = outputs_of(call, inputs)
        for weight, gradient in zip(weights, tape.gradient(stepped, weights, upstreams)):
            weight.assign_sub(0.01 * gradient)
    return {
        **{f"output_{i}": tensor.numpy() for i, tensor in enumerate(outputs)},
        **{f"gradient_{i}": tensor.numpy() for i, tensor in enumerate(gradients)},
        **{f"weight_{i}": weight.numpy() for i, weight in enumerate(weights)},
    }


def outputs_of(call, inputs):
    return tf.nest.flatten(call(inputs if len(inputs) > 1 else inputs[0]))
