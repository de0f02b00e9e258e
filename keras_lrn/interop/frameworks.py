"""How each framework defines LRN, as one table that every conversion reads.

To add a framework, add a row to `FRAMEWORKS` and its numbers to `tests/test_frameworks.py`.
"""

import dataclasses
import math
from typing import Any

# The default of an argument that has none.
REQUIRED = None

# What the argument for the window means, and what its even values mean.
RADIUS = "none: a radius"
HIGHER = "as here: extra channel on the higher side"
LOWER = "refused: extra channel on the lower side"
ONE_MORE = "one channel more, half of them on either side"
REFUSED = "refused there too"
UNKNOWN = "refused: not documented"


@dataclasses.dataclass(frozen=True)
class Framework:
    """One framework's definition of LRN, and where it was read.

    Args:
        title: Its name in prose.
        arguments: Its arguments with their defaults, in the order of its signature.
        roles: What each of them is here, in the same order: `size`, `alpha`, `beta` or `bias`.
            Without `bias` it always adds 1.
        window: What the argument for the window means, and what its even values mean.
        divides: Whether alpha is divided by the number of channels in a window.
        axis: The channel axis, where the batch comes first.
        source: The public page or file where this was read.
        options: Further arguments: the values that are an LRN, each with its channel axis; the
            first is the default.
        other_values: Why another value of an option is refused.
        limits: The smallest and the largest legal value of a role.
    """

    title: str
    arguments: dict[str, float | None]
    roles: str
    window: str
    divides: bool
    axis: int
    source: str
    options: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    other_values: str = ""
    limits: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """What the framework calls `size`, `alpha`, `beta` and, if it has one, `bias`."""
        return dict(zip(self.roles.split(), self.arguments, strict=True))

    def defaults(self) -> dict[str, Any]:
        """All arguments with their defaults, options included."""
        return self.arguments | {name: next(iter(axes)) for name, axes in self.options.items()}


class Frameworks(dict[str, Framework]):
    """The rows by name; `print` shows them as a table."""

    COLUMNS = ("framework", "its arguments", "size here", "alpha here", "even sizes", "axis")

    def __str__(self) -> str:
        lines = [self.COLUMNS, ("---",) * len(self.COLUMNS)]
        lines += [(f"`{name}`", *_cells(row)) for name, row in self.items()]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(row: Framework) -> tuple[str, ...]:
    signature = [
        name if default is REQUIRED else f"{name}={default}"
        for name, default in row.defaults().items()
    ]
    window, alpha = row.names["size"], row.names["alpha"]
    size = {RADIUS: f"2 * {window} + 1", ONE_MORE: f"2 * ({window} // 2) + 1"}
    weight = alpha if row.divides else f"{alpha} * size"
    return (
        f"`{', '.join(signature)}`",
        f"`{size.get(row.window, window)}`",
        f"`{weight}`",
        row.window,
        str(row.axis),
    )


_CUDNN_LIMITS = {"size": (1, 16), "beta": (0.01, math.inf), "bias": (1e-5, math.inf)}
_WITHIN_CHANNEL = (
    "'WITHIN_CHANNEL' is a different operator, which sums over neighbouring pixels of one channel; "
    "the porting page, PORTING.md, builds it from plain Keras layers"
)

