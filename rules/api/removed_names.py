"""Uses of Keras API that is gone: where the name is written, through which alias, and under which guard."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.keras.versions import keras_major, used_paths
from mplint.frameworks.names import keras_path
from mplint.python.bindings import absolute
from mplint.versions import numbers

from .version_tests import VersionTests, catches

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.targets import Targets

LEAVES = (ast.Return, ast.Raise, ast.Continue)
EXPERIMENTAL = "mixed_precision.experimental"
# What only TensorFlow 1 has under these names.
TF1 = (
    "contrib",
    "app",
    "flags",
    "Session",
    "placeholder",
    "ConfigProto",
    "gfile",
    "logging",
    "get_variable",
    "variable_scope",
    "global_variables",
)


class Removed(NamedTuple):
    """A path that is gone, the TensorFlow version that dropped it, what to use, and the package it is about ("": all of them)."""

    path: str
    gone: str
    use: str
    home: str = ""


class Table(NamedTuple):
    """mplint/data/keras_api.toml."""

    removed: tuple[Removed, ...]
    renamed: dict[str, str]
    stable: frozenset[str]
    members: dict[str, str]
    keras2: dict[str, list[str]]


class Reference(NamedTuple):
    """One place that refers to a removed name.

    `path` is the whole dotted path; `binding` the node that binds the alias through which it is reached (None: the removed name is
    written out here); `binds` the name that the place itself binds to it, with the node whose uses follow.
    """

    node: ast.expr | ast.alias
    path: str
    entry: Removed
    binding: ast.AST | None = None
    alias: str = ""
    binds: ast.AST | None = None
    bound: str = ""


@cache
def table() -> Table:
    """The table of removed API, read on first need."""
    import tomllib
    from importlib.resources import files

    data = tomllib.loads(files("mplint.data").joinpath("keras_api.toml").read_text("utf-8"))
    removed = tuple(Removed(item["path"], item["gone"], item["use"], item.get("home", "")) for item in data["removed"])
    return Table(removed, data["renamed"], frozenset(data["stable"]["names"]), data["optimizer_members"], data["keras2"])


def removed_references(file: SourceFile) -> list[Reference]:
    """Every reference to a removed name, in source order, guarded ones too."""
    return sorted([*imported(file), *written(file)], key=lambda r: (r.node.lineno, r.node.col_offset))


def entry_of(name: str) -> tuple[str, Removed] | None:
    """The path and the table's entry for a dotted name that is gone."""
    path = keras_path(name)
    path = name.replace("tensorflow.compat.v2.", "tensorflow.") if path is None else path
    for entry in table().removed:
        if name.startswith(entry.home) and (path == entry.path or path.startswith(entry.path + ".")):
            return path, entry
    return None


def imported(file: SourceFile) -> Iterator[Reference]:
    """Import statements that name something removed."""
    for origin in file.syntax.all(ast.ImportFrom):
        source = absolute(origin, file.module)
        for alias in origin.names:
            if (known := entry_of(f"{source}.{alias.name}")) is not None:
                yield Reference(alias, *known, binds=origin, bound=alias.asname or alias.name)
    for statement in file.syntax.all(ast.Import):
        for alias in statement.names:
            if (known := entry_of(alias.name)) is not None:
                yield Reference(alias, *known, binds=statement if alias.asname else None, bound=alias.asname or "")


def written(file: SourceFile) -> Iterator[Reference]:
    """Attributes and names that refer to something removed: the longest dotted expression each."""
    nodes: list[ast.Attribute | ast.Name] = [*file.syntax.all(ast.Attribute), *file.syntax.all(ast.Name)]
    stored = [node for node in file.syntax.all(ast.Attribute) if isinstance(node.ctx, ast.Store)]
    patched = tuple(f"{name}." for node in stored for name in file.names.candidates(node) if entry_of(name) is not None)
    for node in nodes:
        if isinstance(node.ctx, ast.Load) and not isinstance(file.syntax.parents[node], ast.Attribute):
            names = [name for name in file.names.candidates(node) if not patched or not f"{name}.".startswith(patched)]
            found = [known for name in names if (known := entry_of(name)) is not None]
            if found and len(found) == len(names):
                yield placed(file, node, *found[0])


def placed(file: SourceFile, node: ast.Attribute | ast.Name, path: str, entry: Removed) -> Reference:
    """The reference at `node`: written out, or through an alias."""
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and any(entry_of(name) is not None for name in file.names.candidates(root)):
        reaching = file.names.reaching(root)
        return Reference(node, path, entry, binding=reaching[0].node if len(reaching) == 1 else root, alias=root.id)
    parent = file.syntax.parents[node]
    if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return Reference(node, path, entry, binds=parent.targets[0], bound=parent.targets[0].id)
    return Reference(node, path, entry)


