"""Measures local response normalization on a CPU: time, memory, and training steps.

python benchmarks/bench_lrn.py                     everything, about twenty minutes
python benchmarks/bench_lrn.py --only main         the main table, two to three minutes
python benchmarks/bench_lrn.py --quick             everything on tiny tensors, about a minute
"""

import argparse
import collections
import contextlib
import dataclasses
import datetime
import gc
import importlib.metadata
import importlib.util
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
    FORWARD,
    Case,
    alexnet,
    contestants,
    error_against_the_oracle,
    with_normalization,
)
from fresh_process import (
    RETURNS_FREED_MEMORY,
    changing_image_sizes,
    in_fresh_process,
    peak_memory,
)

import keras_lrn
from keras_lrn import demo

SECTIONS = {
    "main": "the three shapes of AlexNet and GoogLeNet, all contestants",
    "batches": "a batch of 1, a batch of 8, and few channels",
    "channels_first": "the same tensors with axis=1 (tf.nn needs two transposes)",
    "size": "windows of 3 to 255 channels",
    "channels": "16 to 4096 channels in tensors of one size",
    "elements": "tensors of 1e4 to 1e8 elements",
    "dtypes": "16-bit types, float32 and float64",
    "beta": "other exponents",
    "memory": "peak memory of forward + backward, a fresh process each",
    "changing": "images of another size at every step, a fresh process each",
    "training": "steps of Keras `fit`: the demo's network and AlexNet",
}
TOLERANCES = {"float16": 5e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-11}
FLOOR = "x + 1 graph"
NORMALIZATIONS = ("keras_lrn", "tf.nn", "none")
AGAINST_OTHERS = {
    "faster than tf.nn": "faster_than_tf_nn",
    "times no normalization": "times_no_normalization",
}
RATIOS = ("faster_than_tf_nn", "times_the_floor")
SECONDS_PER_TIMING = 2e-3
# Threads of the contestant before, which wait in a loop for more work, must have gone to sleep.
SECONDS_OF_REST = 5e-3


def main():
    options = parse_options()
    # Every contestant is traced anew for every case, which TensorFlow warns of.
    tf.get_logger().setLevel("ERROR")
    present, missing = contestants()
    for library in missing:
        print(f"{library} is not installed: left out.")
    present = [entry for entry in present if entry.library not in options.leave_out]
    report = {"environment": environment(), "not_installed": missing}
    report.update(times=[], refused=[], wrong=[])
    measure = {
        "memory": measure_memory,
        "changing": measure_changing_sizes,
        "training": measure_training,
    }
    print(json.dumps(report["environment"], indent=2))
    print(
        "\nTimes are medians, with quartiles in brackets. `faster than tf.nn` divides the time of "
        "tf.nn in the same mode\n(in a graph for PyTorch and onnxruntime) by the contestant's; "
        "`times the floor` divides the contestant's\ntime by that of x + 1, or of (x + 1, x + dy) "
        "for forward + backward. Both are taken round by round."
    )
    for section in options.only:
        if section in measure:
            report[section] = measure[section](options, present)
        else:
            for group in groups(section, options, present):
                rows, refused, wrong = time_group(section, group, options.repeats)
                report["times"] += rows
                report["refused"] += refused
                report["wrong"] += wrong
                print_group(group, rows, refused, wrong)
            if section == "main":
                print_medians_over_shapes(report["times"])
        if options.json:  # After each section: what was measured outlives an interruption.
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.plot:
        plot(report["times"], options.plot)
    if report["wrong"]:
        sys.exit("Some contestants gave wrong numbers and were not timed; see above.")


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="sections:\n" + "\n".join(f"  {key:15} {text}" for key, text in SECTIONS.items()),
    )
    parser.add_argument("--quick", action="store_true", help="tiny tensors, few rounds")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION")
    parser.add_argument(
        "--leave-out", nargs="+", default=[], choices=("torch", "onnxruntime"), metavar="LIBRARY"
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds (default: 9, quick: 3)")
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=parse_shape,
        metavar="NxHxWxC",
        help="the shapes of the section main",
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE.json", help="write all numbers")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.png", help="plot section main")
    options = parser.parse_args()
    options.only = options.only or list(SECTIONS)
    if options.repeats is None:
        options.repeats = 3 if options.quick else 9
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1. Received: repeats={options.repeats}")
    if options.plot and "main" not in options.only:
        parser.error("--plot draws the section main, which --only leaves out")
    if options.plot and not importlib.util.find_spec("matplotlib"):
        parser.error("--plot needs matplotlib")
    return options


