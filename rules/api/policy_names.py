"""Policy names that Keras does not know, written as literals where a policy is expected."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.keras.versions import keras_major
from mplint.frameworks.names import keras_path
from mplint.python.definitions import Definitions
from mplint.python.syntax import argument

from .removed_names import is_guarded
from .version_tests import VersionTests

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.rule import Surroundings

FLOATS = ("float16", "bfloat16", "float32", "float64")
SETTERS = ("set_global_policy", "set_policy", "set_dtype_policy", "set_floatx")
MAKERS = ("Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy")
NOT_LAYERS = frozenset({"Input", "InputSpec", "Layer"})

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


def bad_policy_names(file: SourceFile, around: Surroundings) -> Iterator[BadName]:
    """Every literal policy name that Keras rejects: of the global policy, of policy objects, of floatx and of layers."""
    found, tests = Definitions(file.syntax, file.names), VersionTests(file, around.modules)
    getters = ("get",) if "dtype_policies" in file.document.text else ()
    named = {*file.names.calls_of(*SETTERS, *MAKERS, *getters)}
    for call in file.syntax.all(ast.Call):
        if call not in named and not (file.names.may_be_class(call.func) and any(may_be_bad(k) for k in call.keywords)):
            continue
        for kind, given in policy_arguments(file, found, call):
            definitions = found.of(given)
            literal = definitions[0] if len(definitions) == 1 else None
            if not isinstance(literal, ast.Constant) or not isinstance(literal.value, str) or is_guarded(file, tests, call):
                continue
            if not accepted(literal.value, kind, keras_major(file, around.targets)):
                yield BadName(given, literal, literal.value, nearest(literal.value, kind))


def policy_arguments(file: SourceFile, found: Definitions, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """What a call takes for the name of a policy, and what it does with it: "policy", "floatx" or "layer"."""
    for path in (path for name in file.names.candidates(call.func) if (path := keras_path(name)) is not None):
        last = path.rpartition(".")[2]
        given = None
        if last in SETTERS:
            given = argument(call, "policy", 0) or argument(call, "value") or argument(call, "floatx")
        elif path.endswith("dtype_policies.get") or last in MAKERS:
            given = argument(call, "name", 0) or argument(call, "identifier")
        elif path.startswith("layers.") and last[:1].isupper() and last not in NOT_LAYERS:
            given = argument(call, "dtype") or spread(found, call)
        if given is not None:
            yield ("floatx" if last == "set_floatx" else "policy" if last in (*SETTERS, *MAKERS, "get") else "layer"), given
            return


def spread(found: Definitions, call: ast.Call) -> ast.expr | None:
    """The `dtype` of a `**` dictionary of the file."""
    for keyword in call.keywords:
        definitions = found.of(keyword.value) if keyword.arg is None else []
        match definitions[0] if len(definitions) == 1 else None:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "dtype":
                        return value
            case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
                return next((k.value for k in keywords if k.arg == "dtype"), None)
    return None


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
