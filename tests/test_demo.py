"""The demo as its users run it, and what it does when something is missing, full or wrong."""

import errno
import os
import re
import resource
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from cases import run_python

import keras_lrn
from keras_lrn import demo

NAMES = [artefact.name for artefact in demo.ARTEFACTS]
KERAS, SAVED_MODEL, ONNX, LITERT = demo.ARTEFACTS
INSTALLED = tuple(map(int, keras.__version__.split(".")[:2]))
WRITTEN = [artefact for artefact in demo.ARTEFACTS if artefact.keras <= INSTALLED]

each_written = pytest.mark.parametrize("artefact", WRITTEN, ids=lambda artefact: artefact.name)


@pytest.fixture(scope="module")
def held_out():
    return demo.real_digits(seed=0)[1]


@pytest.fixture(scope="module")
def saved(held_out, tmp_path_factory):
    """Two hardly trained models, each with its probabilities and a folder of artefacts."""
    pair = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        model = demo.alexnet_style()
        model.fit(held_out.images[:48], held_out.labels[:48], epochs=1, verbose=0)
        live = model.predict(held_out.images, verbose=0)
        folder = tmp_path_factory.mktemp(f"model_{seed}")
        unfinished = tmp_path_factory.mktemp("unfinished")
        for artefact in WRITTEN:
            assert demo.save(artefact, model, unfinished, folder) == ""
        pair.append(SimpleNamespace(model=model, live=live, folder=folder))
    return pair


@pytest.fixture
def unfinished(tmp_path):
    (tmp_path / "unfinished").mkdir()
    return tmp_path / "unfinished"


@pytest.fixture
def output(tmp_path):
    (tmp_path / "output").mkdir()
    return tmp_path / "output"


def contents(folder):
    """Every file below the folder, hidden ones too, with its bytes."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def printed_rows(text):
    """What the table says of each artefact after its name and runtime."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[2:] for row in rows if row[0] in NAMES}


def writer(write, live=None):
    """A model that trains at once, predicts `live`, and is saved and exported by `write(path)`."""
    return SimpleNamespace(
        fit=lambda *args, **kwargs: None,
        predict=lambda images, verbose: live,
        save=write,
        export=lambda path, format: write(Path(path)),
    )


def hide(monkeypatch, module):
    """Make the module look as if it was not installed."""
    monkeypatch.setitem(sys.modules, module, None)


def test_the_demo_passes_96_percent_and_every_artefact_agrees(tmp_path):
    output = tmp_path / "new" / "digits"
    finished = run_python("-m", "keras_lrn", "--output", output, "--plot")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Epoch 20/20" in finished.stdout
    assert "━" in finished.stdout  # Keras's progress bars
    rows = printed_rows(finished.stdout)
    assert list(rows) == NAMES
    for artefact in WRITTEN:
        size, difference, accuracy, result = rows[artefact.name]
        assert float(size.removesuffix(" kB")) > 100
        assert float(difference) <= 1e-4
        assert 96 <= float(accuracy.removesuffix("%")) <= 100
        assert result == "agrees"
    assert f"{len(WRITTEN)} of 4 artefacts agree" in finished.stdout
    assert "Saved artifact" not in finished.stdout
    assert "custom gradients" not in finished.stderr
    assert sorted(os.listdir(output)) == sorted(
        [*(artefact.name for artefact in WRITTEN), "training.png"]
    )
    assert (output / "training.png").read_bytes().startswith(b"\x89PNG")


def test_the_normalisation_matters_in_the_network_of_the_demo(held_out, saved):
    inputs, normalisations = held_out.images, 0
    for layer in saved[0].model.layers:
        outputs = keras.ops.convert_to_numpy(layer(inputs))
        if isinstance(layer, keras_lrn.LocalResponseNormalization):
            normalisations += 1
            lit = inputs > 0
            # Without a sum over channels every ratio would be the same: bias ** -beta.
            assert np.min(outputs[lit] / inputs[lit]) < 0.95 * 2**-0.75
        inputs = outputs
    assert normalisations == 2


@each_written
def test_an_artefact_of_another_model_disagrees(artefact, held_out, saved):
    own, other = saved
    _, difference, accuracy, result = demo.check(artefact, other.folder, own.live, held_out)
    assert result == "DISAGREES"
    assert float(difference) == pytest.approx(np.max(np.abs(other.live - own.live)), rel=0.1)
    share = np.mean(other.live.argmax(axis=1) == held_out.labels)
    assert accuracy == f"{share:.2%}" != f"{np.mean(own.live.argmax(1) == held_out.labels):.2%}"


