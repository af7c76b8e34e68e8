"""What `mplint convert` did to a model or a program, as text for a terminal, and as JSON or HTML for a file."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Iterator

from mplint.adopt.program import Adoption, Note
from mplint.conversion.result import Conversion, Verdict

SHOWN = 12


def conversion_text(result: Conversion, source: str, target: str, *, written: bool) -> str:
    """What was done and how it was proven; what stays float32 is listed by reason."""
    half = result.policy.half
    lines = [f"{source} -> {target} ({result.policy.name})" if written else f"{source} ({result.policy.name}): not written"]
    heavy = f"{result.heavy_half} of {result.heavy} matmuls and convolutions in {half}"
    lines.append(f"  {heavy}, {result.operations_half} of {result.operations} operations")
    lines.append(f"  {_casts(result.casts_added)}; weights {_size(result.size_before)} -> {_size(result.size_after)}")
    if result.error is not None:
        lines.append(f"  largest error of an output: {result.error:.2g} (allowed: {result.policy.tolerance:g})")
    if result.verified:
        lines.append(f"  verified by {', '.join(result.verified)}")
    lines += [f"  problem: {problem}" for problem in result.problems]
    if result.verdict is Verdict.UNPROVEN:
        lines += [f"  UNPROVEN: {gap}" for gap in result.gaps]
    lines += [f"  note: {note}" for note in result.notes]
    if result.kept:
        lines.append(f"  stays float32 ({len(result.kept)}):")
        lines += [f"    {name}: {reason}" for name, reason in result.kept[:SHOWN]]
        if len(result.kept) > SHOWN:
            counts = Counter(reason for _, reason in result.kept[SHOWN:])
            lines += [f"    and {count} more: {reason}" for reason, count in counts.most_common(5)]
            lines.append("    (--report FILE lists all)")
    if result.advice:
        lines += ["", *result.advice]
    return "\n".join(lines) + "\n"


def conversion_json(result: Conversion, source: str, target: str) -> str:
    """One object with every figure, and every operation that stays float32."""
    return json.dumps(_described(result, source, target), indent=2, ensure_ascii=False) + "\n"


def conversion_html(result: Conversion, source: str, target: str) -> str:
    """One page that needs nothing else."""
    facts = _described(result, source, target)
    kept = facts.pop("kept_float32")
    assert isinstance(kept, list)
    figures = "".join(
        f"<tr><th>{html.escape(key.replace('_', ' '))}</th><td>{html.escape(_shown(value))}</td></tr>" for key, value in facts.items()
    )
    rows = "".join(f"<tr><td>{html.escape(item['operation'])}</td><td>{html.escape(item['reason'])}</td></tr>" for item in kept)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>mplint convert</title>'
        "<style>body{font:15px/1.5 system-ui;margin:2rem auto;max-width:60rem;padding:0 1rem}table{border-collapse:collapse;width:100%}"
        "th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #8884}</style>"
        f"<h1>{html.escape(source)}</h1><table>{figures}</table><h2>Stays float32</h2><table>{rows}</table></html>\n"
    )


def _described(result: Conversion, source: str, target: str) -> dict[str, object]:
    return {
        "input": source,
        "output": target,
        "policy": result.policy.name,
        "tolerance": result.policy.tolerance,
        "verdict": result.verdict.value,
        "proven": result.proven,
        "unproven_because": result.gaps,
        "problems": result.problems,
        "verified_by": result.verified,
        "largest_error": result.error,
        "heavy_operations": result.heavy,
        "heavy_operations_in_half": result.heavy_half,
        "operations": result.operations,
        "operations_in_half": result.operations_half,
        "casts_added": result.casts_added,
        "weight_bytes_before": result.size_before,
        "weight_bytes_after": result.size_after,
        "notes": result.notes,
        "advice": result.advice,
        "kept_float32": [{"operation": name, "reason": reason} for name, reason in result.kept],
    }


def _shown(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _casts(count: int) -> str:
    if count < 0:
        return f"{-count} cast{'s' if count < -1 else ''} fewer"
    return f"{count or 'no'} cast{'' if count == 1 else 's'} added"


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def adoption_text(adoption: Adoption, written: str | None) -> str:
    """The notes by line, and what comes next; `written` is the file that holds the result, if one was written."""
    path, policy = adoption.path, adoption.policy
    changed = adoption.after != adoption.before
    lines = []
    if adoption.made:
        lines += [f"{path}: {'adopts' if changed else 'has adopted'} {policy}", *_lines(path, adoption.made)]
    if adoption.left:
        lines += ["Left to you:", *_lines(path, adoption.left)]
    if changed:
        lines.append(
            f"Written to {written}. Check it with `mplint check {written}`."
            if written
            else f"Nothing is written yet: `mplint convert {path} --policy {policy} --apply` writes it."
        )
    elif not adoption.trains and not adoption.left:
        lines.append(f"{path}: nothing here trains a model, so there is nothing to adopt.")
    elif not adoption.left:
        lines.append(f"{path}: mixed precision is adopted already; nothing to change (a dtype that it chose itself stays).")
    else:
        lines.append(f"{path}: nothing was changed.")
    return "".join(f"{line}\n" for line in lines)


def adoption_json(adoption: Adoption) -> str:
    """One object: the policy, whether the text changes, and every note with its place."""
    described = {
        "input": adoption.path,
        "policy": adoption.policy,
        "changed": adoption.after != adoption.before,
        "adopted": [_note(note) for note in adoption.made],
        "left": [_note(note) for note in adoption.left],
    }
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


def _lines(path: str, notes: Iterable[Note]) -> Iterator[str]:
    for note in notes:
        place = note.location
        if place.path != path:
            yield f"  {place.path}:{place.line}: {note.text}"
            continue
        cell = "" if place.cell is None else f"cell {place.cell} "
        yield f"  {cell}line {place.line}: {note.text}"


def _note(note: Note) -> dict[str, object]:
    place = note.location
    return {"path": place.path, "cell": place.cell, "line": place.line, "column": place.column, "text": note.text}
