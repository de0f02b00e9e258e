"""Measures local response normalization on a CPU, beside TensorFlow's own and beside none.

python benchmarks/bench_lrn.py                     everything, about twenty minutes
python benchmarks/bench_lrn.py --only main         the table of the README, two minutes
python benchmarks/bench_lrn.py --quick             everything on tiny tensors, two minutes
python benchmarks/bench_lrn.py --only main --shapes 1x55x55x96 --size 11     another case
"""

import argparse
import collections
import contextlib
import datetime
import gc
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import random
import shlex
import statistics
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from contestants import (
    BOTH,
    FLOOR,
    FORWARD,
    NETWORKS,
    Case,
    alexnet,
    contestants,
    error_against_the_oracle,
    with_normalization,
)
from fresh_process import (
    RETURNS_FREED_MEMORY,
    first_step,
    image_sizes,
    in_fresh_process,
    many_alphas,
    peak_memory,
)

from keras_lrn import demo

TOLERANCES = {"float16": 5e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-11}
SECONDS_PER_TIMING = 2e-3
# Threads of the contestant before, which wait in a loop for more work, must have gone to sleep.
SECONDS_OF_REST = 5e-3


def main():
    options = parse_options()
    tf.get_logger().setLevel("ERROR")  # every contestant is traced anew, which TensorFlow warns of
    report = {"environment": environment(), "wrong": []}
    print(json.dumps(report["environment"], indent=2))
    print("\nMedians, with quartiles in brackets; ratios are taken round by round.")
    for section in options.only:
        report[section] = SECTIONS[section](options, report["wrong"])
        if options.json:  # after each section: what was measured outlives an interruption
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.plot:
        plot(report["main"], options.plot)
    if report["wrong"]:
        sys.exit(f"Wrong numbers, not timed: {'; '.join(report['wrong'])}")


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny tensors, few rounds")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", default=[])
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds (default: 9, quick: 3)")
    parser.add_argument("--shapes", nargs="+", type=parse_shape, metavar="NxHxWxC")
    parser.add_argument("--axis", type=int, choices=(-1, 1), default=-1, help="the channel axis")
    parser.add_argument("--dtype", choices=TOLERANCES, default="float32")
    parser.add_argument("--size", type=int, default=5, help="channels in a window")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE.json", help="write all numbers")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.png", help="plot section main")
    parser.epilog = "sections: " + ", ".join(SECTIONS)
    options = parser.parse_args()
    options.only = options.only or list(SECTIONS)
    options.repeats = options.repeats or (3 if options.quick else 9)
    full = [(32, 55, 55, 96), (32, 27, 27, 256), (32, 56, 56, 192)]
    options.shapes = options.shapes or ([(2, 5, 7, 16)] if options.quick else full)
    if options.plot and "main" not in options.only:
        parser.error("--plot draws the section main, which --only leaves out")
    return options


def parse_shape(text):
    lengths = text.split("x")
    if len(lengths) != 4 or not all(length.isdecimal() and int(length) for length in lengths):
        raise argparse.ArgumentTypeError(
            f"expected four positive lengths, as in 32x55x55x96. Received: shape={text}"
        )
    return tuple(int(length) for length in lengths)


