"""What one file tells the rest of the project: definitions, imports, and calls with the precision in force around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Location
from mplint.source.bindings import absolute
from mplint.source.keras.saved_models import saves
from mplint.source.keras.settled import settles_outputs
from mplint.source.syntax import FUNCTIONS, Function
from mplint.source.values import UNKNOWN, Definition

if TYPE_CHECKING:
    from mplint.source.file import SourceFile


class Ref(NamedTuple):
    """What a value is, in terms that another file can resolve.

    "name": the object with this dotted name. "made": what calling it gives (an instance, or a function's result). "any": something
    out of the module (`module.__dict__[name]`, `getattr(module, name)`). "param": the parameter `extra` of the function `name`.
    Names of the same file begin with a colon.
    """

    kind: str
    name: str
    extra: str = ""


class Call(NamedTuple):
    """A call that may lead to other code: `target` is called from `caller` (a qualified name, "" for the module).

    `value` says that the target is an object being called (a model), not a function or class. `half` holds the half dtypes
    that autocast puts in force here, `off` that autocast is switched off or float32. `arguments` are those that can be told.
    """

    caller: str
    target: Ref
    value: bool
    half: frozenset[str]
    off: bool
    place: Location
    arguments: tuple[tuple[str | int, Ref], ...] = ()


class Conversion(NamedTuple):
    """A module cast to half as a whole: `model.half()`, `model.to(torch.float16)`."""

    target: Ref
    dtype: str
    place: Location


class Defined(NamedTuple):
    """A function or class: its qualified name, what it returns (functions) and derives from (classes), its parameters."""

    name: str
    is_class: bool
    returns: tuple[Ref, ...] = ()
    bases: tuple[Ref, ...] = ()
    parameters: tuple[str, ...] = ()


class Policy(NamedTuple):
    """A global dtype policy set at module level or in a function of the file."""

    name: str
    certain: bool
    scope: str
    place: Location


class SavedModel(NamedTuple):
    """A whole Keras model that the file saves: its path, and the global policies that may be in force there."""

    path: str
    policies: frozenset[str]
    undecided: bool
    place: Location


class Saver(NamedTuple):
    """A function that saves the state of the object in one of its parameters, and no loss scaler's."""

    name: str
    parameter: str
    place: Location


class Summary(NamedTuple):
    """The facts of one file that links need."""

    path: str
    imports: dict[str, str]
    stars: tuple[str, ...]
    definitions: dict[str, Defined]
    calls: tuple[Call, ...]
    conversions: tuple[Conversion, ...]
    policies: tuple[Policy, ...]
    savers: tuple[Saver, ...] = ()
    models: tuple[SavedModel, ...] = ()
    settles: bool = False  # it casts predictions to float32, or builds on the outputs of models


def summarize(file: SourceFile) -> Summary:
    """The summary of one file; relative imports keep their dots."""
    imports: dict[str, str] = {}
    for statement in file.syntax.all(ast.Import):
        for alias in statement.names:
            imports[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
    stars = []
    for origin in file.syntax.all(ast.ImportFrom):
        source = absolute(origin, "")
        for alias in origin.names:
            if alias.name == "*":
                stars.append(source)
            else:
                imports[alias.asname or alias.name] = f"{source}{'' if source.endswith('.') else '.'}{alias.name}"
    return Summary(
        file.document.path,
        imports,
        tuple(stars),
        definitions(file),
        tuple(calls(file)),
        tuple(conversions(file)),
        tuple(policies(file)),
        tuple(savers(file)),
        tuple(saved_models(file)),
        settles_outputs(file),
    )


def definitions(file: SourceFile) -> dict[str, Defined]:
    """Functions and classes of the file by qualified name."""
    found = {}
    functions: list[Function] = [*file.syntax.all(ast.FunctionDef), *file.syntax.all(ast.AsyncFunctionDef)]
    for function in functions:
        name = file.syntax.qualname(function)
        returned = dict.fromkeys(ref for value in file.values.returns(function) for ref in refs(file, value))
        spec = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        found[name] = Defined(name, False, tuple(returned), (), tuple(a.arg for a in spec))
    for owner in file.syntax.all(ast.ClassDef):
        name = file.syntax.qualname(owner)
        found[name] = Defined(name, True, (), tuple(ref for base in owner.bases if (ref := name_ref(file, base)) is not None))
    return found


def calls(file: SourceFile) -> list[Call]:
    """The calls of the file whose target another file may define, or that lead on within the file."""
    found = []
    for call in file.syntax.all(ast.Call):
        targets = [(ref, False) for ref in [name_ref(file, call.func)] if ref is not None]
        if not targets:
            targets = [(ref, True) for ref in refs(file, call.func) if ref.kind != "name"]
        if not targets:
            continue
        half, off = autocast(file, call)
        caller = (
            file.syntax.qualname(file.syntax.statement(call))
            if not isinstance(file.syntax.statement(call), (*FUNCTIONS, ast.ClassDef))
            else ""
        )
        passed: list[tuple[str | int, Ref]] = []
        given: list[tuple[str | int, ast.expr]] = [*enumerate(call.args), *((k.arg, k.value) for k in call.keywords if k.arg)]
        for key, argument in given:
            if isinstance(argument, (ast.Name, ast.Attribute, ast.Call)):
                passed += [(key, ref) for ref in refs(file, argument) if ref.kind != "name" or is_project_like(file, ref)]
        place = file.location(call)
        found += [Call(caller, ref, value, half, off, place, tuple(passed)) for ref, value in targets]
    return found


def is_project_like(file: SourceFile, ref: Ref) -> bool:
    """Whether a name may be a function or class of the project."""
    return not ref.name.startswith(("torch.", "tensorflow.", "numpy."))


def autocast(file: SourceFile, node: ast.AST) -> tuple[frozenset[str], bool]:
    """The half dtypes that autocast may put in force at `node`, and whether a region there switches it off."""
    if "autocast" not in file.document.text:
        return frozenset(), False
    half = file.torch.autocasts.half_at(node)
    around = file.torch.autocasts.regions_around(node)
    return half, bool(around) and not half


def conversions(file: SourceFile) -> list[Conversion]:
    """Whole-module casts to half."""
    found = []
    for call in file.syntax.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("half", "bfloat16", "to"):
            continue
        dtypes = {"half": {"float16"}, "bfloat16": {"bfloat16"}}.get(func.attr) or {
            d for a in [*call.args, *(k.value for k in call.keywords)] for d in file.values.dtypes(a)
        }
        half = dtypes & {"float16", "bfloat16"}
        if len(half) == 1 and isinstance(func.value, (ast.Name, ast.Attribute)):
            found += [Conversion(ref, next(iter(half)), file.location(call)) for ref in refs(file, func.value) if ref.kind != "name"]
    return found


def policies(file: SourceFile) -> list[Policy]:
    """The global policies that the file sets."""
    found = []
    for call, setter in file.keras.policy.setters.items():
        scope = file.syntax.qualname(file.syntax.statement(call))
        for name in sorted(setter.names):
            found.append(Policy(name, len(setter.names) == 1 and UNKNOWN not in setter.names, scope, file.location(call)))
    return found


def savers(file: SourceFile) -> list[Saver]:
    """The functions of the file that save what they are given."""
    if ".state_dict(" not in file.document.text:
        return []
    from mplint.source.torch.checkpoints import saved_parameters

    return [Saver(name, parameter, file.location(call)) for name, parameter, call in saved_parameters(file)]


def saved_models(file: SourceFile) -> Iterator[SavedModel]:
    """The whole models that the file saves."""
    if "keras" not in file.document.text:
        return
    for save in saves(file):
        state = file.keras.policy.policy_at(save.call)
        yield SavedModel(save.path, state.names, state.undecided, file.location(save.call))


def name_ref(file: SourceFile, node: ast.expr) -> Ref | None:
    """The function or class that `node` names: of this file, or imported."""
    local = file.names.local_function(node)
    if local is not None:
        return Ref("name", ":" + file.syntax.qualname(local))
    path = file.names.resolve(node)
    return Ref("name", path) if path is not None and not path.startswith(("torch.", "numpy.", "tensorflow.")) else None


def refs(file: SourceFile, node: ast.expr, depth: int = 0) -> list[Ref]:
    """What the value of `node` may be."""
    found = [ref for definition in file.values.definitions(node) if (ref := ref_of(file, definition, depth)) is not None]
    return list(dict.fromkeys(found))


def ref_of(file: SourceFile, node: Definition, depth: int = 0) -> Ref | None:
    """The reference behind one defining expression."""
    if depth > MAX_DEPTH:
        return None
    match node:
        case ast.arg(arg=name):
            function = file.syntax.function(node)
            return Ref("param", ":" + file.syntax.qualname(function), name) if function is not None else None
        case ast.Name(id="self"):
            owner = file.syntax.enclosing_class(node)
            return Ref("made", ":" + file.syntax.qualname(owner)) if owner is not None else None
        case ast.Call(func=ast.Attribute(attr="to" | "cuda" | "train" | "eval" | "half" | "float" | "cpu" | "requires_grad_", value=inner)):
            return next(iter(refs(file, inner, depth + 1)), None)
        case (
            ast.Call(func=ast.Subscript(value=ast.Attribute(attr="__dict__", value=module)))
            | ast.Call(func=ast.Call(func=ast.Name(id="getattr"), args=[module, *_]))
        ):
            path = file.names.resolve(module)
            return Ref("any", path) if path is not None else None
        case ast.Call(func=func, args=arguments):
            target = name_ref(file, func)
            if target is not None:
                if target.name.rpartition(".")[2] in WRAPPERS and arguments:
                    return next(iter(refs(file, arguments[0], depth + 1)), None)
                return Ref("made", target.name)
            path = file.names.resolve(func)
            if path is not None and path.rpartition(".")[2] in WRAPPERS and arguments:
                return next(iter(refs(file, arguments[0], depth + 1)), None)
        case ast.Name() | ast.Attribute():
            return name_ref(file, node)
    return None


MAX_DEPTH = 4
# Wrappers around a model that call it as it is.
WRAPPERS = {"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "compile", "script", "DDP", "FSDP", "fully_shard"}
