"""What every test runs under."""

import os

# Before TensorFlow is imported: its informational messages would bury a failure.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import hypothesis
import keras
import pytest

# The same examples on every machine, and none recorded; XLA compiles inside some of them.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, print_blob=False
)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def seeds():
    keras.utils.set_random_seed(20120612)
