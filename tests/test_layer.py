"""The layer: arguments, input checks, configuration, dtype policy, modes and shapes."""

import inspect
import json
import re
from fractions import Fraction

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import (
    DTYPES,
    NON_DEFAULT,
    TRAININGS,
    assert_accurate,
    assert_all_accurate,
    oracle,
    random_x_and_upstream,
    traced_ops,
    value_and_gradient,
)

from keras_lrn import LRN, LocalResponseNormalization
from keras_lrn.backend.tensorflow import ways
from keras_lrn.reference import local_response_normalization as exact

FORMULA = {"size": 4, "alpha": 0.7, "beta": 0.6, "bias": 1.5, "axis": -1}
in_every_training = pytest.mark.parametrize("training", TRAININGS)


def traced(layer, spec, training=None):
    function = tf.function(lambda x: layer(x, training=training), autograph=False)
    return function.get_concrete_function(spec).graph


# Arguments


@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        ("size", 0, 0),
        ("size", 400, 400),
        ("size", np.int64(5), 5),
        ("size", np.uint8(2), 2),
        ("alpha", 0, 0.0),
        ("alpha", np.float32(0.5), 0.5),
        ("alpha", Fraction(1, 4), 0.25),
        ("beta", -2, -2.0),
        ("beta", 0.0, 0.0),
        ("beta", np.float16(0.75), 0.75),
        ("bias", 0, 0.0),
        ("bias", np.int32(2), 2.0),
        ("axis", 1, 1),
        ("axis", -3, -3),
        ("axis", np.int8(-2), -2),
        ("training", False, False),
        ("training", np.True_, True),
        ("lda_coeff", 0, 0.0),
        ("lda_coeff", -1.5, -1.5),
        ("lda_coeff", np.float64(3), 3.0),
        ("jit_compile", "auto", "auto"),
        ("jit_compile", True, True),
        ("jit_compile", np.False_, False),
    ],
)
def test_legal_arguments_are_stored_as_plain_python(key, value, stored):
    layer = LocalResponseNormalization(**{"size": 3, key: value})
    for kept in (getattr(layer, key), layer.get_config()[key]):
        assert type(kept) is type(stored)
        assert kept == stored


@pytest.mark.parametrize("names", [None, ("a",), ["scope/a_1.b-c>d"]])
def test_a_sequence_of_one_name_may_name_the_output(names):
    layer = LocalResponseNormalization(3, specified_outputs_name=names)
    assert layer.get_config()["specified_outputs_name"] == (names and list(names))


NUMBER = "a finite real number"
NOT_NUMBERS = [np.nan, np.inf, -np.inf, True, np.False_, "1", None, 1j, [1.0]]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        *[("size", value, "an integer >= 0") for value in (-1, True, np.True_, 2.0, "3", None)],
        ("size", np.float32(3), "an integer >= 0"),
        *[("alpha", value, f"{NUMBER} >= 0") for value in [*NOT_NUMBERS, -0.5, 10**400]],
        *[("beta", value, NUMBER) for value in NOT_NUMBERS],
        *[("bias", value, f"{NUMBER} >= 0") for value in [*NOT_NUMBERS, -0.5]],
        *[("axis", value, "an integer") for value in (True, 1.0, "channels", None, (1,))],
        *[("training", value, "a boolean") for value in (None, 0, 1, "True")],
        *[("lda_coeff", value, NUMBER) for value in NOT_NUMBERS],
        *[
            ("specified_outputs_name", value, "None or a sequence of exactly one valid tensor name")
            for value in (
                *("a", [], (), ["a", "b"], [1], [None], [["a"]], {"a"}, {"a": 1}, 3),
                *([name] for name in ("", "a b", " a", "a\n", "a:0", "_a", "/a", "-a", "é")),
            )
        ],
        *[
            ("jit_compile", value, '"auto", True or False')
            for value in (None, 0, 1, "always", "True", ["auto"])
        ],
    ],
)
def test_illegal_arguments_are_refused(key, value, expected):
    message = re.escape(f"Expected `{key}` to be {expected}") + f".*Received: {key}="
    with pytest.raises(ValueError, match=message) as refusal:
        LocalResponseNormalization(**{"size": 3, key: value})
    assert str(refusal.value).endswith(f"Received: {key}={value!r}")


