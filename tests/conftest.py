"""What every test runs under, and the fixtures that several modules share."""

import os

# Before TensorFlow is imported: its informational messages would bury a failure.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import hypothesis
import keras
import pytest

from keras_lrn.backend.tensorflow import programs, ways

# The same examples on every machine, and none recorded; XLA compiles inside some of them.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, print_blob=False
)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def seeds():
    keras.utils.set_random_seed(20120612)


@pytest.fixture
def eager_blocks(monkeypatch):
    """Eager calls run in blocks however small the tensor."""
    monkeypatch.setattr(ways, "EAGER_BLOCKS_FROM", 0)


@pytest.fixture
def no_programs():
    """No program is kept from an earlier test, nor for a later one."""
    for cached in (programs._loop, programs._program):
        cached.cache_clear()
    yield
    for cached in (programs._loop, programs._program):
        cached.cache_clear()


@pytest.fixture
def rows_of_a_block(monkeypatch, no_programs):
    """Blocks of 4 positions of 13 channels, and room for a part of a fifth."""
    monkeypatch.setattr(programs, "BLOCK_ELEMENTS", 4 * 13 + 12)
    return 4
