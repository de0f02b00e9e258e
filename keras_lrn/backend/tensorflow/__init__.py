"""TensorFlow: `gradient` around one of the `ways` to run, some of which run `programs`."""

from keras_lrn.backend.tensorflow.gradient import normalize
from keras_lrn.backend.tensorflow.tensors import convert_to_tensor, shape_of

__all__ = ["convert_to_tensor", "normalize", "shape_of"]
