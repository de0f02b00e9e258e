"""Local response normalization for Keras on TensorFlow."""

from keras_lrn import interop as interop
from keras_lrn.layer import LocalResponseNormalization
from keras_lrn.ops import local_response_normalization

LRN = LocalResponseNormalization

__version__ = "0.1.0"
__all__ = ["LRN", "LocalResponseNormalization", "local_response_normalization"]
