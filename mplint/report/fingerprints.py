"""Names of findings that stay the same when lines move, for dashboards that follow findings over time."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

from mplint.findings import Finding
from mplint.graph.names import is_address
from mplint.report.sources import Sources


def fingerprints(findings: Sequence[Finding], sources: Sources) -> list[str]:
    """A name for each finding: of its rule, its file and the text of its line, numbered where these are the same."""
    seen: Counter[str] = Counter()
    names = []
    for finding in findings:
        name = _fingerprint(finding, sources)
        seen[name] += 1
        names.append(f"{name}:{seen[name]}")
    return names


def uri(path: str) -> str:
    """A path relative to the current folder; an address of its own for what lies elsewhere."""
    if is_address(path):
        return quote(path, safe=":/")
    relative = relative_path(path)
    if relative.startswith(os.pardir):
        absolute = os.path.abspath(path).replace(os.sep, "/")
        return "file://" + quote(absolute if absolute.startswith("/") else f"/{absolute}")
    return quote(relative, safe="/")


def relative_path(path: str) -> str:
    """A path relative to the current folder, with `/` between folders; an address as it is."""
    if is_address(path):
        return path
    relative = os.path.relpath(path) if os.path.isabs(path) or ".." in path else os.path.normpath(path)
    return relative.replace(os.sep, "/")


def _fingerprint(finding: Finding, sources: Sources) -> str:
    line = sources.line(finding.location) or ""
    parts = (finding.code, uri(finding.location.path), finding.node or "", "".join(line.split()))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
