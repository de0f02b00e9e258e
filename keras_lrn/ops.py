"""Local response normalization of tensors: the checks, the way to run, the custom gradient."""

import collections
import math
import numbers

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_util  # not public, see `_in_xla`

from keras_lrn import kernels

FLOAT_DTYPES = ("bfloat16", "float16", "float32", "float64")
# Below this many elements an eager call costs less as plain ops than as compiled blocks.
EAGER_BLOCK_ELEMENTS = 2**16
# Above this size blocks are faster than whole tensors.
WIDE_WINDOW = 32
# So many spatial shapes get an XLA program of their own; those after them share one.
WHOLE_SHAPES = 4

_whole_shapes = collections.defaultdict(set)


def local_response_normalization(
    x,
    size,
    *,
    alpha=1e-4,
    beta=0.75,
    bias=1.0,
    axis=-1,
    training=False,
    lda_coeff=1.0,
    jit_compile="auto",
    name=None,
):
    """Normalizes a tensor over a sliding window of neighbouring channels.

    The same as `keras_lrn.LocalResponseNormalization`, whose page has the equations, without a
    layer. The output keeps the dtype of `x` exactly.

    Reference:

    - [Krizhevsky et al., 2012, section 3.3](https://papers.nips.cc/paper/4824)
    - [The ONNX operator LRN](https://onnx.ai/onnx/operators/onnx__LRN.html)

    Args:
        x: Tensor of rank >= 2 and dtype bfloat16, float16, float32 or float64. The 16-bit types
            are computed in float32 and rounded once at the end.
        size: Integer >= 0. How many channels a window holds; it may exceed their number.
        alpha: Finite real number >= 0. The weight of the sum of squares, divided by `size`.
        beta: Finite real number. The exponent, not the offset that other normalizations call beta.
        bias: Finite real number >= 0, added to the weighted sum of squares. 0 is legal where
            `alpha` and `size` are above 0; where a whole window is zero, output and gradient are 0.
        axis: Integer. The channel axis; negative counts from the end. Not the batch axis 0.
        training: Boolean. Whether intermediate results may be kept for the backward pass.
        lda_coeff: Finite real number that multiplies the derivative sent back to `x`.
        jit_compile: `"auto"`, `True` (always run compiled by XLA) or `False` (never, unless a
            function around it is).
        name: Optional name of the output tensor in a traced graph.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: An argument, the rank or the dtype of `x` is not as described.

    Example:

    ```python
    import tensorflow as tf
    from keras_lrn import local_response_normalization

    x = tf.constant([[1.0, 2.0, 3.0]])
    y = local_response_normalization(x, 3, alpha=3.0, beta=1.0)
    # The scale is 1 + [1 + 4, 1 + 4 + 9, 4 + 9] = [6, 15, 14].
    tf.debugging.assert_near(y, [[1 / 6, 2 / 15, 3 / 14]])
    ```
    """
    size, alpha, beta, bias, axis, lda_coeff = check_arguments(
        size, alpha, beta, bias, axis, training, lda_coeff, jit_compile
    )
    caller = "local_response_normalization"
    check_dense(x, caller)
    if isinstance(x, keras.KerasTensor):
        raise ValueError(
            f"{caller} expects a tensor with values; in a functional model use the layer "
            f"LocalResponseNormalization. Received: x={x}"
        )
    x = tf.convert_to_tensor(x)
    axis = check_input(x.shape, x.dtype, axis, caller)
    formula = kernels.Formula(size, alpha, beta, bias, lda_coeff)
    forward, backward = _choose_way(x, formula, axis, training, jit_compile, name)
    normalize = _with_gradient(forward, backward, formula, axis)
    if name is None:
        return normalize(x)
    # Exporters drop the identity, so the op that computes the output bears the name too.
    with tf.name_scope("local_response_normalization"):
        y = normalize(x)
    return tf.identity(y, name=name)


