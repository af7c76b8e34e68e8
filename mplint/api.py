"""The Python API: check and fix text or paths with the same engine as the command line."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from mplint.engine.check import check_document
from mplint.findings import Finding
from mplint.rule import registry
from mplint.settings import Settings
from mplint.source.document import Document


def check_text(text: str, path: str = "<text>", targets: Mapping[str, str] | None = None, select: Collection[str] = ("ALL",)) -> list[Finding]:
    """The findings in a program given as text; `path` says what kind of file it is, `targets` what it runs on."""
    rules = [rule for code, rule in registry().items() if "ALL" in select or code in select]
    return check_document(Document(path, text), ast.parse(text), Settings(), rules)