def parse_shape(text):
    lengths = text.split("x")
    if len(lengths) != 4 or not all(length.isdecimal() and int(length) for length in lengths):
        raise argparse.ArgumentTypeError(
            f"expected four positive lengths, as in 32x55x55x96. Received: shape={text}"
        )
    return tuple(int(length) for length in lengths)


def environment():
    packages = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "torch", "onnxruntime")
    versions = {"keras_lrn": keras_lrn.__version__}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "command": shlex.join(["python", "benchmarks/bench_lrn.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def cpu_model():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


@dataclasses.dataclass
class Group:
    """Contestants and cases that are timed together, round by round.

    With several cases, `varies` is what tells them apart; they are compared with the `baseline`.
    """

    title: str
    entries: list
    cases: list
    varies: str | None = None
    baseline: Case | None = None


def groups(section, options, present):
    """Yields the groups of a section."""
    quick = options.quick
    tensorflow = [entry for entry in present if not entry.from_channels_first]
    compiled = [entry for entry in tensorflow if not entry.mode.startswith("eager")]
    if section == "main":
        shapes = [(32, 55, 55, 96), (32, 27, 27, 256), (32, 56, 56, 192)]
        shapes = options.shapes or ([(2, 5, 7, 16)] if quick else shapes)
        cases, entries = [Case(shape) for shape in shapes], present
    elif section == "batches":
        shapes = [(1, 55, 55, 96), (8, 55, 55, 96), (32, 56, 56, 64)]
        shapes = [(1, 5, 7, 16)] if quick else shapes
        cases, entries = [Case(shape) for shape in shapes], present
    elif section == "channels_first":
        shapes = [(1, 96, 55, 55), (32, 96, 55, 55), (32, 256, 27, 27), (32, 192, 56, 56)]
        shapes = [(2, 16, 5, 7)] if quick else shapes
        cases, entries = [Case(shape, axis=1) for shape in shapes], tensorflow
    else:
        yield growth(section, quick, present, compiled)
        return
    for case in cases:
        yield Group(f"{section}: {named(case.shape)}", entries, [case])


def growth(section, quick, present, compiled):
    """Returns the group of a section whose cases differ in one thing."""
    small = (2, 5, 7, 16)
    if section == "size":
        shape = small if quick else (8, 14, 14, 1024)
        cases = [
            Case(shape, size=size) for size in ((3, 4, 5) if quick else (3, 4, 5, 11, 31, 255))
        ]
        return Group(f"size: {named(shape)}", compiled, cases, "size", cases[2])
    if section == "channels":
        elements, numbers = (2**13, (16, 64)) if quick else (2**22, (16, 64, 256, 1024, 4096))
        cases = [Case((elements // (64 * channels), 8, 8, channels)) for channels in numbers]
        return Group("channels: Nx8x8xC", compiled, cases, "channels", cases[1])
    if section == "elements":
        batches = (1, 10, 100) if quick else (1, 10, 100, 1000, 10000)
        cases = [Case((batch, 10, 10, 100)) for batch in batches]
        return Group("elements: Nx10x10x100", compiled, cases, "elements", cases[2])
    shape = small if quick else (32, 27, 27, 256)
    if section == "dtypes":
        dtypes = ("float16", "bfloat16", "float32", "float64")
        cases = [Case(shape, dtype=dtype) for dtype in dtypes]
        # Compiled PyTorch keeps one case only.
        entries = [entry for entry in present if entry.mode != "compile"]
        return Group(f"dtypes: {named(shape)}", entries, cases, "dtype", cases[2])
    cases = [Case(shape, beta=beta) for beta in (0.5, 0.6, 0.75, 1.0)]
    return Group(f"beta: {named(shape)}", compiled, cases, "beta", cases[2])


def named(shape):
    return "x".join(str(length) for length in shape)


def time_group(section, group, repeats):
    """Times every contestant in every round; returns rows, and who refused or was wrong."""
    runs, refused, wrong = prepared(section, group)
    timings = {}
    for key, run in runs.items():
        seconds = min(timed(run, 1) for _ in range(2))
        timings[key] = (run, max(1, round(SECONDS_PER_TIMING / seconds)))
    if max(case.elements for case in group.cases) > 3e7:
        repeats = min(repeats, 3)
    seconds = collections.defaultdict(list)
    step = progress(repeats, "round")
    for number in range(repeats):
        # In a new order each time, so that nobody always follows the same contestant.
        order = list(timings)
        random.Random(number).shuffle(order)
        gc.disable()
        for key in order:
            time.sleep(SECONDS_OF_REST)
            seconds[key].append(timed(*timings[key]))
        gc.enable()
        step()
    rows = [
        row(section, entry, case, direction, group, seconds)
        for entry in group.entries
        for case in group.cases
        for direction in (FORWARD, BOTH)
        if (entry.name, case, direction) in seconds
    ]
    return rows, refused, wrong


def prepared(section, group):
    """Returns the runs whose numbers agree with the oracle."""
    runs, refused, wrong = {}, [], []
    step = progress(len(group.entries) * len(group.cases), "check")
    for entry in group.entries:
        for case in group.cases:
            about = {"section": section, "contestant": entry.name, **case.description}
            try:
                directions = entry.prepare(case)
                outputs = {direction: run() for direction, run in directions.items()}
            except Exception as error:
                if entry.library == "keras_lrn":
                    raise
                # Others have no kernel for some types, sizes and layouts.
                reason = (str(error).strip() or "no message").splitlines()[0][:100]
                refused.append({**about, "reason": f"{type(error).__name__}: {reason}"})
                outputs = {}
            for direction, output in outputs.items():
                if entry.name != FLOOR:
                    error = error_against_the_oracle(entry, case, direction, output)
                    if not error <= TOLERANCES[case.dtype]:
                        wrong.append({**about, "direction": direction, "error": float(error)})
                        continue
                runs[entry.name, case, direction] = directions[direction]
            step()
    return runs, refused, wrong


def timed(run, number):
    start = time.perf_counter()
    for _ in range(number):
        run()
    tf.test.experimental.sync_devices()
    return (time.perf_counter() - start) / number


def row(section, entry, case, direction, group, seconds):
    def ratios(numerator, denominator):
        if numerator not in seconds or denominator not in seconds:
            return None
        return spread(np.divide(seconds[numerator], seconds[denominator]))

    this = (entry.name, case, direction)
    baseline = ratios(this, (entry.name, group.baseline, direction))
    if baseline:
        per_element = group.baseline.elements / case.elements
        baseline = {key: value * per_element for key, value in baseline.items()}
    return {
        "section": section,
        "contestant": entry.name,
        **case.description,
        "direction": direction,
        "rounds": len(seconds[this]),
        "milliseconds": spread(1e3 * np.array(seconds[this])),
        "faster_than_tf_nn": ratios((f"tf.nn {entry.rival}", case, direction), this),
        "times_the_floor": ratios(this, (FLOOR, case, direction)),
        "times_the_baseline_per_element": baseline,
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


def print_group(group, rows, refused, wrong):
    columns = {
        "contestant": "contestant",
        **({group.varies: group.varies} if group.varies else {}),
        "ms": "milliseconds",
        "faster than tf.nn": "faster_than_tf_nn",
        "times the floor": "times_the_floor",
    }
    if group.varies:
        baseline = getattr(group.baseline, group.varies)
        heading = f"times {group.varies} {baseline}, per element"
        columns[heading] = "times_the_baseline_per_element"
    for direction in (FORWARD, BOTH):
        print(f"\n{group.title}, {direction}\n")
        print_table(columns, [row for row in rows if row["direction"] == direction])
    for entry in refused:
        print(f"left out: {about(entry)}: {entry['reason']}")
    for entry in wrong:
        print(f"WRONG: {about(entry)}, {entry['direction']}: relative error {entry['error']:.1e}")


def about(entry):
    return f"{entry['contestant']} ({entry['dtype']}, size {entry['size']}, beta {entry['beta']})"


def print_medians_over_shapes(times):
    """Prints one table for all shapes of the section main."""
    columns = {"contestant": "contestant"}
    columns.update({"faster than tf.nn": RATIOS[0], "times the floor": RATIOS[1]})
    for direction in (FORWARD, BOTH):
        by_contestant = collections.defaultdict(list)
        for row in times:
            if row["section"] == "main" and row["direction"] == direction:
                by_contestant[row["contestant"]].append(row)
        print(f"\nmain: over its shapes, {direction}\n")
        print_table(
            columns,
            [
                {
                    "contestant": contestant,
                    **{key: spread_of_medians(row[key] for row in rows) for key in RATIOS},
                }
                for contestant, rows in by_contestant.items()
            ],
        )


def spread_of_medians(spreads):
    medians = [of["median"] for of in spreads if of]
    return spread(medians) if medians else None


def print_table(columns, rows):
    """Prints `rows` in Markdown; `columns` gives each heading its key in a row."""
    cells = [list(columns), *([shown(row[key]) for key in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    for line in cells:
        print("|", " | ".join(map(str.ljust, line, widths)), "|", flush=True)


def shown(value):
    if value is None:
        return "-"
    if isinstance(value, dict):
        return "{} [{}, {}]".format(*(shown(value[key]) for key in ("median", "q1", "q3")))
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return str(value)


def measure_memory(options, present):
    """Prints and returns what forward + backward holds, per contestant, in a fresh process each."""
    shape = (16, 5, 7, 16) if options.quick else (128, 55, 55, 96)
    entries = [entry for entry in present if entry.library in ("keras_lrn", "tf.nn", "torch")]
    if options.quick:
        entries = entries[:1]
    rows = []
    step = progress(len(entries), "process")
    for entry in entries:
        of = in_fresh_process(peak_memory, RETURNS_FREED_MEMORY, contestant=entry.name, shape=shape)
        of["peak_beyond_tensors"] = of["peak_beyond_bytes"] / of["tensor_bytes"]
        of["kept_per_layer_tensors"] = of["kept_per_layer_bytes"] / of["tensor_bytes"]
        rows.append({"contestant": entry.name, "shape": shape, **of})
        step()
    print(f"\nmemory: forward + backward, {named(shape)}, in tensors of that shape\n")
    columns = {
        "contestant": "contestant",
        "peak beyond x, y, dy, dx": "peak_beyond_tensors",
        "kept by each layer beyond its output": "kept_per_layer_tensors",
    }
    print_table(columns, rows)
    return rows


def measure_changing_sizes(options, present):
    """Prints and returns the time of whole runs over images of many sizes."""
    rounds, sizes = (1, [12, 13]) if options.quick else (7, list(range(32, 128, 3)))
    hows = ["fit"] if options.quick else ["fit", "tf.function"]
    seconds = collections.defaultdict(list)
    step = progress(rounds * len(hows) * len(NORMALIZATIONS), "process")
    for _ in range(rounds):
        for how in hows:
            for normalization in NORMALIZATIONS:
                arguments = {"normalization": normalization, "how": how}
                of = in_fresh_process(changing_image_sizes, image_sizes=sizes, batch=8, **arguments)
                seconds[how, normalization].append(of["seconds"])
                step()
    rows = [
        {
            "how": how,
            "normalization": normalization,
            "image_sizes": sizes,
            "rounds": rounds,
            "seconds": spread(taken),
            **against_other_normalizations(seconds, how, normalization),
        }
        for (how, normalization), taken in seconds.items()
    ]
    print(f"\nchanging: one step at each of {len(sizes)} image sizes, compilations included\n")
    columns = {"run by": "how", "normalization": "normalization", "s": "seconds"}
    print_table(columns | AGAINST_OTHERS, rows)
    return rows


def measure_training(options, present):
    """Prints and returns the time of a step of Keras `fit`."""
    if options.quick:
        networks = {"AlexNet": (alexnet(67, units=16, classes=10), 2, 1)}
    else:
        networks = {
            "the demo's network": (demo.alexnet_style(), 32, 20),
            "AlexNet": (alexnet(), 16, 2),
        }
    rows = []
    for network, (model, batch, steps) in networks.items():
        generator = np.random.default_rng(0)
        x = generator.standard_normal((batch * steps, *model.input_shape[1:]), np.float32)
        y = generator.integers(0, model.output_shape[1], batch * steps)
        models = {name: with_normalization(model, name) for name in NORMALIZATIONS}
        seconds = collections.defaultdict(list)
        step = progress(options.repeats + 1, "round")
        for number in range(options.repeats + 1):
            for normalization in random.Random(number).sample(NORMALIZATIONS, len(NORMALIZATIONS)):
                times = StepTimes()
                models[normalization].fit(x, y, batch, shuffle=False, verbose=0, callbacks=[times])
                if number:  # The first round traces and compiles.
                    seconds[network, normalization].append(statistics.median(times.seconds))
            step()
        rows += [
            {
                "network": network,
                "normalization": normalization,
                "batch": batch,
                "rounds": options.repeats,
                "milliseconds": spread(1e3 * np.array(seconds[network, normalization])),
                **against_other_normalizations(seconds, network, normalization),
            }
            for normalization in NORMALIZATIONS
        ]
    print("\ntraining: a step of Keras `fit`\n")
    columns = {key: key for key in ("network", "normalization", "batch")}
    print_table(columns | {"ms": "milliseconds"} | AGAINST_OTHERS, rows)
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


def against_other_normalizations(seconds, of, normalization):
    """Compares whole runs or steps with those of the same network with tf.nn and with nothing."""
    this, tf_nn, none = (np.array(seconds[of, name]) for name in (normalization, "tf.nn", "none"))
    return {
        "faster_than_tf_nn": spread(tf_nn / this),
        "times_no_normalization": spread(this / none),
    }


def plot(times, path):
    """Draws how far each contestant of the section main is from the floor, a mark per shape."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    times = [row for row in times if row["section"] == "main" and row["contestant"] != FLOOR]
    shapes = list(dict.fromkeys(row["shape"] for row in times))
    names = list(dict.fromkeys(row["contestant"] for row in times))
    figure, panels = plt.subplots(
        1, 2, sharey=True, figsize=(10, 1.2 + 0.35 * len(names)), layout="constrained"
    )
    for panel, direction in zip(panels, (FORWARD, BOTH), strict=True):
        floor = "x + 1" if direction == FORWARD else "(x + 1, x + dy)"
        panel.axvline(1, color="black", linestyle="--", linewidth=1)
        for shape, marker in zip(shapes, itertools.cycle("osD^v<>P*X"), strict=False):
            rows = [r for r in times if r["shape"] == shape and r["direction"] == direction]
            panel.plot(
                [row["times_the_floor"]["median"] for row in rows],
                [names.index(row["contestant"]) for row in rows],
                marker,
                color="black",
                markersize=6,
                fillstyle="none",
                label=named(shape),
            )
        panel.set(title=direction, xscale="log", xlabel=f"time / time of {floor} (dashed)")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(axis="both", color="0.9")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
