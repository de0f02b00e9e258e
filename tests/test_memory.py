"""What is retained for the backward pass."""

import gc
import math

import numpy as np
import pytest
import tensorflow as tf
from cases import ARGUMENTS, lrn_and_gradient, random_x_and_upstream, traced_ops

from keras_lrn import LocalResponseNormalization
from keras_lrn.backend.tensorflow import gradient, ways

SHAPE = (2, 3, 5, 19)


@pytest.fixture
def new_buffers():
    """Counts the buffers of a shape or larger that were made in the test and are alive."""

    def count(shape):
        gc.collect()
        tensors = [o for o in gc.get_objects() if type(o) is type(tf.constant(0))]
        views = [memoryview(t) for t in tensors if t.shape.num_elements() >= math.prod(shape)]
        return len({np.frombuffer(view, "uint8").ctypes.data for view in views})

    gc.freeze()  # what there was before is not looked at, which would take seconds
    yield count
    gc.unfreeze()


UNKNOWN = (None, None, None, 19)


@pytest.mark.parametrize(
    ("where", "jit_compile", "size", "kept"),
    [
        ("eager", "auto", 5, 1),  # the scale
        ("eager", True, 5, 1),
        ("eager blocks", "auto", 5, 0),
        (SHAPE, "auto", 5, 1),  # the input, padded
        (SHAPE, "auto", 4, 1),
        (SHAPE, True, 4, 1),
        (SHAPE, False, 4, 1),  # the scale
        (UNKNOWN, "auto", 5, 1),
        (UNKNOWN, True, 5, 1),  # the input, padded
    ],
)
@pytest.mark.parametrize("at_call", [True, False, None])
@pytest.mark.parametrize("own", [True, False])
def test_something_beside_the_input_is_retained_only_where_both_trainings_are_true(
    new_buffers, monkeypatch, own, at_call, where, jit_compile, size, kept
):
    layer = LocalResponseNormalization(
        size, **ARGUMENTS, training=own, jit_compile=jit_compile, lda_coeff=-1.5
    )

    def call(x):
        return layer(x, training=at_call)

    if where == "eager blocks":
        monkeypatch.setattr(ways, "EAGER_BLOCKS_FROM", 0)
    elif where != "eager":
        call = tf.function(call, input_signature=[tf.TensorSpec(where)], autograph=False)
    x = tf.constant(random_x_and_upstream(SHAPE, "float32")[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(x)
    # Beyond the input and the output.
    assert new_buffers(SHAPE) == 2 + (kept if own and at_call else 0)
    assert tape.gradient(y, x) is not None


@pytest.mark.parametrize("training", [False, True])
def test_what_is_retained_for_the_second_order(new_buffers, training):
    x, upstream = map(tf.constant, random_x_and_upstream(SHAPE, "float32"))
    with tf.GradientTape() as tape:
        tape.watch((x, upstream))
        y, dx = lrn_and_gradient(x, upstream, 5, training=training, **ARGUMENTS)
    # Beyond the two inputs and the two results: the scale of the keeping mode.
    assert new_buffers(SHAPE) == 4 + training
    assert y is not None
    assert tape.gradient(dx, x) is not None


def test_an_eager_tape_keeps_nothing_of_what_is_unrecorded():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = gradient._unrecorded(x) * x
    np.testing.assert_array_equal(y, [1.0, 4.0])
    # One of the two factors is a constant.
    np.testing.assert_array_equal(tape.gradient(y, x), [1.0, 2.0])


def test_a_graph_gets_no_op_for_what_is_unrecorded():
    assert "StopGradient" not in traced_ops(lambda x: 2 * gradient._unrecorded(x), (3,))


# What a graph computes for the backward pass, and whether it is after the forward pass alone.
@pytest.mark.parametrize(
    ("size", "jit_compile", "type_of_op", "waits"),
    [
        (4, False, "Rsqrt", [False, True]),  # plain ops twice
        (4, True, "PartitionedCall", [False, True]),  # compiled twice
        (5, "auto", "PartitionedCall", [True]),  # the LRN op, and compiled
        (5, False, "Rsqrt", [True]),  # the LRN op, and plain ops
    ],
)
def test_a_graph_waits_for_the_gradient_before_it_computes_the_scale_again(
    size, jit_compile, type_of_op, waits
):
    @tf.function(autograph=False)
    def call(x, upstream):
        arguments = dict(size=size, jit_compile=jit_compile, **ARGUMENTS)
        return lrn_and_gradient(x, upstream, training=False, **arguments)

    spec = tf.TensorSpec((None, *SHAPE[1:]))
    graph = call.get_concrete_function(spec, spec).graph
    waiting = {graph.inputs[1].op}
    for op in graph.get_operations():  # in the order of their dependencies
        if waiting & {*op.control_inputs, *(tensor.op for tensor in op.inputs)}:
            waiting.add(op)
    of_the_scale = [op for op in graph.get_operations() if op.type == type_of_op]
    assert [op in waiting for op in of_the_scale] == waits
