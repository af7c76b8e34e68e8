"""Models that a function of the user makes, and functions of his: the one place where mplint runs code that is not its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from mplint.errors import UsageError
from mplint.graph.load import load_graph
from mplint.graph.model import GraphError, ModelGraph


def graph_of(name: str, option: str = "--model ") -> ModelGraph:
    """The graph of what `package.module:factory` returns when called; raises UsageError, which names `option`, where it fails."""
    found = _named(option, name, 'MODULE:FACTORY, such as "train.model:build"')
    try:
        model = found() if callable(found) and not hasattr(found, "parameters") and not hasattr(found, "layers") else found
    except Exception as error:
        raise UsageError(f"{option}{name}: {_said(error)}") from None
    try:
        graph = load_graph(model)
    except GraphError as error:
        raise UsageError(f"{option}{name}: {error}") from None
    graph.path = name
    return graph


def function_of(name: str, option: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; raises UsageError where there is none."""
    found = _named(option, name, 'MODULE:FUNCTION, such as "evaluation:error"')
    if not callable(found):
        raise UsageError(f"{option}{name}: it is no function")
    return found


def _named(option: str, name: str, form: str) -> object:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f'{option.strip() or "MODEL"}: "{name}" is not {form}')
    from importlib import import_module

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise UsageError(f"{option}{name}: {_said(error)}") from None
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
