"""Measures local response normalization on a CPU, beside TensorFlow's own and beside none.

python benchmarks/bench_lrn.py                     everything, about twenty minutes
python benchmarks/bench_lrn.py --only main         the table of the README, two minutes
python benchmarks/bench_lrn.py --quick             everything on tiny tensors, about a minute
python benchmarks/bench_lrn.py --only main --shapes 1x55x55x96 --size 11     another case

Sections: main, memory, training, changing (images of ever another size), first_step.
"""

import argparse
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
import re
import shlex
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from contestants import (
    FLOOR,
    FLOORS,
    NETWORKS,
    Case,
    alexnet,
    contestants,
    error_against_the_oracle,
    with_normalization,
)
from fresh_process import in_fresh_process, many_alphas, peak_memory, training_steps

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
    add = parser.add_argument
    add("--quick", action="store_true", help="tiny tensors, few rounds, few ways to run")
    add("--only", nargs="+", choices=SECTIONS, metavar="SECTION", default=list(SECTIONS))
    add("--repeats", type=int, metavar="N", help="rounds (9; 5 of fresh processes; quick: 3, 1)")
    add("--shapes", nargs="+", type=parse_shape, metavar="NxHxWxC", help="of the section main")
    add("--axis", type=int, choices=(-1, 1), default=-1, help="the channel axis")
    add("--dtype", choices=TOLERANCES, default="float32")
    add("--size", type=int, default=5, help="channels in a window")
    add("--json", type=pathlib.Path, metavar="FILE.json", help="write all numbers")
    add("--plot", type=pathlib.Path, metavar="FILE.png", help="plot the section main")
    options = parser.parse_args()
    options.processes = options.repeats or (1 if options.quick else 5)
    options.repeats = options.repeats or (3 if options.quick else 9)
    full = [(32, 55, 55, 96), (32, 27, 27, 256), (32, 56, 56, 192)]
    options.shapes = options.shapes or ([(2, 5, 7, 16)] if options.quick else full)
    if options.plot and "main" not in options.only:
        parser.error("--plot draws the section main, which --only leaves out")
    return options


def parse_shape(text):
    if not re.fullmatch("[1-9][0-9]*(x[1-9][0-9]*){3}", text):
        raise argparse.ArgumentTypeError(
            f"expected four positive lengths, as in 32x55x55x96. Received: shape={text}"
        )
    return tuple(map(int, text.split("x")))


