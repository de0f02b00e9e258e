"""The modes that a call is tried in, samples of all choices, and derivatives of the oracle."""

import itertools
import random

import numpy as np
import tensorflow as tf

from keras_lrn import reference

# Graphs are traced without the lengths that they are named after.
MODES = ("eager", "graph", "batch unknown", "image unknown", "shape unknown", "XLA")
TRAININGS = (True, False, None)
JIT_COMPILES = ("auto", True, False)
# What decides the way to run.
WAYS = list(itertools.product(MODES, TRAININGS, JIT_COMPILES))


def traced_in(mode, function):
    """`function` of tensors with channels last itself, or what TensorFlow or XLA makes of it."""
    if mode == "eager":
        return function

    def run(*tensors):
        signature = [tf.TensorSpec(traced_shape(mode, t.shape), t.dtype) for t in tensors]
        return tf.function(
            function, input_signature=signature, jit_compile=mode == "XLA", autograph=False
        )(*tensors)

    return run


def traced_shape(mode, shape):
    """What a graph in this mode knows of the shape."""
    unknown = {"batch unknown": 1, "image unknown": len(shape) - 1, "shape unknown": len(shape)}
    unknown = unknown.get(mode, 0)
    return [None] * unknown + list(shape[unknown:])


def dealt(first, *choices):
    """Each tuple of `first` with one of each of the choices, all of which are had equally often."""
    rng = random.Random(4)

    def deal(cards):
        while True:
            yield from rng.sample(cards, len(cards))

    rest = zip(*map(deal, map(list, choices)), strict=True)
    return [(*one, *next(rest)) for one in first]


def tangent(x, direction, size, *, lda_coeff=1.0, **arguments):
    """What forward mode carries along `direction`: the difference quotient of the oracle."""
    return lda_coeff * _quotient(
        lambda x: reference.local_response_normalization(x, size, **arguments), x, direction
    )


def tangent_of_gradient(x, upstream, direction, size, **arguments):
    """The change of the gradient as `x` moves along `direction`."""
    return _quotient(lambda x: reference.gradient(x, upstream, size, **arguments), x, direction)


def second_order(x, upstream, cotangent, size, **arguments):
    """What `cotangent` of the gradient sends back to `x`, whose channels are last."""
    derivative = np.empty(np.shape(x))
    for channel, unit in enumerate(np.eye(np.shape(x)[-1])):
        # No channel of one position changes another position, so all move at once.
        change = tangent_of_gradient(x, upstream, np.broadcast_to(unit, x.shape), size, **arguments)
        derivative[..., channel] = np.sum(cotangent * change, axis=-1)
    return derivative


def _quotient(function, x, direction, step=1e-3):
    # The five-point formula, whose error is that of rounding: about 1e-12 for values near 1.
    x, step_along = np.asarray(x, np.float64), step * np.asarray(direction, np.float64)
    near, far = (function(x + k * step_along) - function(x - k * step_along) for k in (1, 2))
    return (8 * near - far) / (12 * step)
