"""The table of frameworks: each row against that framework's own definition, and the refusals."""

import inspect
import json

import numpy as np
import pytest
from cases import relative_error

from keras_lrn import LocalResponseNormalization, interop
from keras_lrn.interop.frameworks import REQUIRED


def windowed(x, below, above, bias, weight, beta):
    """`x / (bias + weight * sum of squares) ** beta`, channels last, by a loop over the channels.

    The sum runs over the channel itself, `below` channels before it and `above` after it.
    """
    y = np.empty(x.shape)
    for c in range(x.shape[-1]):
        window = x[..., max(0, c - below) : c + above + 1]
        y[..., c] = x[..., c] / (bias + weight * np.sum(window**2, axis=-1)) ** beta
    return y


# Each framework's signature and formula, from its own documentation or source.


def tensorflow(x, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5):
    return windowed(x, depth_radius, depth_radius, bias, alpha, beta)


def tfjs(x, depthRadius=5, bias=1.0, alpha=1.0, beta=0.5):  # noqa: N803
    return windowed(x, depthRadius, depthRadius, bias, alpha, beta)


def litert(x, radius=5, bias=1.0, alpha=1.0, beta=0.5):
    return windowed(x, radius, radius, bias, alpha, beta)


def torch(x, size, alpha=1e-4, beta=0.75, k=1.0):
    return windowed(x, size // 2, (size - 1) // 2, k, alpha / size, beta)


def onnx(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    return windowed(x, (size - 1) // 2, -(-(size - 1) // 2), bias, alpha / size, beta)


def caffe(x, local_size=5, alpha=1.0, beta=0.75, k=1.0, norm_region="ACROSS_CHANNELS"):
    pad = (local_size - 1) // 2
    return windowed(x, pad, pad, k, alpha / local_size, beta)


def cudnn(x, lrnN=5, lrnAlpha=1e-4, lrnBeta=0.75, lrnK=2.0):  # noqa: N803
    behind = (lrnN - 1) // 2
    return windowed(x, behind, lrnN - behind - 1, lrnK, lrnAlpha / lrnN, lrnBeta)


def matlab(x, WindowChannelSize, Alpha=1e-4, Beta=0.75, K=2.0):  # noqa: N803
    window = WindowChannelSize
    return windowed(x, (window - 1) // 2, window // 2, K, Alpha / window, Beta)


def mxnet(x, alpha=1e-4, beta=0.75, knorm=2.0, *, nsize):
    return windowed(x, nsize // 2, nsize // 2, knorm, alpha / nsize, beta)


def paddle(x, size, alpha=1e-4, beta=0.75, k=1.0, data_format="NCHW"):
    return windowed(x, size // 2, (size - 1) // 2, k, alpha / size, beta)


def mindspore(x, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, norm_region="ACROSS_CHANNELS"):
    return windowed(x, depth_radius, depth_radius, bias, alpha, beta)


def coreml(x, size, alpha=1e-4, beta=0.75, k=1.0):
    return windowed(x, size // 2, size // 2, k, alpha / size, beta)


def lrn2d(x, alpha=1e-4, k=2.0, beta=0.75, n=5):
    return windowed(x, n // 2, n // 2, k, alpha, beta)


pylearn2 = lasagne = lrn2d


def chainer(x, n=5, k=2.0, alpha=1e-4, beta=0.75):
    return windowed(x, n // 2, n // 2, k, alpha, beta)


def tflearn(x, depth_radius=5, bias=1.0, alpha=1e-4, beta=0.75):
    return windowed(x, depth_radius, depth_radius, bias, alpha, beta)


def dl4j(x, k=2.0, n=5, alpha=1e-4, beta=0.75):
    return windowed(x, n // 2, n // 2, k, alpha, beta)


def cntk(x, depth_radius, bias, alpha, beta):
    return windowed(x, depth_radius, depth_radius, bias, alpha / (2 * depth_radius + 1), beta)


def neon(x, depth, ascale=1.0, bpower=1.0):
    return windowed(x, (depth - 1) // 2, (depth - 1) // 2, 1.0, ascale / depth, bpower)


# Arguments by place, none at its default; then what must be given where the rest is left out.
CASES = {
    "tensorflow": (tensorflow, (2, 0.5, 0.3, 0.8), ()),
    "tfjs": (tfjs, (3, 0.5, 0.3, 0.8), ()),
    "litert": (litert, (1, 0.5, 0.3, 0.8), ()),
    "torch": (torch, (3, 0.3, 0.8, 0.5), (5,)),
    "onnx": (onnx, (4, 0.3, 0.8, 0.5), (5,)),
    "caffe": (caffe, (3, 0.3, 0.8, 0.5), ()),
    "cudnn": (cudnn, (6, 0.3, 0.8, 0.5), ()),
    "matlab": (matlab, (4, 0.3, 0.8, 0.5), (5,)),
    "mxnet": (mxnet, (0.3, 0.8, 0.5, 7), (None, None, None, 5)),
    "paddle": (paddle, (3, 0.3, 0.8, 0.5), (5,)),
    "mindspore": (mindspore, (2, 0.5, 0.3, 0.8), ()),
    "coreml": (coreml, (3, 0.3, 0.8, 0.5), (5,)),
    "lrn2d": (lrn2d, (0.3, 0.5, 0.8, 3), ()),
    "pylearn2": (pylearn2, (0.3, 0.5, 0.8, 7), ()),
    "lasagne": (lasagne, (0.3, 0.5, 0.8, 9), ()),
    "chainer": (chainer, (4, 0.5, 0.3, 0.8), ()),
    "tflearn": (tflearn, (2, 0.5, 0.3, 0.8), ()),
    "dl4j": (dl4j, (0.5, 4, 0.3, 0.8), ()),
    "cntk": (cntk, (2, 0.5, 0.3, 0.8), (3, 1.5, 0.2, 0.6)),
    "neon": (neon, (3, 0.3, 0.8), (5,)),
}
NAMES = list(interop.FRAMEWORKS)


def normalized(arguments, x):
    """The layer on an input whose channels come last, whatever its axis."""
    layer = LocalResponseNormalization(**arguments, dtype="float64")
    if arguments["axis"] == 1:
        return np.moveaxis(layer(np.moveaxis(x, -1, 1).copy()).numpy(), 1, -1)
    return layer(x).numpy()


def activations():
    """As large as real ones, so that an alpha of 1e-4 matters."""
    return np.random.default_rng(0).normal(scale=60, size=(2, 3, 5, 13))


def named(framework, values):
    names = interop.FRAMEWORKS[framework].arguments
    return {name: value for name, value in zip(names, values, strict=False) if value is not None}


def layer(size=3, **arguments):
    return LocalResponseNormalization(size, **arguments)


def expressible_layer(framework, **arguments):
    axis = interop.FRAMEWORKS[framework].axis
    return LocalResponseNormalization(**{"size": 3, "axis": axis, **arguments})


# Every row


def test_every_framework_has_a_case():
    assert list(CASES) == NAMES


each_framework = pytest.mark.parametrize(
    ("framework", "definition", "values", "required"),
    [(name, *case) for name, case in CASES.items()],
    ids=CASES,
)


@each_framework
def test_the_layer_gives_the_numbers_of_the_framework(framework, definition, values, required):
    x, arguments = activations(), named(framework, values)
    expected = definition(x, **arguments)
    assert np.abs(expected - x).max() > 0.1 * np.abs(x).max()
    actual = normalized(interop.from_framework(framework, **arguments), x)
    assert relative_error(actual, expected) < 1e-12


@each_framework
def test_what_is_left_out_has_the_default_of_the_framework(framework, definition, values, required):
    x, arguments = activations(), named(framework, required)
    actual = normalized(interop.from_framework(framework, **arguments), x)
    assert relative_error(actual, definition(x, **arguments)) < 1e-12


@each_framework
def test_the_row_has_the_signature_of_the_framework(framework, definition, values, required):
    parameters = list(inspect.signature(definition).parameters.values())[1:]
    assert interop.FRAMEWORKS[framework].defaults() == {
        parameter.name: REQUIRED if parameter.default is parameter.empty else parameter.default
        for parameter in parameters
    }
    assert list(interop.FRAMEWORKS[framework].defaults()) == [p.name for p in parameters]


@each_framework
def test_arguments_survive_the_way_there_and_back(framework, definition, values, required):
    arguments = interop.from_framework(framework, **named(framework, values))
    there = interop.to_framework(framework, LocalResponseNormalization(**arguments))
    assert list(there) == list(interop.FRAMEWORKS[framework].defaults())
    assert interop.from_framework(framework, **there) == {
        **arguments,
        "alpha": pytest.approx(arguments["alpha"], rel=1e-15),
    }
    assert (
        relative_error(normalized(arguments, activations()), definition(activations(), **there))
        < 1e-12
    )


@each_framework
def test_the_row_says_where_it_was_read(framework, definition, values, required):
    assert interop.FRAMEWORKS[framework].source.startswith("https://")


# Numbers that others have published.

PUBLIC_NUMBERS = [
    # Printed in the documentation of mindspore.ops.LRN.
    ("mindspore", {}, [0.1, 0.3], [0.09534626, 0.2860388]),
    ("mindspore", {}, [0.2, 0.4], [0.1825742, 0.3651484]),
    # Printed in the documentation of crosschannelnorm.
    (
        "matlab",
        {"WindowChannelSize": 3, "Alpha": 1, "Beta": 1, "K": 1e-5},
        [1, 1, 1],
        [1.5, 1.0, 1.5],
    ),
    # tensorflow/tfjs-core issue 517: rank 3, defaults.
    ("tfjs", {}, [1, 2, 3], [0.2581988897, 0.5163977795, 0.7745966692]),
    ("tfjs", {}, [4, 6, 6], [0.4239991520, 0.6359987280, 0.6359987280]),
    # keras-team/keras issues 331 and 1549.
    (
        "lrn2d",
        {},
        [10, 50, 200, 0, 120, 80],
        [2.5267905855, 12.6339529273, 43.2675148878, 0, 25.0393312444, 27.8672981865],
    ),
    # apache/mxnet issue 4317.
    (
        "mxnet",
        {"nsize": 5},
        [30, -20, 0, 45, 80, -60, 12],
        [
            17.6661402504,
            -11.6038855975,
            0,
            24.5071520253,
            43.6428249456,
            -32.7321187092,
            6.6364849838,
        ],
    ),
    (
        "chainer",
        {},
        [30, -20, 0, 45, 80, -60, 12],
        [
            17.0151801714,
            -10.596532058,
            0,
            18.623123581,
            33.3051823995,
            -24.9788867996,
            5.2454238335,
        ],
    ),
    # Deeplearning4j sums c - 2 to c + 2 for n = 4.
    (
        "dl4j",
        {"n": 4},
        [1, 20, -30, 40, 5, 60],
        [0.5671527023, 10.7433360497, -16.1018226416, 19.2450235511, 2.4331998443, 29.9762891438],
    ),
]


@pytest.mark.parametrize(("framework", "arguments", "x", "expected"), PUBLIC_NUMBERS)
def test_the_layer_gives_published_numbers(framework, arguments, x, expected):
    actual = normalized(interop.from_framework(framework, **arguments), np.array([x], "float64"))
    np.testing.assert_allclose(actual[0], expected, rtol=2e-5)


# What a row may hold


def test_paddle_chooses_the_channel_axis_by_the_data_format():
    axes = interop.FRAMEWORKS["paddle"].options["data_format"]
    for data_format, axis in axes.items():
        arguments = interop.from_framework("paddle", size=5, data_format=data_format)
        assert arguments["axis"] == axis == (-1 if data_format.endswith("C") else 1)
    for axis, data_format in ((1, "NCHW"), (-1, "NHWC")):
        assert interop.to_framework("paddle", layer(axis=axis))["data_format"] == data_format


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 3), (3, 3), (4, 5), (5, 5)])
@pytest.mark.parametrize("framework", ["chainer", "dl4j"])
def test_an_even_n_is_one_channel_more_where_the_framework_has_it_so(framework, n, size):
    arguments = interop.from_framework(framework, n=n, alpha=0.5)
    assert (arguments["size"], arguments["alpha"]) == (size, 0.5 * size)


def test_arguments_are_plain_numbers_whatever_came_in():
    arguments = interop.from_framework(
        "chainer", n=np.int64(3), k=np.float32(2), alpha=np.float64(0.5), beta=1
    )
    assert json.loads(json.dumps(arguments)) == arguments
    assert [type(value) for value in arguments.values()] == [int, float, float, float, int]


def test_an_axis_counted_from_the_other_end_converts_once_the_layer_is_built():
    built = layer(axis=-3)
    built.build((2, 3, 4, 5))
    assert interop.to_framework("mxnet", built)["nsize"] == 3
    built = layer(axis=3)
    built.build((2, 3, 4, 5))
    assert interop.to_framework("paddle", built)["data_format"] == "NHWC"


def test_warnings_point_to_the_line_that_converts():
    scaled = layer(axis=1, lda_coeff=-1.0)
    for convert in (interop.to_torch, lambda layer: interop.to_framework("torch", layer)):
        with pytest.warns(UserWarning, match="no lda_coeff") as caught:
            convert(scaled)
        assert caught[0].filename == __file__


# Refusals

REFUSALS = [
    *[
        (
            lambda value=value: interop.from_framework(value),
            "one of tensorflow, tfjs, litert",
            f"Received: name={value!r}",
        )
        for value in ("tf", None, ["caffe"])
    ],
    (
        lambda: interop.to_framework("theano", layer()),
        "one of tensorflow, tfjs, litert",
        "Received: name='theano'",
    ),
    (
        lambda: interop.from_framework("caffe", size=5),
        "arguments of Caffe: local_size, alpha, beta, k, norm_region",
        "Received: size=5",
    ),
    (
        lambda: interop.from_framework("neon", depth=5, alpha=1.0),
        "arguments of neon: depth, ascale, bpower",
        "Received: alpha=1.0",
    ),
    (
        lambda: interop.from_framework("mxnet", alpha=1.0),
        "MXNet has no default for it",
        "Received: arguments=['alpha']",
    ),
    (
        lambda: interop.from_framework("cntk", depth_radius=2, bias=1.0, alpha=1.0),
        "Expected `beta` too",
        "Received: arguments=['depth_radius', 'bias', 'alpha']",
    ),
    *[
        (
            lambda name=name, window=window: interop.from_framework(name, **{window: 4}),
            f"Expected `{window}` to be odd: {reason}",
            f"Received: {window}=4",
        )
        for name, window, reason in (
            ("torch", "size", "PyTorch's even windows have their extra channel on the lower side"),
            ("paddle", "size", "Paddle's even windows have their extra channel on the lower side"),
            ("caffe", "local_size", "Caffe refuses even sizes"),
            ("mxnet", "nsize", "MXNet refuses even sizes"),
            ("lrn2d", "n", "Keras 0.x refuses even sizes"),
            ("pylearn2", "n", "pylearn2 refuses even sizes"),
            ("lasagne", "n", "Lasagne refuses even sizes"),
            ("neon", "depth", "neon refuses even sizes"),
            ("coreml", "size", "Core ML does not say what its even windows hold"),
        )
    ],
    *[
        (
            lambda name=name, size=size: interop.to_framework(
                name, expressible_layer(name, size=size)
            ),
            f"Expected `{shown}` to be odd: {reason}",
            f"Received: {shown}={size}",
        )
        for name, shown, size, reason in (
            ("tflearn", "size", 4, "TFLearn sums over 2 * depth_radius + 1 channels"),
            ("cntk", "size", 4, "CNTK sums over 2 * depth_radius + 1 channels"),
            ("chainer", "n", 4, "Chainer sums over 2 * (n // 2) + 1 channels"),
            ("dl4j", "n", 6, "Deeplearning4j sums over 2 * (n // 2) + 1 channels"),
            ("paddle", "size", 2, "Paddle's even windows"),
            ("neon", "depth", 4, "neon refuses even sizes"),
        )
    ],
    *[
        (
            lambda name=name: interop.from_framework(name, norm_region="WITHIN_CHANNEL"),
            reason,
            "Received: norm_region='WITHIN_CHANNEL'",
        )
        for name, reason in (
            ("caffe", "PORTING.md, builds it from plain Keras layers"),
            ("mindspore", "MindSpore has no other region"),
        )
    ],
    (
        lambda: interop.from_framework("paddle", size=5, data_format="HWCN"),
        "'NCHW' or 'NHWC' or",
        "Received: data_format='HWCN'",
    ),
    (
        lambda: interop.from_framework("paddle", size=5, data_format=["NCHW"]),
        "'NCHW' or 'NHWC' or",
        "Received: data_format=['NCHW']",
    ),
    (lambda: interop.from_framework("dl4j", n=0), "an integer >= 1", "Received: n=0"),
    (lambda: interop.from_framework("dl4j", n=5.0), "an integer >= 1", "Received: n=5.0"),
    (lambda: interop.from_framework("cudnn", lrnK=-1), "real number >= 0", "Received: lrnK=-1"),
    (
        lambda: interop.from_framework("mxnet", nsize=5, knorm=0, alpha=0),
        "Expected `knorm` to be above 0",
        "Received: knorm=0.0, alpha=0.0",
    ),
    *[
        (
            lambda name=name: interop.to_framework(name, layer(axis=2)),
            f"the channels to come {channels}",
            "Received: axis=2",
        )
        for name, channels in (("tfjs", "last (axis -1)"), ("paddle", "first (axis 1)"))
    ],
    (
        lambda: interop.to_framework("cudnn", layer(17, axis=1)),
        "`size` to be between 1 and 16, the limits of cuDNN",
        "Received: size=17",
    ),
    (
        lambda: interop.to_framework("matlab", layer(beta=0.005)),
        "`beta` to be between 0.01 and inf",
        "Received: beta=0.005",
    ),
    (
        lambda: interop.to_framework("cudnn", layer(bias=1e-6, axis=1)),
        "`bias` to be between 1e-05 and inf",
        "Received: bias=1e-06",
    ),
    (
        lambda: interop.to_framework("neon", layer(bias=2.0, axis=1)),
        "Expected `bias` to be 1, which neon always adds",
        "Received: bias=2.0",
    ),
    *[
        (
            lambda name=name: interop.to_framework(name, "lrn"),
            "a keras_lrn.LocalResponseNormalization",
            "Received: layer='lrn'",
        )
        for name in NAMES
    ],
    *[
        (
            lambda name=name: interop.to_framework(name, expressible_layer(name, size=0)),
            "has no LRN that sums over no channels",
            "Received: size=0",
        )
        for name in NAMES
    ],
]


@pytest.mark.parametrize(("refused", "reason", "received"), REFUSALS)
def test_what_cannot_be_expressed_is_refused_with_the_reason(refused, reason, received):
    with pytest.raises(ValueError, match="Received: ") as raised:
        refused()
    assert reason in str(raised.value)
    assert str(raised.value).endswith(received)


def test_an_unknown_name_lists_all_that_are_known():
    with pytest.raises(ValueError, match="one of") as raised:
        interop.from_framework("theano")
    assert ", ".join(NAMES) in str(raised.value)


# Printing


def test_the_table_prints_with_one_line_for_every_framework():
    header, rule, *rows = str(interop.FRAMEWORKS).splitlines()
    assert header == "| framework | its arguments | size here | alpha here | even sizes | axis |"
    assert set(rule) == set("| -")
    assert [row.split("`")[1] for row in rows] == NAMES
    assert rows[NAMES.index("dl4j")] == (
        "| `dl4j` | `k=2.0, n=5, alpha=0.0001, beta=0.75` | `2 * (n // 2) + 1` | `alpha * size` "
        "| one channel more, half of them on either side | 1 |"
    )


@pytest.mark.parametrize(
    ("framework", "convert"),
    [("tensorflow", interop.from_tensorflow), ("caffe", interop.from_caffe)],
)
def test_functions_with_a_framework_in_their_name_have_its_signature(framework, convert):
    defaults = {p.name: p.default for p in inspect.signature(convert).parameters.values()}
    assert defaults == interop.FRAMEWORKS[framework].defaults()
    assert list(defaults) == list(interop.FRAMEWORKS[framework].defaults())