def environment():
    versions = {}
    for package in ("keras_lrn", "tensorflow", "tensorflow-cpu", "keras", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "command": shlex.join(["python", "benchmarks/bench_lrn.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "cpu": cpu_model(),
        "python": platform.python_version(),
        "versions": versions,
    }


def cpu_model():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def measure_main(options, wrong):
    """Each contestant in both directions; then medians over the shapes."""
    rows = []
    for shape in options.shapes:
        case = Case(shape, axis=options.axis, dtype=options.dtype, size=options.size)
        rows += time_case(case, options.repeats, wrong)
    over_shapes = collections.defaultdict(list)
    for row in rows:
        over_shapes[row["contestant"], row["direction"]].append(row)
    title = "x".join(map(str, options.shapes[0])) if len(options.shapes) == 1 else "over the shapes"
    for direction in (FORWARD, BOTH):
        columns = ("faster than tf.nn", "times the floor")
        print_table(
            f"main, {title}: {direction}",
            [
                {"contestant": name, **{c: spread([r[c]["median"] for r in of]) for c in columns}}
                for (name, way), of in over_shapes.items()
                if way == direction
            ],
        )
    return rows


def time_case(case, repeats, wrong):
    """Times every contestant in every round; returns a row for each, and names who was wrong."""
    runs, entries = {}, contestants()
    step = progress(len(entries) + repeats, "step")
    for entry in entries:
        with contextlib.suppress(tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
            for direction, run in entry.prepare(case).items():
                outputs = run()
                error = 0 if entry.name == FLOOR else error_against_the_oracle(case, outputs)
                if error <= TOLERANCES[case.dtype]:
                    runs[entry, direction] = run
                else:
                    wrong.append(f"{entry.name}, {direction}: relative error {error:.1e}")
        step()
    seconds = collections.defaultdict(list)
    number = {of: max(1, round(SECONDS_PER_TIMING / timed(run, 1))) for of, run in runs.items()}
    for round_number in range(repeats):
        # In a new order each time, so that nobody always follows the same contestant.
        gc.disable()
        for of in random.Random(round_number).sample(list(runs), len(runs)):
            time.sleep(SECONDS_OF_REST)
            seconds[of].append(timed(runs[of], number[of]))
        gc.enable()
        step()
    by_name = {(entry.name, direction): s for (entry, direction), s in seconds.items()}
    rows = []
    for entry, direction in runs:
        taken = seconds[entry, direction]
        rival, floor = (
            by_name.get((name, direction), np.nan) for name in (f"tf.nn, {entry.way}", FLOOR)
        )
        rows.append(
            {
                "contestant": entry.name,
                "shape": case.shape,
                "direction": direction,
                "ms": spread(1e3 * np.array(taken)),
                "faster than tf.nn": spread(np.divide(rival, taken)),
                "times the floor": spread(np.divide(taken, floor)),
            }
        )
    return rows


def timed(run, number):
    start = time.perf_counter()
    for _ in range(number):
        run()
    tf.test.experimental.sync_devices()
    return (time.perf_counter() - start) / number


def measure_memory(options, wrong):
    """What forward + backward holds, and what a search over alpha adds."""
    shape = (16, 5, 7, 16) if options.quick else (128, 55, 55, 96)
    chosen = [e for e in contestants() if e.name != FLOOR and "jit_compile" not in e.called]
    chosen = chosen[:1] if options.quick else chosen
    step = progress(len(chosen) + 2, "process")
    held = []
    for entry in chosen:
        of = in_fresh_process(peak_memory, RETURNS_FREED_MEMORY, contestant=entry.name, shape=shape)
        held.append({"contestant": entry.name, **of})
        step()
    print_table("memory: forward + backward, in tensors beyond x, y, dy and dx", held)
    search = []
    for way in ("eager", "graph"):
        arguments = {"shape": (8, 32, 32, 64), "count": 20 if options.quick else 300}
        search.append({"way": way, **in_fresh_process(many_alphas, way=way, **arguments)})
        step()
    print_table("memory: MB that later alphas add, slowest of their calls by the median", search)
    return {"held": held, "alphas": search}


def measure_training(options, wrong):
    """A step of Keras `fit`, and `predict`."""
    networks = {"AlexNet": (alexnet(67, units=16, classes=10), 2, 1)}
    if not options.quick:
        networks = {"the demo's": (demo.alexnet_style(), 32, 20), "AlexNet": (alexnet(), 16, 2)}
    normalizations = [*NETWORKS, "keras_lrn, jit_compile=True"]
    rows = []
    for title, (network, batch, steps) in networks.items():
        rng = np.random.default_rng(0)
        x = rng.standard_normal((batch * steps, *network.input_shape[1:]), np.float32)
        y = rng.integers(0, network.output_shape[1], batch * steps)
        models = {name: with_normalization(network, name) for name in normalizations}
        seconds = collections.defaultdict(list)
        step = progress(options.repeats + 1, "round")
        for number in range(options.repeats + 1):
            for name in random.Random(number).sample(normalizations, len(normalizations)):
                times = StepTimes()
                models[name].fit(x, y, batch, shuffle=False, verbose=0, callbacks=[times])
                start = time.perf_counter()
                models[name].predict(x, batch, verbose=0)
                if number:  # the first round traces and compiles
                    seconds[name, "fit"].append(statistics.median(times.seconds))
                    seconds[name, "predict"].append((time.perf_counter() - start) / steps)
            step()
        for what, name in itertools.product(("fit", "predict"), normalizations):
            of = {"network": title, "a step of": what, "normalization": name}
            rows.append(of | against_others(seconds, name, what))
    print_table("training", rows)
    return rows


class StepTimes(keras.callbacks.Callback):
    """Collects the seconds of each training step."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self.start)


def measure_changing(options, wrong):
    """Whole runs over images of ever another size."""
    few, many = list(range(32, 128, 3)), list(range(24, 224))
    runs = {"eager": many, "tf.function": few, "fit": few}
    if options.quick:
        runs = {"eager": [12, 13, 14, 15]}
    return fresh_runs("changing", options, image_sizes, runs, "sizes", batch=8)


def measure_first_step(options, wrong):
    """The first step of a network with two layers."""
    runs = dict.fromkeys(("tf.function", "fit", "eager"), 12 if options.quick else 64)
    return fresh_runs("first_step", options, first_step, runs, "image_size", batch=8)


def fresh_runs(title, options, function, runs, argument, **arguments):
    """Times `function` in fresh processes, for each way to run and each normalization."""
    rounds = 1 if options.quick else 5
    names = [name for name in NETWORKS if "training" not in name]
    seconds, growth = collections.defaultdict(list), collections.defaultdict(list)
    step = progress(rounds * len(runs) * len(names), "process")
    for number in range(rounds):
        for how, name in itertools.product(runs, random.Random(number).sample(names, len(names))):
            given = {"normalization": name, "how": how, argument: runs[how], **arguments}
            of = in_fresh_process(function, **given)
            seconds[name, how].append(of["seconds"])
            growth[name, how].append(of.get("growth") or 0)
            step()
    rows = []
    for how, name in itertools.product(runs, names):
        rows.append({"run by": how, "normalization": name, **against_others(seconds, name, how)})
        if title == "changing":
            rows[-1]["MB added"] = spread(growth[name, how])
    print_table(title, rows)
    return rows


def against_others(seconds, name, how):
    this, tf_nn, none = (np.array(seconds[other, how]) for other in (name, "tf.nn", "none"))
    return {
        "ms": spread(1e3 * this),
        "faster than tf.nn": spread(tf_nn / this),
        "times no normalization": spread(this / none),
    }


def spread(values):
    q1, median, q3 = np.percentile(values, [25, 50, 75])
    return {"median": float(median), "q1": float(q1), "q3": float(q3)}


def progress(total, unit):
    """Returns a function to call after each step; the bar is drawn only on a terminal."""
    bar = keras.utils.Progbar(total, unit_name=unit, verbose=int(sys.stderr.isatty()))

    def step():
        with contextlib.redirect_stdout(sys.stderr):
            bar.add(1)

    return step


def print_table(title, rows):
    """Prints `rows` in Markdown."""
    cells = [list(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    print(f"\n{title}\n")
    for line in cells:
        print("|", " | ".join(map(str.ljust, line, widths)), "|", flush=True)


def shown(value):
    if isinstance(value, dict):
        return "{} [{}, {}]".format(*(shown(value[key]) for key in ("median", "q1", "q3")))
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def plot(rows, path):
    """Draws how far each contestant of the section main is from the floor, a mark per shape."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["contestant"] != FLOOR]
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    figure = Figure(figsize=(10, 1.2 + 0.35 * len(names)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, direction in zip(panels, (FORWARD, BOTH), strict=True):
        floor = "x + 1" if direction == FORWARD else "(x + 1, x + dy)"
        panel.axvline(1, color="black", linestyle="--", linewidth=1)
        for shape, marker in zip(
            dict.fromkeys(r["shape"] for r in rows), "osD^v<>P*X", strict=False
        ):
            of = [row for row in rows if (row["shape"], row["direction"]) == (shape, direction)]
            panel.plot(
                [row["times the floor"]["median"] for row in of],
                [names.index(row["contestant"]) for row in of],
                marker,
                color="black",
                markersize=6,
                fillstyle="none",
                label="x".join(map(str, shape)),
            )
        panel.set(title=direction, xscale="log", xlabel=f"times the floor: {floor} (dashed)")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(axis="both", color="0.9")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(path, dpi=150)


SECTIONS = {
    "main": measure_main,
    "memory": measure_memory,
    "training": measure_training,
    "changing": measure_changing,
    "first_step": measure_first_step,
}


if __name__ == "__main__":
    main()
