"""What needs a process of its own: memory, and what is traced and compiled from scratch.

`python fresh_process.py NAME JSON` calls the function NAME below and prints what it returns.
"""

import gc
import json
import os
import subprocess
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from contestants import BOTH, Case, contestants, two_layers, with_normalization

from keras_lrn import local_response_normalization

# TensorFlow's allocator for oneDNN keeps what was freed, which would hide a later peak.
RETURNS_FREED_MEMORY = {"TF_ENABLE_ONEDNN_OPTS": "0"}


def in_fresh_process(function, environment=None, **arguments):
    """Calls `function` of this module in a new process."""
    command = [sys.executable, __file__, function.__name__, json.dumps(arguments)]
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{function.__name__}({arguments}) failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory(contestant, shape):
    """Tensors that forward + backward holds at its peak, beyond x, y, dy and dx.

    A chain of layers shows what each of them keeps for its backward pass: from the second layer on,
    the peak grows by that much, and by the layer's output.
    """
    prepare = next(entry.prepare for entry in contestants() if entry.name == contestant)
    chains = (1, 2, 6)
    runs = [prepare(Case(tuple(shape), layers=layers))[BOTH] for layers in chains]
    # What tracing and compiling take for any shape must not count as the layer's.
    for layers in chains:
        prepare(Case((2, *shape[1:]), layers=layers))[BOTH]()
    before = peak = _peak_so_far()
    ballast = []
    while peak == before:  # Fills what was freed since the last peak.
        ballast.append(np.ones(2**17))
        peak = _peak_so_far()
    tensor = 4 * int(np.prod(shape))
    beyond = []
    for run in runs:
        run()
        beyond.append((_peak_so_far() - peak) / tensor - 2)
    kept = (beyond[2] - beyond[1]) / (chains[2] - chains[1]) - 1
    return {"peak_beyond": beyond[0], "kept_per_layer": kept}


def many_alphas(way, shape, count):
    """MB that so many values of alpha add to the first ten, and the slowest call by the median."""

    x = tf.random.normal(shape)
    megabytes, seconds = [], []
    for alpha in np.linspace(0.5, 1.5, count).tolist():
        start = time.perf_counter()
        if way == "eager":
            _step(x, alpha)
        else:  # as a search does it: a new graph for each
            tf.function(lambda x, alpha=alpha: _step(x, alpha), autograph=False)(x)
        seconds.append(time.perf_counter() - start)
        gc.collect()
        megabytes.append(_now() / 1e6)
    later = seconds[10:]
    return {"growth": megabytes[-1] - megabytes[9], "slowest": max(later) / np.median(later)}


def image_sizes(normalization, how, sizes, batch):
    """Seconds of one step at each image size, and MB that the last three quarters of them add."""
    network = with_normalization(two_layers(), normalization)
    rng = np.random.default_rng(0)
    images = [rng.standard_normal((batch, size, size, 3), np.float32) for size in sizes]
    labels = np.arange(batch) % 10
    step = _training_step(network, traced=how == "tf.function")
    megabytes = []
    start = time.perf_counter()
    if how == "fit":
        specs = tf.TensorSpec([None, None, None, 3], tf.float32), tf.TensorSpec([None], tf.int64)
        batches = tf.data.Dataset.from_generator(
            lambda: ((image, labels) for image in images), output_signature=specs
        )
        network.fit(batches, steps_per_epoch=len(images), shuffle=False, verbose=0)
    else:
        for image in images:
            step(image, labels)
            megabytes.append(_now() / 1e6)
    tf.test.experimental.sync_devices()
    seconds = time.perf_counter() - start
    growth = megabytes[-1] - megabytes[len(sizes) // 4] if megabytes else None
    return {"seconds": seconds, "growth": growth}


def first_step(normalization, how, image_size, batch):
    """Seconds of the first training step of two layers, tracing and compiling included."""
    network = with_normalization(two_layers(image_size), normalization)
    images = np.random.default_rng(0).standard_normal(
        (batch, image_size, image_size, 3), np.float32
    )
    labels = np.arange(batch) % 10
    step = _training_step(network, traced=how == "tf.function")
    start = time.perf_counter()
    network.train_on_batch(images, labels) if how == "fit" else step(images, labels)
    tf.test.experimental.sync_devices()
    return {"seconds": time.perf_counter() - start}


def _step(x, alpha):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = local_response_normalization(x, 5, alpha=alpha, training=True)
    return tape.gradient(y, x)


def _training_step(network, traced):
    network.optimizer.build(network.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = keras.losses.sparse_categorical_crossentropy(y, network(x, training=True))
        variables = network.trainable_variables
        network.optimizer.apply(tape.gradient(loss, variables), variables)

    spec = [tf.TensorSpec([None, *network.input_shape[1:]]), tf.TensorSpec([None], tf.int64)]
    return tf.function(step, input_signature=spec) if traced else step


def _peak_so_far():
    import resource  # Not on Windows, where only the measurements of memory are missing.

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _now():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # only Linux says
        return _peak_so_far()


if __name__ == "__main__":
    functions = (peak_memory, many_alphas, image_sizes, first_step)
    keras.utils.set_random_seed(0)
    chosen = {function.__name__: function for function in functions}[sys.argv[1]]
    print(json.dumps(chosen(**json.loads(sys.argv[2]))))
