"""Train a small AlexNet-style network with LocalResponseNormalization on the
handwritten digits that come with scikit-learn (nothing is downloaded), save it
as .keras, SavedModel, ONNX and LiteRT, reload each with its own runtime and
compare its probabilities with the live model's on held-out digits.

Exit status: 0 when every artefact that was checked agrees to 1e-4, 1 when one
disagrees or something failed, 2 for a wrong option, 130 when interrupted. An
artefact whose exporter or runtime is not installed is listed as not written or
not checked, which is no failure. To install them all, in a clone:
pip install --editable ".[demo]"
"""

import argparse
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers

from keras_lrn import LocalResponseNormalization

TOLERANCE = 1e-4  # of a probability


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status: 0 when every artefact that was checked agrees."""
    options = parse(arguments)
    try:
        return run(options)
    except OSError as error:
        path = error.filename2 or options.output  # the other name is of the unfinished file
        print(f"Cannot write {path}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted: nothing half-written was left behind.", file=sys.stderr)
        return 130


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m keras_lrn", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    folder = Path("saved_models", "digits")
    add = parser.add_argument
    add("--epochs", type=int, default=20, help="passes over the digits (20)")
    add("--batch-size", type=int, default=32, help="digits per step (32)")
    add("--seed", type=int, default=0, help="of the split and the weights (0)")
    add("--output", type=Path, default=folder, help=f"where the artefacts go ({folder})")
    add("--plot", action="store_true", help="also draw training.png: curves and predictions")
    add("--quiet", action="store_true", help="no progress bars")
    options = parser.parse_args(arguments)
    for name, least in {"epochs": 1, "batch_size": 1, "seed": 0}.items():
        if not least <= (value := getattr(options, name)) < 2**32:
            parser.error(f"expected {least} or more, below 2**32. Received: {name}={value}")
    return options


def run(options: argparse.Namespace) -> int:
    for package in ["scikit-learn", "matplotlib"] if options.plot else ["scikit-learn"]:
        if lack := needs(package):
            raise SystemExit(f"The demo {lack}")
    options.output.mkdir(parents=True, exist_ok=True)
    # Made before the training, so that a folder that takes no files is found out at once.
    with tempfile.TemporaryDirectory(dir=options.output, prefix=".unfinished-") as unfinished:
        full_float32()
        keras.utils.set_random_seed(options.seed)
        training, held_out = real_digits(options.seed)
        model = alexnet_style()
        fit = model.fit(
            *training,
            batch_size=options.batch_size,
            epochs=options.epochs,
            validation_data=held_out,
            verbose=0 if options.quiet else "auto",
        )
        live = model.predict(held_out.images, verbose=0)

        print(f"\nSaving and exporting to {options.output}\n")
        print_row("artefact", "run by", "size", "largest difference", "accuracy", "result")
        print_row("live model", "Keras", "", "", accuracy(live, held_out), "")
        results = []
        for artefact in ARTEFACTS:
            if unsaved := save(artefact, model, Path(unfinished), options.output):
                cells = "", "", "", unsaved
            else:
                cells = check(artefact, options.output, live, held_out)
            print_row(artefact.name, artefact.runtime, *cells)
            results.append(cells[-1])
        print(
            f"\nCompared: the 10 probabilities of {len(live)} held-out digits; a largest "
            f"difference of up to {TOLERANCE:g} agrees.\n"
            f"{results.count('agrees')} of {len(results)} artefacts agree with the live model."
        )
        if options.plot:
            draw(fit.history, live, held_out, Path(unfinished, "training.png"))
            put_in_place(Path(unfinished, "training.png"), options.output)
    return int(any(result.startswith(("DISAGREES", "FAILED")) for result in results))


class Digits(NamedTuple):
    images: np.ndarray
    labels: np.ndarray


def real_digits(seed: int) -> tuple[Digits, Digits]:
    """1797 scans of 8x8 pixels with values 0 to 16, a quarter of them held out."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    images = pixels.reshape(-1, 8, 8, 1).astype("float32")
    images, held_out_images, labels, held_out_labels = train_test_split(
        images, labels, test_size=0.25, stratify=labels, random_state=seed
    )
    return Digits(images, labels), Digits(held_out_images, held_out_labels)


def alexnet_style() -> keras.Model:
    """Convolution, ReLU, LRN, pooling, twice; then dense layers with dropout."""
    # The numbers of the AlexNet paper. They expect pixel values of 0 to 255, hence the rescaling.
    paper: dict[str, Any] = {"size": 5, "alpha": 5e-4, "beta": 0.75, "bias": 2.0}
    model = keras.Sequential([keras.Input((8, 8, 1)), layers.Rescaling(255 / 16)])
    for filters in (32, 64):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(LocalResponseNormalization(**paper))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(128, activation="relu"))
    model.add(layers.Dropout(0.5))
    model.add(layers.Dense(10, activation="softmax"))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def run_keras(path: Path, images: np.ndarray) -> np.ndarray:
    return keras.saving.load_model(path, safe_mode=True).predict(images, verbose=0)


