"""A row of a batch gets its result whatever the rows beside it, and however many there are."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import random_x_and_upstream
from modes import JIT_COMPILES

from keras_lrn import LocalResponseNormalization

ROWS = 7  # batches of 4 and 3
IMAGE = (6, 5, 9)


def same_rows(huge):
    """Rows alike, with or without one number in each whose square float32 does not hold."""
    row, _ = random_x_and_upstream(IMAGE, "float32")
    if huge:
        row[2, 3, 4] = 1e20
    return np.stack([row] * ROWS)


def assert_same(y):
    assert len(y) == ROWS
    assert np.isfinite(y).any()
    # Vectorized loops and what remains of them may round the last bit in different ways.
    for row in y[1:]:
        np.testing.assert_allclose(row, y[0], rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("huge", [False, True])
@pytest.mark.parametrize("model_compiled", [False, True])
@pytest.mark.parametrize("jit_compile", JIT_COMPILES)
@pytest.mark.parametrize("size", [5, 4])
def test_predict_gives_same_rows_the_same_in_a_last_smaller_batch(
    size, jit_compile, model_compiled, huge
):
    layer = LocalResponseNormalization(size, alpha=1.5, bias=0.8, jit_compile=jit_compile)
    model = keras.Sequential([keras.Input(IMAGE), layer])
    model.compile(jit_compile=model_compiled)
    assert_same(model.predict(same_rows(huge), batch_size=4, verbose=0))


@pytest.mark.parametrize("huge", [False, True])
@pytest.mark.parametrize("training", [True, False, None])
@pytest.mark.parametrize("jit_compile", JIT_COMPILES)
@pytest.mark.parametrize("size", [5, 4])
def test_graphs_of_a_fixed_and_of_any_batch_give_the_same(size, jit_compile, training, huge):
    layer = LocalResponseNormalization(size, alpha=1.5, bias=0.8, jit_compile=jit_compile)
    x = same_rows(huge)
    results = []
    for batch, fed in ((None, ROWS), (3, 3), (4, 4), (1, 1), (None, 1)):
        graph = tf.function(
            lambda x: layer(x, training=training),
            input_signature=[tf.TensorSpec((batch, *IMAGE))],
            autograph=False,
        )
        results.append(graph(x[:fed]).numpy())
    first, *others = results
    assert_same(first)
    for y in others:
        np.testing.assert_allclose(y, first[: len(y)], rtol=1e-6, atol=0, equal_nan=True)