@pytest.mark.parametrize("zero", [{"alpha": 0}, {"size": 0}], ids=["alpha", "size"])
def test_bias_zero_is_refused_where_nothing_is_added_to_it(zero):
    arguments = {"size": 3, "alpha": 0.5, "bias": 0, **zero}
    with pytest.raises(ValueError, match="Expected `bias` to be above 0") as refusal:
        LocalResponseNormalization(**arguments)
    received = "Received: bias=0.0, alpha={alpha}, size={size}".format(
        alpha=float(arguments["alpha"]), size=arguments["size"]
    )
    assert str(refusal.value).endswith(received)


def test_only_size_may_be_positional():
    assert LocalResponseNormalization(3).size == 3
    with pytest.raises(TypeError, match="positional"):
        LocalResponseNormalization(3, 1e-4)


def test_an_unknown_argument_is_refused():
    with pytest.raises(ValueError, match=r"Unrecognized keyword arguments .*epsilon"):
        LocalResponseNormalization(3, epsilon=2)


def test_an_argument_of_other_code_is_refused_with_the_name_that_it_has_here():
    with pytest.raises(TypeError, match=r"^Expected `bias`, .*Received: k=2$"):
        LocalResponseNormalization(3, k=2)


def test_a_built_layer_takes_no_list_of_tensors():
    layer = LocalResponseNormalization(3, name="norm")
    layer(tf.ones((2, 7)))
    with pytest.raises(ValueError, match=r'"norm" expects one input tensor\. Received: '):
        layer([tf.ones((2, 7)), tf.ones((2, 7))])


