"""mplint finds, explains and fixes mixed-precision mistakes in Keras, TensorFlow and PyTorch code and models."""

from __future__ import annotations

import os
import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and not __file__.startswith(os.path.join(sys.path[0], "")):
    del sys.path[0]  # `python -m mplint`: a project's own typing.py or json/ must not stand for the library's

from typing import TYPE_CHECKING

from mplint.about import VERSION

if TYPE_CHECKING:
    from mplint.api import check, check_text, fix, fix_text
    from mplint.config import Config, load_config
    from mplint.conversion.api import convert
    from mplint.conversion.policy import ConversionError
    from mplint.conversion.result import Conversion
    from mplint.engine.run import CheckResult
    from mplint.errors import InternalErrorWarning, UsageError
    from mplint.findings import Applicability, Confidence, Finding, Fix, Location, Severity
    from mplint.graph.load import load_graph
    from mplint.graph.model import GraphError, ModelGraph
    from mplint.rule import Rule

__version__ = VERSION

__all__ = [
    "Applicability",
    "CheckResult",
    "Confidence",
    "Config",
    "Conversion",
    "ConversionError",
    "Finding",
    "Fix",
    "GraphError",
    "InternalErrorWarning",
    "Location",
    "ModelGraph",
    "Rule",
    "Severity",
    "UsageError",
    "check",
    "check_text",
    "convert",
    "fix",
    "fix_text",
    "load_config",
    "load_graph",
]

# Where each name lives: imported when it is first asked for, since a run of the command needs few of them.
_HOMES = {
    "mplint.api": ("check", "check_text", "fix", "fix_text"),
    "mplint.config": ("Config", "load_config"),
    "mplint.conversion.api": ("convert",),
    "mplint.conversion.policy": ("ConversionError",),
    "mplint.conversion.result": ("Conversion",),
    "mplint.engine.run": ("CheckResult",),
    "mplint.errors": ("InternalErrorWarning", "UsageError"),
    "mplint.findings": ("Applicability", "Confidence", "Finding", "Fix", "Location", "Severity"),
    "mplint.graph.load": ("load_graph",),
    "mplint.graph.model": ("GraphError", "ModelGraph"),
    "mplint.rule": ("Rule",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(home), name)
    raise AttributeError(f"module 'mplint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
