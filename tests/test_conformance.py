"""The layer on every surface of Keras and TensorFlow: saving, fit, wrappers, XLA."""

import copy
import json
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import (
    NON_DEFAULT,
    TRAININGS,
    assert_accurate,
    assert_all_accurate,
    oracle,
    random_x_and_upstream,
    relative_error,
    run_python,
    value_and_gradient,
)
from keras.src import testing

from keras_lrn import LocalResponseNormalization, reference

FORMULA = {"size": 4, "alpha": 0.7, "beta": 0.6, "bias": 1.5}
SHAPE = (2, 3, 5, 4)
in_every_training = pytest.mark.parametrize("training", TRAININGS)


# Copies of a model


COPIES = {
    "clone_model": keras.models.clone_model,
    "from_config": lambda model: keras.Sequential.from_config(model.get_config()),
    "to_json": lambda model: keras.models.model_from_json(model.to_json()),
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_model_has_the_same_outputs_and_gradients(duplicate):
    layer = LocalResponseNormalization(**NON_DEFAULT)
    model = keras.Sequential([keras.Input(SHAPE[1:]), layer])
    twin = duplicate(model)
    assert twin.layers[0] is not layer
    assert twin.layers[0].get_config() == layer.get_config()
    x, upstream = random_x_and_upstream(SHAPE, "float32")
    for actual, expected in zip(
        value_and_gradient(twin, x, upstream), value_and_gradient(model, x, upstream), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


RELOAD = """
import json
import sys
from pathlib import Path

import keras
import numpy as np

folder = Path(sys.argv[1])
without_import = {}
for name in ("model.keras", "model.h5"):
    try:
        keras.saving.load_model(folder / name)
    except Exception as error:
        without_import[name] = f"{type(error).__name__}: {error}"

import keras_lrn
import tensorflow as tf

loads = {
    "model.keras": lambda: keras.saving.load_model(folder / "model.keras", safe_mode=True),
    "model.h5": lambda: keras.saving.load_model(folder / "model.h5"),
    "model.json": lambda: keras.models.model_from_json((folder / "model.json").read_text()),
    "layer.json": lambda: keras_lrn.LRN.from_config(
        json.loads((folder / "layer.json").read_text())
    ),
}
given = np.load(folder / "given.npz")
x = tf.constant(given["x"])
arrays, configs = {}, {}
for name, load in loads.items():
    model = load()
    layer = model.layers[0] if isinstance(model, keras.Model) else model
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)
    arrays[f"{name}/y"] = y
    arrays[f"{name}/dx"] = tape.gradient(y, x, tf.cast(given["upstream"], y.dtype))
    configs[name] = layer.get_config()
np.savez(folder / "reloaded.npz", **arrays)
print(json.dumps({"without_import": without_import, "configs": configs}))
"""


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory):
    """What a fresh process, which imports the package and nothing of this one, makes of a model."""
    folder = tmp_path_factory.mktemp("reloaded")
    layer = LocalResponseNormalization(**NON_DEFAULT)
    model = keras.Sequential([keras.Input(SHAPE[1:]), layer])
    model.save(folder / "model.keras")
    model.save(folder / "model.h5")
    (folder / "model.json").write_text(model.to_json())
    (folder / "layer.json").write_text(json.dumps(layer.get_config()))
    x, upstream = random_x_and_upstream(SHAPE, "float32")
    np.savez(folder / "given.npz", x=x, upstream=upstream)
    finished = run_python("-c", RELOAD, folder)
    assert finished.returncode == 0, finished.stderr
    said = json.loads(finished.stdout.splitlines()[-1])
    y, dx = value_and_gradient(model, x, upstream)
    return {
        **said,
        "config": layer.get_config(),
        "arrays": np.load(folder / "reloaded.npz"),
        "y": y,
        "dx": dx,
    }


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "model.json", "layer.json"])
def test_a_fresh_process_reloads_the_same_layer(name, reloaded):
    assert reloaded["configs"][name] == json.loads(json.dumps(reloaded["config"]))
    np.testing.assert_array_equal(reloaded["arrays"][f"{name}/y"], reloaded["y"])
    np.testing.assert_array_equal(reloaded["arrays"][f"{name}/dx"], reloaded["dx"])