def check_arguments(size, alpha, beta, bias, axis, training, lda_coeff, jit_compile):
    """Checks what needs no input; returns the six numbers as plain Python numbers."""
    size = check_integer("size", size, minimum=0)
    alpha = check_real("alpha", alpha, minimum=0)
    beta = check_real("beta", beta)
    bias = check_real("bias", bias, minimum=0)
    if bias == 0 and (alpha == 0 or size == 0):
        raise ValueError(
            "Expected `bias` to be above 0 unless `alpha` and `size` are, for otherwise the scale "
            f"is 0 everywhere. Received: bias={bias}, alpha={alpha}, size={size}"
        )
    axis = check_integer("axis", axis)
    if not isinstance(training, (bool, np.bool_)):
        raise ValueError(f"Expected `training` to be a boolean. Received: training={training!r}")
    lda_coeff = check_real("lda_coeff", lda_coeff)
    if not (isinstance(jit_compile, (bool, np.bool_)) or _is_auto(jit_compile)):
        raise ValueError(
            'Expected `jit_compile` to be "auto", True or False. '
            f"Received: jit_compile={jit_compile!r}"
        )
    return size, alpha, beta, bias, axis, lda_coeff


def check_integer(name, value, minimum=None):
    """Returns the integer as a plain Python number, or says what is wrong with it."""
    integral = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if integral and (minimum is None or value >= minimum):
        return int(value)
    bound = "" if minimum is None else f" >= {minimum}"
    raise ValueError(f"Expected `{name}` to be an integer{bound}. Received: {name}={value!r}")


def check_real(name, value, minimum=None):
    """Returns the finite real number as a plain Python number, or says what is wrong with it."""
    if not isinstance(value, (bool, np.bool_)) and isinstance(value, numbers.Real):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the largest float
            number = math.inf
        if math.isfinite(number) and (minimum is None or number >= minimum):
            return number
    bound = "" if minimum is None else f" >= {minimum}"
    raise ValueError(
        f"Expected `{name}` to be a finite real number{bound}. Received: {name}={value!r}"
    )


def check_dense(x, caller):
    """Says so if `x` is ragged or sparse."""
    for kind, convert in (
        (tf.RaggedTensor, "`to_tensor()`"),
        (tf.SparseTensor, "`tf.sparse.to_dense`"),
    ):
        if isinstance(x, kind):
            raise ValueError(
                f"{caller} expects a dense input; convert it with {convert} first. "
                f"Received: a {kind.__name__}"
            )


def check_input(shape, dtype, axis, caller):
    """Checks shape and dtype of the input; returns the axis counted from the front."""
    dtype = tf.as_dtype(dtype).name
    if dtype not in FLOAT_DTYPES:
        raise ValueError(
            f"{caller} expects an input of dtype {', '.join(FLOAT_DTYPES[:-1])} or "
            f"{FLOAT_DTYPES[-1]}. Received: dtype={dtype}"
        )
    rank = tf.TensorShape(shape).rank
    if rank is None or rank < 2:
        raise ValueError(
            f"{caller} expects an input of known rank >= 2. Received: rank={rank}, shape={shape}"
        )
    if not (1 <= axis < rank or -rank < axis < 0):
        raise ValueError(
            f"{caller} expects `axis` to be a channel axis, other than the batch axis 0, of an "
            f"input of rank {rank}. Received: axis={axis}, shape={shape}"
        )
    return axis % rank


def _is_auto(jit_compile):
    return isinstance(jit_compile, str) and jit_compile == "auto"


def _with_gradient(forward, backward, formula, axis):
    # Both halves are opaque to the tape; from the third order on it differentiates plain formulas.
    @tf.custom_gradient
    def normalize(x):
        y, kept = forward(kernels.unrecorded(x))

        @tf.custom_gradient
        def derivative(x, upstream):
            dx = backward(kernels.unrecorded(x), kernels.unrecorded(upstream), kept)

            # Not a tape's work: within forward mode nothing that a tape could use is recorded.
            def second(cotangent):
                return kernels.backward_gradients(x, upstream, cotangent, formula, axis)

            return dx, second

        return y, lambda upstream: derivative(x, upstream)

    return normalize


