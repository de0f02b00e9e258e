"""The benchmark on tiny tensors: what it reports, and that it refuses to time wrong numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_lrn

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KERAS_LRN = {
    f"keras_lrn {run}, {mode}"
    for run in ("graph", "eager", "jit_compile")
    for mode in ("keeping", "inference")
}
TF_NN = {"tf.nn graph", "tf.nn eager", "tf.nn jit_compile"}
FLOOR = "x + 1 graph"
DIRECTIONS = ("forward", "forward + backward")

# The right output with a gradient that is wrong by dY.
WRONG_GRADIENT = """
import runpy, sys
import tensorflow as tf
import keras_lrn
right = keras_lrn.local_response_normalization
def wrong(x, size, **arguments):
    return right(x, size, **arguments) + (x - tf.stop_gradient(x))
keras_lrn.local_response_normalization = wrong
folder = sys.argv.pop(1)
sys.path.insert(0, folder)
runpy.run_path(folder + "/bench_lrn.py", run_name="__main__")
"""


def run(*arguments):
    package = str(Path(keras_lrn.__file__).parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    report, plot = folder / "report.json", folder / "plot.png"
    done = run(
        BENCHMARKS / "bench_lrn.py",
        *("--quick", "--repeats", 1, "--shapes", "2x5x7x12", "--leave-out", "torch"),
        *("--only", "main", "size", "training", "--json", report, "--plot", plot),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text()), plot.read_bytes()


def test_report_says_where_and_how_it_was_measured(quick):
    _, report, _ = quick
    environment = report["environment"]
    assert environment["command"].startswith("python benchmarks/bench_lrn.py --quick --repeats 1")
    assert {"date", "machine", "cpu", "cores", "python"} <= set(environment)
    assert {"keras_lrn", "keras", "numpy"} <= set(environment["versions"])
    assert report["wrong"] == []


def test_every_contestant_is_timed_in_both_directions(quick):
    _, report, _ = quick
    timed = {
        (row["contestant"], row["direction"]) for row in report["times"] if row["section"] == "main"
    }
    expected = {(name, way) for name in KERAS_LRN | TF_NN | {FLOOR} for way in DIRECTIONS}
    assert expected <= timed
    assert not any(contestant.startswith("torch") for contestant, _ in timed)


def test_ratios_are_those_of_the_times(quick):
    _, report, _ = quick
    rows = [row for row in report["times"] if row["section"] == "size"]
    # With one round, a median is the time itself.
    times = {
        (row["contestant"], row["size"], row["direction"]): row["milliseconds"]["median"]
        for row in rows
    }
    compared = 0
    for row in rows:
        size, direction = row["size"], row["direction"]
        time = times[row["contestant"], size, direction]
        floor = times[FLOOR, size, direction]
        baseline = times[row["contestant"], 5, direction]
        assert row["times_the_floor"]["median"] == pytest.approx(time / floor)
        assert row["times_the_baseline_per_element"]["median"] == pytest.approx(time / baseline)
        if row["contestant"] in KERAS_LRN and size == 5:
            rival = "tf.nn " + row["contestant"].removeprefix("keras_lrn ").partition(",")[0]
            ratio = times[rival, size, direction] / time
            assert row["faster_than_tf_nn"]["median"] == pytest.approx(ratio)
            compared += 1
    assert compared == 8


def test_contestants_that_cannot_take_part_are_named(quick):
    table, report, _ = quick
    refused = {(entry["contestant"], entry["size"]) for entry in report["refused"]}
    assert refused == {("tf.nn graph", 4), ("tf.nn jit_compile", 4)}
    assert "left out: tf.nn graph (float32, size 4, beta 0.75): NotImplementedError" in table


def test_tables_and_plot_are_written(quick):
    table, _, plot = quick
    lines = table.splitlines()
    header = next(line for line in lines if line.startswith("| contestant"))
    cells = [cell.strip() for cell in header.strip("|").split("|")]
    assert cells == ["contestant", "ms", "faster than tf.nn", "times the floor"]
    for name in KERAS_LRN | TF_NN | {FLOOR}:
        assert any(line.startswith(f"| {name} ") for line in lines)
    assert plot.startswith(b"\x89PNG")


def test_training_compares_the_same_network_with_three_normalizations(quick):
    _, report, _ = quick
    assert [row["normalization"] for row in report["training"]] == ["keras_lrn", "tf.nn", "none"]
    assert all(row["milliseconds"]["median"] > 0 for row in report["training"])


def test_networks_differ_in_their_normalization_only(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from contestants import any_image_size, with_normalization

    model = any_image_size()
    images = np.random.default_rng(0).standard_normal((2, 11, 13, 3), np.float32)
    ours, tf_nn, none = (
        with_normalization(model, name)(images).numpy() for name in ("keras_lrn", "tf.nn", "none")
    )
    np.testing.assert_allclose(ours, model(images).numpy(), rtol=1e-6)
    np.testing.assert_allclose(tf_nn, ours, rtol=1e-5)
    assert np.max(np.abs(none - ours)) > 1e-3
    replaced = with_normalization(model, "tf.nn").layers
    assert [type(layer).__name__ for layer in replaced].count("Lambda") == 2


def test_a_wrong_gradient_is_reported_and_not_timed(tmp_path):
    report = tmp_path / "report.json"
    options = ("--quick", "--repeats", 1, "--leave-out", "torch", "--only", "main")
    done = run("-c", WRONG_GRADIENT, BENCHMARKS, *options, "--json", report)
    assert done.returncode == 1, done.stderr
    assert "WRONG: keras_lrn graph, keeping" in done.stdout
    report = json.loads(report.read_text())
    assert {(entry["contestant"], entry["direction"]) for entry in report["wrong"]} == {
        (name, "forward + backward") for name in KERAS_LRN
    }
    timed = {(row["contestant"], row["direction"]) for row in report["times"]}
    assert {(name, "forward") for name in KERAS_LRN} <= timed
    assert not {(name, "forward + backward") for name in KERAS_LRN} & timed
    assert {(name, "forward + backward") for name in TF_NN} <= timed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no getrusage")
def test_memory_counts_what_is_held_beyond_inputs_and_outputs():
    arguments = {"contestant": "tf.nn graph", "shape": [32, 56, 56, 64]}
    done = run(BENCHMARKS / "fresh_process.py", "peak_memory", json.dumps(arguments))
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout.splitlines()[-1])
    tensor = memory["tensor_bytes"]
    assert tensor == 4 * 32 * 56 * 56 * 64
    # TensorFlow's op needs nothing but its input and output for its gradient.
    assert abs(memory["peak_beyond_bytes"]) < tensor / 2
    assert abs(memory["kept_per_layer_bytes"]) < tensor / 2


def test_a_run_over_changing_image_sizes_is_timed(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from fresh_process import changing_image_sizes

    for how in ("fit", "tf.function"):
        assert changing_image_sizes("keras_lrn", how, image_sizes=[12, 13], batch=2)["seconds"] > 0