def test_the_saved_layer_is_not_the_identity(reloaded):
    x, upstream = random_x_and_upstream(SHAPE, "float32")
    arguments = {**FORMULA, "axis": -2, "lda_coeff": -2.5}
    y, dx = oracle(x, upstream.astype("float16"), **arguments)
    assert_accurate(reloaded["y"], y, "float16")
    assert_accurate(reloaded["dx"], dx, "float32")


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_without_the_package_keras_names_the_layer_that_it_cannot_load(name, reloaded):
    error = reloaded["without_import"][name]
    assert error.startswith(("TypeError", "ValueError"))
    assert "LocalResponseNormalization" in error


SERVE = """
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

folder = Path(sys.argv[1])
served = tf.saved_model.load(folder / "served")
given = np.load(folder / "given.npz")
x = tf.constant(given["x"])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = served.serve(x)
np.savez(folder / "served.npz", y=y, dx=tape.gradient(y, x, given["upstream"]))
assert "keras_lrn" not in sys.modules
"""


def test_an_exported_model_keeps_its_gradient_without_the_package(tmp_path):
    layer = LocalResponseNormalization(**{**FORMULA, "size": 5}, lda_coeff=-2.5)
    model = keras.Sequential([keras.Input(SHAPE[1:]), layer])
    model.export(tmp_path / "served", verbose=False)
    x, upstream = random_x_and_upstream(SHAPE, "float32")
    np.savez(tmp_path / "given.npz", x=x, upstream=upstream)
    finished = run_python("-c", SERVE, tmp_path)
    assert finished.returncode == 0, finished.stderr
    served = np.load(tmp_path / "served.npz")
    arguments = {**FORMULA, "size": 5, "lda_coeff": -2.5}
    expected = oracle(x, upstream, **arguments)
    assert_all_accurate((served["y"], served["dx"]), expected, "float32")


# Models made of models


@keras.saving.register_keras_serializable(package="tests")
class TwoBranches(keras.Model):
    """A subclassed model that holds a nested model and shares one layer."""

    def __init__(self, shared, nested, **kwargs):
        super().__init__(**kwargs)
        self.shared, self.nested = shared, nested

    def call(self, x):
        return self.nested(self.shared(x)) + self.shared(2 * x)

    def get_config(self):
        layers = {"shared": self.shared, "nested": self.nested}
        return {k: keras.saving.serialize_keras_object(v) for k, v in layers.items()}

    @classmethod
    def from_config(cls, config):
        return cls(**{k: keras.saving.deserialize_keras_object(v) for k, v in config.items()})


def functional(shared, nested):
    x = keras.Input(SHAPE[1:])
    return keras.Model(x, nested(shared(x)) + shared(2 * x))


@pytest.mark.parametrize("build", [functional, TwoBranches])
def test_a_layer_may_be_shared_and_nested_and_saved_so(build, tmp_path):
    shared = LocalResponseNormalization(**FORMULA)
    inner = LocalResponseNormalization(3, alpha=0.9, axis=1)
    model = build(shared, keras.Sequential([inner, keras.layers.ReLU()]))
    x, _ = random_x_and_upstream(SHAPE, "float32")
    lrn = reference.local_response_normalization
    nested = np.maximum(lrn(lrn(x, **FORMULA), 3, alpha=0.9, axis=1), 0)
    expected = nested + lrn(2 * x, **FORMULA)
    assert_accurate(model(x), expected, "float32")
    model.save(tmp_path / "model.keras")
    assert_accurate(keras.saving.load_model(tmp_path / "model.keras")(x), expected, "float32")


@pytest.mark.parametrize(("inner", "outer"), [(1, 2), (-1, -1), (2, 3)])
def test_time_distributed_applies_the_layer_to_every_step(inner, outer):
    x, _ = random_x_and_upstream(SHAPE, "float32")
    wrapped = keras.layers.TimeDistributed(LocalResponseNormalization(**FORMULA, axis=inner))
    expected = reference.local_response_normalization(x, **FORMULA, axis=outer)
    assert_accurate(wrapped(x), expected, "float32")


# Training


class TensorFlowLRN(keras.layers.Layer):
    """Size 5, alpha 0.7, beta 0.6, bias 1.5 in TensorFlow's own words and with its gradient."""

    def call(self, inputs):
        return tf.nn.local_response_normalization(inputs, 2, bias=1.5, alpha=0.7 / 5, beta=0.6)


def ours(**arguments):
    return LocalResponseNormalization(**{**FORMULA, "size": 5}, **arguments)


