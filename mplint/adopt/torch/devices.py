"""The type of the device that a program trains on, as an expression that can stand at a given place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mplint.adopt.torch.models import Models
from mplint.frameworks.torch.devices import DEVICE
from mplint.program.machine import shown
from mplint.program.values import NONE, Atom, Constant, External, Unknown
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function, argument

CALLED_LIKE_ONE = re.compile(r"(\w+_)?(device|dev)(_?id)?$|(\w+_)?gpu(_?id)?$|(local_)?rank$", re.I)
NUMBER = re.compile(r"(\w+_)?gpu(_?id)?$|(\w+_)?rank$", re.I)
LITERAL = re.compile(r"(cuda|cpu|mps|xpu)$")
MAKERS = ("torch.device(", "torch.accelerator.current_accelerator(", "torch.get_default_device(")


def device_type(models: Models, node: ast.AST) -> str | None:
    """The expression that gives the device type at `node`; None where the program does not say where it trains."""
    file = models.file
    for given in sorted(_candidates(models), key=lambda g: _distance(models, g, node)):
        if _visible(file, given, node):
            return _type_of(models, given)
    literal = _literal(file)
    if literal == '"cpu"' and (_is_moved_elsewhere(models) or not _runs_itself(models)):
        literal = None
    return literal or _of_model(models, node)


NAMED = re.compile(r"(?:\.to\(|device\()[\"'](cuda|mps|xpu|cpu)\b|\.(cuda)\(\)")
MOVES = re.compile(r"\.cuda\b|[\"']cuda\b|\.to\(")


def _runs_itself(models: Models) -> bool:
    """Whether the program trains when it is run, and not only where others use it, who may move what they hand in."""
    return any(entry.script and entry.path == models.execution.path for entry, _ in models.execution.events("backward"))


def _is_moved_elsewhere(models: Models) -> bool:
    """Whether another file that runs with the program may move models to a device."""
    files = (models.execution.trace.file(path) for path in models.execution.beside)
    return any(file is not None and MOVES.search(file.document.text) for file in files)


def _of_model(models: Models, node: ast.AST) -> str | None:
    """The device type of the weights of a model that is at hand."""
    file = models.file
    home = file.syntax.function(node)
    before = [n for n in file.syntax.all(ast.Name) if file.syntax.function(n) is home and n.lineno <= getattr(node, "end_lineno", 0)]
    nested = [n for n in file.syntax.all(ast.Name) if home is not None and file.syntax.function(file.syntax.function(n) or n) is home]
    for name in [*sorted(before, key=position, reverse=True), *sorted(nested, key=position)]:
        if name.id != "self" and (models.is_model(name) or _gives_parameters(file, name)) and _visible(file, name, node):
            return f"next({name.id}.parameters()).device.type"
    owner = file.syntax.enclosing_class(node)
    own = [n for n in file.syntax.all(ast.Attribute) if file.syntax.enclosing_class(n) is owner] if owner is not None else []
    for part in sorted((n for n in own if isinstance(n.ctx, ast.Load)), key=position):
        known = models.is_model(part) or _gives_parameters(file, part)
        if known and isinstance(part.value, ast.Name) and part.value.id == "self" and _visible(file, part, node):
            if owner is not None and home is not None and home.name == "__init__" and models.is_module_class(owner):
                return _of_moves(models)  # its weights are on the CPU until somebody moves the whole
            return f"next({ast.unparse(part)}.parameters()).device.type"
    return None


def _of_moves(models: Models) -> str | None:
    """The device type that all files which run with the program move to, where they name but one."""
    files = [models.file, *(models.execution.trace.file(path) for path in models.execution.beside)]
    named = {kind or called for file in files if file is not None for kind, called in NAMED.findall(file.document.text)}
    return f'"{named.pop()}"' if len(named) == 1 else None


def _gives_parameters(file: SourceFile, name: ast.Name | ast.Attribute) -> bool:
    """Whether the program asks something for its parameters, or puts it in training or evaluation mode."""
    parent = file.syntax.parents[name]
    asked = isinstance(parent, ast.Attribute) and parent.attr in ("parameters", "named_parameters", "train", "eval")
    around = file.syntax.parents[parent]
    return asked and isinstance(around, ast.Call) and around.func is parent


def _candidates(models: Models) -> Iterator[ast.expr]:
    """The expressions that tensors and modules are moved to, and the names of devices that the program makes."""
    file = models.file
    for call in file.syntax.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
            given = argument(call, "device", 0)
            if isinstance(given, ast.Call) and file.names.resolve(given.func) == "torch.device" and len(given.args) == 1:
                given = given.args[0]
            if isinstance(given, (ast.Name, ast.Attribute)) and _is_device(models, given):
                yield given
    for kind in (ast.Name, ast.Attribute, ast.arg):
        for node in file.syntax.all(kind):
            match node:
                case ast.Name(ctx=ast.Store()) if _makes_device(models, node):
                    yield node
                case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self")) if "device" in node.attr:
                    yield node
                case ast.arg(arg="device"):
                    yield ast.copy_location(ast.Name(id="device", ctx=ast.Store()), node)


def _is_device(models: Models, node: ast.expr) -> bool:
    """Whether what a tensor is moved to is a device (and no dtype or other tensor)."""
    last = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    kinds = _kinds(models, node)
    known = bool(kinds) and kinds <= {"device", "string"}
    return known or ("value" not in kinds and CALLED_LIKE_ONE.match(last) is not None)


def _makes_device(models: Models, node: ast.Name) -> bool:
    parent = models.file.syntax.parents.get(node)
    value = parent.value if isinstance(parent, (ast.Assign, ast.AnnAssign)) else None
    return value is not None and bool(kinds := _kinds(models, value)) and kinds <= {"device", "string"}


def _distance(models: Models, given: ast.expr, node: ast.AST) -> tuple[int, int, int]:
    """What is known to be a device comes first, then what stands in the same function, then what is kept on the object."""
    file = models.file
    here = file.syntax.function(node)
    same = given in file.syntax.parents and file.syntax.function(given) is here
    kinds = _kinds_of(models, given)
    known = bool(kinds) and kinds <= {"device", "string"}
    rank = (0 if known else 2) + (0 if same else 1)
    return (rank, 0 if isinstance(given, ast.Attribute) else 1, abs(given.lineno - getattr(node, "lineno", 0)))


def _visible(file: SourceFile, given: ast.expr, node: ast.AST) -> bool:
    """Whether the expression has its value at `node`: the name is bound there before it, or around it, and to a device."""
    root: ast.expr = given
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    if root.id == "self":
        owner = file.syntax.enclosing_class(node)
        return owner is not None and isinstance(given, ast.Attribute) and _set_before(file, owner, ast.unparse(given).split(".")[1], node)
    scope = file.syntax.scope(node)
    first = True
    while True:
        found = file.names.bindings.get(scope, {}).get(root.id) if first or not isinstance(scope, ast.ClassDef) else None
        if found:
            if isinstance(scope, ast.Module) and not first:
                return True
            return any(_is_given(file, b.node) if isinstance(b.node, ast.arg) else position(b.node) < position(node) for b in found)
        if isinstance(scope, ast.Module):
            return False
        scope, first = file.syntax.scope(scope), False


def _is_given(file: SourceFile, parameter: ast.arg) -> bool:
    """Whether a parameter holds a value: None is not its default."""
    function = file.syntax.function(parameter)
    default = default_of(function, parameter.arg) if function is not None else None
    return not (isinstance(default, ast.Constant) and default.value is None)


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [*zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return next((default for parameter, default in pairs if parameter.arg == name), None)


def _set_before(file: SourceFile, owner: ast.ClassDef, name: str, node: ast.AST) -> bool:
    """Whether `self.name` is set in the class, and before `node` where it is set in the same method; a base may set what nobody sets."""
    stores = [a for a in file.syntax.all(ast.Attribute) if isinstance(a.ctx, ast.Store) and ast.unparse(a) == f"self.{name}"]
    values = [a for a in stores if file.syntax.enclosing_class(a) is owner]
    here = file.syntax.function(node)
    if not stores:
        return any(file.syntax.enclosing_class(a) is owner and ast.unparse(a) == f"self.{name}" for a in file.syntax.all(ast.Attribute))
    inside = [v for v in values if file.syntax.function(v) is here]
    if inside:
        own = (
            node.targets if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else []
        )  # what is placed here stands behind it
        return any(position(v) < position(node) or v in own for v in inside)
    return bool(values)


def _type_of(models: Models, given: ast.expr) -> str:
    """The device type of what the expression holds: a torch.device has it, a string is it, anything else goes through torch.device."""
    text = ast.unparse(given)
    kinds = _kinds_of(models, given)
    if kinds == {"device"}:
        return f"{text}.type"
    if kinds == {"string"}:
        return text
    if kinds <= {"other"} and NUMBER.match(text.rpartition(".")[2]):
        return '"cuda"'  # the number of a GPU, or None for the one that is chosen
    return f"torch.device({text}).type"


def _kinds_of(models: Models, given: ast.expr) -> set[str]:
    """What an expression, or the name of something that is made, may hold."""
    syntax = models.file.syntax
    if given in syntax.parents and isinstance(getattr(given, "ctx", None), ast.Load):
        return _kinds(models, given)
    if given in syntax.parents:
        parent = syntax.parents[given]
        value = parent.value if isinstance(parent, (ast.Assign, ast.AnnAssign)) else None
        return _kinds(models, value) if value is not None else set()
    function = next((syntax.function(a) for a in syntax.all(ast.arg) if position(a) == position(given)), None)
    loads = [n for n in syntax.all(ast.Name) if isinstance(given, ast.Name) and n.id == given.id and isinstance(n.ctx, ast.Load)]
    found = [_kinds(models, n) for n in loads if function is not None and syntax.function(n) is function]
    return set().union(*found)


def _kinds(models: Models, node: ast.expr) -> set[str]:
    """What an expression may hold: "device" (a torch.device), "string" (a bare device type), "other", or a "value" that is no device."""
    found = list(models.execution.values(node))
    kinds = {_kind(atom) for atom in found}
    return kinds if "device" not in kinds else {_kind(atom) for atom in found if atom != NONE}  # None where a machine has no accelerator


def _kind(atom: Atom) -> str:
    if type(atom) is Unknown:
        text = shown(atom.symbol)
        if atom.hint == DEVICE or text.startswith(MAKERS):
            return "device"
        return "string" if text.endswith("device.type") else "other"
    if type(atom) is Constant:
        return "string" if isinstance(atom.value, str) and LITERAL.match(atom.value) else "other"
    if type(atom) is External:
        return "other" if CALLED_LIKE_ONE.match(atom.name.rpartition(".")[2]) else "value"
    return "value"


def _literal(file: SourceFile) -> str | None:
    """The device type that the program writes out: `"cuda"` where it moves anything there, `"cpu"` where it moves nothing."""
    moves = False
    for call in file.syntax.all(ast.Call):
        match call.func:
            case ast.Attribute(attr="cuda"):
                return '"cuda"'
            case ast.Attribute(attr="to"):
                given = argument(call, "device", 0)
                text = given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""
                if (kind := text.partition(":")[0]) in ("cuda", "mps", "xpu"):
                    return f'"{kind}"'
                moves = moves or (given is not None and not isinstance(given, ast.Constant))
    if moves or any(isinstance(node, ast.arg) and CALLED_LIKE_ONE.match(node.arg) for node in file.syntax.all(ast.arg)):
        return None
    if file.syntax.all(*FUNCTIONS) and ".parameters(" not in file.document.text:
        return None  # a module of helpers
    return '"cpu"'
