"""Runs the programs of the fixtures, before and after their fix, on the CPU and with little data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def program(path: str) -> dict[str, Any]:
    """The names of a fixture's program, with every "cuda" replaced by "cpu"."""
    scope: dict[str, Any] = {"__name__": "program"}
    text = (FIXTURES / path).read_text().replace('"cuda"', '"cpu"')
    exec(compile(text, path, "exec"), scope)
    return scope


@contextmanager
def apex_in_float32() -> Iterator[None]:
    """An `apex` that does what level O0 did: nothing."""

    @contextmanager
    def scale_loss(loss: Any, optimizers: Any, **_: Any) -> Iterator[Any]:
        yield loss

    def initialize(model: Any, optimizer: Any, **_: Any) -> tuple[Any, Any]:
        return model, optimizer

    def master_params(optimizer: Any) -> list[Any]:
        return [p for group in optimizer.param_groups for p in group["params"]]

    apex, amp, parallel = ModuleType("apex"), ModuleType("apex.amp"), ModuleType("apex.parallel")
    calls = {"scale_loss": scale_loss, "initialize": initialize, "master_params": master_params, "state_dict": dict}
    for name, call in {**calls, "register_half_function": print}.items():
        setattr(amp, name, call)
    parallel.DistributedDataParallel = parallel.convert_syncbn_model = lambda model, **_: model  # type: ignore[attr-defined]
    apex.amp, apex.parallel = amp, parallel  # type: ignore[attr-defined]
    sys.modules.update({"apex": apex, "apex.amp": amp, "apex.parallel": parallel})
    try:
        yield
    finally:
        for name in ("apex", "apex.amp", "apex.parallel"):
            del sys.modules[name]


def options(**given: Any) -> SimpleNamespace:
    """A program's options."""
    return SimpleNamespace(**given)