# Input


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "complex64", "string"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_an_input_that_is_not_of_floats_is_refused(dtype, symbolic):
    if symbolic:
        x = keras.KerasTensor((2, 3), dtype=dtype)
    else:
        x = tf.constant([["a", "b"]]) if dtype == "string" else tf.zeros((2, 3), dtype)
    message = (
        'LocalResponseNormalization "norm" expects an input of dtype bfloat16, float16, float32 or '
        f"float64. Received: dtype={dtype}"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        LocalResponseNormalization(3, name="norm")(x)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_an_input_of_rank_below_two_is_refused(shape, symbolic):
    x = keras.KerasTensor(shape) if symbolic else tf.zeros(shape)
    message = (
        'LocalResponseNormalization "norm" expects an input of known rank >= 2. '
        f"Received: rank={len(shape)}, shape={shape}"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        LocalResponseNormalization(3, name="norm")(x)


def test_an_input_of_unknown_rank_is_refused():
    layer = LocalResponseNormalization(3, name="norm")
    layer.build((None, 5))
    with pytest.raises(ValueError, match='"norm" expects an input of known rank'):
        traced(layer, tf.TensorSpec(None))


@pytest.mark.parametrize("axis", [0, -3, 3, -4, 40])
@pytest.mark.parametrize("symbolic", [False, True])
def test_an_axis_that_is_no_channel_axis_is_refused_with_the_rank(axis, symbolic):
    x = keras.KerasTensor((2, 3, 4)) if symbolic else tf.zeros((2, 3, 4))
    message = (
        'LocalResponseNormalization "norm" expects `axis` to be a channel axis, other than the '
        f"batch axis 0, of an input of rank 3. Received: axis={axis}, shape=(2, 3, 4)"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        LocalResponseNormalization(3, axis=axis, name="norm")(x)


def test_a_bad_axis_shows_when_the_layer_is_built():
    with pytest.raises(ValueError, match=r"of an input of rank 2\. Received: axis=2"):
        LocalResponseNormalization(3, axis=2).build((None, 7))


def test_a_built_layer_checks_later_inputs_too():
    layer = LocalResponseNormalization(3, axis=3, name="norm")
    layer(tf.ones((2, 3, 4, 5)))
    with pytest.raises(ValueError, match=r'"norm" .*of an input of rank 3\. Received: axis=3'):
        layer(tf.ones((2, 3, 4)))


RAGGED = tf.ragged.constant([[[1.0, 2.0, 3.0]], [[4.0, -5.0, 6.0], [7.0, 8.0, 9.0]]], ragged_rank=1)
SPARSE = tf.sparse.from_dense([[1.0, 0.0, -3.0], [0.0, 5.0, 6.0]])
NOT_DENSE = pytest.mark.parametrize(
    ("x", "said", "options"),
    [
        (RAGGED, r"to_tensor\(\).*Received: .*ragged", {"shape": (None, 3), "ragged": True}),
        (SPARSE, r"tf\.sparse\.to_dense.*Received: .*sparse", {"shape": (3,), "sparse": True}),
    ],
    ids=["ragged", "sparse"],
)


@NOT_DENSE
def test_a_layer_asks_for_a_dense_input(x, said, options):
    message = f'(?i)LocalResponseNormalization "norm" expects a dense .*{said}'
    with pytest.raises(ValueError, match=message):
        LocalResponseNormalization(3, name="norm")(x)


@NOT_DENSE
def test_a_model_asks_for_a_dense_input(x, said, options):
    message = f'(?i)LocalResponseNormalization "norm" expects a dense .*{said}'
    with pytest.raises(ValueError, match=message):  # noqa: PT012, either line may refuse it
        inputs = keras.Input(**options)
        outputs = LocalResponseNormalization(3, name="norm")(inputs)
        keras.Model(inputs, outputs).predict(x, verbose=0)


@pytest.mark.parametrize("factor", [2, 0.5])
def test_a_dense_input_that_keras_calls_sparse_is_taken(factor):
    # Keras marks the symbol of a tensor multiplied by a number as sparse.
    inputs = keras.Input((3, 5))
    model = keras.Model(inputs, LocalResponseNormalization(**FORMULA)(factor * inputs))
    x, _ = random_x_and_upstream((2, 3, 5), "float32")
    assert_accurate(model(x), exact(factor * x, **FORMULA), "float32")


def test_a_model_of_dense_inputs_makes_a_sparse_one_dense():
    layer = LocalResponseNormalization(2, alpha=0.5)
    model = keras.Sequential([keras.Input((3,)), layer])
    expected = exact(tf.sparse.to_dense(SPARSE), 2, alpha=0.5)
    assert_accurate(model.predict(SPARSE, verbose=0), expected, "float32")


def test_a_model_takes_images_of_integers():
    layer = LocalResponseNormalization(**FORMULA)
    model = keras.Sequential([keras.Input((3, 4, 5)), layer])
    images = np.random.default_rng(0).integers(256, size=(2, 3, 4, 5), dtype=np.uint8)
    assert_accurate(model.predict(images, verbose=0), exact(images, **FORMULA), "float32")


@pytest.mark.parametrize("several", [list, lambda pair: dict(enumerate(pair))])
def test_several_inputs_are_refused_by_name(several):
    inputs = several([np.ones((2, 3), "float32"), np.ones((2, 3), "float32")])
    message = 'LocalResponseNormalization "norm" expects one input tensor. Received: input_shape='
    with pytest.raises(ValueError, match=message):
        LocalResponseNormalization(3, name="norm")(inputs)


def test_the_config_is_a_copy():
    layer = LocalResponseNormalization(3, specified_outputs_name=["normalized"])
    layer.get_config()["specified_outputs_name"].append("another")
    assert layer.get_config()["specified_outputs_name"] == ["normalized"]


def test_a_list_is_refused_as_by_any_other_layer():
    for layer in (LocalResponseNormalization(3), keras.layers.ReLU()):
        with pytest.raises(ValueError, match="Only input tensors may be passed"):
            layer([[1.0, 2.0, 3.0]])


# Size 0


def test_size_zero_warns_at_build_and_divides_by_a_constant():
    x, upstream = random_x_and_upstream((2, 3, 5), "float32")
    layer = LocalResponseNormalization(bias=2.5, beta=0.6, lda_coeff=-2, name="norm")
    with pytest.warns(UserWarning, match='LocalResponseNormalization "norm" has size=0.*`size`'):
        layer.build(x.shape)
    y, dx = value_and_gradient(layer, x, upstream)
    assert_accurate(y, x * 2.5**-0.6, "float32")
    assert_accurate(dx, -2 * upstream * 2.5**-0.6, "float32")


# The name of the output


@in_every_training
@pytest.mark.parametrize("batch", [2, None])
# The last five are names of operations that the layer itself may use.
@pytest.mark.parametrize(
    "name", ["pool1/norm1", "Normalized.0", "lrn", "LRN", "Identity", "cond", "PartitionedCall"]
)
def test_an_operation_in_a_traced_graph_has_the_name_of_the_output(name, batch, training):
    layer = LocalResponseNormalization(3, specified_outputs_name=[name])
    graph = traced(layer, tf.TensorSpec((batch, 3, 4, 5)), training)
    (output,) = graph.outputs
    assert output.op.inputs[0].op.name.endswith(f"/{name}")


def test_the_symbolic_output_has_the_name():
    layer = LocalResponseNormalization(3, specified_outputs_name=("normalized",))
    model = keras.Sequential([keras.Input((4, 5)), layer])
    assert model.outputs[0].name == layer.output.name == "normalized"
    assert layer.compute_output_spec(keras.KerasTensor((2, 4, 5))).name == "normalized"


def test_each_call_of_a_shared_layer_has_an_operation_of_that_name():
    layer = LocalResponseNormalization(3, specified_outputs_name=["normalized"])
    graph = traced(lambda x, training: layer(layer(x)), tf.TensorSpec((None, 3, 4, 5)))
    names = [op.name for op in graph.get_operations() if op.name.endswith("/normalized")]
    assert len(names) == 4  # of each call, what computes the output and the output


def test_an_output_without_a_name_gets_one_from_keras():
    output = LocalResponseNormalization(3)(keras.Input((4, 5)))
    assert output.name.startswith("keras_tensor")


# Configuration


def test_the_config_holds_every_constructor_argument_and_nothing_else():
    arguments = inspect.signature(LocalResponseNormalization.__init__).parameters
    named = {name for name in arguments if name not in ("self", "kwargs")}
    assert named | {"name", "dtype", "trainable"} == set(NON_DEFAULT)
    assert set(LocalResponseNormalization(3).get_config()) == set(NON_DEFAULT)


@pytest.mark.parametrize("key", sorted(set(NON_DEFAULT) - {"dtype"}))
def test_a_config_keeps_each_argument_through_json(key):
    original = LocalResponseNormalization(**{"size": 3, key: NON_DEFAULT[key]})
    default = LocalResponseNormalization(3)
    config = json.loads(json.dumps(original.get_config()))
    restored = LocalResponseNormalization.from_config(config)
    assert config[key] == restored.get_config()[key] == getattr(restored, key) == NON_DEFAULT[key]
    assert default.get_config()[key] != NON_DEFAULT[key]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64", "float16"])
def test_a_config_keeps_the_dtype_policy(policy):
    original = LocalResponseNormalization(3, dtype=policy)
    config = json.loads(json.dumps(original.get_config()))
    restored = LocalResponseNormalization.from_config(config)
    assert restored.dtype_policy.name == policy
    assert restored.compute_dtype == original.compute_dtype
    assert restored.autocast is False


def test_numpy_arguments_can_be_written_as_json():
    layer = LocalResponseNormalization(
        np.int64(3),
        alpha=np.float32(0.5),
        beta=np.float64(0.6),
        bias=np.int32(2),
        axis=np.int16(1),
        training=np.False_,
        lda_coeff=np.float16(2),
        specified_outputs_name=(np.str_("normalized"),),
        jit_compile=np.True_,
    )
    config = json.loads(json.dumps(layer.get_config()))
    assert config == layer.get_config()


@pytest.mark.parametrize("axis", [1, -3])
def test_the_axis_stays_as_it_was_given(axis):
    layer = LocalResponseNormalization(3, axis=axis, alpha=0.5)
    x, _ = random_x_and_upstream((2, 5, 3, 4), "float32")
    assert_accurate(layer(x), exact(x, 3, axis=1, alpha=0.5), "float32")
    assert layer.axis == layer.get_config()["axis"] == axis


def test_the_layer_is_registered_for_saving():
    key = "keras_lrn>LocalResponseNormalization"
    assert keras.saving.get_registered_name(LRN) == key
    assert keras.saving.get_registered_object(key) is LRN
    assert keras.saving.serialize_keras_object(LRN(3))["registered_name"] == key


def test_a_subclass_is_named_in_errors_by_its_own_name():
    class Divisive(LocalResponseNormalization):
        pass

    with pytest.raises(ValueError, match='Divisive "gain" expects an input of known rank'):
        Divisive(3, name="gain")(tf.ones(4))


# The dtype policy


@pytest.mark.parametrize("policy", [*DTYPES, "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_output_has_the_compute_dtype(policy, dtype):
    layer = LocalResponseNormalization(3, dtype=policy)
    expected = policy.removeprefix("mixed_")
    assert layer(tf.ones((2, 5), dtype)).dtype == layer.compute_dtype == expected
    assert layer(keras.Input((5,), dtype=dtype)).dtype == expected


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "float32"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("restore", [False, True])
def test_only_the_result_is_rounded(policy, dtype, restore):
    layer = LocalResponseNormalization(**FORMULA, dtype=policy)
    if restore:
        layer = LocalResponseNormalization.from_config(layer.get_config())
    x, _ = random_x_and_upstream((30, 50, 7), dtype)
    assert_accurate(layer(x), exact(x, **FORMULA), layer.compute_dtype)


def test_an_input_of_float64_is_not_rounded_before_it_is_squared():
    # In float32 both squares would be infinite; the exponent brings them back.
    x = np.array([[1e30, -3e30]])
    layer = LocalResponseNormalization(2, alpha=2.0, beta=0.5, dtype="float32")
    assert_accurate(layer(x), exact(x, 2, alpha=2.0, beta=0.5), "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_16_bit_input_of_a_float32_layer_is_only_widened(dtype):
    x = tf.cast(random_x_and_upstream((3, 5, 7))[0], dtype)
    y = LocalResponseNormalization(**FORMULA, dtype="float32")(x)
    assert_accurate(y, exact(tf.cast(x, tf.float64), **FORMULA), "float32")


def test_mixed_precision_squares_what_overflows_float16():
    x = tf.constant([[300.0, -200.0, 400.0]], tf.float16)
    y = LocalResponseNormalization(3, alpha=3.0, beta=0.5, dtype="mixed_float16")(x)
    assert_accurate(y, exact(x, 3, alpha=3.0, beta=0.5), "float16")


def test_the_derivative_has_the_dtype_of_the_input_and_its_accuracy():
    x, upstream = random_x_and_upstream((3, 5, 7), "float32")
    upstream = upstream.astype("float16")
    layer = LocalResponseNormalization(**FORMULA, dtype="mixed_float16")
    _, dx = value_and_gradient(layer, x, upstream)
    assert_accurate(dx, oracle(x, upstream, **FORMULA)[1], "float32")


def test_the_layer_follows_the_global_dtype_policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        layer = LocalResponseNormalization(3)
    finally:
        keras.config.set_dtype_policy(before)
    assert layer(tf.ones((2, 5))).dtype == "bfloat16"


# Modes


@pytest.fixture
def asked(monkeypatch):
    """What the choice of a way is told of the layer's `training` and of the call's, in order."""
    trainings = []
    choose = ways.choose

    def recorded(x, equations, formula, training, name):
        trainings.append((formula.training, training))
        return choose(x, equations, formula, training, name)

    monkeypatch.setattr(ways, "choose", recorded)
    return trainings


@in_every_training
@pytest.mark.parametrize("own", [True, False])
def test_the_choice_of_a_way_is_told_both_trainings_unchanged(own, training, asked):
    layer = LocalResponseNormalization(3, training=own)
    layer(tf.ones((2, 5)), training=training)
    assert asked == [(own, training)]
    assert asked[0][1] is training


@pytest.mark.parametrize("own", [True, False])
def test_a_call_that_says_nothing_of_training_is_told_as_that(own, asked):
    layer = LocalResponseNormalization(3, training=own)
    model = keras.Sequential([keras.Input((5,)), layer])
    for call in (layer, model):
        call(tf.ones((2, 5)))
    assert asked == [(own, None)] * 2


@pytest.mark.parametrize("own", [True, False])
def test_fit_trains_and_predict_infers_and_neither_changes_the_layer(own, asked):
    layer = LocalResponseNormalization(3, training=own)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7), layer])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 5), "float32"), np.zeros((4, 7), "float32")
    for run, at_call in (
        (lambda: model.fit(x, y, verbose=0), {True}),
        (lambda: model.fit(x, y, validation_data=(x, y), verbose=0), {True, False}),
        (lambda: model.evaluate(x, y, verbose=0), {False}),
        (lambda: model.predict(x, verbose=0), {False}),
    ):
        model.make_train_function(force=True)
        model.make_test_function(force=True)
        asked.clear()
        run()
        assert set(asked) == {(own, training) for training in at_call}
        assert layer.training is own


@in_every_training
def test_the_own_training_of_a_layer_does_not_change_how_it_runs(training):
    for shape in ((None, 3, 4, 5), (None, None, None, 5)):
        for jit_compile in ("auto", True, False):
            ops = []
            for own in (True, False):
                layer = LocalResponseNormalization(3, training=own, jit_compile=jit_compile)
                layer.build(shape)
                ops.append(
                    traced_ops(
                        lambda x, layer=layer: value_and_gradient(layer, x, x, training=training),
                        shape,
                    )
                )
            # What is not kept is computed again, in the same way.
            assert ops[0]["XLA"] == ops[1]["XLA"]
            assert ops[0]["LRN"] == ops[1]["LRN"]


@pytest.mark.parametrize("size", [3, 4])
def test_outputs_and_gradients_agree_in_every_mode(size):
    arguments = {**FORMULA, "size": size, "lda_coeff": 1.5}
    x, upstream = random_x_and_upstream((2, 3, 5, 11), "float32")
    expected = oracle(x, upstream, **arguments)
    for own in (True, False):
        layer = LocalResponseNormalization(**arguments, training=own)
        for at_call in TRAININGS:
            actual = value_and_gradient(layer, x, upstream, training=at_call)
            assert_all_accurate(actual, expected, "float32")


@pytest.mark.parametrize(
    ("jit_compile", "training", "known", "compiled"),
    [
        ("auto", True, True, True),
        ("auto", False, True, False),
        (True, True, True, True),
        (True, True, False, True),
        (True, False, True, True),
        (True, False, False, False),
        (True, None, True, False),
        (True, None, False, False),
        (False, True, True, False),
        (False, False, True, False),
    ],
)
def test_jit_compile_forces_or_forbids_a_compiled_function(jit_compile, training, known, compiled):
    layer = LocalResponseNormalization(3, jit_compile=jit_compile)
    shape = (None, 3, 4, 5) if known else (None, None, None, 5)
    layer.build(shape)
    ops = traced_ops(lambda x: layer(x, training=training), shape)
    assert ops["XLA"] == compiled


# lda_coeff


@in_every_training
@pytest.mark.parametrize("lda_coeff", [0, -1.5, 3])
def test_lda_coeff_multiplies_the_derivative_and_never_the_output(lda_coeff, training):
    x, upstream = random_x_and_upstream((2, 3, 5, 11), "float32")
    plain = LocalResponseNormalization(**FORMULA)
    scaled = LocalResponseNormalization(**FORMULA, lda_coeff=lda_coeff)
    y, dx = value_and_gradient(plain, x, upstream, training=training)
    scaled_y, scaled_dx = value_and_gradient(scaled, x, upstream, training=training)
    np.testing.assert_array_equal(scaled_y, y)
    _, gradient = oracle(x, upstream, **FORMULA)
    assert_accurate(dx, gradient, "float32")
    assert_accurate(scaled_dx, lda_coeff * gradient, "float32")


# Shapes and masks


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((None, 5), -1),
        ((None, None), 1),
        ((2, None, 5), -1),
        ((None, 5, None, None), 1),
        ((None, None, None, None), -1),
        ((2, 3, None, 4, 5), -2),
    ],
)
def test_the_output_has_the_shape_of_the_input(shape, axis):
    layer = LocalResponseNormalization(3, axis=axis)
    assert layer.compute_output_shape(shape) == shape
    assert layer.compute_output_spec(keras.KerasTensor(shape)).shape == shape
    assert layer(keras.Input(batch_shape=shape)).shape == shape
    (output,) = traced(layer, tf.TensorSpec(shape)).outputs
    assert output.shape.as_list() == list(shape)


