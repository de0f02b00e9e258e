"""Names that other code gives to the arguments of an LRN."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Foreign(NamedTuple):
    """What an argument of other code is here.

    Args:
        argument: The argument of this layer.
        radius: Whether it counts the channels on either side, so that `size` is twice that plus 1.
        undivided: The code that has this argument and does not divide alpha by the size.
    """

    argument: str
    radius: bool = False
    undivided: str = ""


_WITH_N = "The AlexNet paper, Keras 0.x, pylearn2, Lasagne, Chainer and Deeplearning4j do"
_WITH_RADIUS = "TensorFlow does"

FOREIGN = {
    "k": Foreign("bias"),
    "knorm": Foreign("bias"),
    "n": Foreign("size", undivided=_WITH_N),
    "nsize": Foreign("size"),
    "local_size": Foreign("size"),
    "depth_radius": Foreign("size", radius=True, undivided=_WITH_RADIUS),
    "radius": Foreign("size", radius=True, undivided=_WITH_RADIUS),
    "window_channel_size": Foreign("size"),
}


def refuse(keywords: Mapping[str, Any]) -> None:
    """Raises a `TypeError` if one of the keywords is an argument of other code."""
    for name, value in keywords.items():
        if name in FOREIGN:
            raise TypeError(explain(name, value))


def explain(name: str, value: Any) -> str:
    """What to write instead of an argument of other code.

    Args:
        name: Key of `FOREIGN`.
        value: What it was given.

    Returns:
        The message of a `TypeError`.

    Example:

    ```python
    from keras_lrn.foreign import explain

    assert explain("k", 2).startswith("Expected `bias`, which other code calls `k`.")
    assert explain("k", 2).endswith("Received: k=2")
    ```
    """
    foreign = FOREIGN[name]
    integer = isinstance(value, int) and not isinstance(value, bool)
    sentences = [f"Expected `{foreign.argument}`, which other code calls `{name}`."]
    if foreign.radius:
        here = f", here {2 * value + 1}" if integer else ""
        sentences = [
            f"Expected `size`: `{name}` is `(size - 1) / 2`, so size is 2 * {name} + 1{here}."
        ]
    if foreign.undivided:
        sentences.append(
            f"{foreign.undivided} not divide alpha by the size, as this layer does: multiply that "
            "alpha by the size."
        )
    sentences.append(f"keras_lrn.interop converts. Received: {name}={value!r}")
    return " ".join(sentences)
