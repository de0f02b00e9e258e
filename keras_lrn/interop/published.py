"""Parameters of published models, each with the place where they were read."""

from typing import Any

# As arguments of this layer: name: ((size, alpha, beta, bias), source).
PUBLISHED: dict[str, tuple[tuple[int, float, float, float], str]] = {
    "alexnet": (
        # The paper does not divide alpha by n, so its 1e-4 is 5e-4 here; see BVLC/caffe issue 1453.
        (5, 5e-4, 0.75, 2.0),
        "Krizhevsky et al., 2012, section 3.3: https://papers.nips.cc/paper/4824",
    ),
    "bvlc_alexnet": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_alexnet/deploy.prototxt",
    ),
    "caffenet": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_reference_caffenet/deploy.prototxt",
    ),
    "googlenet": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_googlenet/deploy.prototxt",
    ),
    "rcnn_ilsvrc13": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/BVLC/caffe: models/bvlc_reference_rcnn_ilsvrc13/deploy.prototxt",
    ),
    "zfnet512": (
        (5, 5e-4, 0.75, 2.0),
        "https://github.com/onnx/onnx: onnx/backend/test/data/light/light_zfnet512.onnx",
    ),
    "inception_v1": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/onnx/onnx: onnx/backend/test/data/light/light_inception_v1.onnx",
    ),
    "vgg_cnn_m": (
        (5, 5e-4, 0.75, 2.0),
        "https://github.com/rbgirshick/py-faster-rcnn: models/VGG_CNN_M_1024/test.prototxt",
    ),
    "vgg_cnn_s": (
        (5, 5e-4, 0.75, 2.0),
        "https://github.com/rbgirshick/py-faster-rcnn: models/VGG_CNN_S/deploy.prototxt",
    ),
    "matconvnet": (
        # Written there as [5 1 0.0001/5 0.75]: MatConvNet does not divide alpha.
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/vlfeat/matconvnet: examples/imagenet/cnn_imagenet_init.m",
    ),
    "cifar10_tensorflow": (
        # Written there as tf.nn.lrn(x, 4, alpha=0.001 / 9.0): TensorFlow does not divide alpha.
        (9, 1e-3, 0.75, 1.0),
        "https://github.com/tensorflow/models: tutorials/image/cifar10/cifar10.py",
    ),
    "openface": (
        (5, 1e-4, 0.75, 1.0),
        "https://github.com/cmusatyalab/openface: models/openface/nn4.def.lua",
    ),
    "inception5h": (
        # The graph of TensorFlow's own Inception: depth_radius 5, bias 2, alpha 1e-4, beta 0.5.
        (11, 1.1e-3, 0.5, 2.0),
        "https://github.com/greentfrapp/lucent/pull/51",
    ),
}


def from_published(name: str) -> dict[str, Any]:
    """Parameters of a published model's LRN layers, as arguments of this layer.

    `alexnet` is the paper; Caffe's reference models, `bvlc_alexnet` among them, were trained with
    other numbers. Weights only fit the numbers that they were trained with. The source of each is
    the second item of `interop.PUBLISHED[name]`.

    Args:
        name: One of `alexnet`, `bvlc_alexnet`, `caffenet`, `googlenet`, `rcnn_ilsvrc13`,
            `zfnet512`, `inception_v1`, `vgg_cnn_m`, `vgg_cnn_s`, `matconvnet`,
            `cifar10_tensorflow`, `openface` and `inception5h`.

    Returns:
        A dict of `size`, `alpha`, `beta` and `bias`. There is no `axis` in it: that is a matter
        of how you lay out your network, not of the published numbers.

    Raises:
        ValueError: There is no such name.

    Example:

    ```python
    from keras_lrn import LocalResponseNormalization, interop

    layer = LocalResponseNormalization(**interop.from_published("zfnet512"))
    assert (layer.size, layer.alpha, layer.beta, layer.bias) == (5, 5e-4, 0.75, 2.0)
    ```
    """
    if not isinstance(name, str) or name not in PUBLISHED:
        raise ValueError(
            f"Expected `name` to be a published model, one of {', '.join(PUBLISHED)}. "
            f"Received: name={name!r}"
        )
    (size, alpha, beta, bias), _ = PUBLISHED[name]
    return {"size": size, "alpha": alpha, "beta": beta, "bias": bias}
