"""What `mplint convert` did to a model or a program, as text for a terminal, and as JSON for a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mplint.adopt.program import Adoption, Note
from mplint.conversion.result import Conversion, Region, Verdict

SHOWN = 12
REGIONS = 4


def conversion_text(result: Conversion, source: str, target: str, *, written: bool) -> str:
    """What was done and how it was proven; what stays float32 is listed by reason."""
    half = result.policy.half
    lines = [f"{source} -> {target} ({result.policy.name})" if written else f"{source} ({result.policy.name}): not written"]
    heavy = f"{result.heavy_half} of {result.heavy} matmuls and convolutions in {half}"
    whole = f"; {result.whole} more are int8 and stay so" if result.whole else ""
    lines.append(f"  {heavy}, {result.operations_half} of {result.operations} operations{whole}")
    lines.append(f"  {_casts(result.casts_added)}; weights {_size(result.size_before)} -> {_size(result.size_after)}")
    if result.error is not None:
        where = f", {result.decided}" if result.decided else ""
        lines.append(f"  largest error of an output: {result.error:.2g}{where} (allowed: {result.policy.tolerance:g})")
    if result.verified:
        lines.append(f"  verified by {', '.join(result.verified)}")
    lines += [f"  problem: {problem}" for problem in result.problems]
    if result.verdict is Verdict.UNPROVEN:
        lines += [f"  UNPROVEN: {gap}" for gap in result.gaps]
    lines += [f"  note: {note}" for note in result.notes]
    lines += [f"  in half, {_region(region)}" for region in result.regions[:REGIONS]]
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


def curve_lines(results: Sequence[Conversion], source: str) -> Iterator[str]:
    """How large the error of an output is for which share in half, from much to little; and why there is no more, where there is none."""
    yield f"{source}: error of an output, and what is in half"
    for result in results:
        share = (
            f"{result.heavy_half} of {result.heavy} matmuls and convolutions, {result.operations_half} of {result.operations} operations"
        )
        size = f"{_casts(result.casts_added)}, weights {_size(result.size_after)}"
        shown = "unproven" if result.error is None else f"{result.error:.2g}"
        yield f"  {shown:>8}  {share}; {size}"
        yield from (f"            {why}" for why in (*result.problems, *result.gaps))


def _region(region: Region) -> str:
    first, more = region.operations[0], len(region.operations) - 1
    others = f" and {more} beside it" if more else ""
    return f"{first}{others} would move the outputs by about {region.error:.2g} (most of it by {region.tensor})"


def conversion_json(result: Conversion, source: str, target: str) -> str:
    """One object with every figure, and every operation that stays float32."""
    return json.dumps(_described(result, source, target), indent=2, ensure_ascii=False) + "\n"


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
        "decided_by": result.decided,
        "heavy_operations": result.heavy,
        "heavy_operations_in_half": result.heavy_half,
        "operations": result.operations,
        "operations_in_half": result.operations_half,
        "int8_operations": result.whole,
        "casts_added": result.casts_added,
        "weight_bytes_before": result.size_before,
        "weight_bytes_after": result.size_after,
        "notes": result.notes,
        "advice": result.advice,
        "float32_regions": [{"operations": one.operations, "tensor": one.tensor, "error_in_half": one.error} for one in result.regions],
        "kept_float32": [{"operation": name, "reason": reason} for name, reason in result.kept],
    }


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
