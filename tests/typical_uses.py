"""Uses that are right, and at the end some that are wrong, for a type checker: it is not run."""

from fractions import Fraction
from typing import Literal, assert_type

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from keras_lrn import (
    LRN,
    LocalResponseNormalization,
    interop,
    local_response_normalization,
    reference,
)


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
    assert_type(layer.jit_compile, Literal["auto"] | bool)
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
    LocalResponseNormalization(**interop.from_tensorflow(np.int64(2), alpha=np.float32(1e-4)))
    LocalResponseNormalization(**{**interop.from_caffe(alpha=Fraction(1, 2)), "axis": -1})


def the_reference_takes_and_returns_arrays() -> None:
    y = reference.local_response_normalization([[1, 2, 3]], np.int64(3), bias=np.float32(2.0))
    assert_type(y, NDArray[np.float64])
    assert_type(reference.gradient(y, y, 3, lda_coeff=-1), NDArray[np.float64])


# If one of these is no longer refused, its comment is unused, and that is an error too.
def the_layer_refuses() -> None:
    LocalResponseNormalization("5")  # type: ignore[arg-type]
    LocalResponseNormalization(5.0)  # type: ignore[arg-type]
    LocalResponseNormalization(None)  # type: ignore[arg-type]
    LocalResponseNormalization(5, 1e-4)  # type: ignore[call-arg]
    LocalResponseNormalization(5, alpha="1e-4")  # type: ignore[arg-type]
    LocalResponseNormalization(5, training=None)  # type: ignore[arg-type]
    LocalResponseNormalization(5, jit_compile="always")  # type: ignore[arg-type]
    LocalResponseNormalization(5, specified_outputs_name=1)  # type: ignore[arg-type]


def the_function_refuses(x: tf.Tensor) -> None:
    local_response_normalization(x)  # type: ignore[call-arg]
    local_response_normalization(x, "5")  # type: ignore[arg-type]
    local_response_normalization(x, 5.0)  # type: ignore[arg-type]
    local_response_normalization(x, 5, jit_compile="always")  # type: ignore[arg-type]
    local_response_normalization(x, 5, depth_radius=2)  # type: ignore[arg-type]
    local_response_normalization(x, 5, name=["norm1"])  # type: ignore[arg-type]
