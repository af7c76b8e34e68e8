"""MP307: a checkpoint for resuming holds the optimizer's state and not the loss scaler's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Change, Confidence, Finding, Fix, Severity
from mplint.frameworks.torch import steps
from mplint.program.conditions import Path
from mplint.program.trace import Entry, Trace, possible, shown_symbol
from mplint.program.values import Object, Place, Step, Test, Unknown
from mplint.program.verdict import speaks_of_precision
from mplint.python.document import is_test_path
from mplint.python.file import SourceFile
from mplint.python.names import Binding, position
from mplint.python.syntax import FUNCTIONS, argument
from mplint.recipes.scaler.checkpoint import loaded_after, saved_beside
from mplint.recipes.scaler.handing import handed_on
from mplint.recipes.scaler.plan import NoFix
from mplint.rule import Consequence, Rule

from .checkpoint_cases import (
    ACCELERATE,
    APEX,
    Case,
    dropped,
    inside,
    keeps_scale,
    keys_of,
    lost_by_owners,
    missing_scalers,
    never_written,
    not_restored,
    resumes,
    stepped_elsewhere,
    steps_of,
    steps_of_trainers,
)
from .scaler_with_bfloat16 import serves_bfloat16, ways_on

WHY = "a resumed run starts at the initial scale again, 65536 by default, and skips steps until it fits"
# what is to be saved, and what happens at the step, by the system that holds the scaler
HELP = {
    "": "save the scaler's `state_dict()` too, and load it on resume",
    "apex": "save `amp.state_dict()` too, and give it to `amp.load_state_dict` after `amp.initialize` on resume",
    "accelerate": "save with `accelerator.save_state()`, which holds the scaler, or the state of `accelerator.scaler` too",
}
STEPPED = {
    "": "the scaler steps this optimizer here",
    "apex": "apex scales the loss of this optimizer, from here on",
    "accelerate": "accelerate's scaler steps this optimizer here",
}


class ScalerStateNotSaved(Rule):
    """A checkpoint that resumes the optimizer without its scaler

    ## What it does
    Finds checkpoints that hold the state of an optimizer which a live GradScaler steps, and not the scaler's, in code that resumes
    training: a program that writes the optimizer's state and never reads it is left alone; the scaler of an `Accelerator` counts, too,
    where the program writes the state by hand and not with `save_state`. Also an optimizer class that holds a scaler
    and inherits its `state_dict`, a wrapper that gives its scaler's state and makes nothing of one that it is given, and a scaler's state
    that is loaded from a key under which no checkpoint of the program has it.
    Silent where the scaler only ever scales what bfloat16 computed: MP306 says that it should not be there.

    ## Why is this bad?
    After a resume the scaler starts at 65536 again instead of the scale that it had found. Where the model needed less, the first steps
    overflow and are skipped: about log2(65536 / scale) of them, 10 for a scale of 64. The run is not the one that was interrupted.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer, path):
        scaler = torch.amp.GradScaler("cuda")
        if path.exists():
            checkpoint = torch.load(path)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer, path):
        scaler = torch.amp.GradScaler("cuda")
        if path.exists():
            checkpoint = torch.load(path)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scaler.load_state_dict(checkpoint["scaler"])
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, path)
    ```

    ## Fix safety
    Unsafe: the fix adds the key `"scaler"` to the checkpoint and, where the optimizer's state is loaded in sight, loads the scaler's state
    where the checkpoint has it. Code that checks the keys of a checkpoint may object. There is no fix where the scaler may be missing,
    nor where the function that writes the checkpoint picks the keys which it takes.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp307.py

    ## References
    - <https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html#saving-resuming>
    """

    code = "MP307"
    name = "scaler-state-not-saved"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch",)
    tokens = ("GradScaler", "NativeScaler", ".unscale_(", ".scale(", "Accelerator(")

    program = True
    adoption = Consequence(resumes=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each checkpoint without the scaler's state, each owner that loses it, and each resume that forgets it."""
        found: dict[Place, Finding] = {}
        for entry in trace.entries:
            for unwritten in never_written(trace, entry):
                found.setdefault(unwritten.place, self._unwritten(trace, entry, unwritten))
            known = (*steps_of(entry), *steps_of_trainers(trace, entry)) or stepped_elsewhere(trace, entry)
            stepped = [pair for pair in known if not serves_bfloat16(entry, pair.scaler) and not keeps_scale(trace, pair)]
            if not stepped:
                continue
            for lost in lost_by_owners(trace, entry, stepped):
                found.setdefault(lost.place, self._lost(trace, entry, lost))
            if not resumes(trace, entry):
                continue
            for missing in missing_scalers(trace, entry, stepped):
                if not steps.is_for_a_tpu(missing.path) and not any(inside(missing.place, place) for place in found):
                    found.setdefault(missing.place, self._missing(trace, entry, missing))
            for forgotten in not_restored(trace, entry, stepped):
                found.setdefault(forgotten.place, self._forgotten(trace, entry, forgotten))
            for lost in dropped(trace, entry, stepped):
                found.setdefault(lost.place, self._dropped(trace, entry, lost))
        yield from (finding for place, finding in found.items() if not is_test_path(place.path))

    def _missing(self, trace: Trace, entry: Entry, case: Case) -> Finding:
        verdict = self.verdict(trace, entry, case.path, case.place)
        told = self.verdict(trace, entry, of_scaler(entry, case), case.place)
        return self.at(
            trace,
            case.place,
            f"the checkpoint holds the optimizer's state and not that of its loss scaler{told.condition()}",
            why=WHY,
            help=HELP[system_of(case.scaler)],
            confidence=Confidence.HIGH if verdict.proven and case.sure and is_on(trace, entry, case) else Confidence.MEDIUM,
            steps=(*case.steps, Step(case.step, STEPPED[system_of(case.scaler)])),
            fix=save_it(trace, entry, case),
        )

    def _lost(self, trace: Trace, entry: Entry, case: Case) -> Finding:
        verdict = self.verdict(trace, entry, case.path, case.place)
        return self.at(
            trace,
            case.place,
            f"`{case.name}` holds a loss scaler, and its `{case.by}` does not save the scaler's state{verdict.condition()}",
            why=WHY,
            help=f"add the scaler's state to `{case.by}`, and load it where the optimizer's is loaded",
            confidence=Confidence.HIGH if verdict.proven and case.sure else Confidence.MEDIUM,
            steps=case.steps,
        )

    def _forgotten(self, trace: Trace, entry: Entry, case: Case) -> Finding:
        verdict = self.verdict(trace, entry, case.path, case.place)
        return self.at(
            trace,
            case.place,
            f"both states are saved, and the optimizer's is restored without the scaler's{verdict.condition()}",
            why=WHY,
            help="load the scaler's state beside the optimizer's",
            confidence=Confidence.MEDIUM,
            steps=case.steps,
        )

    def _dropped(self, trace: Trace, entry: Entry, case: Case) -> Finding:
        verdict = self.verdict(trace, entry, case.path, case.place)
        return self.at(
            trace,
            case.place,
            f"the scaler's state is saved, and this makes nothing of it on resume{verdict.condition()}",
            why=WHY,
            help="give the state to the scaler's `load_state_dict`",
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=case.steps,
        )

    def _unwritten(self, trace: Trace, entry: Entry, case: Case) -> Finding:
        verdict = trace.verdict(entry, case.path)
        return self.at(
            trace,
            case.place,
            f"the scaler's state is loaded from the key `{case.name}`, which no checkpoint of this program has{verdict.condition()}",
            why="resuming from a checkpoint of this program raises KeyError",
            help="load it from the key under which it is saved",
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=case.steps,
        )


def of_scaler(entry: Entry, case: Case) -> Path:
    """What of a case's conditions decides whether there is a live scaler; that a checkpoint is written goes without saying."""
    made = next((e for e in entry.of("scaler made") if e.data["scaler"] == case.scaler), None)
    if made is None:
        return case.path
    own = made.path.union(*ways_on(made.data["enabled"]))  # type: ignore[arg-type]
    return frozenset(literal for literal in case.path if literal in own or speaks_of_precision(shown_symbol(literal[0][1]), ()))


def is_on(trace: Trace, entry: Entry, case: Case) -> bool:
    """Whether a case's scaler is on as far as the program can tell: by no setting of which nobody knows what it holds."""
    made = next((e for e in entry.of("scaler made") if e.data["scaler"] == case.scaler), None)
    states = possible(made.data["enabled"], case.path) if made is not None else []  # type: ignore[arg-type]
    asked = [atom.key[1] if type(atom) is Test else atom.symbol for _, atom in states if type(atom) in (Test, Unknown)]  # type: ignore[union-attr]
    return all(trace.switch(symbol) is not None for symbol in asked)


def save_it(trace: Trace, entry: Entry, case: Case) -> Fix | None:
    """Add the scaler's state to the dict, and load it after the optimizer's where that is in sight."""
    saved, stepped = trace.node(case.place), trace.node(case.step)
    if saved is None or stepped is None or saved[0] is not stepped[0] or not case.optimizers or system_of(case.scaler):
        return None  # what steps is the optimizer itself, where a system holds the scaler
    (file, call), (_, step) = saved, stepped
    scaler = scaler_of(step)
    if scaler is None or not isinstance(call, ast.Call) or picks_keys(trace, case, file, call):
        return None
    here = name_at(trace, entry, case, file, scaler, call)
    handed = handed_to(trace, entry, case, file, scaler, call) if here is None else ()
    added = saved_beside(file, call, store_of(file, call), here or file.text(scaler)) if handed is not None else None
    if added is None or handed is None:
        return None
    known = is_restored(entry, case)
    loaded = handed if known else (*handed, *loading(trace, entry, case, file, scaler))
    rest = "" if known else " and load it" if len(loaded) > len(handed) else "; loading it, where training resumes, is left to you"
    return Fix(f"Save the scaler's state too{rest}", Applicability.UNSAFE, (added, *loaded))


def picks_keys(trace: Trace, case: Case, file: SourceFile, call: ast.Call) -> bool:
    """Whether another function writes the checkpoint and names the optimizer's key: it would pass over a key of the scaler's."""
    written = trace.node(case.saver) if case.saver is not None else None
    saver = written[0].syntax.function(written[1]) if written is not None else None
    if saver is None or saver is file.syntax.function(call):
        return False
    named = {node.value for node in ast.walk(saver) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return key_of(file.syntax.parents[call], call) in named


def key_of(store: ast.AST, call: ast.Call) -> str | None:
    """The key under which the result of a call is kept."""
    match store:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(key)))]) | ast.keyword(arg=str(key)):
            return key
        case ast.Dict(keys=keys, values=values) if call in values:
            match keys[values.index(call)]:
                case ast.Constant(value=str(name)):
                    return name
    return None


def scaler_of(step: ast.AST) -> ast.expr | None:
    """What stands for the scaler in `scaler.step(optimizer)`."""
    match step:
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute(value=ast.Name(id="self")) as scaler, attr="step")):
            return scaler
    return None


def store_of(file: SourceFile, call: ast.Call) -> ast.AST:
    """The dict, the call or the assignment that takes an optimizer's state."""
    parent = file.syntax.parents[call]
    return file.syntax.parents[parent] if isinstance(parent, ast.keyword) else parent


def is_restored(entry: Entry, case: Case) -> bool:
    """Whether the program loads the state of a case's scaler already."""
    loads = [e for e in entry.of("state loaded") if e.data["what"] == "scaler"]
    return any(keys_of(e.data["object"]) & keys_of(case.scaler) for e in loads)


def loading(trace: Trace, entry: Entry, case: Case, file: SourceFile, scaler: ast.expr) -> tuple[Change, ...]:
    """The statements that load the scaler's state after the optimizer's, where both are known there."""
    loads = {e.place for e in entry.of("state loaded") if e.data["what"] == "optimizer" and keys_of(e.data["object"]) & case.optimizers}
    found = trace.node(next(iter(loads))) if len(loads) == 1 else None
    if found is None or found[0] is not file or not isinstance(found[1], ast.Call):
        return ()
    call = found[1]
    here = name_at(trace, entry, case, file, scaler, call)
    handed = handed_to(trace, entry, case, file, scaler, call) if here is None else ()
    change = loaded_after(file, call, argument(call, "state_dict", 0), here or file.text(scaler)) if handed is not None else None
    return (*handed, change) if change is not None and handed is not None else ()


def handed_to(trace: Trace, entry: Entry, case: Case, file: SourceFile, scaler: ast.expr, node: ast.AST) -> tuple[Change, ...] | None:
    """What hands the scaler to the function around `node`, a helper that only this program calls; None where that can't be told."""
    made = next((e for e in entry.of("scaler made") if e.data["scaler"] == case.scaler), None)
    built = trace.node(made.place) if made is not None else None
    helper = file.syntax.function(node)
    if built is None or built[0] is not file or not isinstance(scaler, ast.Name) or helper is None:
        return None
    statement = file.syntax.statement(built[1])
    named = isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == [scaler.id]
    home = file.syntax.function(built[1])
    if not named or home is None or not is_whole(file, built[1]) or scaler.id in file.names.bindings.get(helper, {}):
        return None
    if any(program is not file for program in trace.programs(helper.name)):
        return None
    try:
        return tuple(handed_on(file, built[1], scaler.id, [node]))
    except NoFix:
        return None


def name_at(trace: Trace, entry: Entry, case: Case, file: SourceFile, scaler: ast.expr, node: ast.AST) -> str | None:
    """How the scaler is reached at `node`, where it certainly exists there; else None."""
    syntax = file.syntax
    made = next((e for e in entry.of("scaler made") if e.data["scaler"] == case.scaler), None)
    built = trace.node(made.place) if made is not None else None
    if built is not None and (built[0] is not file or not is_whole(file, built[1])):
        return None
    match scaler:
        case ast.Attribute(attr=attr) if built is not None:
            owner = syntax.enclosing_class(node)
            stored = [a for a in ast.walk(owner) if isinstance(a, ast.Attribute) and a.attr == attr and is_stored(a)] if owner else []
            if len(stored) != 1 or owner is not syntax.enclosing_class(scaler) or owner is not syntax.enclosing_class(built[1]):
                return None
            ready = syntax.function(built[1]) is not syntax.function(node) or position(built[1]) < position(node)
            return file.text(scaler) if ready else None
        case ast.Name(id=name):
            scope, bound = file.names.lookup(scaler)
            seen = [syntax.function(node) or syntax.tree, syntax.tree]
            if len(bound) == 1 and scope is next((s for s in seen if name in file.names.bindings.get(s, {})), None):
                return name if is_ready(file, bound[0], node, scope is syntax.tree) else None
    return None


def is_stored(node: ast.Attribute) -> bool:
    """Whether an attribute is assigned to."""
    return isinstance(node.ctx, ast.Store)


def is_ready(file: SourceFile, binding: Binding, node: ast.AST, module_level: bool) -> bool:
    """Whether a name certainly holds the scaler at `node`."""
    if isinstance(binding.node, ast.arg):
        owner = file.syntax.function(binding.node)
        return owner is not None and not has_default(owner, binding.node)
    if not isinstance(binding.value, ast.Call) or not is_plain(file, file.syntax.statement(binding.node)):
        return False
    return position(binding.node) < position(node) or (module_level and file.syntax.function(node) is not None)


def system_of(scaler: object) -> str:
    """The system that holds a scaler: "" where the program makes it."""
    if scaler == APEX:
        return "apex"
    return "accelerate" if isinstance(scaler, Object) and scaler.type == ACCELERATE else ""


def has_default(owner: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg) -> bool:
    """Whether a function may be called without a parameter."""
    given = owner.args
    positional = [*given.posonlyargs, *given.args]
    if parameter in positional:
        return len(positional) - positional.index(parameter) <= len(given.defaults)
    return parameter not in given.kwonlyargs or given.kw_defaults[given.kwonlyargs.index(parameter)] is not None


def is_whole(file: SourceFile, call: ast.AST) -> bool:
    """Whether a call is made whenever its function runs, and no conditional expression or `or` has another value in its place."""
    statement = file.syntax.statement(call)
    around = iter(file.syntax.ancestors(call))
    inside = [node for node in iter(lambda: next(around, statement), statement)]
    return is_plain(file, statement) and not any(isinstance(node, ast.IfExp | ast.BoolOp) for node in inside)


def is_plain(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether a statement runs whenever its function (or module) does."""
    return isinstance(file.syntax.parents[statement], (*FUNCTIONS, ast.Module))
