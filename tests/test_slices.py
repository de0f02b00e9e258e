"""Derivatives that arrive as `tf.IndexedSlices`, because rows of the output were looked up."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import assert_accurate, random_x_and_upstream, relative_error
from modes import MODES, TRAININGS, WAYS, dealt, second_order, traced_in

from keras_lrn import LocalResponseNormalization, local_response_normalization, reference

ARGUMENTS = dict(size=5, alpha=1.5, beta=0.75, bias=0.8)
SHAPE = (4, 3, 5, 7)
ROWS = np.array([2, 0, 2, 1, 2, 0])  # some of them several times, one of them never
LOOK_UPS = {
    "gather": lambda y: tf.gather(y, ROWS),
    "gather_rows_of_rows": lambda y: tf.gather(y, ROWS.reshape(2, 3)),
    "gather_one": lambda y: tf.gather(y, 2),
    "gather_none": lambda y: tf.gather(y, ROWS[:0]),
    "take": lambda y: keras.ops.take(y, ROWS, axis=0),
    "gather_nd": lambda y: tf.gather_nd(y, ROWS[:, np.newaxis]),
    "embedding_lookup": lambda y: tf.nn.embedding_lookup(y, ROWS),
    "sum_of_two": lambda y: tf.gather(y, ROWS) + tf.gather(y, ROWS[::-1].astype("int32")),
}
CALLS = ("function", "layer")


def normalization(call, training, arguments):
    if call == "function":
        return lambda x: local_response_normalization(x, training=training, **arguments)
    layer = LocalResponseNormalization(**arguments, dtype="float64")
    return lambda x: layer(x, training=training)


def derivatives(normalize, look_up):
    """A function that looks rows up in the output, and in its gradient too."""

    def both(x, upstream, cotangent):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = look_up(normalize(x))
            dx = tape.gradient(y, x, upstream)
            rows = look_up(dx)
        return dx, outer.gradient(rows, x, cotangent)

    return both


def dense(look_up, derivative, x):
    """The derivative of the rows that are looked up in `x`, in each place the sum of its own."""
    x = tf.Variable(x)
    with tf.GradientTape() as tape:
        rows = look_up(x)
    slices = tape.gradient(rows, x, derivative)
    assert isinstance(slices, tf.IndexedSlices)
    total = np.zeros(x.shape)
    np.add.at(total, slices.indices.numpy(), slices.values.numpy())
    return total


@pytest.mark.parametrize(
    ("mode", "training", "jit_compile", "look_up", "lda_coeff", "call"),
    dealt([*WAYS, *WAYS], LOOK_UPS, (1.0, -2.0, 0.0), CALLS),
)
def test_derivatives_of_looked_up_rows_are_right_in_both_orders(
    mode, training, jit_compile, look_up, lda_coeff, call
):
    look_up = LOOK_UPS[look_up]
    x, _ = random_x_and_upstream(SHAPE)
    upstream, cotangent = random_x_and_upstream(look_up(x).shape, seed=1)
    arguments = dict(ARGUMENTS, lda_coeff=lda_coeff)
    normalize = normalization(call, training, arguments | {"jit_compile": jit_compile})
    first, second = traced_in(mode, derivatives(normalize, look_up))(
        *map(tf.constant, (x, upstream, cotangent))
    )
    upstream, cotangent = dense(look_up, upstream, x), dense(look_up, cotangent, x)
    assert_accurate(first, reference.gradient(x, upstream, **arguments), "float64")
    # The oracle's is a difference quotient.
    assert relative_error(second, second_order(x, upstream, cotangent, **arguments)) <= 1e-9


def gradient(normalize, look_up):
    def of_x(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = look_up(normalize(x))
        return tape.gradient(y, x, upstream)

    return of_x


# In float32 and less the forward pass of an inference graph is TensorFlow's own op.
@pytest.mark.parametrize(
    ("mode", "training", "jit_compile", "dtype", "size"),
    dealt(WAYS, ("bfloat16", "float16", "float32"), (5, 4)),
)
def test_gradients_of_looked_up_rows_keep_the_dtype(mode, training, jit_compile, dtype, size):
    def look_up(y):
        return tf.gather(y, [2, 0, 3])  # each once, so that nothing is rounded in a sum

    x, upstream = tf.cast(random_x_and_upstream(SHAPE), dtype)
    arguments = dict(ARGUMENTS, size=size, lda_coeff=-2.0)
    normalize = normalization("function", training, arguments | {"jit_compile": jit_compile})
    dx = traced_in(mode, gradient(normalize, look_up))(x, upstream[:3])
    expected = reference.gradient(x, dense(look_up, upstream[:3], x), **arguments)
    assert_accurate(dx, expected, dtype)


def test_gradients_of_many_looked_up_rows_are_right():
    # As many elements as an eager call runs block by block.
    x, _ = random_x_and_upstream((600, 11, 10), "float32")
    rows = np.random.default_rng(1).integers(600, size=700)
    upstream = np.random.default_rng(2).normal(size=(700, 11, 10)).astype("float32")
    normalize = normalization("function", None, ARGUMENTS)
    dx = gradient(normalize, lambda y: tf.gather(y, rows))(tf.constant(x), tf.constant(upstream))
    expected = np.zeros(x.shape)
    np.add.at(expected, rows, upstream)
    assert_accurate(dx, reference.gradient(x, expected, **ARGUMENTS), "float32")


@pytest.mark.parametrize("mode", MODES)
def test_slices_that_do_not_tell_the_shape_are_taken_too(mode):
    @tf.custom_gradient
    def look_up(y):
        return tf.gather(y, ROWS), lambda upstream: tf.IndexedSlices(upstream, tf.constant(ROWS))

    x, _ = random_x_and_upstream(SHAPE)
    upstream, _ = random_x_and_upstream((len(ROWS), *SHAPE[1:]), seed=1)
    arguments = dict(ARGUMENTS, lda_coeff=-2.0)
    normalize = normalization("function", True, arguments)
    dx = traced_in(mode, gradient(normalize, look_up))(tf.constant(x), tf.constant(upstream))
    expected = np.zeros(SHAPE)
    np.add.at(expected, ROWS, upstream)
    assert_accurate(dx, reference.gradient(x, expected, **arguments), "float64")


@pytest.mark.parametrize("training", TRAININGS)
def test_a_graph_of_a_very_large_tensor_is_traced_without_a_warning(training):
    # TensorFlow warns where it makes slices of this size dense by itself.
    shape = [1000, 100, 101, 10]
    look_up = LOOK_UPS["gather"]
    traced = tf.function(
        gradient(normalization("function", training, ARGUMENTS), look_up), autograph=False
    )
    specs = [tf.TensorSpec(s) for s in (shape, [len(ROWS), *shape[1:]])]
    assert traced.get_concrete_function(*specs).outputs[0].shape == shape


class Network(keras.Model):
    """A convolution, the layer, and rows of its output, looked up or picked by a product."""

    def __init__(self, take, **arguments):
        super().__init__()
        self.take = take
        self.convolution = keras.layers.Conv2D(7, 2)
        self.normalization = LocalResponseNormalization(**ARGUMENTS, **arguments)

    def call(self, x, training=None):
        y = self.normalization(self.convolution(x), training=training)
        return keras.ops.mean(self.take(y), axis=(1, 2))


def taken(y):
    return keras.ops.take(y, ROWS, axis=0)


def multiplied(y):
    return keras.ops.tensordot(keras.ops.one_hot(ROWS, 4), y, axes=1)


def fitted(take, arguments, options):
    """The weights after an epoch, and how far they moved."""
    keras.utils.set_random_seed(2012)
    model = Network(take, **arguments)
    images, targets = random_x_and_upstream((12, 6, 5, 3), "float32")
    model(images[:4])
    before = model.get_weights()
    model.compile("sgd", "mse", **options)
    # Six rows come out of each batch of four, and there is a target to each.
    targets = targets.reshape(3, -1)[:, : 6 * 7].reshape(3, 6, 7)
    data = tf.data.Dataset.from_tensor_slices((images.reshape(3, 4, 6, 5, 3), targets))
    model.fit(data, shuffle=False, verbose=0)
    return [after - b for after, b in zip(model.get_weights(), before, strict=True)]


@pytest.mark.parametrize("arguments", [{}, {"lda_coeff": -2.0}, {"jit_compile": True}], ids=str)
@pytest.mark.parametrize(
    "options", [{"jit_compile": False}, {"jit_compile": True}, {"run_eagerly": True}], ids=str
)
def test_a_model_with_take_behind_the_layer_is_fitted(options, arguments):
    moved = fitted(taken, arguments, options)
    for actual, expected in zip(moved, fitted(multiplied, arguments, options), strict=True):
        assert np.abs(expected).max() > 1e-4
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
