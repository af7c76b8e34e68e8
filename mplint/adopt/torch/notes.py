"""What is said about an adoption: by places of the program as it was."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from mplint.adopt.program import Note, Program
from mplint.adopt.torch.attempt import Attempt
from mplint.adopt.torch.backwards import Backward
from mplint.adopt.torch.evaluation import Evaluations
from mplint.adopt.torch.judgment import Mended, place_before
from mplint.adopt.torch.models import Models
from mplint.adopt.torch.passages import Passages
from mplint.adopt.torch.spelling import DTYPES
from mplint.findings import Finding, Span
from mplint.program.values import Object
from mplint.recipes.scaler.plan import NoFix


def notes_on(
    before: Program,
    result: Attempt,
    policy: str,
    found: Sequence[Backward],
    reasons: Mapping[int, str],
    evaluates: bool,
) -> tuple[tuple[Note, ...], tuple[Note, ...]]:
    """What was done, and what is left."""
    after = result.program
    adopted = [b for b in found if b.open and b.number not in reasons]
    made = (*_made(before, after, policy, adopted, evaluates), *_mended(before, result.mended)) if after is not before else ()
    file = before.file
    left = tuple(
        Note(file.location(b.call), f"`{file.text(b.call)}` stays in float32: {reasons[b.number]}") for b in found if b.number in reasons
    )
    asked = (Note(place_before(before, after, f), text_of(f)) for f in result.asked)
    told = (Note(place_before(before, after, note), note.text) for note in result.told)
    return made, (*left, *asked, *told)


def text_of(finding: Finding) -> str:
    """A finding as something that is left to do."""
    return f"{finding.message} ({finding.code}); {finding.help[:1].lower()}{finding.help[1:]}"


def _mended(before: Program, done: Sequence[Mended]) -> Iterator[Note]:
    """What was mended on lines that the program had."""
    lines = [line.strip() for line in before.document.text.split("\n")]
    for line, text in done:
        if line in lines:
            at = lines.index(line) + 1
            yield Note(before.document.location(Span(at, 0, at, 1)), f"the line is mended for half precision: {text}")


def _made(before: Program, after: Program, policy: str, adopted: Sequence[Backward], evaluates: bool) -> Iterator[Note]:
    file, dtype = before.file, DTYPES[policy]
    scaling = ", its loss scaled" if policy == "mixed_float16" else ""
    models = Models(before.execution)
    passages = []
    for backward in adopted:
        done = "its loss is scaled" if backward.covered else f"its forward pass runs under autocast in {dtype}{scaling}"
        yield Note(file.location(backward.call), f"`{file.text(backward.call)}`: {done}")
        try:
            passages += [] if backward.covered else Passages(models, policy).of_backward(backward.call)
        except NoFix:
            continue
    if evaluates:
        for passage in Evaluations(models, Passages(models, policy)).all(passages):
            yield Note(file.location(passage.first), f"a forward pass without gradients runs under autocast in {dtype}")
    if after.document.text.count("caler.state_dict()") > before.document.text.count("caler.state_dict()"):
        saved = [
            call
            for call in file.syntax.all(ast.Call)
            if any(type(a) is Object and a.kind == "state_dict" and a.type == "optimizer" for a in before.execution.values(call))
        ]
        for call in {file.syntax.statement(call): call for call in saved}.values():  # one checkpoint may hold several optimizers
            yield Note(file.location(call), "the checkpoint holds the scaler's state, too")