@in_every_training
@pytest.mark.parametrize("axis", [1, -1])
def test_one_model_takes_images_of_any_size_and_any_number_of_channels(axis, training):
    arguments = {**FORMULA, "axis": axis}
    inputs = keras.Input((None, None, None))
    model = keras.Model(inputs, LocalResponseNormalization(**arguments)(inputs))

    @tf.function(input_signature=[tf.TensorSpec([None] * 4)] * 2)
    def run(x, upstream):
        return value_and_gradient(model, x, upstream, training=training)

    for shape in ((2, 3, 5, 4), (3, 1, 2, 7), (0, 3, 5, 4), (1, 6, 4, 2)):
        x, upstream = random_x_and_upstream(shape, "float32")
        expected = oracle(x, upstream, **arguments)
        assert_all_accurate(run(x, upstream), expected, "float32")


@pytest.mark.parametrize("source", ["Embedding", "Masking"])
def test_a_mask_passes_through(source):
    if source == "Embedding":
        first, x = keras.layers.Embedding(9, 4, mask_zero=True), np.array([[3, 1, 5], [8, 2, 0]])
    else:
        first, x = keras.layers.Masking(), np.ones((2, 3, 4), "float32")
        x[1, 2] = 0
    model = keras.Sequential([first, LocalResponseNormalization(**FORMULA), keras.layers.LSTM(5)])
    # Had the mask been lost, the LSTM would have taken the last step of the second row for a word.
    assert_accurate(model(x)[1], model(x[:, :2])[1], "float32")
    assert np.abs(model(x)[0] - model(x[:, :2])[0]).max() > 1e-3
