"""What a Keras program needs to train in mixed precision."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from mplint.adopt.keras.builders import Built, builds, trains
from mplint.adopt.keras.clashes import clashes_elsewhere, clashing_layers, layers_beside
from mplint.adopt.keras.elsewhere import foreign_training, models_from_elsewhere, run_elsewhere
from mplint.adopt.keras.entry import start_of
from mplint.adopt.keras.existing import existing, imports_keras
from mplint.adopt.keras.heads import Kept, kept_layers, untraced
from mplint.adopt.keras.kernels import added_losses, kernels_of_float32, uncast_kernels
from mplint.adopt.keras.loops import scaled_clips, unscaled_updates
from mplint.adopt.keras.mend import Origin, known_findings, mend
from mplint.adopt.keras.notes import is_fatal, text_of_done, text_of_left
from mplint.adopt.keras.placing import lent, placed
from mplint.adopt.keras.refusals import refusals
from mplint.adopt.keras.scene import Scene, scene_of
from mplint.adopt.keras.spelling import root_of
from mplint.adopt.keras.version import Keras, for_one_keras, too_old
from mplint.adopt.program import Adopted, Note, Program
from mplint.catalog import rule_of
from mplint.findings import Span
from mplint.python.document import InputError
from mplint.rewrite import FixError

MOST = 40  # rounds of changes, should one of them never be enough


def adopt(program: Program, policy: str) -> Adopted:
    """Adopt `policy` where the program trains in float32; raises nothing."""
    if not imports_keras(program.file):
        return Adopted(program)
    copy, keras = for_one_keras(program, root_of(program.file, None))
    result = adopted(copy, policy, keras)
    after = result.program.data
    unchanged = program if after == program.data else Program(program.path, after, program.targets)
    return result._replace(program=unchanged)


def builds_keras(program: Program) -> bool:
    """Whether the program builds Keras layers or models."""
    return imports_keras(program.file) and bool(builds(scene_of(program)))


def adopted(program: Program, policy: str, keras: Keras) -> Adopted:
    """The same for one Keras."""
    scene = scene_of(program)
    file, built, training = scene.file, builds(scene), trains(scene)
    there = existing(scene, policy)
    if there is not None:
        note = Note(file.location(there.node), there.text)
        if there.kind == "adopted":
            return finished(program, program, [note], policy, keras, fresh=False)
        return Adopted(program, (note,), (), True) if there.kind == "own" else Adopted(program, (), (note,), True)
    refused = [Note(file.location(found.node), found.text) for found in refusals(scene, policy, built)]
    if refused and training:
        return Adopted(program, (), tuple(refused), True)
    if not training or not built:
        foreign = foreign_training(scene, policy) if not built else None
        return Adopted(program, (), (foreign,), True) if foreign is not None else in_library(program, policy, keras, built, training=False)
    if (old := too_old(program, keras)) is not None:
        return Adopted(program, (), (old,), True)
    start = start_of(scene, built)
    if start is None:
        return in_library(program, policy, keras, built, training=True)
    try:
        func = start.call.func if isinstance(start.call, ast.Call) else None
        after, made = placed(program, start, built, root_of(file, func), policy, keras.major)
    except (FixError, InputError) as error:
        return Adopted(program, (), (Note(file.location(start.statement), f"the policy can't be set here: {error}"),), True)
    return finished(program, after, made, policy, keras, fresh=True)


def in_library(program: Program, policy: str, keras: Keras, built: list[Built], *, training: bool) -> Adopted:
    """What a module needs whose models other programs run under the policy; the policy itself is theirs to set."""
    note = run_elsewhere(scene_of(program), built, policy)
    if note is None:
        return Adopted(program, trains=training)
    if (old := too_old(program, keras)) is not None:
        return Adopted(program, (), (old,), True)
    taken = lent(program, root_of(program.file, None), policy)
    result = finished(program, taken.program, [], policy, keras, fresh=True)
    after = taken.returned(result.program)
    return result._replace(program=program if after.data == program.data else after, left=(note, *result.left), trains=True)


def finished(first: Program, program: Program, made: list[Note], policy: str, keras: Keras, *, fresh: bool) -> Adopted:
    """The program after everything that the policy brings with it; the program as it was where that can't be done."""
    known = known_findings(first) if fresh else frozenset()
    program, kept = rewritten(first, program, kept_layers, "`{}` stays float32: {}")
    program, cast = rewritten(first, program, kernels_of_float32, "`{}` {}")
    program, added = rewritten(first, program, added_losses, "`{}` {}")
    mended = mend(first, program, known)
    program, clashing = rewritten(first, mended.program, clashing_layers, "`{}` {}")
    program, beside = rewritten(first, program, layers_beside, "`{}` {}")
    clashing += beside
    program, clipped = rewritten(first, program, scaled_clips, "`{}` {}")
    if clashing or clipped:
        rest = mend(first, program, known)
        mended = rest._replace(done=mended.done + rest.done)
    program = mended.program
    scene = scene_of(program)
    fatal = [Note(place, text_of_left(f, policy)) for f, place in mended.left if is_fatal(f)]
    if policy == "mixed_float16" and not any(rule_of(f).adoption.scaling for f, _ in mended.left):
        fatal += [note_at(first, program, node, text) for node, text in unscaled_updates(scene)]
    fatal += [note_at(first, program, node, text) for node, text in uncast_kernels(scene)]
    fatal += [note_at(first, program, node, text) for node, text in clashes_elsewhere(scene)]
    if fatal and fresh:
        return Adopted(first, (), tuple(fatal), True)
    done = [Note(place, text_of_done(f, keras.major, keras.known_by)) for f, place in mended.done]
    left = [Note(place, text_of_left(f, policy)) for f, place in mended.left if not is_fatal(f)] + fatal
    left += [note_at(first, program, node, text) for node, text in untraced(scene)]
    left += [note_at(first, program, node, text) for node, text in models_from_elsewhere(scene, policy)]
    return Adopted(
        first if program.data == first.data else program, (*made, *kept, *cast, *added, *done, *clashing, *clipped), tuple(left), True
    )


def note_at(first: Program, program: Program, node: ast.AST, text: str) -> Note:
    """A note on a place of the changed program, at where it was before."""
    line = Origin(first.document, program.document).lines.get(program.file.span(node).line, 1)
    return Note(first.document.location(Span(line, 0, line, 0)), text)


def rewritten(first: Program, program: Program, wanted: Callable[[Scene], Iterator[Kept]], said: str) -> tuple[Program, list[Note]]:
    """The program after the changes that `wanted` asks for, all at once where they don't touch, with a note for each."""
    notes: list[Note] = []
    for _ in range(MOST):
        found = list(wanted(scene_of(program)))
        after = changed_by(program, found) if found else None
        if found and after is None:
            found, after = next((([k], done) for k in found if (done := changed_by(program, [k])) is not None), ([], None))
        if after is None or after.data == program.data:
            break
        notes += [note_at(first, program, k.node, said.format(scene_of(program).text(k.node), k.why)) for k in found]
        program = after
    return program, notes


def changed_by(program: Program, kept: list[Kept]) -> Program | None:
    """The program after some changes; None where one of them can't be made."""
    try:
        return program.after([k.fix for k in kept])
    except (FixError, InputError):
        return None