def run_onnx(path: Path, images: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def run_litert(path: Path, images: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    serve = Interpreter(str(path)).get_signature_runner()
    (image,) = serve.get_input_details()
    (probabilities,) = serve(**{image: images}).values()
    return probabilities


# TensorFlow itself imports Keras unless that import fails, so it is made to fail.
SERVE = """
import pickle, sys
sys.modules.update({"keras": None, "tf_keras": None, "keras_lrn": None})
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
pickle.dump(model.serve(pickle.load(sys.stdin.buffer)).numpy(), sys.stdout.buffer)
"""


def run_saved_model(path: Path, images: np.ndarray) -> np.ndarray:
    serving = subprocess.run(
        [sys.executable, "-c", SERVE, path],
        input=pickle.dumps(images),
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},  # this process may hold all of a GPU
        capture_output=True,
    )
    if serving.returncode:
        raise RuntimeError(serving.stderr.decode().strip().rpartition("\n")[2])
    return pickle.loads(serving.stdout)


def full_float32() -> None:
    """TensorFloat-32 would round the live model's convolutions on a GPU, no artefact's on a CPU."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)


class Artefact(NamedTuple):
    name: str
    runtime: str
    run: Callable[[Path, np.ndarray], np.ndarray]
    format: str = ""  # of `model.export`; without one, `model.save` writes it
    keras: tuple[int, int] = (3, 0)  # the first that can write it
    exporter: str = "keras"  # the package that writes it, and the one that runs it
    interpreter: str = "keras"


ARTEFACTS = (
    Artefact("model.keras", "Keras, safe mode on", run_keras),
    Artefact("saved_model", "TensorFlow, no Keras", run_saved_model, "tf_saved_model"),
    Artefact("model.onnx", "onnxruntime", run_onnx, "onnx", (3, 8), "tf2onnx", "onnxruntime"),
    Artefact("model.tflite", "LiteRT", run_litert, "litert", (3, 13), "keras", "ai-edge-litert"),
)


def save(artefact: Artefact, model: keras.Model, unfinished: Path, output: Path) -> str:
    """Write an artefact and move it into the output folder; returns why not, or nothing."""
    if tuple(map(int, keras.__version__.split(".")[:2])) < artefact.keras:
        return "not written: needs Keras {}.{} or newer".format(*artefact.keras)
    if lack := needs(artefact.exporter):
        return f"not written: {lack}"
    path = unfinished / artefact.name
    try:
        with silence():
            if artefact.format:
                model.export(str(path), format=artefact.format)
            else:
                model.save(path)
    except OSError:
        raise
    except Exception as error:  # every exporter raises its own kinds
        return f"FAILED, not written: {error!r:.200}"
    put_in_place(path, output)
    return ""


def check(
    artefact: Artefact, output: Path, live: np.ndarray, held_out: Digits
) -> tuple[str, str, str, str]:
    """Size, largest difference of any probability of any digit, accuracy and result."""
    path = output / artefact.name
    files = [path, *path.rglob("*")]
    size = f"{sum(file.stat().st_size for file in files if file.is_file()) / 1000:,.0f} kB"
    if lack := needs(artefact.interpreter):
        return size, "", "", f"not checked: {lack}"
    try:
        with silence():
            served = artefact.run(path, held_out.images)
        if served.shape != live.shape:
            raise ValueError(f"Expected outputs of shape {live.shape}. Received: {served.shape}")
    except Exception as error:  # every runtime raises its own kinds
        return size, "", "", f"FAILED, not checked: {error!r:.200}"
    difference = np.max(np.abs(served - live))
    result = "agrees" if difference <= TOLERANCE else "DISAGREES"  # NaN disagrees
    return size, f"{difference:.1e}", accuracy(served, held_out), result


def accuracy(probabilities: np.ndarray, held_out: Digits) -> str:
    return f"{np.mean(probabilities.argmax(axis=-1) == held_out.labels):.2%}"


def needs(package: str) -> str:
    """What to install; nothing where the package is there."""
    module = {"scikit-learn": "sklearn"}.get(package, package.replace("-", "_"))
    return "" if importlib.util.find_spec(module) else f"needs {package}: pip install {package}"


@contextmanager
def silence() -> Iterator[None]:
    """Drop the notes of exporters and runtimes; those in C++ write to descriptor 2 itself."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def put_in_place(finished: Path, output: Path) -> None:
    final = output / finished.name
    if final.is_dir():  # a folder cannot be replaced in one step
        final.replace(finished.with_name(f"earlier-{finished.name}"))
    finished.replace(final)


def print_row(*cells: str) -> None:
    print("{:<12}  {:<20}  {:>8}  {:>18}  {:>8}  {}".format(*cells).rstrip(), flush=True)


def draw(history: dict[str, list[float]], live: np.ndarray, held_out: Digits, path: Path) -> None:
    """The course of the training above, twelve held-out digits and their predictions below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    (curves,), (samples,) = figure.subfigures(2, 1, squeeze=False, height_ratios=(3, 2))
    epochs = range(1, len(history["loss"]) + 1)
    for axes, metric in zip(curves.subplots(1, 2), ("loss", "accuracy"), strict=True):
        axes.plot(epochs, history[metric], label="training")
        axes.plot(epochs, history[f"val_{metric}"], label="held out")
        axes.set(xlabel="epoch", ylabel=metric)
        axes.legend()
    samples.suptitle("The held-out digits that the model is least sure of")
    least_sure = live.max(axis=-1).argsort()[:12]
    for axes, index in zip(samples.subplots(2, 6).flat, least_sure, strict=True):
        guess, label = live[index].argmax(), held_out.labels[index]
        axes.imshow(held_out.images[index, ..., 0], cmap="gray_r")
        axes.set_axis_off()
        axes.set_title(f"{guess}" if guess == label else f"{guess}, is {label}")
    figure.savefig(path)
