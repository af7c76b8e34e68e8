"""Mixed-precision API that a program imports and never puts to use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.names import keras_path
from mplint.frameworks.words import ENABLING
from mplint.python.definitions import Definitions
from mplint.python.syntax import argument

from .policy_names import SETTERS

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

TORCH_HOMES = ("torch.cuda.amp", "torch.cpu.amp", "torch.amp")
TORCH_APIS = ("autocast", "GradScaler", "autocast_mode", "grad_scaler", "amp")
KERAS_HOME = "mixed_precision"
MIXED = ("mixed_float16", "mixed_bfloat16")
SCALERS = ("GradScaler", "ShardedGradScaler")


class Idle(NamedTuple):
    """An import of mixed-precision API, or a policy that is built, after which nothing in the file uses it."""

    node: ast.AST
    what: str
    framework: str


def idle_apis(file: SourceFile) -> Iterator[Idle]:
    """The API that the file imports or builds and by which it enables nothing, once per framework."""
    for found in (_torch(file), _keras(file)):
        if found is not None:
            yield found


def _torch(file: SourceFile) -> Idle | None:
    imports = [(s, n) for s, n, target in _imports(file) if _is_torch_api(target)]
    calls = file.syntax.all(ast.Call) if imports else []
    built = [call for call in calls if any(_is_scaler(name) for name in file.names.candidates(call.func))]
    if not imports or any(_puts_to_use(file, call) for call in calls):
        return None
    if not all(_is_dropped(file, scaler) for scaler in built):  # handed on to code that may use it
        return None
    statements = {s for s, _ in imports}
    makers = {scaler.func for scaler in built}
    read = (n for n in file.syntax.all(ast.Name) if isinstance(n.ctx, ast.Load) and n not in makers)
    if any(b.node in statements and not _passes_for_torch(file, n) for n in read for b in file.names.reaching(n)):
        return None
    if mentions(file, [*statements, *built]):
        return None
    return Idle(imports[0][0], " and ".join(dict.fromkeys(f"`{name}`" for _, name in imports)), "torch")


def _is_scaler(name: str) -> bool:
    """Whether a dotted name is that of torch's scaler."""
    return name.startswith("torch.") and name.rpartition(".")[2] in SCALERS


def _puts_to_use(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call makes an autocast, or is one that only scalers have."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("scale", "unscale_"):
        return True
    return any(name.startswith("torch.") and name.rpartition(".")[2] == "autocast" for name in file.names.candidates(call.func))


def _passes_for_torch(file: SourceFile, name: ast.Name) -> bool:
    """Whether `name`, bound by `import torch.cuda.amp`, is read for another part of torch."""
    return file.names.resolve(name) == "torch"


def _is_torch_api(target: str) -> bool:
    home, _, last = target.rpartition(".")
    return target in TORCH_HOMES or (home.startswith(TORCH_HOMES) and last in TORCH_APIS)


def _keras(file: SourceFile) -> Idle | None:
    policies = [call for call in file.names.calls_of("Policy", "DTypePolicy") if _is_mixed(file, call)]
    imports = [(s, n) for s, n, target in _imports(file) if (keras_path(target) or "").partition(".")[0] == KERAS_HOME]
    setters = [c for c in file.names.calls_of(*SETTERS) if any(keras_path(name) is not None for name in file.names.candidates(c.func))]
    if not (policies or imports) or setters or not all(_is_dropped(file, call) for call in policies):
        return None
    statements = {s for s, _ in imports}
    for name in file.syntax.all(ast.Name):
        bound = isinstance(name.ctx, ast.Load) and any(b.node in statements for b in file.names.reaching(name))
        parent = file.syntax.parents[name]
        if bound and not isinstance(parent, ast.Attribute) and not (isinstance(parent, ast.Call) and parent.func is name):
            return None
    if mentions(file, [*statements, *policies]):
        return None
    if policies:
        return Idle(policies[0], f"`{file.text(policies[0])}`", "keras")
    return Idle(imports[0][0], " and ".join(dict.fromkeys(f"`{name}`" for _, name in imports)), "keras")


def _is_mixed(file: SourceFile, call: ast.Call) -> bool:
    made = any(keras_path(name) is not None for name in file.names.candidates(call.func))
    named = Definitions(file.syntax, file.names).strings(argument(call, "name", 0) or argument(call, "identifier"))
    return made and not named.isdisjoint(MIXED)


def _is_dropped(file: SourceFile, call: ast.Call) -> bool:
    """Whether nothing but its attributes is read of the object that a call builds."""
    match file.syntax.parents[call]:
        case ast.Expr():
            return True
        case ast.Assign(targets=[ast.Name(id=bound)]):
            reads = [n for n in file.syntax.all(ast.Name) if n.id == bound and isinstance(n.ctx, ast.Load)]
            return all(isinstance(file.syntax.parents[n], ast.Attribute) for n in reads)
    return False


def _imports(file: SourceFile) -> Iterator[tuple[ast.stmt, str, str]]:
    """The imports of the file: the statement, the imported name as it is written, and its dotted name."""
    for statement in file.syntax.all(ast.ImportFrom):
        if not statement.level:
            yield from ((statement, alias.name, f"{statement.module}.{alias.name}") for alias in statement.names)
    for plain in file.syntax.all(ast.Import):
        yield from ((plain, alias.name, alias.name) for alias in plain.names)


def mentions(file: SourceFile, left_out: list[ast.AST]) -> bool:
    """Whether the code of the file, without its comments and the nodes `left_out`, mentions anything that may enable half precision."""
    lines = [re.sub(r"#.*", "", line) for line in file.lines]
    for node in left_out:
        line, column, end_line, end_column = file.span(node)
        for number in range(line, end_line + 1):
            text = file.lines[number - 1]
            start, end = column if number == line else 0, end_column if number == end_line else len(text)
            lines[number - 1] = lines[number - 1].replace(text[start:end], "") if text[start:end] else lines[number - 1]
    code = "\n".join(lines)
    return any(word in code for word in (*ENABLING, *MIXED))
