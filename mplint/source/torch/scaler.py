"""Loss scalers: where they are built, whether they are enabled, and which expressions stand for one."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.syntax import argument, walk_expressions
from mplint.source.torch.subjects import Subjects

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

OTHER_FRAMEWORKS = frozenset({"paddle", "oneflow", "mindspore", "jax", "tensorflow"})
FOREIGN = OTHER_FRAMEWORKS | {"flow", "apex", "sklearn"}
ENABLED_POSITION = {"torch.cuda.amp": 4, "torch.cpu.amp": 4}  # the newer classes take the device first


class Scaler(NamedTuple):
    """One construction of a loss scaler.

    `enabled` is None where the program leaves it to `condition` or to a default out of sight; `wrapper` says that the object is a
    project's own class around a scaler, called with the loss and the optimizer.
    """

    node: ast.Call
    key: str
    name: str
    enabled: bool | None
    condition: ast.expr | None = None
    wrapper: bool = False


class Scalers:
    """The loss scalers of one file."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.syntax, self.names, self.values = file.syntax, file.names, file.values
        self.subjects = Subjects(file.syntax, file.names, file.values)

    @cached_property
    def _of_torch(self) -> bool:
        """Whether this can be PyTorch code: paddle and oneflow have scalers with the same methods."""
        roots = {(i.module or "").partition(".")[0] for i in self.syntax.all(ast.ImportFrom) if not i.level}
        roots |= {a.name.partition(".")[0] for i in self.syntax.all(ast.Import) for a in i.names}
        return not roots & OTHER_FRAMEWORKS or any(root.startswith("torch") for root in roots)

    @cached_property
    def built(self) -> tuple[Scaler, ...]:
        """Every construction, wrappers included, in source order."""
        named = "Scaler" in self.file.document.text  # as every class of one is
        found = [self._scaler(call) for call in self.syntax.all(ast.Call)] if named and self._of_torch else []
        return tuple(scaler for scaler in found if scaler is not None)

    @cached_property
    def _by_call(self) -> dict[ast.Call, Scaler]:
        return {scaler.node: scaler for scaler in self.built}

    @cached_property
    def live(self) -> tuple[Scaler, ...]:
        """The scalers that are not switched off for good."""
        return tuple(scaler for scaler in self.built if scaler.enabled is not False)

    @cached_property
    def used(self) -> frozenset[str]:
        """Keys of expressions that are used as only a loss scaler is: `x.scale(loss).backward()` or `x.unscale_(optimizer)`."""
        found: set[str] = set()
        for call in self.syntax.all(ast.Call) if "scale" in self.file.document.text and self._of_torch else ():
            match call.func:
                case ast.Attribute(attr="unscale_", value=ast.Name() | ast.Attribute() | ast.Subscript() as owner) if call.args:
                    found.add(self.subjects.key(owner))
                case ast.Attribute(attr="backward", value=loss):
                    found |= {self.subjects.key(owner) for owner in self._scaled_by([loss, *call.args])}
                case ast.Attribute(attr="backward" | "grad", value=ast.Attribute(attr="autograd")):
                    found |= {self.subjects.key(owner) for owner in self._scaled_by(call.args[:1])}
        return frozenset(key for key in found if not key.endswith((":self", ":cls")))

    def _scaled_by(self, losses: list[ast.expr]) -> list[ast.expr]:
        return [
            item.func.value
            for loss in losses
            for definition in (loss, *self.values.definitions(loss))
            if isinstance(definition, ast.expr)
            for item in walk_expressions(definition)
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "scale" and len(item.args) == 1
        ]

    def scaler_of(self, node: ast.expr, calls: tuple[ast.Call, ...] = ()) -> str | None:
        """The key of the scaler that `node` stands for, or None where it is none, or one that is switched off."""
        node, calls = self.subjects.bound(node, calls)
        built = [self._by_call[d] for d in self.values.definitions(node) if isinstance(d, ast.Call) and d in self._by_call]
        if built:
            return self.subjects.key(node, calls) if any(s.enabled is not False and not s.wrapper for s in built) else None
        key = self.subjects.key(node, calls)
        return key if key in self.used and not self._is_wrapped(node) else None

    def is_wrapper(self, node: ast.expr) -> bool:
        """Whether `node` is a project's own scaler object, which scales, steps and updates when it is called."""
        return self._is_wrapped(node)

    def calls_wrapper(self, call: ast.Call) -> bool:
        """Whether a call is that of a project's own scaler object, also of an imported class that is called as torch's can't be."""
        if self._is_wrapped(call.func):
            return True
        if not isinstance(call.func, (ast.Name, ast.Attribute)) or not (call.args or call.keywords):
            return False
        made = [self._by_call[d] for d in self.values.definitions(call.func) if isinstance(d, ast.Call) and d in self._by_call]
        return any(s.enabled is not False and not s.name.startswith("torch.") for s in made)

    def _is_wrapped(self, node: ast.expr) -> bool:
        return any(d in self._by_call and self._by_call[d].wrapper for d in self.values.definitions(node) if isinstance(d, ast.Call))

    def _scaler(self, call: ast.Call) -> Scaler | None:
        for name in self.names.candidates(call.func):
            if is_scaler_class(name):
                return self._made(call, name)
            if is_wrapper_class(name):
                return Scaler(call, self.subjects.key(call), name, None, wrapper=True)
        local = self.names.local_function(call.func)
        if isinstance(local, ast.ClassDef):
            if any(is_scaler_class(name) for name in self.names.base_names(local)):
                return self._made(call, local.name)
            if self._wraps(local):
                return Scaler(call, self.subjects.key(call), local.name, None, wrapper=True)
        return None

    def _made(self, call: ast.Call, name: str) -> Scaler:
        position = (
            ENABLED_POSITION.get(name.partition(".GradScaler")[0].removesuffix(".grad_scaler"), 5) if name.startswith("torch.") else None
        )
        given = argument(call, "enabled", position)
        enabled: bool | None = True
        if given is not None:
            value = self.values.constant_or(given, None)
            enabled = value if isinstance(value, bool) else None
        elif any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
            enabled = None
        return Scaler(call, self.subjects.key(call), name, enabled, given)

    def _wraps(self, owner: ast.ClassDef) -> bool:
        """Whether the class holds a scaler and is called with the loss: the NativeScaler family."""
        if self.names.method(owner, "__call__") is None:
            return False
        held = [v for (holder, _), values in self.values.attributes.items() if holder is owner for v in values if isinstance(v, ast.Call)]
        return any(is_scaler_class(name) for v in held for name in self.names.candidates(v.func))


def is_scaler_class(name: str) -> bool:
    """Whether the dotted name is a GradScaler of torch, of a device plug-in or of a project (not of another framework)."""
    return name.rpartition(".")[2] in ("GradScaler", "ShardedGradScaler") and name.partition(".")[0] not in FOREIGN


def is_wrapper_class(name: str) -> bool:
    """Whether the dotted name of an imported class says that it wraps a scaler."""
    return name.rpartition(".")[2].startswith("NativeScaler") and name.partition(".")[0] not in FOREIGN


def words_of(text: str) -> set[str]:
    """The lower-case words in an expression's text, identifiers split at underscores."""
    return set("".join(c.lower() if c.isalnum() else " " for c in text).split())
