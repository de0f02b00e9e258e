"""Writes old_keras/, models with LRN layers as an old Keras saved them: tests need no old Keras.

Run it only to add files, in an environment of its own with an old Keras (2.13 needs Python 3.8 to
3.11): `pip install "tensorflow-cpu==2.13.*"`, then `python tests/write_old_keras_files.py`.

Each file has its input and the old Keras's output beside it, in an `.npz` of the same name. The
classes are those of public code: `LRN2D` as Keras 0.x had it, with an `axis` to hold its channels
last, `LRN` around TensorFlow's function, `LocalResponseNormalization` with the names of Caffe, and
one that saves none of its arguments.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).with_name("old_keras")


class LRN2D(keras.layers.Layer):
    def __init__(self, alpha=1e-4, k=2, beta=0.75, n=5, **kwargs):
        super().__init__(**kwargs)
        self.alpha, self.k, self.beta, self.n = alpha, k, beta, n

    def call(self, x):
        half, channels = self.n // 2, x.shape[-1]
        squares = tf.pad(tf.square(x), [[0, 0]] * 3 + [[half, half]])
        scale = self.k
        for i in range(self.n):
            scale += self.alpha * squares[..., i : i + channels]
        return x / scale**self.beta

    def get_config(self):
        names = ("alpha", "k", "beta", "n")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class LRN2DChannelsFirst(LRN2D):
    def call(self, x):
        return tf.transpose(super().call(tf.transpose(x, (0, 2, 3, 1))), (0, 3, 1, 2))


# As in a file of Keras 0.x, whose layer had its channels first.
LRN2DChannelsFirst.__name__ = "LRN2D"


class LRN(keras.layers.Layer):
    def __init__(self, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, **kwargs):
        super().__init__(**kwargs)
        self.arguments = {"depth_radius": depth_radius, "bias": bias, "alpha": alpha, "beta": beta}

    def call(self, x):
        return tf.nn.local_response_normalization(x, **self.arguments)

    def get_config(self):
        return {**super().get_config(), **self.arguments}


class LocalResponseNormalization(keras.layers.Layer):
    def __init__(self, local_size=5, alpha=1.0, beta=0.75, k=1.0, **kwargs):
        super().__init__(**kwargs)
        self.local_size, self.alpha, self.beta, self.k = local_size, alpha, beta, k

    def call(self, x):
        alpha = self.alpha / self.local_size
        return tf.nn.lrn(x, self.local_size // 2, bias=self.k, alpha=alpha, beta=self.beta)

    def get_config(self):
        names = ("local_size", "alpha", "beta", "k")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class LRNWithoutArguments(keras.layers.Layer):
    def call(self, x):
        return tf.nn.local_response_normalization(x)


LRNWithoutArguments.__name__ = "LRN"


def small_network(first_norm, second_norm):
    return keras.Sequential(
        [
            keras.Input((9, 8, 3), name="image"),
            keras.layers.Conv2D(12, 3, activation="relu", name="conv1"),
            first_norm,
            keras.layers.MaxPooling2D(2, name="pool1"),
            keras.layers.Conv2D(10, 2, activation="relu", name="conv2"),
            second_norm,
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(5, name="logits"),
        ]
    )


def functional_network():
    image = keras.Input((9, 8, 3), name="image")
    normalize = LocalResponseNormalization(3, alpha=5e-4, k=2.0, name="norm")
    left = normalize(keras.layers.Conv2D(12, 3, activation="relu", name="left")(image))
    right = normalize(keras.layers.Conv2D(12, 3, activation="relu", name="right")(image))
    both = keras.layers.Add(name="sum")([left, right])
    pooled = keras.layers.GlobalAveragePooling2D(name="pool")(both)
    return keras.Model(image, keras.layers.Dense(4, name="logits")(pooled))


def lambda_network():
    return small_network(
        keras.layers.Lambda(
            tf.nn.local_response_normalization,
            arguments={"depth_radius": 2, "bias": 2.0, "alpha": 1e-4, "beta": 0.75},
            name="norm1",
        ),
        keras.layers.Lambda(tf.nn.local_response_normalization, name="norm2"),
    )


def main():
    keras.utils.set_random_seed(0)
    models = {
        "lrn2d.h5": small_network(LRN2D(name="norm1"), LRN2D(3e-4, 1, 0.6, 3, name="norm2")),
        "lrn2d_first.h5": keras.Sequential(
            [LRN2DChannelsFirst(2e-4, 1, 0.8, 7, input_shape=(11, 4, 3), name="norm")]
        ),
        "lrn.h5": small_network(
            LRN(2, 2.0, 1e-4, 0.75, name="norm1"), LRN(alpha=1e-3, name="norm2")
        ),
        "local_response_normalization.h5": functional_network(),
        "without_arguments.h5": small_network(
            LRNWithoutArguments(name="norm1"), LRNWithoutArguments(name="norm2")
        ),
        "lambdas.h5": lambda_network(),
    }
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name, model in models.items():
        path = FOLDER / name
        # As large as pixels, so that an alpha of 1e-4 matters.
        x = rng.normal(scale=100, size=(2, *model.input_shape[1:])).astype("float32")
        # A Lambda is saved as the code of its function, which no other Keras can read.
        save = model.save_weights if name == "lambdas.h5" else model.save
        save(path)
        np.savez(path.with_suffix(".npz"), x=x, y=model(x), keras=keras.__version__)


if __name__ == "__main__":
    main()
