"""Trains a network with an LRN layer on two workers: two processes here, or two machines.

Keras 3's `fit` does not support `tf.distribute.MultiWorkerMirroredStrategy`; a training loop of
one's own does.

    pip install scikit-learn
    python notebooks/train_on_two_workers.py

starts two processes. Each trains its copy of the network on its half of every batch, and they add
up their gradients. The script prints the loss of every epoch and, at the end, how far the weights
are from those of `fit` in a single process. Every epoch ends with a checkpoint: a run that was
stopped goes on from the last one when it is started again.

On two machines, start it on both, with a folder that both can reach and with the environment
variable TF_CONFIG, whose `index` is 0 on the first machine and 1 on the second:

    export TF_CONFIG='{"cluster": {"worker": ["first:2222", "second:2222"]},
                       "task": {"type": "worker", "index": 0}}'
    python notebooks/train_on_two_workers.py --folder /shared/two_workers
"""

import argparse
import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from multiprocessing import connection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from keras_lrn import LocalResponseNormalization

BATCH_SIZE = 128  # of both workers together
TOLERANCE = 1e-5  # of a weight


def main():
    options = parse()
    if "TF_CONFIG" in os.environ:
        train_as_worker(options)
    else:
        train_in_two_processes(options)
        compare_with_one_process(options.folder)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=6, help="passes over the digits (6)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("saved_models", "two_workers"),
        help="of the checkpoints (saved_models/two_workers); remove it to start from the beginning",
    )
    parser.add_argument(
        "--timeout", type=float, default=600, help="seconds after which to give up (600)"
    )
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1. Received: epochs={options.epochs}")
    if not options.timeout > 0:
        parser.error(f"--timeout must be above 0. Received: timeout={options.timeout}")
    return options


