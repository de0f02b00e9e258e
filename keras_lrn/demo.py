"""What `python -m keras_lrn` runs: train on real digits, save, export, reload and compare."""

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_lrn import LocalResponseNormalization

TOLERANCE = 1e-4  # of a probability
ROOM_NEEDED = 3_000_000  # bytes; the artefacts and the picture take about half of it
INSTALL = 'pip install "keras_lrn[demo]"'
OPTIONAL_PACKAGES = {
    "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "onnx": "onnx",
    "tf2onnx": "tf2onnx",
    "onnxruntime": "onnxruntime",
    "ai_edge_litert": "ai-edge-litert",
}
PLOT = "training.png"
# What Python and TensorFlow raise when a folder or disk takes no more.
WRITE_ERRORS = (OSError, tf.errors.OpError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status: 0 when every artefact that was checked agrees."""
    options = parse(arguments)
    try:
        return run(options)
    except KeyboardInterrupt:
        print("\nInterrupted: nothing half-written was left behind.", file=sys.stderr)
        return 130


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m keras_lrn",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Train a small AlexNet-style network with LocalResponseNormalization on the\n"
            "handwritten digits that come with scikit-learn (nothing is downloaded), save it\n"
            "as .keras, SavedModel, ONNX and LiteRT, reload each with its own runtime and\n"
            "compare its probabilities with the live model's on held-out digits."
        ),
        epilog=(
            f"Exit status: 0 when every artefact that was checked agrees to {TOLERANCE:g}, 1 when\n"
            "one disagrees or something failed, 2 for a wrong option, 130 when interrupted.\n"
            "An artefact whose exporter or runtime is not installed is listed as not written\n"
            "or not checked, which is no failure.\n"
            f"All that the demo can use: {INSTALL}"
        ),
    )
    parser.add_argument("--epochs", type=int, default=20, help="passes over the digits (20)")
    parser.add_argument("--batch-size", type=int, default=32, help="digits per step (32)")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the weights (0)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("saved_models", "digits"),
        metavar="FOLDER",
        help="where the artefacts go, replacing earlier ones (saved_models/digits)",
    )
    parser.add_argument(
        "--plot", action="store_true", help="also draw training.png: curves and predictions"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1. Received: epochs={options.epochs}")
    if options.batch_size < 1:
        parser.error(f"--batch-size must be at least 1. Received: batch_size={options.batch_size}")
    if not 0 <= options.seed < 2**32:
        parser.error(f"--seed must be from 0 to 2**32 - 1. Received: seed={options.seed}")
    return options


def run(options: argparse.Namespace) -> int:
    if options.plot:
        require("matplotlib")
    digits = real_digits(options.seed)
    # A folder or disk that takes no files is found out now rather than after the training.
    with staging(options.output) as folder:
        (folder / "room").write_bytes(bytes(ROOM_NEEDED))

    # TensorFloat-32 would round the live model's convolutions on a GPU, but no artefact's on a CPU.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    keras.utils.set_random_seed(options.seed)
    model = alexnet_style()
    training = model.fit(
        digits.images,
        digits.labels,
        batch_size=options.batch_size,
        epochs=options.epochs,
        validation_data=(digits.held_out_images, digits.held_out_labels),
        verbose=0 if options.quiet else "auto",
    )

    print(f"\nSaving and exporting to {options.output}", flush=True)
    not_written = save(model, options.output)
    rows = compare(model, options.output, not_written, digits)
    print(table(rows))
    print(verdict(rows, len(digits.held_out_labels)))
    if options.plot:
        draw(model, training.history, digits, options.output)
    return 1 if any(row.agrees is False for row in rows) else 0


class Digits(NamedTuple):
    images: np.ndarray
    labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray


def real_digits(seed: int) -> Digits:
    """1797 scans of 8x8 pixels with values 0 to 16, a quarter of them held out."""
    require("sklearn")
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    scans = load_digits()
    images = scans.images[..., np.newaxis].astype("float32")
    images, held_out_images, labels, held_out_labels = train_test_split(
        images, scans.target, test_size=0.25, stratify=scans.target, random_state=seed
    )
    return Digits(images, labels, held_out_images, held_out_labels)


def alexnet_style() -> keras.Model:
    """Convolution, ReLU, LRN, pooling, twice; then dense layers with dropout."""

    # The numbers of the AlexNet paper. They expect pixel values of 0 to 255, hence the rescaling.
    def lrn():
        return LocalResponseNormalization(size=5, alpha=5e-4, beta=0.75, bias=2.0)

    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Rescaling(255 / 16),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            lrn(),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            lrn(),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


# The exporters and runtimes. An optional package is imported where it is used, so that the rest
# of the demo works without it.


def write_keras(model: keras.Model, path: Path) -> None:
    model.save(path)


def write_saved_model(model: keras.Model, path: Path) -> None:
    model.export(path, verbose=False)


def write_onnx(model: keras.Model, path: Path) -> None:
    import tf2onnx  # noqa: F401  Keras's own message would not say which package is missing

    with warnings.catch_warnings():
        # Keras asks NumPy 2 for `np.object` while it prepares tf2onnx.
        warnings.filterwarnings("ignore", "In the future `np.object`", FutureWarning)
        model.export(path, format="onnx", verbose=False)


def write_litert(model: keras.Model, path: Path) -> None:
    model.export(str(path), format="litert", verbose=False)


def run_keras(path: Path, images: np.ndarray) -> np.ndarray:
    return keras.saving.load_model(path, safe_mode=True).predict(images, verbose=0)


# TensorFlow itself imports Keras unless that import fails, so it is made to fail.
SERVE = """
import sys
sys.modules.update({"keras": None, "tf_keras": None, "keras_lrn": None})
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
np.save(sys.argv[3], model.serve(np.load(sys.argv[2])).numpy())
loaded = {name.partition(".")[0] for name, module in sys.modules.items() if module}
if loaded & {"keras", "tf_keras", "keras_lrn"}:
    sys.exit("the serving process imported " + ", ".join(sorted(loaded)))
"""


def run_saved_model(path: Path, images: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        images_path, probabilities_path = Path(folder, "images.npy"), Path(folder, "out.npy")
        np.save(images_path, images)
        serving = subprocess.run(
            [sys.executable, "-c", SERVE, path, images_path, probabilities_path],
            # This process may hold all the memory of a GPU.
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            text=True,
        )
        if serving.returncode:
            last_line = serving.stderr.strip().rpartition("\n")[2]
            raise RuntimeError(f"exit status {serving.returncode}: {last_line}")
        return np.load(probabilities_path)


def run_onnx(path: Path, images: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def run_litert(path: Path, images: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    image_index = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(image_index, images.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(image_index, images)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


class Artefact(NamedTuple):
    name: str
    runtime: str
    write: Callable[[keras.Model, Path], None]
    run: Callable[[Path, np.ndarray], np.ndarray]


ARTEFACTS = (
    Artefact("model.keras", "Keras, safe mode on", write_keras, run_keras),
    Artefact("saved_model", "TensorFlow, no Keras", write_saved_model, run_saved_model),
    Artefact("model.onnx", "onnxruntime", write_onnx, run_onnx),
    Artefact("model.tflite", "LiteRT interpreter", write_litert, run_litert),
)


class Row(NamedTuple):
    artefact: str
    runtime: str
    size: int | None = None
    difference: float | None = None
    accuracy: float | None = None
    result: str = ""
    agrees: bool | None = None  # None: not compared, for want of an optional package
    reason: str = ""


def save(model: keras.Model, output: Path) -> list[Row]:
    """Write every artefact, then put them in place; returns the rows of those not written."""
    not_written = []
    with staging(output) as folder:
        for artefact in ARTEFACTS:
            with one_line_error(output / artefact.name), quiet():
                try:
                    artefact.write(model, folder / artefact.name)
                except WRITE_ERRORS:
                    raise
                except Exception as error:  # every exporter raises its own kinds
                    not_written.append(not_compared(artefact, "not written", error))
        unfinished = [row.artefact for row in not_written]
        for artefact in ARTEFACTS:
            if artefact.name not in unfinished:
                put_in_place(folder / artefact.name, output / artefact.name)
    return not_written


def compare(model: keras.Model, output: Path, not_written: list[Row], digits: Digits) -> list[Row]:
    """One row for the live model, one for each artefact."""
    live = model.predict(digits.held_out_images, verbose=0)
    rows = {row.artefact: row for row in not_written}
    return [
        Row("live model", "Keras", accuracy=accuracy(live, digits)),
        *(
            rows.get(artefact.name) or check(artefact, output / artefact.name, live, digits)
            for artefact in ARTEFACTS
        ),
    ]


def check(artefact: Artefact, path: Path, live: np.ndarray, digits: Digits) -> Row:
    """Reload one artefact with its own runtime and compare every probability of every digit."""
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    try:
        with quiet():
            served = artefact.run(path, digits.held_out_images)
        if served.shape != live.shape:
            raise ValueError(f"Expected outputs of shape {live.shape}. Received: {served.shape}")
    except Exception as error:  # every runtime raises its own kinds
        return not_compared(artefact, "not checked", error)._replace(size=size)
    difference = float(np.max(np.abs(served - live)))
    agrees = difference <= TOLERANCE  # False for NaN
    return Row(
        artefact.name,
        artefact.runtime,
        size=size,
        difference=difference,
        accuracy=accuracy(served, digits),
        result="agrees" if agrees else "DISAGREES",
        agrees=agrees,
    )


def accuracy(probabilities: np.ndarray, digits: Digits) -> float:
    return float(np.mean(probabilities.argmax(axis=-1) == digits.held_out_labels))


def not_compared(artefact: Artefact, result: str, error: Exception) -> Row:
    row = Row(artefact.name, artefact.runtime)
    if package := missing_package(error):
        return row._replace(result=f"{result}: needs {package}")
    return row._replace(result=f"FAILED, {result}", agrees=False, reason=one_line(error))


def table(rows: list[Row]) -> str:
    header = ("artefact", "run by", "size", "largest difference", "accuracy", "result")
    cells = [header] + [
        (
            row.artefact,
            row.runtime,
            "" if row.size is None else f"{row.size / 1000:,.0f} kB",
            "" if row.difference is None else f"{row.difference:.1e}",
            "" if row.accuracy is None else f"{row.accuracy:.2%}",
            row.result,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, runtime, *numbers, result in cells:
        aligned = [name.ljust(widths[0]), runtime.ljust(widths[1])]
        aligned += [
            number.rjust(width) for number, width in zip(numbers, widths[2:-1], strict=True)
        ]
        lines.append("  ".join([*aligned, result]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(["", *lines, ""])


def verdict(rows: list[Row], count: int) -> str:
    agreeing = sum(row.agrees is True for row in rows)
    missing = [row.artefact for row in rows if ": needs " in row.result]
    lines = [
        f"Compared: the 10 probabilities of {count} held-out digits; a largest difference of up "
        f"to {TOLERANCE:g} agrees.",
        f"{agreeing} of {len(ARTEFACTS)} artefacts agree with the live model.",
        *(f"{row.artefact}: {row.reason}" for row in rows if row.reason),
    ]
    if missing:
        lines.append(f"To check {' and '.join(missing)} too: {INSTALL}")
    return "\n".join(lines)


def draw(model: keras.Model, history: dict, digits: Digits, output: Path) -> None:
    """The course of the training above, twelve held-out digits and their predictions below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    curves, samples = figure.subfigures(2, 1, height_ratios=(3, 2))
    epochs = range(1, len(history["loss"]) + 1)
    for axes, metric in zip(curves.subplots(1, 2), ("loss", "accuracy"), strict=True):
        axes.plot(epochs, history[metric], label="training")
        axes.plot(epochs, history[f"val_{metric}"], label="held out")
        axes.set(xlabel="epoch", ylabel=metric)
        axes.legend()
    probabilities = model.predict(digits.held_out_images, verbose=0)
    least_sure = probabilities.max(axis=-1).argsort()[:12]
    samples.suptitle("The held-out digits that the model is least sure of")
    for axes, index in zip(samples.subplots(2, 6).flat, least_sure, strict=True):
        guess, label = probabilities[index].argmax(), digits.held_out_labels[index]
        axes.imshow(digits.held_out_images[index, ..., 0], cmap="gray_r")
        axes.set_axis_off()
        axes.set_title(
            f"{guess} ({probabilities[index, guess]:.0%})"
            + ("" if guess == label else f", is {label}"),
            color="black" if guess == label else "red",
            fontsize="medium",
        )
    with staging(output) as folder:
        figure.savefig(folder / PLOT)
        put_in_place(folder / PLOT, output / PLOT)
    print(f"Drawn: {output / PLOT}")


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """A folder for unfinished files on the disk of `output`; it never stays behind."""
    with one_line_error(output):
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output, prefix=".unfinished-") as folder:
            yield Path(folder)


def put_in_place(new: Path, final: Path) -> None:
    """Move a finished file or folder over the earlier one, which stays if that fails."""
    earlier = new.with_name(f"earlier-{new.name}")
    with one_line_error(final):
        try:
            if new.is_dir() and final.is_dir():
                os.replace(final, earlier)  # a folder cannot be replaced in one step
            os.replace(new, final)
        finally:
            if earlier.exists() and not final.exists():
                os.replace(earlier, final)


@contextmanager
def quiet() -> Iterator[None]:
    """Drop the progress notes that exporters and runtimes in C++ write to standard error."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def one_line_error(path: Path) -> Iterator[None]:
    try:
        yield
    except WRITE_ERRORS as error:
        raise SystemExit(f"Cannot write {path}: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file is where a folder should be"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, tf.errors.OpError):
        return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", error.message)
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"


def require(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if package := missing_package(error):
            raise SystemExit(
                f"The demo needs {package}, which is not installed: {INSTALL}"
            ) from error
        raise


def missing_package(error: Exception) -> str | None:
    """The name to install, if the error says that one of the optional packages is missing."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return OPTIONAL_PACKAGES.get(error.name.partition(".")[0])
    return None
