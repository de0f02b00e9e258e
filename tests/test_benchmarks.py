"""The benchmark on tiny tensors: what it reports, and that it refuses to time wrong numbers."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from cases import run_python

import keras_lrn

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
OURS = {
    *(f"keras_lrn, graph, training={training}" for training in (True, None, False)),
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


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    report, plot = folder / "report.json", folder / "plot.png"
    done = run_python(
        BENCHMARKS / "bench_lrn.py",
        *("--quick", "--repeats", 1, "--shapes", "2x5x7x12", "--only", "main", "training"),
        *("--json", report, "--plot", plot),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text()), plot.read_bytes()


def test_the_report_says_where_and_how_it_was_measured(quick):
    environment = quick[1]["environment"]
    assert environment["command"].startswith("python benchmarks/bench_lrn.py --quick --repeats 1")
    assert all(environment[key] for key in ("date", "machine", "python"))
    assert {"keras", "numpy"} <= set(environment["versions"])


def test_every_contestant_is_timed_in_both_directions_and_its_ratios_are_those_of_the_times(quick):
    # With one round, a median is the time itself.
    rows = {(row["contestant"], row["direction"]): row for row in quick[1]["main"]}
    assert set(rows) == {(name, way) for name in OURS | OTHERS for way in DIRECTIONS}
    for (name, direction), row in rows.items():
        way = next(way for way in ("graph", "eager", "inside XLA") if f", {way}" in name)
        taken, tf_nn, floor = (
            rows[other, direction]["ms"]["median"]
            for other in (name, f"tf.nn, {way}", "x + 1, graph")
        )
        assert row["faster than tf.nn"]["median"] == pytest.approx(tf_nn / taken)
        assert row["times the floor"]["median"] == pytest.approx(taken / floor)


def test_tables_and_plot_are_written(quick):
    for name in OURS | OTHERS:
        assert any(line.startswith(f"| {name} ") for line in quick[0].splitlines())
    assert quick[2].startswith(b"\x89PNG")


def test_training_compares_the_same_network_with_other_normalizations(quick):
    from contestants import NETWORKS

    rows = [(row["a step of"], row["normalization"]) for row in quick[1]["training"]]
    assert rows == [(step, name) for step in ("fit", "predict") for name in NETWORKS]
    assert all(row["ms"]["median"] > 0 for row in quick[1]["training"])


def test_networks_differ_in_their_normalization_only():
    from contestants import NETWORKS, two_layers, with_normalization

    network = two_layers()
    images = np.random.default_rng(0).standard_normal((2, 11, 13, 3), np.float32)
    models = {name: with_normalization(network, name) for name in NETWORKS}
    expected = network(images).numpy()
    for name in set(NETWORKS) - {"none"}:
        np.testing.assert_allclose(models[name](images), expected, rtol=1e-5, err_msg=name)
    assert np.max(np.abs(models["none"](images) - expected)) > 1e-3
    lrn = {name: model.layers[1] for name, model in models.items()}
    assert lrn["keras_lrn"].training is True
    assert lrn["keras_lrn, training=False"].training is False
    assert lrn["keras_lrn, jit_compile=True"].jit_compile is True
    assert type(lrn["tf.nn"]).__name__ == "Lambda"


def test_a_wrong_gradient_is_reported_and_not_timed(monkeypatch, tmp_path):
    import bench_lrn

    right, report = keras_lrn.local_response_normalization, tmp_path / "report.json"

    def wrong(x, size, **arguments):
        return right(x, size, **arguments) + (x - tf.stop_gradient(x))

    monkeypatch.setattr(keras_lrn, "local_response_normalization", wrong)
    options = ["--quick", "--repeats", "1", "--only", "main", "--json", str(report)]
    monkeypatch.setattr(sys, "argv", ["bench_lrn.py", *options])
    with pytest.raises(SystemExit, match=r"keras_lrn, eager, forward \+ backward: relative error"):
        bench_lrn.main()
    report = json.loads(report.read_text())
    assert {line.partition(", forward + backward:")[0] for line in report["wrong"]} == OURS
    timed = {(row["contestant"], row["direction"]) for row in report["main"]}
    assert timed == {(name, way) for name in OURS | OTHERS for way in DIRECTIONS} - {
        (name, "forward + backward") for name in OURS
    }


@pytest.mark.parametrize("case", [{"axis": 1}, {"dtype": "float64"}, {"size": 4}], ids=str)
def test_what_tensorflow_cannot_do_is_left_out_and_all_else_timed(case):
    import argparse

    from bench_lrn import time_case
    from contestants import Case

    wrong = []
    rows = time_case(Case((2, 5, 7, 12), **case), argparse.Namespace(repeats=1), wrong)
    names = {row["contestant"] for row in rows}
    assert wrong == []
    assert names - {f"tf.nn, {way}" for way in ("graph", "eager")} >= OURS
    assert ("tf.nn, eager" in names) is ("axis" in case)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no getrusage")
def test_memory_counts_what_is_held_beyond_inputs_and_outputs():
    from fresh_process import in_fresh_process, peak_memory

    # TensorFlow's op needs nothing but its input and output for its gradient. A C library may keep
    # what was freed of less than 32 MB.
    held = in_fresh_process(peak_memory, contestant="tf.nn, graph", shape=[64, 56, 56, 64])
    assert abs(held["peak beyond"]) < 0.5
    assert abs(held["kept per layer"]) < 0.5


def test_a_search_over_alpha_compiles_once_and_adds_next_to_no_memory():
    from fresh_process import in_fresh_process, many_alphas

    of = in_fresh_process(many_alphas, way="eager", shape=[8, 32, 32, 64], count=300)
    assert of["programs of the first"] > 0
    assert of["programs added"] == 0
    assert of["MB added"] < 50


@pytest.mark.parametrize("sizes", [[12], [12, 13, 15]], ids=["first step", "changing"])
@pytest.mark.parametrize("how", ["fit", "tf.function", "eager"])
def test_first_steps_and_steps_of_other_image_sizes_are_timed(how, sizes):
    from fresh_process import training_steps

    assert training_steps("keras_lrn", how, sizes, batch=2)["seconds"] > 0
