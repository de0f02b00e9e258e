"""What is legal as an argument or an input, and how it is said; no framework is imported here."""

import dataclasses
import math
import numbers
import re
from collections.abc import Sequence
from typing import Any, Literal, SupportsFloat, SupportsIndex

import numpy as np

FLOAT_DTYPES = ("bfloat16", "float16", "float32", "float64")

Bool = bool | np.bool_
JitCompile = Literal["auto"] | Bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Formula:
    """All arguments, checked, as plain Python numbers; `checked` makes it."""

    size: int
    alpha: float
    beta: float
    bias: float
    axis: int
    training: bool
    lda_coeff: float
    name: str | None
    jit_compile: Literal["auto"] | bool


def checked(
    size: SupportsIndex,
    *,
    alpha: SupportsFloat,
    beta: SupportsFloat,
    bias: SupportsFloat,
    axis: SupportsIndex,
    training: Bool = True,
    lda_coeff: SupportsFloat,
    name: str | None,
    jit_compile: JitCompile,
) -> Formula:
    """Returns the arguments as a record, or says what is wrong with one of them."""
    formula = Formula(
        size=check_integer("size", size, minimum=0),
        alpha=check_real("alpha", alpha, minimum=0),
        beta=check_real("beta", beta),
        bias=check_real("bias", bias, minimum=0),
        axis=check_integer("axis", axis),
        training=_check_training(training),
        lda_coeff=check_real("lda_coeff", lda_coeff),
        name=_check_name(name),
        jit_compile=_check_jit_compile(jit_compile),
    )
    if formula.bias == 0 and (formula.alpha == 0 or formula.size == 0):
        raise ValueError(
            "Expected `bias` to be above 0 unless `alpha` and `size` are, for otherwise the scale "
            f"is 0 everywhere. Received: bias={formula.bias}, alpha={formula.alpha}, "
            f"size={formula.size}"
        )
    return formula


def check_integer(name: str, value: object, minimum: int | None = None) -> int:
    """Returns the integer as a plain Python number, or says what is wrong with it."""
    if isinstance(value, numbers.Integral) and not isinstance(value, Bool):
        number = int(value)
        if minimum is None or number >= minimum:
            return number
    bound = "" if minimum is None else f" >= {minimum}"
    raise ValueError(f"Expected `{name}` to be an integer{bound}. Received: {name}={value!r}")


def check_real(name: str, value: object, minimum: float | None = None) -> float:
    """Returns the finite real number as a plain Python number, or says what is wrong with it."""
    if isinstance(value, numbers.Real) and not isinstance(value, Bool):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the largest float
            number = math.inf
        if math.isfinite(number) and (minimum is None or number >= minimum):
            return number
    bound = "" if minimum is None else f" >= {minimum}"
    raise ValueError(
        f"Expected `{name}` to be a finite real number{bound}. Received: {name}={value!r}"
    )


def check_outputs_name(names: Sequence[str] | None) -> list[str] | None:
    """Returns the layer's `specified_outputs_name` as a list of one plain string, or None."""
    if names is None:
        return None
    if isinstance(names, (list, tuple)) and len(names) == 1 and _is_name(names[0]):
        return [str(names[0])]
    raise ValueError(
        "Expected `specified_outputs_name` to be None or a sequence of exactly one valid tensor "
        f"name. Received: specified_outputs_name={names!r}"
    )


def check_call_training(training: Bool | None) -> bool | None:
    """Returns what a call says of `training`; None where it says nothing."""
    if training is None or isinstance(training, Bool):
        return None if training is None else bool(training)
    raise ValueError(
        f"Expected `training` to be a boolean or None. Received: training={training!r}"
    )


def check_input(shape: Sequence[Any] | None, dtype: str, axis: int, caller: str) -> None:
    """Says what is wrong with the shape or the dtype of the input."""
    if dtype not in FLOAT_DTYPES:
        raise ValueError(
            f"{caller} expects an input of dtype {', '.join(FLOAT_DTYPES[:-1])} or "
            f"{FLOAT_DTYPES[-1]}. Received: dtype={dtype}"
        )
    if shape is None or len(shape) < 2:
        rank = None if shape is None else len(shape)
        raise ValueError(
            f"{caller} expects an input of known rank >= 2. Received: rank={rank}, shape={shape}"
        )
    rank = len(shape)
    if not (1 <= axis < rank or -rank < axis < 0):
        raise ValueError(
            f"{caller} expects `axis` to be a channel axis, other than the batch axis 0, of an "
            f"input of rank {rank}. Received: axis={axis}, shape={shape}"
        )


def wider(dtype: str, other: str) -> str:
    """The narrowest of the legal dtypes that holds every number of both."""
    if dtype == other:
        return dtype
    return "float64" if "float64" in (dtype, other) else "float32"


def _check_training(training: object) -> bool:
    if isinstance(training, Bool):
        return bool(training)
    raise ValueError(f"Expected `training` to be a boolean. Received: training={training!r}")


def _check_jit_compile(jit_compile: object) -> Literal["auto"] | bool:
    if isinstance(jit_compile, Bool):
        return bool(jit_compile)
    if isinstance(jit_compile, str) and jit_compile == "auto":
        return "auto"
    raise ValueError(
        f'Expected `jit_compile` to be "auto", True or False. Received: jit_compile={jit_compile!r}'
    )


def _check_name(name: object) -> str | None:
    if name is None:
        return None
    if _is_name(name):
        return str(name)
    raise ValueError(f"Expected `name` to be None or a valid tensor name. Received: name={name!r}")


def _is_name(name: object) -> bool:
    # Narrower than `tf.name_scope`: what a graph, its import and a saved model take as well.
    part = r"[A-Za-z0-9.][A-Za-z0-9_./-]*"
    return (
        isinstance(name, str)
        and re.fullmatch(rf"{part}(>{part})*", name) is not None
        and not name.endswith("/")
    )
