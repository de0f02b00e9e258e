"""Old code and other frameworks: their numbers, their models and their files.

`print(interop.FRAMEWORKS)` shows how each framework defines LRN. Every `from_*` returns plain
arguments, for `LocalResponseNormalization(**arguments)`. A source whose channels come first gives
`axis=1`; for a network rebuilt with the channels last, override it:
`LocalResponseNormalization(**{**from_onnx(node), "axis": -1})`.
"""

from keras_lrn.interop.conversions import (
    from_caffe,
    from_onnx,
    from_tensorflow,
    from_torch,
    to_caffe,
    to_onnx,
    to_tensorflow,
    to_torch,
)
from keras_lrn.interop.convert import from_framework, to_framework
from keras_lrn.interop.frameworks import FRAMEWORKS
from keras_lrn.interop.lambdas import replace_lambdas
from keras_lrn.interop.old_files import old_layers
from keras_lrn.interop.published import PUBLISHED, from_published

__all__ = [
    "FRAMEWORKS",
    "PUBLISHED",
    "from_caffe",
    "from_framework",
    "from_onnx",
    "from_published",
    "from_tensorflow",
    "from_torch",
    "old_layers",
    "replace_lambdas",
    "to_caffe",
    "to_framework",
    "to_onnx",
    "to_tensorflow",
    "to_torch",
]
