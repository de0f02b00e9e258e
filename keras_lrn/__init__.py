"""Local response normalization for Keras on TensorFlow."""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_lrn needs Keras on its TensorFlow backend. Set the environment variable "
        'KERAS_BACKEND to "tensorflow" before Keras is imported. '
        f'Received: backend="{keras.backend.backend()}"'
    )

from keras_lrn.layer import LocalResponseNormalization
from keras_lrn.ops import local_response_normalization

LRN = LocalResponseNormalization

__version__ = "0.1.0"
__all__ = ["LRN", "LocalResponseNormalization", "local_response_normalization"]
