"""The demo as its users run it, and what it does when something is missing, full or wrong."""

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_lrn
from keras_lrn import demo

NAMES = [artefact.name for artefact in demo.ARTEFACTS]


@pytest.fixture(scope="module")
def digits():
    return demo.real_digits(seed=0)


@pytest.fixture(scope="module")
def saved(digits, tmp_path_factory):
    """Two hardly trained models, each with its probabilities and a folder of artefacts."""
    pair = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        model = demo.alexnet_style()
        model.fit(digits.images[:48], digits.labels[:48], epochs=1, verbose=0)
        live = model.predict(digits.held_out_images, verbose=0)
        folder = tmp_path_factory.mktemp(f"model_{seed}")
        assert demo.save(model, folder) == []
        pair.append(SimpleNamespace(model=model, live=live, folder=folder))
    return pair


def contents(folder):
    """Every file below the folder, hidden ones too, with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def printed_rows(text):
    """What the table says of each artefact after its name and runtime."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[2:] for row in rows if row[0] in NAMES}


def only(monkeypatch, *artefacts):
    monkeypatch.setattr(demo, "ARTEFACTS", artefacts)


def python(*arguments):
    path = os.pathsep.join([str(Path(keras_lrn.__file__).parents[1]), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )


def hide(monkeypatch, module):
    """Make the module look as if it was not installed."""
    for name in list(sys.modules):
        if name.startswith(f"{module}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


def test_the_demo_passes_96_percent_and_every_artefact_agrees(tmp_path):
    output = tmp_path / "new" / "digits"
    finished = python("-m", "keras_lrn", "--output", output, "--plot")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Epoch 20/20" in finished.stdout
    assert "━" in finished.stdout  # Keras's progress bars
    rows = printed_rows(finished.stdout)
    assert list(rows) == NAMES
    for size, difference, accuracy, result in rows.values():
        assert float(size.removesuffix(" kB")) > 100
        assert float(difference) <= 1e-4
        assert 96 <= float(accuracy.removesuffix("%")) <= 100
        assert result == "agrees"
    assert "4 of 4 artefacts agree" in finished.stdout
    assert sorted(path.name for path in output.iterdir()) == sorted([*NAMES, "training.png"])
    assert (output / "training.png").read_bytes().startswith(b"\x89PNG")


def test_the_normalisation_matters_in_the_network_of_the_demo(digits, saved):
    network = saved[0].model
    for layer in network.layers:
        if isinstance(layer, keras_lrn.LocalResponseNormalization):
            activations = keras.Model(network.inputs, layer.input).predict(
                digits.held_out_images, verbose=0
            )
            normalised = layer(activations).numpy()
            lit = activations > 0
            # Without a sum over channels every ratio would be the same: bias ** -beta.
            assert np.min(normalised[lit] / activations[lit]) < 0.95 * 2**-0.75


@pytest.mark.parametrize("artefact", demo.ARTEFACTS, ids=NAMES)
def test_an_artefact_of_another_model_disagrees(artefact, digits, saved):
    own, other = saved
    row = demo.check(artefact, other.folder / artefact.name, own.live, digits)
    assert row.agrees is False
    assert row.result == "DISAGREES"
    assert row.difference == pytest.approx(np.max(np.abs(other.live - own.live)), abs=1e-5)


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
def test_one_wrong_probability_is_enough_to_disagree(change, result, digits, saved):
    live = saved[0].live
    artefact = demo.Artefact("model.keras", "Keras", None, lambda path, images: change(live))
    row = demo.check(artefact, saved[0].folder / "model.keras", live, digits)
    assert row.result == result
    assert row.agrees is (result == "agrees")


@pytest.mark.parametrize(("shift", "status"), [(0, 0), (0.01, 1)])
def test_the_exit_status_tells_of_a_disagreement(shift, status, monkeypatch, tmp_path, capsys):
    def shifted(path, images):
        return demo.run_keras(path, images) + shift

    only(monkeypatch, demo.ARTEFACTS[0]._replace(run=shifted))
    assert demo.main(["--epochs", "1", "--quiet", "--output", str(tmp_path)]) == status
    printed = capsys.readouterr().out
    assert ("DISAGREES" in printed) is bool(status)
    assert f"{1 - status} of 1 artefacts agree" in printed


def test_a_broken_artefact_is_a_failed_row_with_its_reason(digits, saved, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"not a network")
    row = demo.check(demo.ARTEFACTS[2], tmp_path / "model.onnx", saved[0].live, digits)
    assert row.result == "FAILED, not checked"
    assert row.agrees is False
    assert "protobuf" in demo.verdict([row], 450).lower()


def test_a_serving_process_that_imports_keras_is_found_out(monkeypatch, digits, saved):
    blocking = next(line for line in demo.SERVE.splitlines() if "sys.modules.update" in line)
    monkeypatch.setattr(demo, "SERVE", demo.SERVE.replace(blocking, ""))
    with pytest.raises(RuntimeError, match=r"the serving process imported .*keras"):
        demo.run_saved_model(saved[0].folder / "saved_model", digits.held_out_images)


@pytest.mark.parametrize(
    ("module", "package", "artefact", "result"),
    [
        ("onnx", "onnx", demo.ARTEFACTS[2], "not written"),
        ("onnxruntime", "onnxruntime", demo.ARTEFACTS[2], "not checked"),
        ("ai_edge_litert", "ai-edge-litert", demo.ARTEFACTS[3], "not checked"),
    ],
)
def test_a_missing_optional_package_is_named_with_its_install_command(
    module, package, artefact, result, monkeypatch, digits, saved, tmp_path
):
    only(monkeypatch, artefact)
    if module == "onnx":
        hide(monkeypatch, "tf2onnx")
        monkeypatch.delitem(sys.modules, "tf2onnx")
    hide(monkeypatch, module)
    not_written = demo.save(saved[0].model, tmp_path)
    assert os.listdir(tmp_path) == ([] if result == "not written" else [artefact.name])
    rows = demo.compare(saved[0].model, tmp_path, not_written, digits)
    assert f"{result}: needs {package}" in demo.table(rows)
    assert rows[-1].agrees is None
    verdict = demo.verdict(rows, 450)
    assert "0 of 1 artefacts agree" in verdict
    assert f'To check {artefact.name} too: pip install "keras_lrn[demo]"' in verdict


def test_without_the_optional_packages_nothing_is_claimed_and_nothing_fails(tmp_path):
    program = """if True:
        import sys
        sys.modules.update({"tf2onnx": None, "onnxruntime": None, "ai_edge_litert": None})
        from keras_lrn import demo
        demo.ARTEFACTS = demo.ARTEFACTS[2:]
        sys.exit(demo.main(["--epochs", "1", "--quiet", "--output", sys.argv[1]]))
    """
    finished = python("-c", program, tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    size, result = printed_rows(finished.stdout)["model.tflite"]
    assert size.endswith(" kB")
    assert result == "not checked: needs ai-edge-litert"
    assert printed_rows(finished.stdout)["model.onnx"] == ["not written: needs tf2onnx"]
    assert "0 of 2 artefacts agree" in finished.stdout
    assert 'To check model.onnx and model.tflite too: pip install "keras_lrn[demo]"' in (
        finished.stdout
    )


@pytest.mark.parametrize("module", ["sklearn", "matplotlib"])
def test_a_package_needed_from_the_start_is_named_at_once(module, monkeypatch, tmp_path):
    hide(monkeypatch, module)
    package = {"sklearn": "scikit-learn"}.get(module, module)
    with pytest.raises(SystemExit, match=rf'{package}.*: pip install "keras_lrn\[demo\]"'):
        demo.main(["--plot", "--output", str(tmp_path / "digits")])


def test_a_missing_package_that_is_not_optional_is_a_failure(monkeypatch, saved, tmp_path):
    def broken(model, path):
        raise ModuleNotFoundError("No module named 'surprise'", name="surprise")

    only(monkeypatch, demo.ARTEFACTS[0]._replace(write=broken))
    (row,) = demo.save(saved[0].model, tmp_path)
    assert row.agrees is False
    assert "surprise" in row.reason


@pytest.mark.parametrize("below", ["", "digits"])
def test_an_output_that_is_no_folder_is_one_clear_line_before_training(
    below, monkeypatch, tmp_path
):
    monkeypatch.delattr(demo, "alexnet_style")
    output = tmp_path / "taken"
    output.write_text("a file")
    output = output / below
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--output", str(output)])
    assert stopped.value.code == f"Cannot write {output}: a file is where a folder should be"


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")],
)
def test_a_disk_that_takes_no_files_is_one_clear_line_before_training(
    number, reason, monkeypatch, tmp_path
):
    def refuse(path, data):
        raise OSError(number, reason)

    monkeypatch.delattr(demo, "alexnet_style")
    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(SystemExit, match=f"^Cannot write {tmp_path}: {reason}$"):
        demo.main(["--output", str(tmp_path)])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("artefact", demo.ARTEFACTS, ids=NAMES)
def test_a_write_that_the_system_cuts_short_keeps_the_earlier_artefact(
    artefact, monkeypatch, saved, tmp_path
):
    only(monkeypatch, artefact)
    demo.save(saved[0].model, tmp_path)
    earlier = contents(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(SystemExit) as stopped:
            demo.save(saved[1].model, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert re.fullmatch(
        f"Cannot write {re.escape(str(tmp_path / artefact.name))}: .*File too large",
        stopped.value.code,
    )
    assert contents(tmp_path) == earlier
    assert os.listdir(tmp_path) == [artefact.name]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "No space left on device"),
        KeyboardInterrupt(),
    ],
    ids=["full disk", "full disk in TensorFlow", "interrupted"],
)
def test_a_failure_at_the_last_artefact_keeps_all_the_earlier_ones(
    error, monkeypatch, saved, tmp_path
):
    def half(model, path):
        path.write_bytes(b"half of a network")
        raise error

    first, *_, last = demo.ARTEFACTS
    only(monkeypatch, first, last)
    demo.save(saved[0].model, tmp_path)
    earlier = contents(tmp_path)
    only(monkeypatch, first, last._replace(write=half))
    with pytest.raises((SystemExit, KeyboardInterrupt)) as stopped:
        demo.save(saved[1].model, tmp_path)
    if not isinstance(error, KeyboardInterrupt):
        assert stopped.value.code == f"Cannot write {tmp_path / last.name}: No space left on device"
    assert contents(tmp_path) == earlier
    only(monkeypatch, first)
    demo.save(saved[1].model, tmp_path)
    assert contents(tmp_path).keys() == earlier.keys()
    assert contents(tmp_path)[first.name] != earlier[first.name]


def test_a_file_left_by_an_exporter_that_failed_is_not_put_in_place(monkeypatch, saved, tmp_path):
    def half(model, path):
        path.write_bytes(b"half of a network")
        raise ValueError("cannot convert this")

    only(monkeypatch, demo.ARTEFACTS[2]._replace(write=half))
    (row,) = demo.save(saved[0].model, tmp_path)
    assert (row.result, row.agrees) == ("FAILED, not written", False)
    assert row.reason == "ValueError: cannot convert this"
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_replaced_comes_back(monkeypatch, saved, tmp_path):
    only(monkeypatch, demo.ARTEFACTS[1])
    demo.save(saved[0].model, tmp_path)
    earlier = contents(tmp_path)
    replace = os.replace

    def refuse_new_folder(source, target):
        if Path(source).name == Path(target).name == "saved_model":
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_new_folder)
    with pytest.raises(SystemExit, match="saved_model: Input/output error"):
        demo.save(saved[1].model, tmp_path)
    assert contents(tmp_path) == earlier
    monkeypatch.undo()
    demo.put_in_place(saved[1].folder / "saved_model", tmp_path / "saved_model")
    assert contents(tmp_path) != earlier
    assert os.listdir(tmp_path) == ["saved_model"]


def test_an_interrupted_training_leaves_nothing_behind(monkeypatch, tmp_path, capsys):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "alexnet_style", lambda: SimpleNamespace(fit=interrupt))
    try:
        status = demo.main(["--output", str(tmp_path)])
    except KeyboardInterrupt:
        pytest.fail("the interruption was not caught")
    assert status == 130
    assert "Interrupted" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_only_the_notes_of_the_exporters_are_dropped(capfd):
    def fail():
        with demo.quiet():
            os.write(2, b"a note\n")
            raise ValueError("kept")

    os.write(2, b"before\n")
    with pytest.raises(ValueError, match="kept"):
        fail()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_help_names_every_option_and_the_exit_status(capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for option in ("--epochs", "--batch-size", "--seed", "--output", "--plot", "--quiet"):
        assert option in text
    assert "Exit status: 0" in text
    assert 'pip install "keras_lrn[demo]"' in text


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