@pytest.mark.parametrize(
    ("change", "result"),
    [
        (lambda live: live + np.float32(9e-5), "agrees"),
        (lambda live: live - np.float32(1.1e-4), "DISAGREES"),
        (
            lambda live: np.where(np.arange(live.size).reshape(live.shape) == 7, np.nan, live),
            "DISAGREES",
        ),
        (lambda live: live[:1], "FAILED, not checked"),
    ],
    ids=["within the tolerance", "beyond it", "one NaN", "another shape"],
)
def test_one_wrong_probability_is_enough_to_disagree(change, result, held_out, saved):
    live = saved[0].live
    artefact = KERAS._replace(run=lambda path, images: change(live))
    assert demo.check(artefact, saved[0].folder, live, held_out)[-1].startswith(result)


def broken(path, images):
    raise RuntimeError("cannot run this\nfor many reasons")


@pytest.mark.parametrize(
    ("run", "status", "result"),
    [
        (demo.run_keras, 0, "agrees"),
        (lambda path, images: demo.run_keras(path, images) + 0.01, 1, "DISAGREES"),
        (broken, 1, r"FAILED, not checked: RuntimeError('cannot run this\nfor many reasons')"),
    ],
)
def test_the_exit_status_tells_of_a_disagreement(
    run, status, result, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(demo, "ARTEFACTS", [KERAS._replace(run=run)])
    assert demo.main(["--epochs", "1", "--quiet", "--output", str(tmp_path)]) == status
    printed = capsys.readouterr().out
    assert "/step" not in printed  # no progress bars
    assert printed_rows(printed)["model.keras"][-1] == result
    assert f"{1 - status} of 1 artefacts agree" in printed


def test_a_broken_artefact_is_a_failed_row_with_its_reason(held_out, saved, output):
    (output / "model.onnx").write_bytes(b"not a network")
    result = demo.check(ONNX, output, saved[0].live, held_out)[-1]
    assert result.startswith("FAILED, not checked: ")
    assert "protobuf" in result.lower()


@pytest.mark.parametrize("module", ["keras", "tf_keras", "keras_lrn"])
def test_the_serving_process_cannot_import_keras_or_this_package(
    module, monkeypatch, held_out, saved
):
    monkeypatch.setattr(demo, "SERVE", f"{demo.SERVE}import {module}")
    with pytest.raises(RuntimeError, match=f"ModuleNotFoundError: import of {module} halted"):
        demo.run_saved_model(saved[0].folder / "saved_model", held_out.images)


@pytest.mark.skipif(LITERT not in WRITTEN, reason="this Keras does not export LiteRT")
def test_without_the_optional_packages_nothing_is_claimed_and_nothing_fails(
    monkeypatch, output, capsys
):
    for module in ("tf2onnx", "onnxruntime", "ai_edge_litert"):
        hide(monkeypatch, module)
    monkeypatch.setattr(demo, "ARTEFACTS", [ONNX, LITERT])
    assert demo.main(["--epochs", "1", "--quiet", "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    rows = printed_rows(printed)
    assert rows["model.onnx"] == ["not written: needs tf2onnx: pip install tf2onnx"]
    size, result = rows["model.tflite"]
    assert size.endswith(" kB")
    assert result == "not checked: needs ai-edge-litert: pip install ai-edge-litert"
    assert "0 of 2 artefacts agree" in printed
    assert os.listdir(output) == ["model.tflite"]


def test_an_onnx_model_is_not_checked_without_onnxruntime(monkeypatch, held_out, saved, output):
    hide(monkeypatch, "onnxruntime")
    (output / "model.onnx").write_bytes(bytes(2600))
    checked = demo.check(ONNX, output, saved[0].live, held_out)
    assert checked == ("3 kB", "", "", "not checked: needs onnxruntime: pip install onnxruntime")


@pytest.mark.parametrize(
    ("artefact", "version", "result"),
    [
        (ONNX, "3.7.0", "not written: needs Keras 3.8 or newer"),
        (ONNX, "3.8.0", ""),
        (ONNX, "3.10.0", ""),
        (LITERT, "3.12.1", "not written: needs Keras 3.13 or newer"),
        (LITERT, "3.13.0.dev1", ""),
        (LITERT, "4.0.0", ""),
        (KERAS, "3.5.0", ""),
        (SAVED_MODEL, "3.5.0", ""),
    ],
)
def test_an_exporter_newer_than_the_installed_keras_is_named(
    artefact, version, result, monkeypatch, unfinished, output
):
    monkeypatch.setattr(keras, "__version__", version)
    model = writer(lambda path: path.write_bytes(b"a network"))
    assert demo.save(artefact, model, unfinished, output) == result
    assert os.listdir(output) == ([] if result else [artefact.name])


@pytest.mark.parametrize("module", ["sklearn", "matplotlib"])
def test_a_package_needed_from_the_start_is_named_at_once(module, monkeypatch, tmp_path):
    hide(monkeypatch, module)
    package = {"sklearn": "scikit-learn"}.get(module, module)
    with pytest.raises(SystemExit, match=f"^The demo needs {package}: pip install {package}$"):
        demo.main(["--plot", "--output", str(tmp_path / "digits")])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("below", "reason"), [("", "File exists"), ("new", "Not a directory")])
def test_an_output_that_is_no_folder_is_one_clear_line_before_training(
    below, reason, monkeypatch, tmp_path, capsys
):
    monkeypatch.delattr(demo, "alexnet_style")
    (tmp_path / "taken").write_text("a file")
    output = tmp_path / "taken" / below
    assert demo.main(["--output", str(output)]) == 1
    assert capsys.readouterr().err == f"Cannot write {output}: {reason}\n"


def test_a_disk_that_takes_no_files_is_one_clear_line_before_training(monkeypatch, output, capsys):
    def refuse(suffix, prefix, dir):
        raise OSError(errno.EROFS, "Read-only file system", f"{dir}/{prefix}1")

    monkeypatch.delattr(demo, "alexnet_style")
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    assert demo.main(["--output", str(output)]) == 1
    assert capsys.readouterr().err == f"Cannot write {output}: Read-only file system\n"


@each_written
def test_an_artefact_replaces_the_earlier_one_only_when_it_is_whole(
    artefact, saved, unfinished, output
):
    assert demo.save(artefact, saved[0].model, unfinished, output) == ""
    earlier = contents(output)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        said = demo.save(artefact, saved[1].model, unfinished, output)
    except OSError as error:
        said = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert re.search("FAILED, not written|File too large", said)
    assert contents(output) == earlier
    assert demo.save(artefact, saved[1].model, unfinished, output) == ""
    assert contents(output) != earlier
    assert os.listdir(output) == [artefact.name]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "Cannot write {}: No space left"),
        (ValueError("cannot convert this"), 1, "FAILED, not written: ValueError('cannot convert"),
        (KeyboardInterrupt(), 130, "Interrupted"),
    ],
    ids=["full disk", "no such conversion", "interrupted"],
)
def test_a_half_written_artefact_is_left_nowhere(
    error, status, said, monkeypatch, saved, output, capsys
):
    def half(path):
        path.write_bytes(b"half of a network")
        raise error

    monkeypatch.setattr(demo, "alexnet_style", lambda: writer(half, saved[0].live))
    try:
        assert demo.main(["--output", str(output)]) == status
    except KeyboardInterrupt:
        pytest.fail("the interruption was not caught")
    printed = capsys.readouterr()
    assert said.format(output) in printed.out + printed.err
    assert os.listdir(output) == []


