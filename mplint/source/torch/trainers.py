"""Who drives the training: the trainers that a program uses, in which precision, and which of its code they run."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.configs.trainers.duties import OBJECTS, PACKAGES, PREPARES, Kind, kind_of
from mplint.python.syntax import argument, has_star
from mplint.source.torch.subjects import root_name
from mplint.source.values import UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

# Methods that a class has for the sake of a trainer, by a name of that trainer's.
ADOPTING = {"training_step": "pytorch_lightning", "compute_loss": "transformers"}


class Built(NamedTuple):
    """One place that builds a trainer (or a class derived from one), and the dtypes in which it may train ("?": can't be told)."""

    call: ast.Call
    kind: Kind
    dtypes: frozenset[str]


class Trainers:
    """The trainers of one file."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._hosts: dict[ast.ClassDef, Kind | None] = {}

    @cached_property
    def imported(self) -> tuple[str, ...]:
        """The dotted names that the file imports from a trainer's package."""
        found = [f"{i.module}.{a.name}" for i in self.file.syntax.all(ast.ImportFrom) if not i.level for a in i.names]
        found += [a.name for i in self.file.syntax.all(ast.Import) for a in i.names]
        return tuple(name for name in found if name.partition(".")[0] in PACKAGES)

    @cached_property
    def present(self) -> tuple[Kind, ...]:
        """The trainers that may have to do with the training in this file."""
        found = [(name, kind_of(name)) for name in self.imported]
        return tuple(dict.fromkeys(kind for name, kind in found if kind is not None and kind.takes_part(name)))

    @cached_property
    def scale_and_step(self) -> bool:
        """Whether a trainer in this file may scale the loss and step the optimizer, so that a plain step may be right."""
        return any({"scale", "step"} <= kind.does for kind in self.present)

    @cached_property
    def built(self) -> tuple[Built, ...]:
        """Every trainer that the file builds, in source order."""
        if not self.imported:
            return ()
        found = []
        for call in self.file.syntax.all(ast.Call):
            local = self.file.names.local_function(call.func)
            names = self.file.names.base_names(local) if isinstance(local, ast.ClassDef) else self.file.names.candidates(call.func)
            kind = next((k for name in names if (k := kind_of(name)) is not None and k.makes(name)), None)
            if kind is not None:
                found.append(Built(call, kind, self._dtypes(call, kind)))
        return tuple(found)

    def made(self, node: ast.expr) -> Built | None:
        """The construction of the trainer that an expression stands for, or None."""
        by_call = {built.call: built for built in self.built}
        definitions = [d for d in self.file.values.definitions(node) if not (isinstance(d, ast.Constant) and d.value is None)]
        found = [by_call.get(d) if isinstance(d, ast.Call) else None for d in definitions]
        return found[0] if found and all(b is found[0] for b in found) else None

    def stands_for_one(self, node: ast.expr) -> bool:
        """Whether an expression is a trainer or something that hangs on one, by what made it or by its name."""
        name = root_name(node)
        if name == "self" and isinstance(node, ast.Attribute):
            name = next((part for part in ast.unparse(node).split(".")[1:2]), None)
        return name in OBJECTS or name == "super" or self.made(node) is not None

    def hands_out(self, node: ast.expr) -> bool:
        """Whether an object comes out of a trainer's `prepare`, `setup` or the like, which wraps what it is given."""
        if isinstance(node, ast.Name):
            values = [b.value for b in self.file.names.reaching(node)]
        else:
            values = [d for d in self.file.values.definitions(node) if isinstance(d, ast.Call)]
        return any(isinstance(v, ast.Call) and isinstance(v.func, ast.Attribute) and v.func.attr in PREPARES for v in values)

    def wrapped_by(self, node: ast.expr) -> Built | None:
        """The trainer of this file whose `prepare` or `setup` has handed out the object, whatever way leads here; None for any other."""
        if not isinstance(node, ast.Name) or not self.built:
            return None
        found = []
        for binding in self.file.names.reaching(node):
            match binding.value:
                case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in PREPARES:
                    found.append(self.made(owner))
                case _:
                    found.append(None)
        return found[0] if found and all(b is not None and b is found[0] for b in found) else None

    def host(self, node: ast.AST) -> Kind | None:
        """The trainer that runs the code at `node`: a method of a class made for it, by its bases or by the hooks that it defines."""
        owner = self.file.syntax.enclosing_class(node)
        if owner is None:
            return None
        if owner not in self._hosts:
            self._hosts[owner] = self._host(owner)
        return self._hosts[owner]

    def _host(self, owner: ast.ClassDef) -> Kind | None:
        names = self.file.names.base_names(owner)
        found = next((kind for name in names if (kind := kind_of(name)) is not None and kind.runs(name)), None)
        if found is not None:
            return found
        outside = [name for name in names if not name.startswith(("torch.", "abc.", "typing."))]
        lightning = kind_of("pytorch_lightning")
        if outside and lightning is not None and all(self.file.names.method(owner, hook) is not None for hook in lightning.hooks):
            return lightning
        return None

    def adopted_by(self, node: ast.AST) -> tuple[Kind, str] | None:
        """The trainer that runs the code at `node` if a base class of another file is made for it, and the dotted name of that base.

        Asked of the methods that only such classes have; None where the class is known, or has no base of that kind.
        """
        function, owner = self.file.syntax.function(node), self.file.syntax.enclosing_class(node)
        name = ADOPTING.get(function.name) if function is not None else None
        if name is None or owner is None or self.host(node) is not None:
            return None
        bases = [base for base in self.file.names.base_names(owner) if not base.startswith(("torch.", "abc.", "typing."))]
        kind = kind_of(name)
        return (kind, bases[0]) if kind is not None and len(bases) == 1 and kind_of(bases[0]) is None else None

    def is_manual(self, node: ast.AST) -> bool:
        """Whether the class around `node` steps its optimizers itself: automatic optimization is off, or it asks for the optimizers."""
        owner = self.file.syntax.enclosing_class(node)
        if owner is None:
            return False
        switches = self.file.values.attributes.get((owner, "automatic_optimization"), [])
        if any(self.file.values.constant_or(value, True) is not True for value in switches):
            return True
        kind = self.host(node)
        called = {c.func.attr for c in ast.walk(owner) if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute)}
        return bool(called & {"optimizers", kind.backward if kind is not None else ""})

    def does(self, node: ast.AST) -> frozenset[str]:
        """Which of autocast, scale, unscale, step and save the trainer that runs `node` does by itself; none where there is no trainer."""
        kind = self.host(node)
        if kind is None and (adopted := self.adopted_by(node)) is not None:
            kind = adopted[0]
        if kind is None:
            return frozenset()
        return kind.by_hand if kind.by_hand is not None and self.is_manual(node) else kind.does

    def dtypes(self, kind: Kind) -> frozenset[str]:
        """The dtypes in which the file's trainers of this kind may train; "?" among them where it builds none, or can't tell."""
        found = [built.dtypes for built in self.built if built.kind is kind]
        return frozenset().union(*found) if found else frozenset([UNKNOWN])

    def _dtypes(self, call: ast.Call, kind: Kind) -> frozenset[str]:
        if kind.switch:
            return self._switched(call, kind)
        given = argument(call, kind.precision) if kind.precision else None
        if given is None:
            return frozenset([UNKNOWN if has_star(call) or not kind.default else kind.default])
        found = set()
        for definition in self.file.values.definitions(given):
            value = self.file.values.constant_or(definition, UNKNOWN) if isinstance(definition, ast.expr) else UNKNOWN
            if value == UNKNOWN:
                found |= {UNKNOWN if text is None else kind.mode(text) for text in self.file.values.strings(definition)}
            else:
                found.add(kind.default or UNKNOWN if value is None else kind.mode(value))
        return frozenset(found)

    def _switched(self, call: ast.Call, kind: Kind) -> frozenset[str]:
        """The dtypes of a trainer whose precision is a switch of its own or of the arguments object that it is given."""
        holders = [call]
        for given in (*call.args, *(k.value for k in call.keywords if k.arg == "args")):
            holders += [d for d in self.file.values.definitions(given) if isinstance(d, ast.Call)]
        found: set[str] = set()
        for holder in holders:
            for name, dtype in kind.switch:
                value = argument(holder, name)
                if value is not None:
                    state = self.file.values.constant_or(value, UNKNOWN)
                    found |= {dtype} if state is True else {UNKNOWN} if state not in (False, None) else set()
        opened = any(has_star(holder) for holder in holders) or len(holders) == 1
        return frozenset(found or {UNKNOWN if opened else kind.default})