def _choose_way(x, formula, axis, training, jit_compile, name):
    auto = _is_auto(jit_compile)
    if jit_compile and not auto:
        return _compiled(x, formula, axis, training)
    if _in_xla():
        return _plain(formula, axis, training, name)
    if tf.executing_eagerly():
        if auto and _cpu_only() and x.shape.num_elements() >= EAGER_BLOCK_ELEMENTS:
            return _blocks(formula, axis)
        return _plain(formula, axis, training, name)
    if training:
        # A graph for any image size expects another one at every step: compiling may never pay off.
        if auto and x.shape[1:].is_fully_defined():
            return _compiled(x, formula, axis, training)
    elif _lrn_op_means_the_same(x, formula, axis):
        return _lrn_op(formula, axis, name)
    return _plain(formula, axis, training, name)


def _plain(formula, axis, training, name):
    def forward(x):
        y, scale = kernels.forward(x, formula, axis, name)
        return y, scale if training else None

    def backward(x, upstream, scale):
        return kernels.backward(x, upstream, formula, axis, scale)

    return forward, backward


def _compiled(x, formula, axis, training):
    if not _gets_programs_of_its_own(x, formula, axis):
        return _blocks(formula, axis)

    def forward(x):
        y, padded = kernels.compiled(kernels.forward_only, formula, axis, x)
        return y, padded if training else None

    def backward(x, upstream, padded):
        return kernels.compiled(kernels.backward, formula, axis, x, upstream, padded=padded)[0]

    return forward, backward


def _blocks(formula, axis):
    eager = tf.executing_eagerly()

    def forward(x):
        return kernels.blockwise(kernels.forward_only, formula, axis, x), None

    def backward(x, upstream, _):
        # A Jacobian traces the derivative of an eager call to vectorize it: plain ops can be.
        if eager and not tf.executing_eagerly():
            return kernels.backward(x, upstream, formula, axis)
        return kernels.blockwise(kernels.backward, formula, axis, x, upstream)

    return forward, backward


def _lrn_op(formula, axis, name):
    def forward(x):
        values = tf.cast(x, tf.float32)
        name_of_op, name_of_cast = (name, None) if x.dtype == tf.float32 else (None, name)
        y = tf.raw_ops.LRN(
            input=values,
            depth_radius=formula.size // 2,
            bias=formula.bias,
            alpha=formula.alpha / formula.size,
            beta=formula.beta,
            name=name_of_op,
        )
        if x.shape[0] is not None:
            # The op spreads a NaN or an overflow over all channels of its position, the first one
            # included. A graph traced for any batch, as exports are, holds the op alone.
            y = tf.cond(
                tf.reduce_any(tf.math.is_nan(y[..., :1])),
                lambda: kernels.forward(values, formula, axis)[0],
                lambda: y,
            )
        return tf.cast(y, x.dtype, name=name_of_cast), None

    def backward(x, upstream, _):
        return kernels.backward(x, upstream, formula, axis)

    return forward, backward


def _lrn_op_means_the_same(x, formula, axis):
    channels = x.shape[axis]
    return (
        x.shape.rank == 4
        and axis == 3
        and x.dtype != tf.float64
        and channels is not None
        and channels <= 384  # above, its CPU kernel keeps a running sum, which cancels
        and formula.size % 2 == 1
        and 3 <= formula.size <= 15
        and formula.beta >= 0.01  # this and the next are the limits of cuDNN
        and formula.bias >= 1e-5
    )


def _gets_programs_of_its_own(x, formula, axis):
    """Whether this shape is compiled for itself, or one program of a block serves it and others."""
    if x.shape[axis] is None or _in_xla() or not _cpu_only():
        return True
    # With rank 2 the batch is all there is, and it may change at every step.
    if x.shape.rank == 2 or not x.shape[1:].is_fully_defined():
        return False
    # Wide windows need many partial sums, which in blocks stay in the cache.
    if formula.size > WIDE_WINDOW:
        return False
    shapes = _whole_shapes[formula, axis, x.dtype]
    shape = tuple(x.shape[1:])
    if len(shapes) < WHOLE_SHAPES:
        shapes.add(shape)
    return shape in shapes


def _cpu_only():
    return not tf.config.list_physical_devices("GPU")


def _in_xla():
    # Not public API: `tests/test_ops.py` fails on a TensorFlow where it no longer answers.
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)
