"""Policy names that Keras does not know, written as literals where a policy is expected."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.keras.versions import keras_major
from mplint.source.dtype_names import FLOATS
from mplint.source.keras.layers import layer_of
from mplint.source.keras.policy import KerasPolicy
from mplint.source.keras.removed import is_guarded

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

# Quantization modes come and go with Keras versions: whatever is quantized from a known policy passes.
QUANTIZED = re.compile(r"[a-z0-9]+(/\S+)?_from_(float(16|32|64)|bfloat16|mixed_b?float16)")


class BadName(NamedTuple):
    """A literal that names no policy: where it is passed, the literal itself, the nearest valid name ("" for none)."""

    argument: ast.expr
    literal: ast.Constant
    name: str
    nearest: str


class Known(NamedTuple):
    """The names that Keras accepts."""

    everywhere: frozenset[str]
    keras2: frozenset[str]


@cache
def known_names() -> Known:
    """The table of accepted names, read on first need."""
    import tomllib
    from importlib.resources import files

    data = tomllib.loads(files("mplint.data").joinpath("keras_api.toml").read_text("utf-8"))["policies"]
    return Known(frozenset(data["mixed"] + data["dtypes"]), frozenset(data["keras2"]))


def bad_policy_names(file: SourceFile) -> Iterator[BadName]:
    """Every literal policy name that Keras rejects: of the global policy, of policy objects, of floatx and of layers."""
    policy = file.fact(KerasPolicy)
    getters = ("get",) if "dtype_policies" in file.document.text else ()
    makers = {*policy.setters, *file.names.calls_of("Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy", *getters)}
    for call in file.syntax.all(ast.Call):
        if call not in makers and not (file.names.may_be_class(call.func) and any(may_be_bad(k) for k in call.keywords)):
            continue
        setter = policy.setters.get(call)
        if setter is not None:
            kind, given = setter.kind, setter.value
        elif policy.makes_policy(call):
            kind, given = "policy", policy.made_from(call)
        elif layer_of(file, call) is not None:
            kind, given = "layer", policy.dtype_expression(call)
        else:
            continue
        definitions = file.values.definitions(given) if given is not None else []
        literal = definitions[0] if len(definitions) == 1 else None
        if given is None or not isinstance(literal, ast.Constant) or not isinstance(literal.value, str) or is_guarded(file, call):
            continue
        if not accepted(literal.value, kind, keras_major(file)):
            yield BadName(given, literal, literal.value, nearest(literal.value, kind))


def may_be_bad(keyword: ast.keyword) -> bool:
    """Whether a keyword argument may give a layer a dtype that Keras rejects (a cheap test before the layer is looked at)."""
    match keyword:
        case ast.keyword(arg="dtype", value=ast.Constant(value=str(name)) | ast.Attribute(attr=name)):  # "float32", tf.float32
            return not accepted(name, "layer", 3)
        case ast.keyword(arg="dtype" | None):
            return not isinstance(keyword.value, ast.Constant)
    return False


def accepted(name: str, kind: str, major: int | None) -> bool:
    """Whether Keras takes the name in this place; where the version decides and is not known, it does."""
    if kind == "floatx":
        return name in FLOATS
    known = known_names()
    return name in known.everywhere or (name in known.keras2 and major != 3) or QUANTIZED.fullmatch(name) is not None


def nearest(name: str, kind: str) -> str:
    """The valid name that was most likely meant, or ""."""
    text = name.lower()
    brain = "bf" in text or "brain" in text
    for digits, plain in (("16", "bfloat16" if brain else "float16"), ("32", "float32"), ("64", "float64"), ("half", "float16")):
        if digits in text:
            mixed = digits in ("16", "half") and (kind == "policy" or (kind == "layer" and "mix" in text))
            return f"mixed_{plain}" if mixed else plain
    if kind == "policy" and ("mix" in text or "amp" in text):
        return "mixed_bfloat16" if brain else "mixed_float16"
    return ""
