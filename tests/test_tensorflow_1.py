"""TensorFlow 1 behaviour: graphs that are built first and run in a session, in a fresh process."""

import os
import pickle
import subprocess
import sys

import pytest
from cases import assert_accurate, random_x_and_upstream, relative_error
from modes import WAYS, dealt, second_order, traced_shape

from keras_lrn import reference

SHAPE = (2, 3, 4, 7)
FORMULAS = {
    "odd": dict(size=5, alpha=1.5, beta=0.75, bias=0.8),
    "even": dict(size=4, alpha=1.5, beta=0.6, bias=0.8),
    "no bias": dict(size=5, alpha=1.5, beta=0.5, bias=0.0),
    "reversed": dict(size=5, alpha=1.5, beta=0.75, bias=0.8, lda_coeff=-2.0),
    "blocked": dict(size=5, alpha=1.5, beta=0.75, bias=0.8, lda_coeff=0.0),
}
# A session has no eager calls, and XLA is asked for by `jit_compile`.
CALLS = dealt(
    [way for way in WAYS if way[0] not in ("eager", "XLA")], FORMULAS, ("function", "layer")
)

PROGRAM = """
import pickle
import sys
import warnings

warnings.simplefilter("error")
import keras
import tensorflow as tf

tf.compat.v1.disable_v2_behavior()
import keras_lrn

calls, (x, upstream, cotangent) = pickle.load(sys.stdin.buffer)


def answer(kind, shape, training, arguments):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = [v1.placeholder(tf.float32, shape) for _ in range(3)]
        if kind == "layer":
            layer = keras_lrn.LRN(**arguments, specified_outputs_name=["normalized"])
            y = layer(inputs[0], training=training)
        else:
            y = keras_lrn.local_response_normalization(
                inputs[0], training=training, name="normalized", **arguments
            )
        (dx,) = tf.gradients(y, inputs[0], inputs[1])
        (second,) = tf.gradients(dx, inputs[0], inputs[2])
        (of_row,) = tf.gradients(tf.gather(y, [1]), inputs[0], inputs[1][1:])
        fed = dict(zip(inputs, (x, upstream, cotangent)))
        return y.op.name, y.shape.as_list(), session.run([y, dx, second, of_row], fed)


def try_to_answer(call):
    try:
        return answer(**call)
    except Exception as error:
        return repr(error)


answers = [try_to_answer(call) for call in calls]
with open(sys.argv[1], "wb") as file:
    pickle.dump(answers, file)
"""


def x_upstream_and_cotangent():
    x, upstream = random_x_and_upstream(SHAPE, "float32")
    cotangent, _ = random_x_and_upstream(SHAPE, "float32", seed=1)
    return x, upstream, cotangent


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """One answer to each of the calls: name, shape and arrays, or the text of an error."""
    calls = [
        dict(
            kind=kind,
            shape=traced_shape(mode, SHAPE),
            training=training,
            arguments={**FORMULAS[formula], "jit_compile": jit_compile},
        )
        for mode, training, jit_compile, formula, kind in CALLS
    ]
    path = tmp_path_factory.mktemp("tensorflow_1") / "answers"
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, path],
        input=pickle.dumps((calls, x_upstream_and_cotangent())),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    return dict(zip(CALLS, pickle.loads(path.read_bytes()), strict=True))


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_session_computes_the_output_and_gradients_of_both_orders(call, answers):
    mode, _, _, formula, _ = call
    assert not isinstance(answers[call], str), answers[call]
    name, shape, (y, dx, second, of_row) = answers[call]
    assert name.split("/")[-1] == "normalized"
    assert shape == traced_shape(mode, SHAPE)
    x, upstream, cotangent = x_upstream_and_cotangent()
    arguments = {"lda_coeff": 1.0, **FORMULAS[formula]}
    exact = second_order(x, upstream, cotangent, **arguments)
    assert relative_error(second, exact) <= 5e-6
    assert_accurate(dx, reference.gradient(x, upstream, **arguments), "float32")
    upstream[0] = 0
    assert_accurate(of_row, reference.gradient(x, upstream, **arguments), "float32")
    del arguments["lda_coeff"]
    assert_accurate(y, reference.local_response_normalization(x, **arguments), "float32")
