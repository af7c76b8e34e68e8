"""Training of float16 layers whose model has a policy of its own, so that `compile()` adds no loss scaling."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.names import keras_path
from mplint.source.keras.evidence import MIXED, speaks_of_scaling
from mplint.source.keras.models import KerasModels
from mplint.source.keras.policy import KerasPolicy

if TYPE_CHECKING:
    from mplint.source.file import SourceFile


class Training(NamedTuple):
    """A `compile` or `fit` call that trains without scaling, and the node that brings float16, with what happens there."""

    call: ast.Call
    cause: ast.AST
    reason: str


def unscaled_training(file: SourceFile) -> Iterator[Training]:
    """The first training call of each program that builds float16 layers under another model policy; tests mix such things on purpose."""
    if MIXED not in file.document.text or speaks_of_scaling(file) or file.is_test:
        return
    calls = training_calls(file)
    if not calls:
        return
    for cause, reason in (*mapped_policies(file), *mixed_parts(file)):
        yield Training(calls[0], cause, reason)
        return


def training_calls(file: SourceFile) -> list[ast.Call]:
    """The calls that compile a Keras model; where there is none, those that fit one."""
    for method in ("compile", "fit"):
        found = [c for c in file.syntax.all(ast.Call) if isinstance(c.func, ast.Attribute) and c.func.attr == method]
        models = [c for c in found if is_model(file, c.func.value)]  # type: ignore[attr-defined]
        if models:
            return models
    return []


def is_model(file: SourceFile, node: ast.expr) -> bool:
    """Whether the expression is a Keras model of this file that has no `dtype=` of its own."""
    facts = file.fact(KerasModels)
    made = [d for d in file.values.definitions(node) if isinstance(d, ast.Call)]
    return bool(made) and all(facts.kind(call) is not None and file.fact(KerasPolicy).dtype_expression(call) is None for call in made)


def mapped_policies(file: SourceFile) -> Iterator[tuple[ast.AST, str]]:
    """Global policies that are a DTypePolicyMap: their name is never mixed_float16."""
    for setter in file.fact(KerasPolicy).setters.values():
        for call, name in file.values.made_by(setter.value):
            if (keras_path(name) or "").rpartition(".")[2] == "DTypePolicyMap":
                yield call, "the model's policy is this map, which loss scaling does not look into"


def mixed_parts(file: SourceFile) -> Iterator[tuple[ast.AST, str]]:
    """Layers with a mixed_float16 policy of their own where the global policy is float32."""
    policy = file.fact(KerasPolicy)
    if policy.exit().names != {"float32"} or any(MIXED in setter.names for setter in policy.setters.values()):
        return
    for layer in file.fact(KerasModels).layers:
        given = policy.dtype_expression(layer.call)
        if given is not None and policy.names(given) == {MIXED}:
            yield layer.call, "this layer computes in float16 by its own `dtype`, and the model's policy stays float32"
