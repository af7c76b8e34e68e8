"""Which optimizer an expression of a Keras or TensorFlow program holds, and whether it scales the loss."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.names import keras_path
from mplint.python.syntax import FUNCTIONS, argument
from mplint.source.keras.loss_scale import is_model_optimizer, makes_loss_scale_optimizer
from mplint.source.keras.models import KerasModels

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.values import Definition

# Optimizers that pass gradients on to the one they are given.
PASSING = frozenset({"CrossShardOptimizer", "DistributedOptimizer", "Lookahead", "MovingAverage", "SWA"})
GRAPH_HOMES = ("tensorflow.train.", "tensorflow.compat.v1.train.")
PLAIN_HOMES = ("tensorflow.optimizers.", "tensorflow.compat.v2.optimizers.", "tensorflow_addons.optimizers.")
NOT_OPTIMIZERS = ("optimizers.schedules.", "optimizers.legacy.schedules.")
MAX_DEPTH = 5


class Optimizer(NamedTuple):
    """What an expression that holds an optimizer may stand for.

    `plain` are constructions of optimizers that scale nothing, `wrapped` those of a LossScaleOptimizer, `factors` those with a fixed
    `loss_scale_factor`. `model`: the one that `compile()` gave a Keras model. `opaque`: something that this file does not show.
    `overridden`: it came through a `compile()` of the program's own. `keys` have something in common for expressions that hold one object.
    """

    plain: tuple[ast.Call, ...] = ()
    wrapped: tuple[ast.Call, ...] = ()
    factors: tuple[ast.Call, ...] = ()
    model: bool = False
    opaque: bool = False
    overridden: bool = False
    keys: frozenset[str] = frozenset()

    @property
    def certainly_plain(self) -> bool:
        """Whether it is an optimizer without loss scaling on every way."""
        return bool(self.plain) and not (self.wrapped or self.factors or self.model or self.opaque)

    @property
    def known(self) -> bool:
        """Whether this file shows that it is an optimizer at all."""
        return bool(self.plain or self.wrapped or self.factors or self.model)


class Optimizers:
    """Answers what optimizer an expression holds."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._known: dict[ast.expr, Optimizer] = {}

    def of(self, node: ast.expr) -> Optimizer:
        """What `node` may hold."""
        known = self._known.get(node)
        if known is None:
            self._known[node] = Optimizer(opaque=True)
            known = self._known[node] = self._of(node, 0)
        return known

    def _of(self, node: ast.expr, depth: int) -> Optimizer:
        while isinstance(node, ast.Attribute) and is_inner(node):
            node = node.value
        found = Optimizer()
        for definition in self.file.values.definitions(node):
            if not (isinstance(definition, ast.Constant) and definition.value is None):
                found = joined(found, self._definition(definition, depth))
        keys = found.keys or frozenset({ast.unparse(node)})
        return found._replace(keys=keys, overridden=self._is_overridden(node))

    def _definition(self, node: Definition, depth: int) -> Optimizer:
        keys = frozenset({self._key(node)})
        if isinstance(node, ast.Call):
            return self._call(node, depth)._replace(keys=keys)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return Optimizer(keys=keys, opaque=True)
        if isinstance(node, ast.expr) and is_inner(node):
            return self._of(node, depth + 1) if depth < MAX_DEPTH else Optimizer(opaque=True, keys=keys)
        if isinstance(node, ast.expr) and (is_model_optimizer(self.file, node) or self._is_compiled(node)):
            return Optimizer(model=True, keys=keys)
        return Optimizer(opaque=True, keys=keys)

    def _call(self, node: ast.Call, depth: int) -> Optimizer:
        if makes_loss_scale_optimizer(self.file, node):
            return Optimizer(wrapped=(node,))
        for name in self.file.names.candidates(node.func):
            last = name.rpartition(".")[2]
            if last in PASSING or (keras_path(name) == "optimizers.get" and not isinstance(argument(node, "identifier", 0), ast.Constant)):
                inner = argument(node, "optimizer", 0) or argument(node, "identifier") or argument(node, "opt")
                return self._of(inner, depth + 1) if inner is not None and depth < MAX_DEPTH else Optimizer(opaque=True)
            if not makes_optimizer(name):
                return Optimizer(opaque=True)
            factor = argument(node, "loss_scale_factor")
            if factor is not None and not (isinstance(factor, ast.Constant) and factor.value is None):
                return Optimizer(factors=(node,))
        return Optimizer(plain=(node,)) if self.file.names.candidates(node.func) else Optimizer(opaque=True)

    def _is_compiled(self, node: ast.expr) -> bool:
        """Whether `node` is `model.optimizer` of a Keras model that this file makes and compiles."""
        if not isinstance(node, ast.Attribute) or node.attr != "optimizer" or ".compile(" not in self.file.document.text:
            return False
        made = [d for d in self.file.values.definitions(node.value) if isinstance(d, ast.Call)]
        return bool(made) and all(self.file.fact(KerasModels).kind(call) is not None for call in made)

    def _is_overridden(self, node: ast.expr) -> bool:
        """Whether `node` is an attribute that a model's own `compile()` assigns."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id != "self":
            return False
        owner = self.file.syntax.enclosing_class(node)
        method = self.file.names.method(owner, "compile")
        return method is not None and any(
            isinstance(target, ast.Attribute) and target.attr == node.attr
            for statement in self.file.values.own_statements(method)
            if isinstance(statement, ast.Assign)
            for target in statement.targets
        )

    def _key(self, node: Definition) -> str:
        match node:
            case ast.Call() | ast.arg():
                return f"{node.lineno}:{node.col_offset}"
            case ast.Name(id=name):
                scope, _ = self.file.names.lookup(node)
                return f"{scope.name if isinstance(scope, (*FUNCTIONS, ast.ClassDef)) else ''}:{name}"
        owner = self.file.syntax.enclosing_class(node)
        return f"{owner.name if owner else ''}:{ast.unparse(node)}"


def makes_optimizer(name: str) -> bool:
    """Whether calling what the dotted name stands for makes an optimizer without loss scaling."""
    last = name.rpartition(".")[2]
    path = keras_path(name)
    if path is not None:
        named = path.startswith("optimizers.") and not path.startswith(NOT_OPTIMIZERS)
        return named and (last[:1].isupper() or last == "get")
    if name.startswith(GRAPH_HOMES):
        return last.endswith("Optimizer")
    return name.startswith(PLAIN_HOMES) and last[:1].isupper() and ".schedules." not in name


def is_inner(node: ast.AST) -> bool:
    """Whether `node` takes the optimizer out of a LossScaleOptimizer."""
    return isinstance(node, ast.Attribute) and node.attr == "inner_optimizer"


def joined(one: Optimizer, other: Optimizer) -> Optimizer:
    """What either may be."""
    return Optimizer(
        one.plain + other.plain,
        one.wrapped + other.wrapped,
        one.factors + other.factors,
        one.model or other.model,
        one.opaque or other.opaque,
        one.overridden or other.overridden,
        one.keys | other.keys,
    )
