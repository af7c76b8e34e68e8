"""What a Keras program needs to train in mixed precision."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from mplint.adopt.keras.builders import Builders
from mplint.adopt.keras.elsewhere import foreign_training, models_from_elsewhere, run_elsewhere
from mplint.adopt.keras.entry import start_of
from mplint.adopt.keras.existing import existing, imports_keras, short
from mplint.adopt.keras.heads import Kept, kept_layers, untraced
from mplint.adopt.keras.layer_dtypes import LayerDtypes
from mplint.adopt.keras.loops import scaled_clips, unscaled_updates
from mplint.adopt.keras.mend import Origin, known_findings, mend
from mplint.adopt.keras.notes import is_fatal, text_of_done, text_of_left
from mplint.adopt.keras.placing import placed
from mplint.adopt.keras.refusals import own_loop, refusals
from mplint.adopt.keras.spelling import root_of
from mplint.adopt.keras.version import Keras, for_one_keras, too_old, under
from mplint.adopt.program import Adopted, Note, Program
from mplint.catalog import rule_of
from mplint.findings import Location, Span
from mplint.python.document import InputError
from mplint.rewrite import FixError
from mplint.source.file import SourceFile
from mplint.source.keras.loop import KerasLoop

MOST = 40  # rounds of changes, should one of them never be enough
TRAINING = ("fit", "fit_generator", "train_on_batch", "apply_gradients")


def adopt(program: Program, policy: str) -> Adopted:
    """Adopt `policy` where the program trains in float32; raises nothing."""
    if not imports_keras(program.file):
        return Adopted(program)
    name = "train.ipynb" if program.path.endswith(".ipynb") else "train.py"  # what is to be adopted is no test, wherever it lies
    copy, keras = for_one_keras(Program(name, program.data, program.targets), root_of(program.file, None))
    result = adopted(copy, policy, keras)
    made, left = (tuple(n._replace(location=n.location._replace(path=program.path)) for n in notes) for notes in (result.made, result.left))
    after = result.program.data
    return Adopted(program if after == program.data else Program(program.path, after, program.targets), made, left, result.trains)


def builds_keras(program: Program) -> bool:
    """Whether the program builds Keras layers or models."""
    return imports_keras(program.file) and Builders(program.file).any_layer


def adopted(program: Program, policy: str, keras: Keras) -> Adopted:
    """The same for one Keras."""
    file = program.file
    builders = Builders(file)
    there = existing(file, policy)
    trains = trains_here(file) and (builders.any_layer or bool(file.fact(KerasLoop).updates))
    if there is not None:
        note = Note(file.location(there.node), there.text)
        if there.kind == "adopted":
            return finished(program, program, [note], policy, keras, builders, fresh=False)
        return Adopted(program, (note,), (), True) if there.kind == "own" else Adopted(program, (), (note,), True)
    refused = [Note(file.location(found.node), found.text) for found in refusals(file, policy, builders)]
    if refused and trains_here(file):
        return Adopted(program, (), tuple(refused), True)
    if not trains:
        if (foreign := foreign_training(program, policy)) is not None:
            return Adopted(program, (), (foreign,), True)
        return in_library(program, policy, keras, builders, trains=False)
    if (old := too_old(program.targets)) is not None:
        top = Location(program.path, 1, 1, 1, 1, file.document.cells[0].index if file.document.cells else None)
        text = f"the project pins {old}, whose mixed precision was experimental: move to a later one"
        return Adopted(program, (), (Note(top, text),), True)
    start = start_of(file, builders)
    if start is None:
        return in_library(program, policy, keras, builders, trains=True)
    try:
        after, made = placed(program, start, builders, root_of(file, start.call.func), policy, keras.major)
    except (FixError, InputError) as error:
        return Adopted(program, (), (Note(file.location(start.statement), f"the policy can't be set here: {error}"),), True)
    return finished(program, after, made, policy, keras, builders, fresh=True)


def in_library(program: Program, policy: str, keras: Keras, builders: Builders, *, trains: bool) -> Adopted:
    """What a module needs whose models other programs run under the policy; the policy itself is theirs to set."""
    note = run_elsewhere(program, builders, policy)
    if note is None:
        return Adopted(program, trains=trains)
    result = finished(program, under(program, policy), [], policy, keras, builders, fresh=True)
    return result._replace(left=(note, *result.left), trains=True)


def finished(first: Program, program: Program, made: list[Note], policy: str, keras: Keras, builders: Builders, *, fresh: bool) -> Adopted:
    """The program after everything that the policy brings with it; the program as it was where that can't be done."""
    known = known_findings(first) if fresh else frozenset()
    program, kept = rewritten(first, program, kept_layers, "`{}` stays float32: {}")
    mended = mend(first, program, known)
    program, clipped = rewritten(first, mended.program, scaled_clips, "`{}` {}")
    if clipped:
        rest = mend(first, program, known)
        mended = rest._replace(done=mended.done + rest.done)
    program = mended.program
    fatal = [Note(place, text_of_left(f, policy)) for f, place in mended.left if is_fatal(f)]
    if policy == "mixed_float16" and not any(rule_of(f).adoption.scaling for f, _ in mended.left):
        fatal += [note_at(first, program, node, text) for node, text in unscaled_updates(program.file)]
    if fresh:
        fatal += [
            note_at(first, program, mix.node, f"`{short(program.file, mix.node)}` would meet half tensors in float32")
            for mix in LayerDtypes(program.file).mixes
        ]
    if fatal and fresh:
        return Adopted(first, (), tuple(fatal), True)
    done = [Note(place, text_of_done(f, keras.major, keras.known_by)) for f, place in mended.done]
    left = [Note(place, text_of_left(f, policy)) for f, place in mended.left if not is_fatal(f)] + fatal
    left += [note_at(first, program, node, text) for node, text in untraced(program.file)]
    left += models_from_elsewhere(first, builders, policy)
    return Adopted(first if program.data == first.data else program, (*made, *kept, *done, *clipped), tuple(left), True)


def note_at(first: Program, program: Program, node: ast.AST, text: str) -> Note:
    """A note on a place of the changed program, at where it was before."""
    line = Origin(first.document, program.document).lines.get(program.file.span(node).line, 1)
    return Note(first.document.location(Span(line, 0, line, 0)), text)


def rewritten(first: Program, program: Program, wanted: Callable[[SourceFile], Iterator[Kept]], said: str) -> tuple[Program, list[Note]]:
    """The program after the changes that `wanted` asks for, all at once where they don't touch, with a note for each."""
    notes: list[Note] = []
    for _ in range(MOST):
        found = list(wanted(program.file))
        after = changed_by(program, found) if found else None
        if found and after is None:
            found, after = next((([k], done) for k in found if (done := changed_by(program, [k])) is not None), ([], None))
        if after is None:
            break
        notes += [note_at(first, program, k.node, said.format(short(program.file, k.node.func), k.why)) for k in found]
        program = after
    return program, notes


def changed_by(program: Program, kept: list[Kept]) -> Program | None:
    """The program after some changes; None where one of them can't be made."""
    try:
        return program.after([k.fix for k in kept])
    except (FixError, InputError):
        return None


def trains_here(file: SourceFile) -> bool:
    """Whether the program itself fits a model, or applies gradients."""
    return bool(file.names.calls_of(*TRAINING)) or bool(file.fact(KerasLoop).updates) or own_loop(file) is not None