def classifier(*normalizations, image=(8, 7, 3)):
    """A small convolutional network, always with the same initial weights."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input(image),
            keras.layers.Conv2D(6, 3, activation="relu"),
            *normalizations,
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )


def images_and_labels(count=10, height=8, width=7):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(count, height, width, 3)).astype("float32")
    return images, rng.integers(4, size=count)


def compiled(model, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.3), loss, **options)
    return model


def trained(model, **options):
    """The losses of two epochs of fit, whose last batch is smaller, of evaluate, and outputs."""
    compiled(model, **options)
    images, labels = images_and_labels()
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    losses = model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [*losses, model.evaluate(data, verbose=0)], model.predict(
        images, batch_size=4, verbose=0
    )


@pytest.fixture(scope="module")
def trained_with_tensorflow():
    return trained(classifier(TensorFlowLRN()))


@pytest.mark.parametrize(
    ("options", "training"),
    [
        ({}, True),
        ({}, False),
        ({"jit_compile": True}, True),
        ({"run_eagerly": True}, True),
    ],
    ids=["default", "not keeping", "XLA", "eager"],
)
def test_fit_evaluate_and_predict_agree_with_those_of_tensorflow_however_compiled(
    options, training, trained_with_tensorflow
):
    losses, outputs = trained(classifier(ours(training=training)), **options)
    expected_losses, expected_outputs = trained_with_tensorflow
    assert expected_losses[0] > expected_losses[1] > expected_losses[2]
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    np.testing.assert_allclose(outputs, expected_outputs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("graph", [True, False])
def test_a_custom_loop_trains_like_fit(graph):
    images, labels = images_and_labels()
    expected = compiled(classifier(ours()))
    model = compiled(classifier(ours()))

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(images, labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    step = tf.function(step) if graph else step
    for _ in range(3):
        expected.reset_metrics()  # some versions of Keras average the loss over batches
        np.testing.assert_allclose(
            step(images, labels), expected.train_on_batch(images, labels), rtol=1e-5
        )
    assert_same_weights(model, expected)


def test_batches_of_images_of_different_sizes_train_as_they_do_eagerly():
    model = compiled(classifier(ours(), image=(None, None, 3)))
    eager = compiled(classifier(TensorFlowLRN(), image=(None, None, 3)), run_eagerly=True)
    for count, height, width in (
        (4, 8, 7),
        (2, 5, 9),
        (3, 11, 6),
        (4, 7, 8),
        (5, 6, 10),
        (2, 5, 9),
    ):
        batch = images_and_labels(count, height, width)
        np.testing.assert_allclose(
            model.train_on_batch(*batch), eager.train_on_batch(*batch), rtol=1e-5
        )
    assert_same_weights(model, eager)


@pytest.fixture
def mixed_float16():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.usefixtures("mixed_float16")
def test_mixed_precision_trains_with_a_scaled_loss():
    model = compiled(classifier(ours()))
    assert model.layers[1].compute_dtype == "float16"
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    before = [variable.numpy() for variable in model.trainable_variables]
    losses = model.fit(*images_and_labels(), batch_size=4, epochs=4, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    after = [variable.numpy() for variable in model.trainable_variables]
    assert all((a != b).any() for a, b in zip(after, before, strict=True))


def test_an_empty_batch_gives_an_empty_prediction():
    model = keras.Sequential([keras.Input((5, 3, 4)), ours()])
    assert model.predict_on_batch(np.zeros((0, 5, 3, 4), "float32")).shape == (0, 5, 3, 4)


def steps_of_sgd(model, **options):
    """How far one batch moves the weights of the convolution, and the bias behind it."""
    compiled(model, **options)
    before = [variable.numpy() for variable in model.trainable_variables]
    model.train_on_batch(*images_and_labels())
    moved = [v.numpy() - b for v, b in zip(model.trainable_variables, before, strict=True)]
    return moved[0], moved[-1]


def assert_moves(actual, expected, factor):
    np.testing.assert_allclose(
        actual[0], factor * expected[0], rtol=0, atol=2e-5 * np.abs(expected[0]).max()
    )
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("lda_coeff", "options"),
    [(0, {}), (-1.5, {}), (3, {}), (3, {"jit_compile": True}), (3, {"run_eagerly": True})],
)
def test_weights_before_the_layer_move_lda_coeff_times_as_far_in_fit(lda_coeff, options):
    plain = steps_of_sgd(classifier(ours()))
    scaled = steps_of_sgd(classifier(ours(lda_coeff=lda_coeff)), **options)
    assert np.abs(plain[0]).max() > 1e-3
    assert_moves(scaled, plain, lda_coeff)


def test_stacked_layers_multiply_their_lda_coeff_before_and_after_a_reload(tmp_path):
    plain = steps_of_sgd(classifier(ours(), ours()))
    scaled = classifier(ours(lda_coeff=-2), ours(lda_coeff=1.5))
    scaled.save(tmp_path / "model.keras")
    assert_moves(steps_of_sgd(scaled), plain, -3)
    assert_moves(steps_of_sgd(keras.saving.load_model(tmp_path / "model.keras")), plain, -3)


def assert_same_weights(model, expected):
    for actual, weights in zip(model.get_weights(), expected.get_weights(), strict=True):
        assert relative_error(actual, weights) < 1e-5


# TensorFlow


@in_every_training
def test_xla_computes_the_outputs_and_gradients_of_a_model(training):
    model = keras.Sequential([keras.Input(SHAPE[1:]), LocalResponseNormalization(**FORMULA)])

    @tf.function(jit_compile=True)
    def run(x, upstream):
        return value_and_gradient(model, x, upstream, training=training)

    x, upstream = random_x_and_upstream(SHAPE, "float32")
    assert_all_accurate(run(x, upstream), oracle(x, upstream, **FORMULA), "float32")


@in_every_training
@pytest.mark.parametrize(("inner", "outer"), [(1, 2), (-1, -1)])
def test_vectorized_map_applies_the_layer_to_every_element(inner, outer, training):
    layer = LocalResponseNormalization(**FORMULA, axis=inner)
    x, _ = random_x_and_upstream(SHAPE, "float32")
    y = tf.vectorized_map(lambda element: layer(element, training=training), tf.constant(x))
    expected = reference.local_response_normalization(x, **FORMULA, axis=outer)
    assert_accurate(y, expected, "float32")


@in_every_training
@pytest.mark.parametrize("graph", [True, False])
def test_the_jacobian_of_the_layer_is_that_of_the_oracle(graph, training):
    layer = LocalResponseNormalization(**FORMULA, lda_coeff=-2.5, dtype="float64")

    def jacobian(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=training)
        return tape.jacobian(y, x)

    x, _ = random_x_and_upstream((2, 3, 5))
    actual = (tf.function(jacobian) if graph else jacobian)(tf.constant(x))
    units = np.eye(x.size).reshape(-1, *x.shape)
    expected = [reference.gradient(x, unit, lda_coeff=-2.5, **FORMULA) for unit in units]
    assert_accurate(actual, np.reshape(expected, x.shape * 2), "float64")


@in_every_training
def test_forward_mode_through_the_layer_is_the_adjoint_of_the_gradient(training):
    layer = LocalResponseNormalization(**FORMULA, dtype="float64")
    x, direction = random_x_and_upstream(SHAPE)
    _, upstream = random_x_and_upstream(SHAPE, seed=1)
    inputs = tf.constant(x)
    with tf.autodiff.ForwardAccumulator(inputs, tf.constant(direction)) as forward:
        y = layer(inputs, training=training)
    expected = np.sum(reference.gradient(x, upstream, **FORMULA) * direction)
    np.testing.assert_allclose(np.sum(upstream * forward.jvp(y)), expected, rtol=1e-12)


# Keras


# They fit a layer without weights, on a generator, with `shuffle` at its default.
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights:UserWarning")
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
def test_the_layer_passes_the_tests_that_keras_runs_on_its_own_layers():
    x, _ = random_x_and_upstream(SHAPE, "float32")
    expected = reference.local_response_normalization(x, **FORMULA)
    # Private API of Keras, and so for this one test only.
    testing.TestCase().run_layer_test(
        LocalResponseNormalization,
        init_kwargs={**FORMULA, "lda_coeff": 2.0, "specified_outputs_name": ["normalized"]},
        input_data=tf.constant(x),
        expected_output=tf.constant(expected, "float32"),
        expected_output_dtype="float32",
        expected_num_trainable_weights=0,
        expected_num_non_trainable_weights=0,
        expected_num_non_trainable_variables=0,
        expected_num_seed_generators=0,
        expected_num_losses=0,
        supports_masking=True,
        run_training_check=True,
        run_mixed_precision_check=True,
    )
