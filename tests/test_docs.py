"""Every example in the README and in the docstrings, run as a reader would run it."""

import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import keras_lrn

ROOT = Path(__file__).parent.parent
PUBLIC = [
    "keras_lrn.layer.LocalResponseNormalization",
    "keras_lrn.ops.local_response_normalization",
    "keras_lrn.reference.local_response_normalization",
    "keras_lrn.reference.gradient",
]


def docstrings():
    """The docstrings of the modules, and of the public functions, classes and methods in them."""
    for found in pkgutil.walk_packages(keras_lrn.__path__, "keras_lrn."):
        if found.name == "keras_lrn.__main__":  # importing it runs the demo
            continue
        module = importlib.import_module(found.name)
        yield found.name, module.__doc__
        for name, member in public_members(module):
            if getattr(member, "__module__", None) == found.name:
                yield f"{found.name}.{name}", member.__doc__
                if inspect.isclass(member):
                    for method_name, method in public_members(member):
                        yield f"{found.name}.{name}.{method_name}", method.__doc__


def public_members(owner):
    return [(name, member) for name, member in vars(owner).items() if not name.startswith("_")]


def python_blocks(text):
    """What stands between fences that say Python, in order."""
    return re.findall(r"^```python\n(.*?)^```$", inspect.cleandoc(text), re.M | re.S)


DOCSTRINGS = {name: text for name, text in docstrings() if text}
EXAMPLES = [
    pytest.param(block, id=f"{name}-{number}")
    for name, text in DOCSTRINGS.items()
    for number, block in enumerate(python_blocks(text))
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder where an example may write."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def readme():
    return (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(block, namespace):
    exec(compile(block, "<example>", "exec"), namespace)


# Docstrings


@pytest.mark.parametrize("block", EXAMPLES)
def test_an_example_in_a_docstring_runs(block):
    run(block, {"__name__": "__main__"})


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_checks_its_result(name):
    blocks = python_blocks(DOCSTRINGS[name])
    assert blocks
    assert all("assert" in block for block in blocks)


def test_no_docstring_has_an_example_that_is_not_run():
    assert set(PUBLIC) < set(DOCSTRINGS)
    for name, text in DOCSTRINGS.items():
        assert ">>>" not in text, name
        assert text.count("```") == 2 * len(python_blocks(text)), name


# The README


def test_the_examples_in_the_readme_run_one_after_another(readme):
    blocks = python_blocks(readme)
    assert blocks
    assert readme.count("```") == 2 * len(blocks)
    namespace = {"__name__": "__main__"}
    for block in blocks:
        run(block, namespace)


def test_the_readme_shows_the_two_commands_and_the_makefile_has_them(readme):
    shown = re.findall(r"^ *make (\w+)", readme, re.M)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    assert sorted(shown) == sorted(targets) == ["demo", "test"]


def test_the_readme_installs_extras_that_the_package_has(readme, project):
    shown = {
        extra for extras in re.findall(r"\.\[([\w,]+)\]", readme) for extra in extras.split(",")
    }
    assert shown == set(project["optional-dependencies"])
