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
OURS = {
    "keras_lrn, graph, training=True",
    "keras_lrn, graph, training=None",
    "keras_lrn, graph, training=False",
    "keras_lrn, graph, training=False, jit_compile=True",
    "keras_lrn, eager",
    "keras_lrn, inside XLA",
}
OTHERS = {
    "layer with training=False, graph, training=True",
    *(f"tf.nn, {way}" for way in ("graph", "eager", "inside XLA")),
    "x + 1, graph",
}
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


def called(function, **arguments):
    done = run(BENCHMARKS / "fresh_process.py", function, json.dumps(arguments))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    report, plot = folder / "report.json", folder / "plot.png"
    done = run(
        BENCHMARKS / "bench_lrn.py",
        *("--quick", "--repeats", 1, "--shapes", "2x5x7x12", "--only", "main", "training"),
        *("--json", report, "--plot", plot),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text()), plot.read_bytes()


def test_the_report_says_where_and_how_it_was_measured(quick):
    _, report, _ = quick
    environment = report["environment"]
    assert environment["command"].startswith("python benchmarks/bench_lrn.py --quick --repeats 1")
    assert {"date", "machine", "cpu", "python"} <= set(environment)
    assert {"keras", "numpy"} <= set(environment["versions"])
    assert report["wrong"] == []


def test_every_contestant_is_timed_in_both_directions_and_its_ratios_are_those_of_the_times(quick):
    _, report, _ = quick
    # With one round, a median is the time itself.
    rows = {(row["contestant"], row["direction"]): row for row in report["main"]}
    assert set(rows) == {(name, way) for name in OURS | OTHERS for way in DIRECTIONS}
    for (name, direction), row in rows.items():
        rival = next(way for way in ("graph", "eager", "inside XLA") if f", {way}" in name)
        taken = row["ms"]["median"]
        tf_nn, floor = (
            rows[other, direction]["ms"]["median"] for other in (f"tf.nn, {rival}", "x + 1, graph")
        )
        assert row["faster than tf.nn"]["median"] == pytest.approx(tf_nn / taken)
        assert row["times the floor"]["median"] == pytest.approx(taken / floor)


def test_tables_and_plot_are_written(quick):
    table, _, plot = quick
    for name in OURS | OTHERS:
        assert any(line.startswith(f"| {name} ") for line in table.splitlines())
    assert plot.startswith(b"\x89PNG")


def test_training_compares_the_same_network_with_other_normalizations(quick):
    _, report, _ = quick
    names = [
        "keras_lrn",
        "keras_lrn, training=False",
        "tf.nn",
        "none",
        "keras_lrn, jit_compile=True",
    ]
    assert [row["normalization"] for row in report["training"]] == 2 * names
    assert [row["a step of"] for row in report["training"]] == 5 * ["fit"] + 5 * ["predict"]
    assert all(row["ms"]["median"] > 0 for row in report["training"])


def test_networks_differ_in_their_normalization_only(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from contestants import two_layers, with_normalization

    network = two_layers()
    images = np.random.default_rng(0).standard_normal((2, 11, 13, 3), np.float32)
    models = {
        name: with_normalization(network, name)
        for name in ("keras_lrn", "keras_lrn, training=False", "tf.nn", "none")
    }
    ours, not_keeping, tf_nn, none = (model(images).numpy() for model in models.values())
    np.testing.assert_allclose(ours, network(images).numpy(), rtol=1e-6)
    np.testing.assert_allclose(not_keeping, ours, rtol=1e-6)
    np.testing.assert_allclose(tf_nn, ours, rtol=1e-5)
    assert np.max(np.abs(none - ours)) > 1e-3
    assert models["keras_lrn"].layers[1].training is True
    assert models["keras_lrn, training=False"].layers[1].training is False
    assert [type(layer).__name__ for layer in models["tf.nn"].layers].count("Lambda") == 2


def test_a_wrong_gradient_is_reported_and_not_timed(tmp_path):
    report = tmp_path / "report.json"
    options = ("--quick", "--repeats", 1, "--only", "main", "--json", report)
    done = run("-c", WRONG_GRADIENT, BENCHMARKS, *options)
    assert done.returncode == 1
    assert "keras_lrn, eager, forward + backward: relative error" in done.stderr
    report = json.loads(report.read_text())
    assert {wrong.partition(", forward")[0] for wrong in report["wrong"]} == OURS
    timed = {(row["contestant"], row["direction"]) for row in report["main"]}
    assert {(name, "forward") for name in OURS} <= timed
    assert not {(name, "forward + backward") for name in OURS} & timed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no getrusage")
def test_memory_counts_what_is_held_beyond_inputs_and_outputs():
    memory = called("peak_memory", contestant="tf.nn, graph", shape=[32, 56, 56, 64])
    # TensorFlow's op needs nothing but its input and output for its gradient.
    assert abs(memory["peak_beyond"]) < 0.5
    assert abs(memory["kept_per_layer"]) < 0.5


def test_a_search_over_alpha_adds_next_to_nothing():
    of = called("many_alphas", way="eager", shape=[8, 32, 32, 64], count=300)
    assert of["growth"] < 50


@pytest.mark.parametrize("how", ["fit", "tf.function", "eager"])
def test_runs_over_image_sizes_and_first_steps_are_timed(monkeypatch, how):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from fresh_process import first_step, image_sizes

    assert image_sizes("keras_lrn", how, sizes=[12, 13], batch=2)["seconds"] > 0
    assert first_step("keras_lrn", how, image_size=12, batch=2)["seconds"] > 0
