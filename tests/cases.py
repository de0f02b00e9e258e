"""What several test modules share: tables of cases, calls, the oracle, and how close is close."""

import collections
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import tensorflow as tf

import keras_lrn
from keras_lrn import arguments, local_response_normalization, reference
from keras_lrn.backend.tensorflow import tensors

SIZES = (0, 1, 2, 3, 4, 5, 8, 11, 40)
DTYPES = ("bfloat16", "float16", "float32", "float64")
MODES = ("eager", "graph", "XLA")
TRAININGS = (None, False, True)
# Arguments of a call at which every one of them matters.
ARGUMENTS = {"alpha": 1.5, "beta": 0.75, "bias": 0.8}
# Every legal axis of the ranks 2 to 5, 13 channels along it, and no two dimensions equal.
SHAPES_AND_AXES = [
    (tuple(np.insert((2, 3, 4, 5)[: rank - 1], axis % rank, 13).tolist()), axis)
    for rank in (2, 3, 4, 5)
    for axis in range(1 - rank, rank)
    if axis != 0
]
# Every argument of the layer, `name`, `dtype` and `trainable` too, at a value not its default.
NON_DEFAULT = {
    "size": 4,
    "alpha": 0.7,
    "beta": 0.6,
    "bias": 1.5,
    "axis": -2,
    "training": False,
    "lda_coeff": -2.5,
    "specified_outputs_name": ["normalized"],
    "jit_compile": False,
    "name": "norm",
    "dtype": "mixed_float16",
    "trainable": False,
}


# What is run


def imported(path):
    """The module of a script that lies outside every package."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def python_environment(**variables):
    """The environment of a process whose Python finds every module where this one does."""
    path = os.pathsep.join([str(Path(keras_lrn.__file__).parents[1]), *sys.path])
    return os.environ | {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"} | variables


def run_python(*arguments, **variables):
    """Runs Python in a process of its own; returns it with its status and what it printed."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=python_environment(**variables),
        capture_output=True,
        encoding="utf-8",
    )


def in_mode(mode, function):
    """`function` itself, or what TensorFlow or XLA makes of it."""
    if mode == "eager":
        return function
    return tf.function(function, autograph=False, jit_compile=mode == "XLA")


def value_and_gradient(function, x, upstream, **arguments):
    """`function(x, **arguments)`, and what the derivative `upstream` of it becomes at `x`."""
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x, **arguments)
    return y, tape.gradient(y, x, tf.cast(upstream, y.dtype))


def lrn_and_gradient(x, upstream, size, **arguments):
    """The function of the package on `x`, and its gradient."""
    return value_and_gradient(local_response_normalization, x, upstream, size=size, **arguments)


def equations(x, size, *, axis=-1, lda_coeff=1.0, **numbers):
    """The equations for a tensor of TensorFlow."""
    formula = arguments.checked(
        size, axis=axis, lda_coeff=lda_coeff, name=None, jit_compile="auto", **numbers
    )
    return tensors.equations(x, formula)


def traced_ops(function, shape, dtype="float32", **options):
    """Counts the ops of each type that `function` traces to, those of inner functions included.

    What XLA must compile counts as one "XLA" per function, beside the ops inside.
    """
    traced = tf.function(function, autograph=False, **options)
    graph = traced.get_concrete_function(tf.TensorSpec(shape, dtype)).graph.as_graph_def()
    counts = collections.Counter(node.op for node in graph.node)
    for inner in graph.library.function:
        counts.update(node.op for node in inner.node_def)
        counts["XLA"] += inner.attr["_XlaMustCompile"].b
    return counts


# What is expected


def public_cases():
    """The cases of public_cases.json as arrays; NaN in `expected` stands for what is unchecked."""
    cases = json.loads(Path(__file__).with_name("public_cases.json").read_text())
    for case in cases:
        for key in {"x", "upstream", "expected"} & set(case):
            numbers = [np.nan if number is None else float(number) for number in case[key]]
            case[key] = np.reshape(numbers, case["shape"])
    return cases


def random_x_and_upstream(shape, dtype="float64", seed=0):
    """Two arrays of values of both signs."""
    rng = np.random.default_rng([seed, *shape])
    return rng.normal(size=(2, *shape)).astype(dtype)


def oracle(x, upstream, size, *, lda_coeff=1.0, **arguments):
    """The exact output and gradient in float64."""
    return (
        reference.local_response_normalization(x, size, **arguments),
        reference.gradient(x, upstream, size, lda_coeff=lda_coeff, **arguments),
    )


def relative_error(actual, expected):
    """The largest difference, relative to the largest magnitude expected."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    difference = np.max(np.abs(actual - expected), initial=0)
    return difference / np.max(np.abs(expected)) if difference else 0.0


def assert_accurate(actual, expected, dtype):
    """Checks the accuracy promised for `dtype`; `expected` is the exact result in float64."""
    actual = np.asarray(actual)
    assert actual.dtype == dtype
    if dtype in ("float32", "float64"):
        assert relative_error(actual, expected) <= {"float32": 2e-6, "float64": 1e-12}[dtype]
        return
    # Computed with the accuracy of float32 and rounded once: to within half a unit in the last
    # place, which a number of float64 knows from its exponent.
    info = ml_dtypes.finfo(dtype)
    unit = np.ldexp(1.0, np.frexp(expected)[1] - 1 - info.nmant)
    rounding = np.maximum(unit, float(info.smallest_subnormal)) / 2
    float32_error = 2e-6 * np.max(np.abs(expected), initial=0)
    assert actual.shape == expected.shape
    assert (np.abs(actual.astype("float64") - expected) <= rounding + float32_error).all()


def assert_all_accurate(actual, expected, dtype):
    """Checks each of several results, such as an output and its gradient."""
    for got, exact in zip(actual, expected, strict=True):
        assert_accurate(got, exact, dtype)
