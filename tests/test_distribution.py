"""Training on several devices, or in several processes, ends with the weights of one."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from cases import imported, python_environment

EXAMPLE = Path(__file__).parent.parent / "notebooks" / "train_on_two_workers.py"
EPOCHS = 4

TWO_DEVICES = """
import keras
import numpy as np
import tensorflow as tf

from keras_lrn import LocalResponseNormalization

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2

rng = np.random.default_rng(0)
images = rng.normal(size=(14, 6, 5, 3)).astype("float32")  # the last batch has 2
labels = rng.integers(0, 4, size=14)


def train():
    keras.utils.set_random_seed(0)
    # Both layers keep what the backward pass needs, as compiled and as plain ops.
    model = keras.Sequential(
        [
            keras.Input((6, 5, 3)),
            keras.layers.Conv2D(7, 2),
            LocalResponseNormalization(4, alpha=2.0, lda_coeff=0.5),
            keras.layers.Conv2D(9, 3),
            LocalResponseNormalization(5, alpha=2.0, axis=1, jit_compile=False),
            keras.layers.Flatten(),
            keras.layers.Dense(4, activation="softmax"),
        ]
    )
    first = model.get_weights()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    model.fit(images, labels, batch_size=4, epochs=3, shuffle=False, verbose=0)
    return first, model.get_weights()


first, single = train()
with strategy.scope():
    _, mirrored = train()
for before, expected, actual in zip(first, single, mirrored, strict=True):
    assert np.abs(expected - before).max() > 1e-3
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
"""


@pytest.fixture(scope="module")
def example():
    return imported(EXAMPLE)


@pytest.fixture(scope="module")
def single(example):
    """The model as `fit` trains it in this process."""
    with tf.device("CPU:0"):  # where the workers are: a GPU would round otherwise
        return example.trained_by_fit(EPOCHS)


@pytest.fixture
def start():
    """Starts Python in a group of processes of which nothing is left behind."""
    started = []

    def start(*arguments, **environment):
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            # Two processes cannot share a GPU.
            env=python_environment(CUDA_VISIBLE_DEVICES="-1", **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if not process.stdout.closed:  # which it is once the whole group has ended
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def start_example(start, tmp_path):
    def start_example(**environment):
        options = ("--folder", tmp_path, "--epochs", EPOCHS, "--timeout", 300)
        return start(EXAMPLE, *options, **environment)

    return start_example


def line_of(process, pattern):
    """Waits until the process prints a line that matches; returns the match."""
    printed = ""
    for line in process.stdout:
        printed += line
        if match := re.match(pattern, line):
            return match
    raise AssertionError(f"{pattern!r} was not printed in:\n{printed}")


def output_of_whole_group(process, seconds=400):
    """What is still printed, until every process of the group has ended."""
    return process.communicate(timeout=seconds)[0]


def assert_same_weights(model, expected):
    for actual, weight in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(actual, weight, rtol=0, atol=1e-5)


def test_fit_on_two_devices_trains_the_weights_of_one(start):
    process = start("-c", TWO_DEVICES)
    output = output_of_whole_group(process)
    assert process.returncode == 0, output


def test_two_workers_started_by_hand_train_the_weights_of_fit(
    example, single, start_example, tmp_path
):
    cluster = {"worker": example.free_addresses(2)}
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    workers = [start_example(TF_CONFIG=json.dumps({"cluster": cluster, "task": t})) for t in tasks]
    outputs = [output_of_whole_group(worker) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "".join(outputs)
    model, epochs = example.restored(tmp_path)
    assert epochs == EPOCHS
    assert_same_weights(model, single)
    # Not because nothing was learnt:
    losses = [float(loss) for loss in re.findall(r"Epoch \d of 4: loss (.*)", outputs[0])]
    assert len(losses) == EPOCHS
    assert losses[-1] < losses[0] / 4
    np.testing.assert_allclose(losses[-1], single.history.history["loss"][0], rtol=0, atol=1e-4)


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(
    example, single, start_example, tmp_path
):
    stopped = start_example()
    line_of(stopped, "Epoch 1 of 4")
    stopped.kill()
    output_of_whole_group(stopped, seconds=60)
    _, done = example.restored(tmp_path)
    assert 1 <= done < EPOCHS
    resumed = start_example()
    output = output_of_whole_group(resumed)
    assert resumed.returncode == 0, output
    assert f"Going on after epoch {done}\n" in output
    epochs = [int(epoch) for epoch in re.findall(r"^Epoch (\d)", output, re.MULTILINE)]
    assert epochs == list(range(done + 1, EPOCHS + 1))
    difference = re.search("Largest difference of a weight .*: (.*)", output)
    assert float(difference[1]) <= 1e-5
    model, epochs = example.restored(tmp_path)
    assert epochs == EPOCHS
    assert_same_weights(model, single)


def test_a_worker_that_dies_ends_the_run_with_a_message(start_example):
    run = start_example()
    worker = line_of(run, r"worker 1: process (\d+)")
    os.kill(int(worker[1]), signal.SIGKILL)
    output = output_of_whole_group(run, seconds=60)
    assert run.returncode == 1
    assert "worker 1 was ended by SIGKILL" in output


def test_weights_that_are_not_those_of_fit_are_reported(example, tmp_path, capsys):
    untrained = tf.train.Checkpoint(model=example.network(), epochs_done=tf.Variable(1))
    tf.train.CheckpointManager(untrained, tmp_path, max_to_keep=1).save()
    with pytest.raises(SystemExit, match="Expected a difference of at most 1e-05"):
        example.compare_with_one_process(tmp_path)
    assert float(capsys.readouterr().out.rpartition(": ")[2]) > 0.01


@pytest.mark.parametrize(
    ("target", "argument", "timeout", "message"),
    [
        (sys.exit, 3, 60, "worker 0 failed with exit status 3"),
        (time.sleep, 60, 0.01, "not done after 0.01 seconds"),
    ],
    ids=["failed", "too slow"],
)
def test_the_run_does_not_wait_longer_than_it_must(example, target, argument, timeout, message):
    process = multiprocessing.get_context("spawn").Process(target=target, args=(argument,))
    process.name = "worker 0"
    process.start()
    try:
        with pytest.raises(SystemExit, match=message):
            example.wait_for([process], timeout)
    finally:
        process.kill()
        process.join()
        process.close()


@pytest.mark.parametrize("option", ["--epochs", "--timeout"])
def test_an_option_that_makes_no_sense_is_refused(example, monkeypatch, capsys, option):
    monkeypatch.setattr(sys, "argv", ["train_on_two_workers.py", option, "0"])
    with pytest.raises(SystemExit):
        example.main()
    assert f"{option} must be" in capsys.readouterr().err
