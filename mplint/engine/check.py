"""Checking: one program at a time, and many files with workers and a cache."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from mplint.findings import Finding
from mplint.rule import Rule
from mplint.settings import Settings
from mplint.source.document import Document
from mplint.source.file import SourceFile


def check_document(document: Document, tree: ast.Module, settings: Settings, rules: Iterable[type[Rule]], module: str = "") -> list[Finding]:
    """The findings of `rules` in one parsed program, before links and suppressions, in report order."""
    text = document.text
    active = [rule for rule in rules if rule.checks("check_source") and (not rule.tokens or any(token in text for token in rule.tokens))]
    if not active:
        return []
    file = SourceFile(document, tree, settings, module)
    findings = {finding for rule in active for finding in rule().check_source(file)}
    return sorted(findings, key=lambda f: f.sort_key)