def is_guarded(file: SourceFile, tests: VersionTests, node: ast.AST, gone: str = "") -> bool:
    """Whether the place is one arm of a version check, a hasattr chain or a try whose other arm uses API that exists.

    A check that asks for a version or any newer one keeps nobody out who has the release in which a name is `gone`.
    """
    child = node
    for parent in file.syntax.ancestors(node):
        match parent:
            case ast.If(test=test) | ast.IfExp(test=test) if child is not test and tests.asks(test):
                within = any(child is s for s in parent.body) if isinstance(parent, ast.If) else child is parent.body
                if not (gone and within and is_open_above(test, gone)):
                    return True
            case ast.BoolOp(values=values) if any(tests.asks(value) for value in values if value is not child):
                return True
            case ast.Try(body=body, handlers=handlers) if catches(handlers):
                others = [s for h in handlers for s in h.body] if any(child is s for s in body) else body
                if not any(child is s for s in parent.finalbody) and any(has_replacement(file, s) for s in others):
                    return True
            case ast.With(items=items) if any(expects_error(item.context_expr) for item in items):
                return True
        if isinstance(child, ast.stmt) and left_early(file, tests, child):
            return True
        child = parent
    return False


def is_open_above(test: ast.expr, gone: str) -> bool:
    """Whether a version check lets in every release from an older one on: `float(tf.__version__[:3]) >= 2.1`."""
    match test:
        case ast.Compare(ops=[ast.Gt() | ast.GtE()], comparators=[bound]):
            least = release_of(bound)
            return bool(least) and least < numbers(gone)
    return False


def release_of(node: ast.expr) -> tuple[int, ...]:
    """The release that a number, a text, a tuple or what parses one of these spells; () for anything else."""
    match node:
        case ast.Constant(value=str() | int() | float() as value) if not isinstance(value, bool):
            text = str(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if parts and all(isinstance(p, ast.Constant) for p in parts):
            text = ".".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
        case ast.Call(args=[inner], keywords=[]):
            return release_of(inner)
        case _:
            return ()
    return numbers(text)


def left_early(file: SourceFile, tests: VersionTests, statement: ast.stmt) -> bool:
    """Whether a version check before `statement`, in its block, leaves that block for good."""
    for item in file.syntax.block(statement):
        if item is statement:
            return False
        if isinstance(item, ast.If) and isinstance(item.body[-1], LEAVES) and tests.asks(item.test):
            return True
    return False


def expects_error(context: ast.expr) -> bool:
    """Whether a with item is a test's claim that its body raises."""
    return (
        isinstance(context, ast.Call)
        and isinstance(context.func, ast.Attribute)
        and context.func.attr.startswith(("assertRaises", "raises"))
    )


def is_tensorflow1(file: SourceFile) -> bool:
    """Whether the program is written for TensorFlow 1, whose releases keep what 2.x dropped later."""
    homes = {f"tensorflow.{name}" for name in TF1}
    return any(
        isinstance(node.ctx, ast.Load) and file.names.resolve(node) in homes for node in file.syntax.all(ast.Attribute) if node.attr in TF1
    )


def has_replacement(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether the statement uses mixed-precision API that exists."""
    for node in ast.walk(statement):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = list(file.names.candidates(node))
        for name in names:
            path = keras_path(name)
            if (
                path is not None
                and path.startswith(("mixed_precision", "config.set_dtype_policy", "dtype_policies"))
                and entry_of(name) is None
            ):
                return True
    return False


# Packages that run with Keras 2 only, and what says that a program means that one.
KERAS2_PACKAGES = ("tensorflow_addons", "tf_keras", "tensorflow.python.keras", "tensorflow.contrib", "tensorflow.estimator", "keras.engine")
KERAS2_SWITCHES = ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND", "enable_v2_dtype_behavior")


def may_be_keras3(file: SourceFile, targets: Targets) -> bool:
    """Whether nothing that the program says of itself, and no pin, excludes Keras 3."""
    if keras_major(file, targets) == 2 or any(switch in file.document.source for switch in KERAS2_SWITCHES):
        return False
    named = {alias.name for statement in file.syntax.all(ast.Import) for alias in statement.names}
    named |= {f"{s.module}.{alias.name}" for s in file.syntax.all(ast.ImportFrom) for alias in s.names if not s.level}
    if calls_keras2(file):
        return False
    read = [node for node in file.syntax.all(ast.Attribute) if node.attr in ("estimator", "contrib")]
    named |= {name for node in read for name in file.names.candidates(node)}
    return not any(f"{name}.".startswith(f"{package}.") for name in named for package in KERAS2_PACKAGES)


def calls_keras2(file: SourceFile) -> bool:
    """Whether the program calls what only Keras 2 has."""
    only = table().keras2
    if any(f"{path}.".startswith(f"{home}.") for path in used_paths(file) for home in only["paths"]):
        return True
    for call in file.syntax.all(ast.Call):
        if any(keyword.arg in only["keywords"] for keyword in call.keywords):
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr in only["methods"]:
            return True
        made = keras_path(file.names.resolve(call.func)) or ""
        if made.startswith("optimizers.") and any(keyword.arg == "lr" for keyword in call.keywords):
            return True
    return False