def test_an_artefact_that_cannot_be_put_in_place_is_named(monkeypatch, saved, output, capsys):
    (output / "saved_model").write_text("a file where a folder should go")
    monkeypatch.setattr(demo, "ARTEFACTS", [SAVED_MODEL])
    monkeypatch.setattr(demo, "alexnet_style", lambda: writer(Path.mkdir, saved[0].live))
    assert demo.main(["--output", str(output)]) == 1
    said = f"Cannot write {output / 'saved_model'}: Not a directory\n"
    assert capsys.readouterr().err == said
    assert os.listdir(output) == ["saved_model"]


def test_only_the_notes_of_the_exporters_are_dropped(capfd):
    def fail():
        with demo.silence():
            print("a note")
            os.write(2, b"a note\n")
            raise ValueError("kept")

    os.write(2, b"before\n")
    with pytest.raises(ValueError, match="kept"):
        fail()
    os.write(2, b"after\n")
    assert capfd.readouterr() == ("", "before\nafter\n")


def test_help_names_every_option_and_the_exit_status(capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for option in ("--epochs", "--batch-size", "--seed", "--output", "--plot", "--quiet"):
        assert option in text
    assert "Exit status: 0" in text
    assert 'pip install --editable ".[demo]"' in text


@pytest.mark.parametrize(
    ("option", "value", "name"),
    [
        ("--epochs", "0", "epochs"),
        ("--batch-size", "-1", "batch_size"),
        ("--seed", "-1", "seed"),
        ("--seed", str(2**32), "seed"),
    ],
)
def test_a_wrong_option_says_what_was_expected_and_received(option, value, name, capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main([option, value])
    assert stopped.value.code == 2
    assert f"Received: {name}={value}" in capsys.readouterr().err
