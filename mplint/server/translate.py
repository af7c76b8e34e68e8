"""Findings in the terms of the protocol: ranges count lines from 0 and characters in UTF-16 code units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsprotocol import types
from pygls import uris

from mplint.engine.texts import Texts
from mplint.findings import Applicability, Edit, Finding, Location, Severity
from mplint.report.summary import page_of

SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}
SOURCE = "mplint"
RENAMED = frozenset({"MP101", "MP102", "MP103", "MP104"})  # struck through, as editors do with what goes away

Cells = Mapping[tuple[str, int], str]


class Places:
    """Where files and cells of notebooks are, as the editor names them: `cells` holds the address of a cell by path and index."""

    def __init__(self, texts: Texts, cells: Cells) -> None:
        self._texts = texts
        self._cells = cells

    def uri(self, location: Location) -> str:
        """The address of the document that a place is in."""
        cell = self._cells.get((location.path, location.cell)) if location.cell is not None else None
        return cell or uris.from_fs_path(location.path) or location.path

    def range(self, location: Location) -> types.Range:
        """The range of a place; the first line where it names none."""
        if location.line is None:
            return types.Range(types.Position(0, 0), types.Position(0, 0))
        end_line = location.end_line or location.line
        end = location.end_column or location.column or 1
        return types.Range(self._position(location, location.line, location.column or 1), self._position(location, end_line, end))

    def _position(self, location: Location, line: int, column: int) -> types.Position:
        text = self._texts.line(location._replace(line=line)) or ""
        return types.Position(line - 1, len(text[: column - 1].encode("utf-16-le", "surrogatepass")) // 2)

    def diagnostic(self, finding: Finding) -> types.Diagnostic:
        """A finding as editors show it."""
        words = (finding.message, finding.why, finding.help)
        return types.Diagnostic(
            range=self.range(finding.location),
            message="\n".join(sentence for sentence in words if sentence),
            severity=SEVERITIES[finding.severity],
            code=finding.code,
            code_description=types.CodeDescription(href=page) if (page := page_of(finding)) else None,
            source=SOURCE,
            tags=[types.DiagnosticTag.Deprecated] if finding.code in RENAMED else None,
            related_information=[
                types.DiagnosticRelatedInformation(types.Location(self.uri(place), self.range(place)), words)
                for place, words in finding.related
            ],
        )

    def workspace_edit(self, edits: Iterable[Edit]) -> types.WorkspaceEdit:
        """Edits as the editor applies them."""
        changes: dict[str, list[types.TextEdit]] = {}
        for edit in edits:
            changes.setdefault(self.uri(edit.location), []).append(types.TextEdit(self.range(edit.location), edit.content))
        return types.WorkspaceEdit(changes=changes)


def title_of(finding: Finding) -> str:
    """The title of a finding's fix."""
    assert finding.fix is not None
    review = " (changes numerics or control flow: review it)" if finding.fix.applicability is Applicability.UNSAFE else ""
    return f"{SOURCE}: {finding.fix.title.rstrip('.')}{review}"
