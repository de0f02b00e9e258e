"""What several test modules share: tables of cases, the public cases, and how close is close."""

import collections
import importlib.util
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import tensorflow as tf

SIZES = (0, 1, 2, 3, 4, 5, 8, 11, 40)
DTYPES = ("bfloat16", "float16", "float32", "float64")
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


def imported(path):
    """The module of a script that lies outside every package."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


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
