"""What needs a process of its own: memory, and what is traced and compiled from scratch.

`python fresh_process.py NAME JSON` calls the function NAME below and prints what it returns.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from contestants import BOTH, Case, contestants, two_layers, with_normalization

from keras_lrn import local_response_normalization


def in_fresh_process(function, **arguments):
    """Calls `function` of this module in a new process."""
    command = [sys.executable, __file__, function.__name__, json.dumps(arguments)]
    # TensorFlow's allocator for oneDNN keeps what was freed, which would hide a later peak.
    variables = {"TF_ENABLE_ONEDNN_OPTS": "0"} if function is peak_memory else {}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)
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
    beyond = []
    for run in runs:
        run()
        beyond.append((_peak_so_far() - peak) / (4 * np.prod(shape)) - 2)
    kept = (beyond[2] - beyond[1]) / (chains[2] - chains[1]) - 1
    return {"peak beyond": beyond[0], "kept per layer": kept}


def many_alphas(way, shape, count):
    """What so many values of alpha add to the first, in memory and in programs compiled."""
    x = tf.random.normal(shape)
    megabytes, programs, seconds = [], [], []
    with tempfile.TemporaryDirectory() as dump:
        # XLA has no public counter; it writes one such file for each program that it compiles.
        flags = f"--xla_dump_to={dump} --xla_dump_hlo_as_text"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
        for alpha in np.linspace(0.5, 1.5, count).tolist():
            start = time.perf_counter()
            if way == "eager":
                _gradient(x, alpha)
            else:  # as a search does it: a new graph for each
                tf.function(lambda x, alpha=alpha: _gradient(x, alpha), autograph=False)(x)
            seconds.append(time.perf_counter() - start)
            if len(seconds) in (1, count):
                gc.collect()
                megabytes.append(_now() / 1e6)
                programs.append(len(list(pathlib.Path(dump).glob("*.before_optimizations.txt"))))
    return {
        "MB added": megabytes[-1] - megabytes[0],
        "programs of the first": programs[0],
        "programs added": programs[-1] - programs[0],
        "slowest by the median": max(seconds[1:]) / np.median(seconds[1:]),
    }


def training_steps(normalization, how, sizes, batch):
    """Seconds of a step at each image size, compiling included; MB that the last 3/4 add."""
    image_size = sizes[0] if len(sizes) == 1 else None
    network = with_normalization(two_layers(image_size), normalization)
    network.optimizer.build(network.trainable_variables)
    rng, labels = np.random.default_rng(0), np.arange(batch) % 10
    images = [rng.standard_normal((batch, size, size, 3), np.float32) for size in sizes]
    megabytes = []

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = keras.losses.sparse_categorical_crossentropy(y, network(x, training=True))
        variables = network.trainable_variables
        network.optimizer.apply(tape.gradient(loss, variables), variables)

    def after_step(*_, **__):
        megabytes.append(_now() / 1e6)

    start = time.perf_counter()
    if how == "fit":
        after = keras.callbacks.LambdaCallback(on_train_batch_end=after_step)
        network.fit(
            ((x, labels) for x in images),
            steps_per_epoch=len(sizes),
            shuffle=False,
            verbose=0,
            callbacks=[after],
        )
    else:
        spec = tf.TensorSpec([None, image_size, image_size, 3]), tf.TensorSpec([None], tf.int64)
        run = step if how == "eager" else tf.function(step, spec)
        for x in images:
            run(x, labels)
            after_step()
    tf.test.experimental.sync_devices()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "MB added": megabytes[-1] - megabytes[len(sizes) // 4]}


def _gradient(x, alpha):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = local_response_normalization(x, 5, alpha=alpha, training=True)
    return tape.gradient(y, x)


def _peak_so_far():
    import resource  # Not on Windows, where only the measurements of memory are missing.

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _now():
    statm = pathlib.Path("/proc/self/statm")
    if not statm.exists():  # only Linux says
        return _peak_so_far()
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