FRAMEWORKS = Frameworks(
    tensorflow=Framework(
        title="TensorFlow",
        arguments={"depth_radius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
        roles="size bias alpha beta",
        window=RADIUS,
        divides=False,
        axis=-1,
        source="https://www.tensorflow.org/api_docs/python/tf/nn/local_response_normalization",
    ),
    tfjs=Framework(
        title="TensorFlow.js",
        arguments={"depthRadius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
        roles="size bias alpha beta",
        window=RADIUS,
        divides=False,
        axis=-1,
        source="https://github.com/tensorflow/tfjs/blob/master/"
        "tfjs-core/src/ops/local_response_normalization.ts",
    ),
    # A LiteRT file holds all four numbers; the defaults are those of the op it is made from. Its
    # reference kernels (BUILTIN_REF) leave out the highest channel of a window, the others do not.
    litert=Framework(
        title="LiteRT",
        arguments={"radius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
        roles="size bias alpha beta",
        window=RADIUS,
        divides=False,
        axis=-1,
        source="https://github.com/tensorflow/tensorflow/blob/master/"
        "tensorflow/lite/kernels/local_response_norm.cc",
    ),
    torch=Framework(
        title="PyTorch",
        arguments={"size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "k": 1.0},
        roles="size alpha beta bias",
        window=LOWER,
        divides=True,
        axis=1,
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.LocalResponseNorm.html",
    ),
    onnx=Framework(
        title="ONNX",
        arguments={"size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "bias": 1.0},
        roles="size alpha beta bias",
        window=HIGHER,
        divides=True,
        axis=1,
        source="https://onnx.ai/onnx/operators/onnx__LRN.html",
    ),
    caffe=Framework(
        title="Caffe",
        arguments={"local_size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0},
        roles="size alpha beta bias",
        window=REFUSED,
        divides=True,
        axis=1,
        options={"norm_region": {"ACROSS_CHANNELS": 1}},
        other_values=_WITHIN_CHANNEL,
        source="https://github.com/BVLC/caffe: src/caffe/proto/caffe.proto, "
        "src/caffe/layers/lrn_layer.cpp",
    ),
    # The numbers are those that cudnnCreateLRNDescriptor sets.
    cudnn=Framework(
        title="cuDNN",
        arguments={"lrnN": 5, "lrnAlpha": 1e-4, "lrnBeta": 0.75, "lrnK": 2.0},
        roles="size alpha beta bias",
        window=HIGHER,
        divides=True,
        axis=1,
        limits=_CUDNN_LIMITS,
        source="https://developer.nvidia.com/cudnn: include/cudnn.h",
    ),
    # MATLAB's images are height x width x channels, so channels last is the same layout.
    matlab=Framework(
        title="MATLAB",
        arguments={"WindowChannelSize": REQUIRED, "Alpha": 1e-4, "Beta": 0.75, "K": 2.0},
        roles="size alpha beta bias",
        window=HIGHER,
        divides=True,
        axis=-1,
        limits=_CUDNN_LIMITS,
        source="https://www.mathworks.com/help/deeplearning/ref/"
        "nnet.cnn.layer.crosschannelnormalizationlayer.html",
    ),
    mxnet=Framework(
        title="MXNet",
        arguments={"alpha": 1e-4, "beta": 0.75, "knorm": 2.0, "nsize": REQUIRED},
        roles="alpha beta bias size",
        window=REFUSED,
        divides=True,
        axis=1,
        source="https://github.com/apache/mxnet/blob/master/src/operator/nn/lrn-inl.h",
    ),
    # Its documentation writes alpha undivided; its code takes a mean over the window.
    paddle=Framework(
        title="Paddle",
        arguments={"size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "k": 1.0},
        roles="size alpha beta bias",
        window=LOWER,
        divides=True,
        axis=1,
        options={
            "data_format": {"NCHW": 1, "NHWC": -1, "NCL": 1, "NLC": -1, "NCDHW": 1, "NDHWC": -1}
        },
        source="https://github.com/PaddlePaddle/Paddle/blob/develop/"
        "python/paddle/nn/functional/norm.py",
    ),
    # Its documentation writes alpha / n; the numbers printed there and its code do not divide.
    mindspore=Framework(
        title="MindSpore",
        arguments={"depth_radius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
        roles="size bias alpha beta",
        window=RADIUS,
        divides=False,
        axis=1,
        options={"norm_region": {"ACROSS_CHANNELS": 1}},
        other_values="MindSpore has no other region",
        source="https://mindspore.cn/docs/en/r2.3.0rc2/api_python/nn/mindspore.nn.LRN.html",
    ),
    coreml=Framework(
        title="Core ML",
        arguments={"size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "k": 1.0},
        roles="size alpha beta bias",
        window=UNKNOWN,
        divides=True,
        axis=1,
        source="https://github.com/apple/coremltools/blob/main/"
        "coremltools/converters/mil/mil/ops/defs/iOS15/normalization.py",
    ),
    lrn2d=Framework(
        title="Keras 0.x",
        arguments={"alpha": 1e-4, "k": 2.0, "beta": 0.75, "n": 5},
        roles="alpha bias beta size",
        window=REFUSED,
        divides=False,
        axis=1,
        source="https://github.com/keras-team/keras/issues/1549",
    ),
    # This is CrossChannelNormalizationBC01; the class without BC01 puts the channels on axis 0.
    pylearn2=Framework(
        title="pylearn2",
        arguments={"alpha": 1e-4, "k": 2.0, "beta": 0.75, "n": 5},
        roles="alpha bias beta size",
        window=REFUSED,
        divides=False,
        axis=1,
        source="https://github.com/lisa-lab/pylearn2/blob/master/pylearn2/expr/normalize.py",
    ),
    lasagne=Framework(
        title="Lasagne",
        arguments={"alpha": 1e-4, "k": 2.0, "beta": 0.75, "n": 5},
        roles="alpha bias beta size",
        window=REFUSED,
        divides=False,
        axis=1,
        source="https://github.com/Lasagne/Lasagne/blob/master/lasagne/layers/normalization.py",
    ),
    # For even n this is its documentation and its CPU code; its GPU code leaves one channel out.
    chainer=Framework(
        title="Chainer",
        arguments={"n": 5, "k": 2.0, "alpha": 1e-4, "beta": 0.75},
        roles="size bias alpha beta",
        window=ONE_MORE,
        divides=False,
        axis=1,
        source="https://github.com/chainer/chainer/blob/master/"
        "chainer/functions/normalization/local_response_normalization.py",
    ),
    tflearn=Framework(
        title="TFLearn",
        arguments={"depth_radius": 5, "bias": 1.0, "alpha": 1e-4, "beta": 0.75},
        roles="size bias alpha beta",
        window=RADIUS,
        divides=False,
        axis=-1,
        source="https://github.com/tflearn/tflearn/blob/master/tflearn/layers/normalization.py",
    ),
    dl4j=Framework(
        title="Deeplearning4j",
        arguments={"k": 2.0, "n": 5, "alpha": 1e-4, "beta": 0.75},
        roles="bias size alpha beta",
        window=ONE_MORE,
        divides=False,
        axis=1,
        source="https://github.com/deeplearning4j/deeplearning4j/blob/master/deeplearning4j/"
        "deeplearning4j-nn/src/main/java/org/deeplearning4j/nn/layers/normalization/"
        "LocalResponseNormalization.java",
    ),
    # Its Python documentation writes alpha undivided; its code divides.
    cntk=Framework(
        title="CNTK",
        arguments={"depth_radius": REQUIRED, "bias": REQUIRED, "alpha": REQUIRED, "beta": REQUIRED},
        roles="size bias alpha beta",
        window=RADIUS,
        divides=True,
        axis=1,
        source="https://github.com/microsoft/CNTK/blob/master/Source/CNTKv2LibraryDll/Function.cpp",
    ),
    # neon keeps the batch last. The alpha and beta of its layer do not belong to LRN.
    neon=Framework(
        title="neon",
        arguments={"depth": REQUIRED, "ascale": 1.0, "bpower": 1.0},
        roles="size alpha beta",
        window=REFUSED,
        divides=True,
        axis=1,
        source="https://github.com/NervanaSystems/neon/blob/master/neon/layers/layer.py",
    ),
)
