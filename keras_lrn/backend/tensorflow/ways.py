"""The ways to run: each is a forward and a backward pass, and `choose` says which one is taken."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util  # not public, see `_in_xla`

from keras_lrn.arguments import Formula
from keras_lrn.backend.tensorflow import programs
from keras_lrn.backend.tensorflow.tensors import wide
from keras_lrn.formulas import Equations

# `x` to the output and what is kept; `x`, the derivative upstream and what was kept to `dX`.
Forward = Callable[[tf.Tensor], tuple[tf.Tensor, Any]]
Backward = Callable[[tf.Tensor, tf.Tensor, Any], tf.Tensor]
Way = tuple[Forward, Backward]

# From so many elements on an eager call runs in compiled blocks: at 2^16 plain ops take as long, at
# half of it 0.7 times and at twice 1.7 times as long, forward.
EAGER_BLOCKS_FROM = 2**16


def choose(
    x: tf.Tensor,
    equations: Equations,
    formula: Formula,
    training: bool | None,
    name: str | None,
) -> Way:
    """The way that a call runs: by where it runs, its call-time `training` and `jit_compile`.

    | where                   | `training=True` | False or None                              |
    |-------------------------|-----------------|--------------------------------------------|
    | inside XLA              | plain ops       | plain ops                                  |
    | eager, many elements    | compiled blocks | compiled blocks                            |
    | eager, few elements     | plain ops       | plain ops                                  |
    | a graph of known size   | compiled        | forward the LRN op, or plain ops where it  |
    |                         |                 | means something else; backward compiled    |
    | a graph of unknown size | plain ops       | forward as above; backward plain ops       |

    In graphs `jit_compile=True` also compiles unknown sizes with True, and known ones with False;
    with None never, for exporters write out what they trace. False compiles nothing.
    """
    jit, known = formula.jit_compile, x.shape[1:].is_fully_defined()
    keeps = formula.training and training is True
    plain, compiled = _plain(equations, keeps, name), _compiled(equations, keeps)
    if _in_xla():  # where what is kept saves nothing, and forward mode over a gradient fails on it
        return _plain(equations, keeps=False, name=name)
    if tf.executing_eagerly():
        return _blocks(equations) if jit and _is_large(x) else plain
    if training:
        return compiled if jit is True or (jit and known) else plain
    if training is False and jit is True and known:
        return compiled
    forward = _lrn_op(equations, name) if _lrn_op_means_the_same(x, equations) else plain[0]
    return forward, (compiled if jit and known else plain)[1]


def _plain(equations: Equations, keeps: bool, name: str | None) -> Way:
    """The equations op by op; the scale is kept."""

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        values = wide(x)
        scale = equations.scale(values)
        # Exporters drop an identity, so the op that computes the output bears its name too.
        y = equations.forward(values, scale, name if x.dtype == values.dtype else None)
        return tf.cast(y, x.dtype, name=name), scale if keeps else None

    def backward(x: tf.Tensor, upstream: tf.Tensor, scale: Any) -> tf.Tensor:
        if scale is None:
            x = _after(upstream, x)
            scale = equations.scale(wide(x))
        return tf.cast(equations.backward(wide(x), scale, wide(upstream)), x.dtype)

    return forward, backward


def _compiled(equations: Equations, keeps: bool) -> Way:
    """An XLA program for each pass; `x` is kept padded, which spares the backward pass a loop."""

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        if not keeps:
            return programs.run(programs.forward, x, equations, x), None
        padded = equations.padded(x)
        return programs.run(programs.forward_of_padded, x, equations, padded), padded

    def backward(x: tf.Tensor, upstream: tf.Tensor, padded: Any) -> tf.Tensor:
        if padded is None:
            return programs.run(programs.backward, x, equations, x, upstream)
        return programs.run(programs.backward_of_padded, x, equations, padded, upstream)

    return forward, backward


def _blocks(equations: Equations) -> Way:
    """An XLA program of one block for each pass, for eager calls; nothing is kept."""

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return programs.run_in_blocks(programs.forward, x, equations, x), None

    def backward(x: tf.Tensor, upstream: tf.Tensor, _: Any) -> tf.Tensor:
        return programs.run_in_blocks(programs.backward, x, equations, x, upstream)

    return forward, backward


def _lrn_op(equations: Equations, name: str | None) -> Forward:
    """TensorFlow's own op, which exporters and runtimes know."""

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        values = wide(x)
        y = tf.raw_ops.LRN(
            input=values,
            depth_radius=equations.size // 2,
            bias=equations.bias,
            alpha=equations.weight,
            beta=equations.beta,
            name=name if x.dtype == values.dtype else None,
        )
        return tf.cast(y, x.dtype, name=name), None

    return forward


def _lrn_op_means_the_same(x: tf.Tensor, equations: Equations) -> bool:
    return (
        x.shape.rank == 4
        and equations.axis == 3
        and x.dtype != tf.float64
        and equations.channels is not None
        and equations.channels <= 384  # above, its CPU kernel keeps a running sum, which cancels
        and equations.size % 2 == 1
        and 3 <= equations.size <= 15
        and equations.beta >= 0.01  # this and the next are the limits of cuDNN
        and equations.bias >= 1e-5
    )


def _is_large(x: tf.Tensor) -> bool:
    return x.shape.num_elements() >= EAGER_BLOCKS_FROM and "CPU" in x.device


def _after(upstream: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """`x`, from which nothing is computed before `upstream` is there: else it would be held."""
    with tf.control_dependencies([upstream]):
        return tf.identity(x)


def _in_xla() -> bool:
    # Not public API: a test fails on a TensorFlow where it no longer answers.
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)
