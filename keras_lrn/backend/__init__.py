"""The backend that Keras runs on: how tensors are made, and how the equations run on them."""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_lrn needs Keras on its TensorFlow backend. Set the environment variable "
        'KERAS_BACKEND to "tensorflow" before Keras is imported. '
        f'Received: backend="{keras.backend.backend()}"'
    )

from keras_lrn.backend.tensorflow import convert_to_tensor, normalize, shape_of

__all__ = ["convert_to_tensor", "normalize", "shape_of"]
