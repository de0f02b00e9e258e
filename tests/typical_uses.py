"""Uses that the specification allows, for a type checker to read: it is not run."""

from fractions import Fraction
from typing import assert_type

import keras
import numpy as np
import tensorflow as tf

from keras_lrn import LRN, LocalResponseNormalization, interop, local_response_normalization


def the_layer_takes_what_the_specification_allows() -> None:
    LocalResponseNormalization()
    LocalResponseNormalization(5)
    LocalResponseNormalization(np.int64(5), alpha=np.float32(1e-4), beta=Fraction(3, 4), bias=2)
    LocalResponseNormalization(5, jit_compile=True)
    LocalResponseNormalization(5, jit_compile=np.bool_(False))
    LocalResponseNormalization(5, jit_compile="auto", training=np.bool_(True), axis=np.int8(1))
    LocalResponseNormalization(5, specified_outputs_name=("norm1",), name="norm1", dtype="float16")
    LRN(5, specified_outputs_name=["norm1"], lda_coeff=-1)


def the_layer_knows_its_arguments() -> None:
    layer = LocalResponseNormalization(5)
    assert_type(layer.size, int)
    assert_type(layer.alpha, float)
    assert_type(layer.training, bool)
    assert_type(layer.specified_outputs_name, list[str] | None)
    layer.get_config()["alpha"]


def models_are_made_of_it(images: np.ndarray) -> None:
    model = keras.Sequential([keras.Input((8, 8, 3)), LocalResponseNormalization(5)])
    model.predict(images)
    LocalResponseNormalization(5)(images, training=True)


def the_function_returns_one_tensor(x: tf.Tensor) -> None:
    y = local_response_normalization(x, np.int64(5), training=None, name="norm1")
    assert_type(y, tf.Tensor)
    local_response_normalization(np.ones((2, 7)), 5, alpha=1, jit_compile=True, training=True)
    local_response_normalization([[1.0, 2.0]], 3, training=np.bool_(True))


def arguments_come_from_other_frameworks() -> None:
    LocalResponseNormalization(**interop.from_published("alexnet"))
    LocalResponseNormalization(**interop.from_tensorflow(2, alpha=1e-4))
