"""One attempt at adoption: all chosen loops or none, step by step, and mplint's own judgment at the end."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mplint.adopt.program import Program
from mplint.adopt.torch import hazards, judgment
from mplint.adopt.torch.arrays import distributions, float_arrays, matching_stores
from mplint.adopt.torch.backwards import groups, is_covered, numbered
from mplint.adopt.torch.elsewhere import Told, of_kernels, of_states, told_of
from mplint.adopt.torch.evaluation import Evaluations
from mplint.adopt.torch.judgment import Mended, settled
from mplint.adopt.torch.models import Models
from mplint.adopt.torch.passages import Passage, Passages
from mplint.adopt.torch.preparation import parted
from mplint.adopt.torch.scaling import beside_unscaled, scaled
from mplint.adopt.torch.sigmoids import float_sigmoids
from mplint.adopt.torch.spelling import Spelling, imports_torch, torch_name
from mplint.findings import AddImport, Applicability, Change, Finding, Fix
from mplint.python.document import InputError
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.recipes.scaler.plan import NoFix
from mplint.rewrite import FixError


class Refused(Exception):
    """Some of the chosen backward passes (none: what evaluates) can't be adopted; says which and why."""

    def __init__(self, numbers: Iterable[int], reason: str) -> None:
        super().__init__(reason)
        self.numbers, self.reason = tuple(numbers), reason


class Attempt(NamedTuple):
    """The program after adoption, what had to be mended in it besides, and what is still to be done by hand, there or in other files.

    `told`: what no rule of mplint asks for.
    """

    program: Program
    mended: tuple[Mended, ...] = ()
    asked: tuple[Finding, ...] = ()
    told: tuple[Told, ...] = ()


def attempt(program: Program, policy: str, chosen: Sequence[int], evaluates: bool) -> Attempt:
    """The program with these backward passes adopted; raises Refused."""
    after = prepared(program, policy, chosen)
    after = under_autocast(after, policy, chosen, evaluates)
    require_elsewhere(after, chosen)
    after = with_float_results(after, chosen)
    if policy == "mixed_float16":
        after = with_scalers(after, chosen)
    after, remaining, done = settled(program, after) if after is not program else (after, [], [])
    remaining, asked = judgment.parted(program, remaining)
    if remaining:
        raise Refused(blamed(after, remaining, chosen), f"what mplint then finds has no fix of its own: {described(after, remaining[0])}")
    places = {(f.location.path, f.location.line) for f in asked}
    told = (note for note in told_of(after.execution) if (note.location.path, note.location.line) not in places)
    return Attempt(after, tuple(done), tuple(asked), tuple(told) if after is not program else ())


def prepared(program: Program, policy: str, chosen: Sequence[int]) -> Program:
    """The program with losses and outputs in statements of their own."""
    execution = program.execution
    open_ones = [call for call in picked(program.file, chosen) if not is_covered(execution, call)]
    return carried_out(program, parted(Models(execution), policy, open_ones), chosen) if open_ones else program


def under_autocast(program: Program, policy: str, chosen: Sequence[int], evaluates: bool) -> Program:
    """The program with forward passes and losses under autocast."""
    file = program.file
    models, spelling = Models(program.execution), Spelling(program.execution, policy)
    passages = Passages(models, policy)
    found: list[Passage] = []
    for number, call in zip(chosen, picked(file, chosen), strict=True):
        try:
            found += [] if is_covered(program.execution, call) else passages.of_backward(call)
            for passage in found:
                spelling.header(passage.first)
        except NoFix as reason:
            raise Refused([number], str(reason)) from None
    found = merged(file, passages, found)
    if evaluates:
        found += Evaluations(models, passages).all(found)
    try:
        changes = [change for passage in found for change in passage.changes(file, spelling.header(passage.first))]
    except NoFix as reason:
        raise Refused([], str(reason)) from None
    if changes and torch_name(file) == "torch" and not imports_torch(file):
        changes.append(AddImport("torch"))
    return carried_out(program, fix_of(changes), chosen)


