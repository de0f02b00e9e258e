"""Measurements that need a process of their own: peak memory, and compiling from scratch.

`python fresh_process.py NAME JSON` calls the function NAME below and prints what it returns.
"""

import json
import os
import subprocess
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from contestants import BOTH, Case, any_image_size, contestants, with_normalization


def in_fresh_process(function, environment=None, **arguments):
    """Calls `function` of this module in a new process."""
    command = [sys.executable, __file__, function.__name__, json.dumps(arguments)]
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{function.__name__}({arguments}) failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


# TensorFlow's allocator for oneDNN keeps what was freed, which would hide a later peak.
RETURNS_FREED_MEMORY = {"TF_ENABLE_ONEDNN_OPTS": "0"}


def peak_memory(contestant, shape):
    """Bytes that forward + backward holds at its peak, beyond x, y, dy and dx.

    A chain of layers shows what each of them keeps for its backward pass: from the second layer on,
    the peak grows by that much, and by the layer's output.
    """
    present, _ = contestants()
    prepare = next(entry.prepare for entry in present if entry.name == contestant)
    chains = (1, 2, 6)
    cases = [Case(tuple(shape), layers=layers) for layers in chains]
    runs = [prepare(case)[BOTH] for case in cases]
    # What tracing and compiling take for any shape must not count as the layer's.
    for layers in chains:
        prepare(Case((2, *shape[1:]), layers=layers))[BOTH]()
    before = peak = _peak_so_far()
    ballast = []
    while peak == before:  # Fills what was freed since the last peak.
        ballast.append(np.ones(2**17))
        peak = _peak_so_far()
    beyond = []
    tensor = 4 * cases[0].elements
    for run in runs:
        run()
        beyond.append(_peak_so_far() - peak - 2 * tensor)
    return {
        "tensor_bytes": tensor,
        "peak_beyond_bytes": beyond[0],
        "kept_per_layer_bytes": (beyond[2] - beyond[1]) / (chains[2] - chains[1]) - tensor,
    }


def _peak_so_far():
    import resource  # Not on Windows, where only this measurement is missing.

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def changing_image_sizes(normalization, how, image_sizes, batch):
    """Seconds of one run over `image_sizes`, one step each, tracing and compiling included."""
    model = with_normalization(any_image_size(), normalization)
    generator = np.random.default_rng(0)
    images = [generator.standard_normal((batch, size, size, 3), np.float32) for size in image_sizes]
    labels = np.arange(batch) % 10
    image_spec = tf.TensorSpec([None, None, None, 3], tf.float32)
    label_spec = tf.TensorSpec([None], tf.int64)

    @tf.function(input_signature=[image_spec, label_spec])
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    model.optimizer.build(model.trainable_variables)
    start = time.perf_counter()
    if how == "fit":
        batches = tf.data.Dataset.from_generator(
            lambda: ((image, labels) for image in images),
            output_signature=(image_spec, label_spec),
        )
        model.fit(batches, steps_per_epoch=len(images), shuffle=False, verbose=0)
    else:
        for image in images:
            train_step(image, labels)
    tf.test.experimental.sync_devices()
    return {"seconds": time.perf_counter() - start}


if __name__ == "__main__":
    functions = {function.__name__: function for function in (peak_memory, changing_image_sizes)}
    keras.utils.set_random_seed(0)
    print(json.dumps(functions[sys.argv[1]](**json.loads(sys.argv[2]))))
