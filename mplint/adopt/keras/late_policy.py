"""Models and layers that are built before the policy which they should follow is set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, walk_expressions
from mplint.source.keras.layers import keras_name
from mplint.source.keras.models import TRAINING
from mplint.source.keras.policy import KerasPolicy
from mplint.source.keras.policy_names import compute_dtype
from mplint.source.values import HALF

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

# What has no floating computation worth a policy, or is meant to stay in float32.
NEUTRAL = ("layers.Input", "layers.InputLayer", "layers.Rescaling", "layers.Resizing", "layers.Normalization", "layers.Discretization",
           "layers.CategoryEncoding", "layers.Hashing", "layers.Random", "layers.Center", "layers.experimental.preprocessing",
           "layers.StringLookup", "layers.IntegerLookup", "layers.TextVectorization", "layers.Lambda", "layers.deserialize")  # fmt: skip
# Calls on a model, or with it, that make later work depend on its dtype.
COPIES = ("models.clone_model", "models.model_from_json", "models.model_from_config", "Model.from_config", "models.Model.from_config")
MAX_DEPTH = 8  # helpers within helpers


class LateSetter(NamedTuple):
    """A policy set too late: the call, the model or layer built before it, and the use of that model after it."""

    setter: ast.Call
    built: ast.Call
    use: ast.expr


class LatePolicies:
    """Finds policies that come too late in one file."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._building: dict[ast.Call, bool] = {}

    def found(self) -> Iterator[LateSetter]:
        """Each late setter once, with the first thing built before it."""
        policy = self.file.fact(KerasPolicy)
        halves = {
            call for call, s in policy.setters.items() if s.kind == "policy" and s.names and {compute_dtype(n) for n in s.names} <= HALF
        }
        told: set[ast.Call] = set()
        for built, name in self._built if halves else ():
            before = policy.policy_at(built)
            if before.compute_dtypes <= HALF:
                continue
            for use in self._uses(name):
                for setter in policy.policy_at(use).setters:
                    if setter in halves and setter not in before.setters and setter not in told and self._comes_after(setter, built):
                        told.add(setter)
                        yield LateSetter(setter, built, use)

    def _comes_after(self, setter: ast.Call, built: ast.Call) -> bool:
        """Whether the setter can run after the construction: later in the same scope, or in a helper."""
        if self.file.syntax.scope(setter) is not self.file.syntax.scope(built):
            return True
        return position(setter) > position(built) and not self.file.names.exclusive(setter, built)

    @cached_property
    def _built(self) -> list[tuple[ast.Call, ast.Name]]:
        """Constructions of models and layers whose result (or what they are applied to) a name keeps."""
        found = []
        for statement in self.file.syntax.all(ast.Assign):
            target = statement.targets[0]
            if len(statement.targets) == 1 and isinstance(target, ast.Name):
                calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call) and self.builds(n)]
                if calls:
                    found.append((min(calls, key=position), target))
        return found

    def builds(self, call: ast.Call, depth: int = 0) -> bool:
        """Whether a call builds a layer or model that follows the policy, itself or in a function of this file."""
        known = self._building.get(call)
        if known is None:
            if depth > MAX_DEPTH:
                return False
            self._building[call] = False  # a function that calls itself builds what the rest of it builds
            known = self._building[call] = self._builds(call, depth)
        return known

    def _builds(self, call: ast.Call, depth: int) -> bool:
        path = keras_name(self.file, call.func)
        if path is not None:
            if path in ("Sequential", "models.Sequential") and call.args:
                return any(isinstance(n, ast.Call) and self.builds(n, depth + 1) for n in walk_expressions(call.args[0]))
            last = path.rpartition(".")[2]
            makes = path.startswith(("layers.", "applications.")) or path in ("Sequential", "Model", "models.Sequential", "models.Model")
            follows = self.file.fact(KerasPolicy).dtype_argument(call) is None
            return makes and last[:1].isupper() and not path.startswith(NEUTRAL) and follows
        callee = self.file.names.local_function(call.func)
        if isinstance(callee, FUNCTIONS):
            inner = [n for s in self.file.values.own_statements(callee) for n in ast.walk(s) if isinstance(n, ast.Call)]
            return any(self.builds(n, depth + 1) for n in inner)
        return False

    def _uses(self, target: ast.Name) -> Iterator[ast.expr]:
        """Later places of the same scope where what `target` holds is trained, copied or built upon."""
        scope = self.file.syntax.scope(target)
        for name in self.file.syntax.all(ast.Name):
            if name.id != target.id or not isinstance(name.ctx, ast.Load) or self.file.syntax.scope(name) is not scope:
                continue
            if position(name) > position(target) and any(b.node is target for b in self.file.names.reaching(name)) and self._depends(name):
                yield name

    def _depends(self, name: ast.Name) -> bool:
        """Whether the use trains, copies or extends the model."""
        parent = self.file.syntax.parents[name]
        if isinstance(parent, ast.Attribute):
            return parent.attr in (*TRAINING, "output", "outputs", "get_config", "to_json", "add")
        if isinstance(parent, ast.Call) and name in parent.args:
            path = keras_name(self.file, parent.func)
            if path is None and isinstance(parent.func, ast.Call):  # Dense(8)(x)
                return self.builds(parent.func)
            return path in COPIES or path in ("Model", "models.Model")
        if isinstance(parent, ast.Call) and parent.func is name:
            return True
        return isinstance(parent, ast.keyword) and parent.arg == "outputs"
