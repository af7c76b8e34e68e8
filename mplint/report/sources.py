"""The source behind findings: lines to show and edits to list, read again when a report asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from mplint.engine.texts import Texts
from mplint.errors import describe
from mplint.findings import Edit, Finding, Fix
from mplint.report.summary import place


class Sources(Texts):
    """The texts of a report, and the edits of its fixes.

    `faults` collects the fixes that could not be turned into edits, so that one of them costs no finding.
    """

    def __init__(self, given: Mapping[str, bytes] = {}) -> None:
        super().__init__(given)
        self.faults: list[str] = []
        self._edits: dict[int, tuple[Fix, tuple[Edit, ...]]] = {}

    def edits(self, finding: Finding) -> tuple[Edit, ...]:
        """The edits of a finding's fix; none where it has none or the source can't be read."""
        if finding.fix is None:
            return ()
        known = self._edits.get(id(finding.fix))  # findings may share a fix, which can be long
        if known is None:
            known = self._edits[id(finding.fix)] = (finding.fix, self._realized(finding))
        return known[1]

    def _realized(self, finding: Finding) -> tuple[Edit, ...]:
        document = self.document(finding.location.path) if finding.fix is not None and finding.fix.changes else None
        if document is None or finding.fix is None:
            return ()
        from mplint.rewrite import FixError, realize

        try:
            return realize(document, finding.fix)
        except FixError:
            return ()
        except Exception as error:
            self.faults.append(f"the fix of {finding.code} failed on {place(finding.location)}: {describe(error)}")
            return ()
