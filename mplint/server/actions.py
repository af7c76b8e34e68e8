"""What the editor offers at a finding: its fix, a comment that ignores it, its rule's page."""

from __future__ import annotations

from collections.abc import Iterable

from lsprotocol import types

from mplint.engine.ignores import ignoring
from mplint.engine.texts import Texts
from mplint.errors import describe
from mplint.findings import Applicability, Edit, Finding
from mplint.rewrite import FixError, realize
from mplint.server.translate import SOURCE, Places, title_of

FIX_ALL = "source.fixAll.mplint"
EXPLAIN = "mplint.explain"


Offer = types.CodeAction | types.Command


def actions_at(findings: Iterable[Finding], texts: Texts, places: Places) -> list[Offer]:
    """Fixes first, then comments and pages."""
    fixes: list[Offer] = []
    others: list[Offer] = []
    for finding in findings:
        diagnostic = places.diagnostic(finding)
        edits = edits_of(finding, texts)
        if edits:
            assert finding.fix is not None
            fixes.append(
                types.CodeAction(
                    title=title_of(finding),
                    kind=types.CodeActionKind.QuickFix,
                    diagnostics=[diagnostic],
                    is_preferred=finding.fix.applicability is Applicability.SAFE,
                    edit=places.workspace_edit(edits),
                )
            )
        comment = ignoring([finding.code], finding.location, texts)
        if comment is not None:
            title = f"{SOURCE}: ignore {finding.code} on this line"
            edit = places.workspace_edit([comment])
            others.append(types.CodeAction(title=title, kind=types.CodeActionKind.QuickFix, diagnostics=[diagnostic], edit=edit))
        title = f"{SOURCE}: explain {finding.code} ({finding.name})"
        others.append(types.Command(title=title, command=EXPLAIN, arguments=[finding.code]))
    return fixes + others


def fix_all(findings: Iterable[Finding], texts: Texts, places: Places) -> types.CodeAction | None:
    """Every safe fix of a file that does not overlap an earlier one; None where there is none."""
    from mplint.engine.fix_conflicts import Planned, without_overlaps
    from mplint.engine.fix_conflicts import edits_of as all_edits

    safe = (f for f in findings if f.fix is not None and f.fix.applicability is Applicability.SAFE)
    chosen = without_overlaps([Planned(finding, edits_of(finding, texts)) for finding in safe])
    if not chosen:
        return None
    edit = places.workspace_edit(all_edits(chosen))
    return types.CodeAction(title=f"{SOURCE}: apply every safe fix", kind=FIX_ALL, edit=edit)


def edits_of(finding: Finding, texts: Texts) -> tuple[Edit, ...]:
    """The edits of a finding's fix; none where it has none that can be made here."""
    document = texts.document(finding.location.path)
    if document is None or finding.fix is None or not finding.fix.changes or finding.fix.applicability is Applicability.DISPLAY:
        return ()
    try:
        return realize(document, finding.fix)
    except FixError:
        return ()
    except Exception as error:
        raise RuntimeError(f"the fix of {finding.code} failed: {describe(error)}") from error