def require_elsewhere(program: Program, chosen: Sequence[int]) -> None:
    """Raise Refused where another file would crash with what autocast computes."""
    try:
        of_states(program.execution)
        of_kernels(program.execution)
    except NoFix as reason:
        raise Refused(chosen, str(reason)) from None


def merged(file: SourceFile, passages: Passages, found: Sequence[Passage]) -> list[Passage]:
    """The passages, those that overlap in one block made one."""
    result: list[Passage] = []
    for passage in sorted(dict.fromkeys(found), key=lambda p: position(p.first)):
        last = result[-1] if result else None
        if last is not None and any(passage.first in ast.walk(s) for s in passages.between(last.first, last.last)):
            if file.syntax.block(last.first) is file.syntax.block(passage.first) and position(passage.last) > position(last.last):
                result[-1] = Passage(last.first, passage.last, tuple(dict.fromkeys((*last.casts, *passage.casts))))
            continue
        result.append(passage)
    return result


def with_float_results(program: Program, chosen: Sequence[int]) -> Program:
    """The program with float32 results where numpy, or a loss of probabilities, gets them."""
    execution = program.execution
    inner = [*float_sigmoids(execution), *matching_stores(execution)] if chosen else []
    kernels, unclear = hazards.without_half_kernel(execution) if chosen else ([], [])
    if unclear:
        raise Refused(chosen, f"`{program.file.text(unclear[0].func)}` has no half kernel: compute it in float32 with autocast off first")
    changes = tuple(dict.fromkeys([*float_arrays(execution), *distributions(execution), *inner, *kernels]))
    return carried_out(program, fix_of(changes), chosen)


def with_scalers(program: Program, chosen: Sequence[int]) -> Program:
    """The program with a scaler for each group of backward passes that share one."""
    numbers = {call: number for number, call in zip(chosen, picked(program.file, chosen), strict=True)}
    together = [[numbers[call] for call in group] for group in groups(program.execution, list(numbers))]
    for group in together:
        calls = picked(program.file, group)
        for call, other in beside_unscaled(program.execution, calls).items():
            reason = f"its gradients go into the same step as those of `{program.file.text(other)}`, which can't be scaled"
            raise Refused([group[calls.index(call)]], f"{reason}; mixed_bfloat16 needs no scaler")
        try:
            program = carried_out(program, scaled(program.execution, picked(program.file, group)), group)
        except NoFix as reason:
            raise Refused(group, f"{reason}; mixed_bfloat16 needs no scaler") from None
    return program


def picked(file: SourceFile, numbers: Sequence[int]) -> list[ast.Call]:
    """The backward passes with these numbers."""
    calls = numbered(file)
    return [calls[number] for number in numbers]


def fix_of(changes: Sequence[Change]) -> Fix:
    """A fix that makes these changes."""
    return Fix("Adopt mixed precision", Applicability.UNSAFE, tuple(changes))


def carried_out(program: Program, fix: Fix, chosen: Sequence[int]) -> Program:
    """The program after a fix; raises Refused where it can't be carried out."""
    try:
        return program.after([fix]) if fix.changes else program
    except (FixError, InputError) as error:
        raise Refused(chosen, f"the lines can't be rewritten: {error}") from None


def blamed(program: Program, findings: Sequence[Finding], chosen: Sequence[int]) -> list[int]:
    """The backward passes of the functions in which the findings are; all of them where that says nothing."""
    here = [finding for finding in findings if finding.location.path == program.path]
    lines = {finding.location.line for finding in here} if not program.document.cells else set()
    file = program.file
    found = []
    for number, call in zip(chosen, picked(file, chosen), strict=True):
        home = file.syntax.function(call)
        if home is not None and any(line is not None and home.lineno <= line <= (home.end_lineno or 0) for line in lines):
            found.append(number)
    return found or list(chosen)


def described(program: Program, finding: Finding) -> str:
    """A finding in a few words, with its place where that is another file."""
    place = finding.location
    return f"{'' if place.path == program.path else f'{place.path}:{place.line}: '}{finding.code} {finding.message}"