def environment():
    packages = {"keras_lrn", "tensorflow", "tensorflow-cpu", "keras", "numpy"}
    cpuinfo = pathlib.Path("/proc/cpuinfo")  # only Linux has it
    model = re.search("model name\\s*: (.+)", cpuinfo.read_text() if cpuinfo.exists() else "")
    return {
        "command": shlex.join(["python", "benchmarks/bench_lrn.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "cpu": model[1] if model else platform.processor(),
        "python": platform.python_version(),
        "versions": {
            of.name: of.version for of in importlib.metadata.distributions() if of.name in packages
        },
    }


def measure_main(options, wrong):
    """Each contestant in both directions; then medians over the shapes."""
    rows = []
    for shape in options.shapes:
        rows += time_case(Case(shape, options.axis, options.dtype, options.size), options, wrong)
    for direction in FLOORS:
        table = []
        for name in dict.fromkeys(row["contestant"] for row in rows):
            of = [r for r in rows if (r["contestant"], r["direction"]) == (name, direction)]
            ratios = {
                key: spread([row[key]["median"] for row in of if row[key]])
                for key in ("faster than tf.nn", "times the floor")
            }
            table.append({"contestant": name, **ratios})
        shapes = ", ".join("x".join(map(str, shape)) for shape in options.shapes)
        print_table(f"main: {direction}, over the shapes {shapes}", table)
    return rows


def time_case(case, options, wrong):
    """Times every contestant in every round; returns a row for each, and names who was wrong."""
    runs = {}
    for entry in progress(contestants(), "contestant"):
        try:
            for direction, run in entry.prepare(case).items():
                error = 0 if entry.name == FLOOR else error_against_the_oracle(case, run())
                if error <= TOLERANCES[case.dtype]:
                    runs[entry, direction] = run
                else:
                    wrong.append(f"{entry.name}, {direction}: relative error {error:.1e}")
        except (tf.errors.OpError, TypeError, ValueError) as refusal:
            if not entry.name.startswith("tf.nn"):  # which lacks some dtypes and all even sizes
                raise
            print(f"\nNot timed: {entry.name}: {str(refusal).strip().splitlines()[0]}")
    number = {of: max(1, round(SECONDS_PER_TIMING / timed(run, 1))) for of, run in runs.items()}
    seconds = {of: [] for of in runs}
    for round_number in progress(range(options.repeats), "round"):
        gc.disable()
        for of in shuffled(runs, round_number):
            time.sleep(SECONDS_OF_REST)
            seconds[of].append(timed(runs[of], number[of]))
        gc.enable()
    named = {(entry.name, direction): taken for (entry, direction), taken in seconds.items()}
    rows = []
    for (entry, direction), taken in seconds.items():
        tf_nn, floor = named.get((f"tf.nn, {entry.way}", direction), ()), named[FLOOR, direction]
        row = {"contestant": entry.name, "shape": case.shape, "direction": direction}
        rows.append(row | compared(taken, tf_nn, floor, "times the floor"))
    return rows


def timed(run, number):
    start = time.perf_counter()
    for _ in range(number):
        run()
    tf.test.experimental.sync_devices()
    return (time.perf_counter() - start) / number


def measure_memory(options, wrong):
    """What forward + backward holds, and what a search over alpha adds."""
    shape, count = ((16, 5, 7, 16), 20) if options.quick else ((128, 55, 55, 96), 300)
    names = [e.name for e in contestants() if e.name != FLOOR and "jit_compile" not in e.name]
    held = [
        {"contestant": name, **in_fresh_process(peak_memory, contestant=name, shape=shape)}
        for name in progress(names[:1] if options.quick else names, "process")
    ]
    print_table("memory: forward + backward, in tensors beyond x, y, dy and dx", held)
    search = [
        {"way": way, **in_fresh_process(many_alphas, way=way, shape=(8, 32, 32, 64), count=count)}
        for way in progress(("eager", "graph"), "process")
    ]
    print_table(f"memory: forward + backward with {count} values of alpha", search)
    return {"held": held, "alphas": search}


def measure_training(options, wrong):
    """A step of Keras `fit`, and of `predict`."""
    networks = {"the demo's": (demo.alexnet_style(), 32, 20), "AlexNet": (alexnet(), 16, 2)}
    if options.quick:
        networks = {"AlexNet": (alexnet(67, units=16, classes=10), 2, 1)}
    rows = []
    for title, (network, batch, steps) in networks.items():
        rng = np.random.default_rng(0)
        x = rng.standard_normal((batch * steps, *network.input_shape[1:]), np.float32)
        y = rng.integers(0, network.output_shape[1], batch * steps)
        models = {name: with_normalization(network, name) for name in NETWORKS}
        seconds = {of: [] for of in itertools.product(("fit", "predict"), NETWORKS)}
        for number in progress(range(options.repeats + 1), "round"):
            for name in shuffled(NETWORKS, number):
                fit, predict = seconds_of_a_step(models[name], x, y, batch)
                if number:  # the first round traces and compiles
                    seconds["fit", name].append(fit)
                    seconds["predict", name].append(predict)
        rows += beside_others(seconds, "a step of", network=title)
    print_table("training", rows)
    return rows


def seconds_of_a_step(model, x, y, batch):
    times = []

    def note(*_, **__):
        times.append(time.perf_counter())

    callback = keras.callbacks.LambdaCallback(on_train_batch_begin=note, on_train_batch_end=note)
    model.fit(x, y, batch, shuffle=False, verbose=0, callbacks=[callback])
    note()
    model.predict(x, batch, verbose=0)
    note()
    *fit, predict_start, predict_end = times
    return np.median(np.diff(fit)[::2]), (predict_end - predict_start) * batch / len(x)


def measure_changing(options, wrong):
    """Whole runs over images of ever another size."""
    few, many = list(range(32, 128, 3)), list(range(24, 224))
    runs = {"fit": [12, 13, 14, 15]} if options.quick else {}
    runs = runs or {"eager": many, "tf.function": few, "fit": few}
    return in_fresh_processes("changing", options, runs)


def measure_first_step(options, wrong):
    """The first step of a network with two layers."""
    ways = ("tf.function",) if options.quick else ("tf.function", "fit", "eager")
    sizes = [12 if options.quick else 64]
    return in_fresh_processes("first_step", options, dict.fromkeys(ways, sizes))


def in_fresh_processes(title, options, runs):
    """Times steps at the image sizes of `runs`, for each way to run and each normalization."""
    names = ("keras_lrn", "tf.nn", "none")
    turns = [(n, how) for n in range(options.processes) for how in runs]
    turns = [(how, name) for n, how in turns for name in shuffled(names, n)]
    seconds, added = ({of: [] for of in itertools.product(runs, names)} for _ in range(2))
    for how, name in progress(turns, "process"):
        of = in_fresh_process(training_steps, normalization=name, how=how, sizes=runs[how], batch=8)
        seconds[how, name].append(of["seconds"])
        added[how, name].append(of["MB added"])
    rows = beside_others(seconds, "run by")
    if title == "changing":
        rows = [row | {"MB added": spread(m)} for row, m in zip(rows, added.values(), strict=True)]
    print_table(title, rows)
    return rows


def beside_others(seconds, way, **of):
    """A row for each way to run and each normalization that `seconds` has."""
    return [
        {**of, way: how, "normalization": name}
        | compared(taken, seconds[how, "tf.nn"], seconds[how, "none"], "times no normalization")
        for (how, name), taken in seconds.items()
    ]


def compared(taken, tf_nn, least, times_the_least):
    """Seconds of each round beside those of TensorFlow's op and of the least that could be done."""
    return {
        "ms": spread([1e3 * seconds for seconds in taken]),
        "faster than tf.nn": spread([b / a for a, b in zip(taken, tf_nn, strict=False)]),
        times_the_least: spread([a / b for a, b in zip(taken, least, strict=True)]),
    }


def spread(values):
    if values:
        return dict(zip(("q1", "median", "q3"), np.percentile(values, [25, 50, 75]), strict=True))


def shuffled(contestants, seed):
    """A new order in each round, so that nobody always follows the same contestant."""
    return random.Random(seed).sample(list(contestants), len(contestants))


def progress(items, unit):
    """Yields `items`; a bar on a terminal says how far that is."""
    bar = keras.utils.Progbar(len(items), unit_name=unit, verbose=int(sys.stderr.isatty()))
    for item in items:
        yield item
        with contextlib.redirect_stdout(sys.stderr):
            bar.add(1)


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
    return "-" if value is None else str(value)


def plot(rows, path):
    """Draws how far each contestant of the section main is from the floor, a mark per shape."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["contestant"] != FLOOR]
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    shapes = dict.fromkeys(row["shape"] for row in rows)
    figure = Figure(figsize=(10, 1.2 + 0.35 * len(names)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (direction, floor) in zip(panels, FLOORS.items(), strict=True):
        panel.axvline(1, color="black", linestyle="--", linewidth=1)
        for shape, marker in zip(shapes, itertools.cycle("osD^v<>P*X"), strict=False):
            of = [row for row in rows if (row["shape"], row["direction"]) == (shape, direction)]
            panel.plot(
                [row["times the floor"]["median"] for row in of],
                [names.index(row["contestant"]) for row in of],
                marker,
                color="black",
                fillstyle="none",
                label="x".join(map(str, shape)),
            )
        panel.set(title=direction, xscale="log", xlabel=f"times the floor: {floor} (dashed)")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(color="0.9")
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