def train_in_two_processes(options):
    # Two processes cannot share a GPU here. Workers on machines of their own use all they have.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    # Where the environment names a proxy, the workers would look for each other through it.
    os.environ["no_grpc_proxy"] = "127.0.0.1"  # noqa: SIM112  gRPC knows no capitals here
    addresses = free_addresses(2)
    # A forked copy of a process that has used TensorFlow does not work.
    spawn = multiprocessing.get_context("spawn")
    workers = []
    try:
        for index, address in enumerate(addresses):
            worker = spawn.Process(target=train_at, args=(addresses, index, options))
            worker.name = f"worker {index}"
            worker.start()
            workers.append(worker)
            print(f"{worker.name}: process {worker.pid} at {address}", flush=True)
        wait_for(workers, options.timeout)
    except KeyboardInterrupt:
        raise SystemExit("Stopped. Start again to go on from the last checkpoint.") from None
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def free_addresses(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def wait_for(workers, timeout):
    """Returns when all workers are done; exits as soon as one failed, or at the timeout."""
    deadline = time.monotonic() + timeout
    running = {worker.sentinel: worker for worker in workers}
    while running:
        ended = [running.pop(s) for s in connection.wait(running, deadline - time.monotonic())]
        if not ended:
            raise SystemExit(f"Gave up: the workers were not done after {timeout:g} seconds.")
        for worker in ended:
            worker.join()
        failures = [f"{w.name} {how_it_ended(w.exitcode)}" for w in ended if w.exitcode]
        if failures:
            raise SystemExit(
                f"{' and '.join(failures)}, so that the training was stopped. "
                "Start again to go on from the last checkpoint."
            )


def how_it_ended(exitcode):
    if exitcode < 0:
        return f"was ended by {signal.Signals(-exitcode).name}"
    return f"failed with exit status {exitcode}"


def train_at(addresses, index, options):
    """What one of the two processes runs."""
    # Ctrl-C reaches the parent as well, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    )
    train_as_worker(options)


def end_with_parent():
    # However the parent ended: a worker left behind would go on writing checkpoints.
    multiprocessing.parent_process().join()
    os._exit(1)


def train_as_worker(options):
    # Waiting for a worker that never comes, or no longer answers, ends here.
    faulthandler.dump_traceback_later(options.timeout, exit=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = network()
        optimizer = sgd()
        optimizer.build(model.trainable_variables)
    epochs_done = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epochs_done=epochs_done)
    latest = tf.train.latest_checkpoint(options.folder)
    if latest:
        checkpoint.restore(latest).assert_consumed()
    # All workers must take part in saving, each in a folder of its own; that of the first is kept.
    worker = strategy.cluster_resolver.task_id
    is_chief = worker == 0
    own_folder = options.folder if is_chief else options.folder / f"worker_{worker}"
    manager = tf.train.CheckpointManager(checkpoint, own_folder, max_to_keep=1)
    if latest and is_chief:
        print(f"Going on after epoch {epochs_done.numpy()}", flush=True)

    train_step = distributed_train_step(strategy, model, optimizer)
    while epochs_done < options.epochs:
        loss = train_for_an_epoch(strategy, train_step, epochs_done.numpy())
        epochs_done.assign_add(1)
        manager.save()
        if is_chief:
            print(f"Epoch {epochs_done.numpy()} of {options.epochs}: loss {loss:.4f}", flush=True)
        else:
            tf.io.gfile.rmtree(own_folder)


def network():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            # A ReLU or a maximum may turn a rounding error into another gradient. These do not.
            keras.layers.Conv2D(24, 3, activation="tanh"),
            LocalResponseNormalization(size=5, alpha=1.0, beta=0.75, bias=1.0),
            keras.layers.AveragePooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def sgd():
    return keras.optimizers.SGD(0.2, momentum=0.9)


def distributed_train_step(strategy, model, optimizer):
    def train_replica(images, labels):
        with tf.GradientTape() as tape:
            probabilities = model(images, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(labels, probabilities)
            # Divided by the size of the whole batch, since gradients and losses are added up.
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        # Inside `strategy.run` this sums the gradients of all replicas, then applies the sum.
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_step(images, labels):
        losses = strategy.run(train_replica, (images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return train_step


def train_for_an_epoch(strategy, train_step, epoch):
    """Returns the mean loss of the epoch's steps."""
    dataset = tf.data.Dataset.from_tensor_slices(digits_in_order_of(epoch)).batch(BATCH_SIZE)
    options = tf.data.Options()
    # Each worker takes its part of every batch.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = strategy.experimental_distribute_dataset(dataset.with_options(options))
    return np.mean([train_step(images, labels) for images, labels in batches])


def digits_in_order_of(epoch):
    """Shuffled in the same way wherever and whenever the epoch is trained."""
    digits = load_digits()
    order = np.random.default_rng(epoch).permutation(len(digits.target))
    # No worker may be left without a sample, so the last batch of an epoch must be whole.
    order = order[: len(order) // BATCH_SIZE * BATCH_SIZE]
    return digits.images[order, ..., np.newaxis].astype("float32") / 16, digits.target[order]


def compare_with_one_process(folder):
    model, epochs = restored(folder)
    pairs = zip(model.get_weights(), trained_by_fit(epochs).get_weights(), strict=True)
    difference = max(np.abs(ours - theirs).max() for ours, theirs in pairs)
    print(f"Largest difference of a weight from training in one process: {difference:.1e}")
    if not difference <= TOLERANCE:  # NaN too
        raise SystemExit(f"Expected a difference of at most {TOLERANCE:g}.")


def restored(folder):
    """The network that the workers trained, and for how many epochs they did."""
    model, epochs_done = network(), tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, epochs_done=epochs_done)
    status = checkpoint.restore(tf.train.latest_checkpoint(folder))
    status.expect_partial().assert_existing_objects_matched()  # all but the optimizer
    return model, int(epochs_done.numpy())


def trained_by_fit(epochs):
    model = network()
    model.compile(sgd(), "sparse_categorical_crossentropy")
    for epoch in range(epochs):
        images, labels = digits_in_order_of(epoch)
        model.fit(images, labels, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    return model


if __name__ == "__main__":
    main()
