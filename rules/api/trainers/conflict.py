"""What MP109 reports: one conflict among a trainer's settings."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.findings import Fix, Location, Severity, Span


class Conflict(NamedTuple):
    """Two settings that exclude each other, or one that excludes what stands around it, and what to do."""

    place: Span
    message: str
    why: str
    help: str
    related: tuple[tuple[ast.AST | Span | Location, str], ...] = ()
    fix: Fix | None = None
    severity: Severity | None = None
    sure: bool = True
