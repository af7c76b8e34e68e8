"""What runs models, and what takes losses, by what the interpreter saw there."""

from __future__ import annotations

import ast

from mplint.adopt.execution import Execution, Work, within
from mplint.frameworks.torch.tensors import CALLED_LOSS, LOSS_OPS, NO_LOSS
from mplint.program.machine import shown
from mplint.program.values import BFLOAT, HALF, Atom, Class, External, Object, Tensor, Unknown, atoms

RUNS = frozenset({"lower", "model"})  # the kinds of work that half precision is for
HALVES = frozenset({HALF, BFLOAT})
LOSSES = tuple(end for end in LOSS_OPS if not end.lower().endswith("softmax"))


class Models:
    """The models of one state of a program."""

    def __init__(self, execution: Execution) -> None:
        self.execution, self.file = execution, execution.file

    def work(self, node: ast.AST) -> set[Work]:
        """The products that are computed while a statement or expression runs, and calls of models that nobody knows.

        What making a model computes is none of them.
        """
        made = {item for item in within(node) if isinstance(item, ast.Call) and self.is_model(item)}
        return {work for item in within(node) if item not in made for work in self.execution.own_work(item) if work.kind in RUNS}

    def runs(self, node: ast.AST) -> bool:
        """Whether a statement or expression runs a model, or multiplies matrices by hand."""
        return bool(self.work(node))

    def runs_model(self, node: ast.AST) -> bool:
        """Whether a statement or expression runs a model or a part of one."""
        return any(work.owned for work in self.work(node))

    def runs_here(self, node: ast.AST) -> bool:
        """Whether an expression by itself, once its operands are there, runs a model or a part of one."""
        return any(work.owned and work.kind in RUNS for work in self.execution.own_work(node))

    def hands_model(self, node: ast.AST) -> bool:
        """Whether something that nobody knows is called with a model while a statement or expression runs."""
        for call in (item for item in within(node) if isinstance(item, ast.Call) and not self.is_model(item)):
            unknown = all(type(atom) is Unknown for atom, _ in self.execution.callees(call))
            if unknown and self.execution.callees(call) and any(self.is_model(given) for given in call.args):
                return True
        return False

    def takes_loss(self, node: ast.AST) -> bool:
        """Whether a loss is computed while a statement or expression runs."""
        if any(work.name.endswith(LOSSES) for work in self.execution.work(node)):
            return True
        return any(isinstance(item, ast.Call) and self._is_called_loss(item) for item in within(node))

    def _is_called_loss(self, call: ast.Call) -> bool:
        """Whether something that nobody knows is called, and is called like a loss."""
        for atom, method in self.execution.callees(call):
            last = method or (shown(atom.symbol).rpartition(".")[2] if type(atom) is Unknown else "")
            unknown = type(atom) is Unknown or (type(atom) is Object and bool(method) and not self.execution.codes(call))
            if unknown and CALLED_LOSS.search(last) and not NO_LOSS.search(last):
                return True
        return False

    def is_module_class(self, owner: ast.ClassDef) -> bool:
        """Whether a class of this file is a torch module (a trainer's module is none: the trainer runs it)."""
        names = self.file.names.base_names(owner)
        return any(n.startswith("torch.nn.") or n.endswith((".Module", "PreTrainedModel")) for n in names)

    def is_model(self, node: ast.expr) -> bool:
        """Whether an expression stood for a module of torch that holds parameters, as far as anyone knows."""
        found = self.execution.values(node)
        return bool(found) and all(is_model(atom) for atom in found)


def is_model(atom: Atom) -> bool:
    """Whether a value is a model."""
    if type(atom) is not Object:
        return False
    if not isinstance(atom.type, str):
        return is_module_type(atom.type)
    return atom.kind == "model" or (atom.type.startswith("torch.nn.") and not atom.type.endswith(WEIGHTLESS))


WEIGHTLESS = ("Loss", "Dropout", "ReLU", "Sigmoid", "Tanh", "Softmax")


def is_module_type(cls: Class, depth: int = 0) -> bool:
    """Whether a class of the project is a module of torch."""
    for base in (atom for value in cls.bases for atom in atoms(value)):
        if type(base) is Class and depth < 5 and is_module_type(base, depth + 1):
            return True
        if type(base) is External and base.name.startswith("torch.nn.") and not base.name.endswith("Loss"):
            return True
        if type(base) in (External, Unknown) and called(base).endswith(("Module", "PreTrainedModel")):
            return True
    return False


def called(atom: Atom) -> str:
    """The name of something of another package."""
    return atom.name if type(atom) is External else shown(atom.symbol) if type(atom) is Unknown else ""


def is_half(atom: Atom) -> bool:
    """Whether a value is a tensor in half precision, or what a model that nobody knows gives under autocast."""
    if type(atom) is not Tensor:
        return False
    return bool(atom.dtypes & HALVES) or (bool(atom.forward) and atom.dtypes == {"?"})
