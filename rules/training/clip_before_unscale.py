"""MP304: gradients are clipped or measured while they are still multiplied by the loss scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.configs.trainers.duties import unscales_in_its_step
from mplint.findings import Applicability, Confidence, Finding, Fix, InsertStatements, MoveStatement, Severity
from mplint.frameworks.parts import is_chosen
from mplint.frameworks.torch import steps
from mplint.frameworks.trainers.queries import in_float16, scaled_by_apex, with_level
from mplint.program.conditions import Path, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import FALSE, NONE, Constant, Object, Place, State, Step, Tensor, atoms
from mplint.python.file import SourceFile
from mplint.rule import Rule

from .needless_scalers import is_needless, or_left_out
from .trainer_bypass import parts_of


class ClipBeforeUnscale(Rule):
    """Gradients clipped or measured before they are unscaled

    ## What it does
    Finds clipping and norms of gradients between `scaler.scale(loss).backward()` and `scaler.step(optimizer)` with no
    `scaler.unscale_(optimizer)` before them. In Lightning's manual optimization under 16-mixed: clipping, its own `clip_gradients`
    too, between `manual_backward` and `optimizer.step()`, which is where Lightning unscales. With apex: clipping within
    `with amp.scale_loss(…)`, at whose end apex unscales.

    ## Why is this bad?
    The gradients are still multiplied by the loss scale, 65536 to begin with. `clip_grad_norm_(parameters, 1.0)` then clips at
    1/65536 of the intended norm: every step becomes a tiny one, and how tiny changes whenever the scale does. A gradient norm
    that is only logged is too large by the same factor.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer, scaler):
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer, scaler):
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    ```

    ## Fix safety
    Safe: `unscale_` before the clip is the documented order, and `scaler.step` doesn't unscale a second time. A threshold that
    was tuned by trial on scaled gradients has to be tuned again. There is no fix where the optimizer isn't clear.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp304.py

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping>
    - Lightning: <https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/plugins/precision/amp.py>
    """

    code = "MP304"
    name = "clip-before-unscale"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = (".scale(", "manual_backward", "scale_loss")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each clip or norm of gradients that are still scaled when the scaler steps with them."""
        for entry in trace.entries:
            yield from self._by_hand(trace, entry)
            for event in entry.of("clip", "gradients read"):
                case = clipped_while_scaled(entry, event)
                if case is not None and not does_nothing(trace, event):
                    yield self._told(trace, entry, event, *case)
                elif event.kind == "clip":
                    yield from self._beside_masters(trace, entry, event)
                    yield from self._inside_scale_loss(trace, entry, event)

    def _by_hand(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """The clips of a module that steps its optimizers itself, whose trainer unscales the gradients in that step and no earlier."""
        for event in entry.of("clip", "trainer clip"):
            case = clipped_by_hand(trace, entry, event)
            if case is not None and not is_measure(event):
                made, path, scaled = case
                title, verdict = made.data["title"], self.verdict(trace, entry, path, event.place)
                yield self.at(
                    trace,
                    event.place,
                    f"`{trace.text(event.place).partition('(')[0]}` clips gradients that are still multiplied by the loss scale of {title}"
                    f"{verdict.condition()}",
                    why=CLIPPED,
                    help="multiply the limit by `self.trainer.precision_plugin.scaler.get_scale()`, or train in bf16-mixed: in manual "
                    f"optimization {title} unscales in `optimizer.step()` only",
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    steps=(Step(made.place, f"{title} trains in float16"), Step(scaled, "the loss is scaled here")),
                )

    def _beside_masters(self, trace: Trace, entry: Entry, event: Event) -> Iterator[Finding]:
        """A clip of the float16 parameters of which apex keeps masters."""
        case = clipped_beside_masters(trace, entry, event)
        if case is not None and not is_measure(event):
            made, path = case
            verdict = self.verdict(trace, entry, path, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place).partition('(')[0]}` clips gradients that the optimizer never sees{verdict.condition()}",
                why="under O2 apex steps float32 masters, whose gradients stay as they are; those of the model's float16 parameters "
                "are still multiplied by the loss scale",
                help="clip `amp.master_params(optimizer)`",
                confidence=Confidence.HIGH if verdict.proven and entry.script else Confidence.MEDIUM,
                steps=(Step(made.place, "apex keeps masters of the parameters here"),),
            )

    def _inside_scale_loss(self, trace: Trace, entry: Entry, event: Event) -> Iterator[Finding]:
        """A clip within the context of a loss that apex has scaled: it unscales the gradients at the end of that."""
        scaled = next((way for way in steps.scaled_at(event) if way.scaler == "apex" and not way.unscaled), None)
        if scaled is not None and not is_measure(event):
            verdict = self.verdict(trace, entry, scaled.path, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place).partition('(')[0]}` clips gradients that are still multiplied by the loss scale of apex"
                f"{verdict.condition()}",
                why=CLIPPED,
                help="clip behind the `with amp.scale_loss(…)`, at whose end apex unscales the gradients",
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(scaled.place, "the scaled loss is differentiated here"),),
            )

    def _told(self, trace: Trace, entry: Entry, event: Event, path: Path, scaled: Place | None, step: Event) -> Finding:
        clips = event.kind == "clip" and (not is_measure(event) or (is_thrown_away(trace, event) and limit_of(event) < OUT_OF_REACH))
        chain = [Step(scaled, "the loss is scaled here")] if scaled is not None else []
        seen = steps.seen_from(event, step)
        if seen != event.place:
            chain.append(Step(seen, "this call leads there") if is_chosen(event.path) else Step(event.place, "it does so here"))
        told = event.place if is_chosen(event.path) else seen
        verdict = self.verdict(trace, entry, path, told)
        name = trace.text(told).partition("(")[0]
        condition = verdict.condition() or steps.left_open(trace, entry, step)
        return self.at(
            trace,
            told,
            f"`{name}` {'clips' if clips else 'measures'} gradients that are still multiplied by the loss scale{condition}",
            severity=Severity.ERROR if clips else Severity.WARNING,
            why=CLIPPED if clips else MEASURED,
            help=or_left_out(entry, step, f"call `{unscale_text(trace, step)}` before it"),
            confidence=Confidence.MEDIUM if condition else Confidence.HIGH,
            steps=(*chain, Step(step.place, UNSCALED_LATE if step.kind == "scaler step" else NOT_UNSCALED)),
            fix=unscale_first(trace, entry, event, step, path) if told == seen and not is_needless(entry, step) else None,
        )


CLIPPED = "the scale starts at 65536, so the threshold meets gradients that are 65536 times too large and every update becomes tiny"
MEASURED = "the scale starts at 65536, so the norm is 65536 times too large and jumps whenever the scale changes"
UNSCALED_LATE = "the gradients are unscaled only here"
NOT_UNSCALED = "nothing unscales them for this step"
LOOPS = (ast.For, ast.AsyncFor, ast.While)
HUGE = 1e5  # a threshold from here on measures, and clips nothing
OUT_OF_REACH = 1e8  # nor does it clip gradients that are multiplied by a scale of 65536


def clipped_while_scaled(entry: Entry, event: Event) -> tuple[Path, Place | None, Event] | None:
    """The path on which a clip meets scaled gradients, where they were scaled, and the scaler's step that uses them."""
    if any(isinstance(a, Tensor) and "scale" in a.tags for a in atoms(event.data.get("threshold") or NONE)):  # type: ignore[arg-type]
        return None  # the threshold follows the scale
    ways = steps.scaled_at(event)
    if is_chosen(event.path) and any(way.unscaled for way in ways):
        return None
    for scaled in ways:
        if scaled.unscaled or any(way.unscaled and way.place == scaled.place and way.scaler != scaled.scaler for way in ways):
            continue  # of two scalers that one name may hold, what scales unscales
        step = steps.next_scaler_step(entry, event, scaled.path)
        if step is None and event.kind == "clip" and scaled.certain:
            step = plain_step(entry, event, scaled)
        if step is not None:
            return scaled.path, scaled.place, step
    if "entry" in steps.kinds_at(event):  # a function that only clips and steps: the scaler's step proves that the loss was scaled
        return proven_by_step(entry, event)
    return None


def proven_by_step(entry: Entry, event: Event) -> tuple[Path, Place | None, Event] | None:
    """The same for gradients that the function was given: that it unscales or steps them next proves that they were scaled."""
    ready = "ready"
    for other, path in steps.following(entry, event, event.path):
        if other.kind in ("backward", "optimizer step", "gradients zeroed"):
            return None
        if other.kind not in ("unscale", "scaler step") or (other.kind == "unscale" and other.frame != event.frame):
            continue
        states = steps.states_of(other.data["before"], path)
        proven = bool(states) and all(kind == ready for kind, _ in states)
        if other.kind == "scaler step" and other.frame == event.frame:
            return (path, None, other) if proven else None
        if other.kind == "unscale" and not proven:
            return None
        ready = "unscaled" if other.kind == "unscale" else ready
    return None


def clipped_by_hand(trace: Trace, entry: Entry, event: Event) -> tuple[Event, Path, Place] | None:
    """The trainer whose loss scale is still on the gradients of a clip, the path, and where they were scaled."""
    threshold = event.data.get("threshold")
    if threshold is None or any(isinstance(a, Tensor) and "scale" in a.tags for a in atoms(threshold)):  # type: ignore[arg-type]
        return None
    for path, state in possible(event.data["gradients"], event.path):  # type: ignore[arg-type]
        kind, trainer, scaled, unscaled = parts_of(state)
        found = in_float16(trace, entry, trainer, path) if kind == "managed" and not unscaled else None
        if found is not None and unscales_in_its_step(str(found[0].data["title"])):
            return *found, scaled
    return None


def clipped_beside_masters(trace: Trace, entry: Entry, event: Event) -> tuple[Event, Path] | None:
    """What apex was given, and the path, where the parameters of a model are clipped and not the masters that apex steps."""
    given = event.data.get("parameters")
    if given is None or not all(type(a) is Object and a.kind == "parameters" for a in atoms(given)):  # type: ignore[arg-type]
        return None
    for path, state in possible(event.data["gradients"], event.path):  # type: ignore[arg-type]
        if type(state) is not State or not isinstance(state.data, tuple) or state.data[:2] != ("managed", "apex"):
            continue
        for made, both in scaled_by_apex(entry, path):
            asked = with_level(trace, made.data["level"], both, "O2")  # type: ignore[arg-type]
            if asked is not None:
                return made, asked
    return None


def plain_step(entry: Entry, event: Event, scaled: steps.Scaled) -> Event | None:
    """The optimizer's own step that takes the gradients of a clip while they are still scaled."""
    for other, path in steps.following(entry, event, scaled.path):
        if other.kind in ("backward", "gradients zeroed", "scaler step", "unscale", "scaler handed on"):
            return None
        if other.kind == "optimizer step":
            same = [s for s in steps.scaled_at(other) if s.place == scaled.place and not s.unscaled and extend(path, s.path) is not None]
            return other if same else None
    return None


def is_measure(event: Event) -> bool:
    """Whether a clip has so large a threshold that it only measures."""
    return limit_of(event) >= HUGE


def limit_of(event: Event) -> float:
    """The threshold of a clip, as far as the program says it."""
    threshold = event.data.get("threshold")
    value = threshold.value if isinstance(threshold, Constant) else 0
    return value if isinstance(value, (int, float)) else 0


def does_nothing(trace: Trace, event: Event) -> bool:
    """Whether a clip has a threshold that even scaled gradients stay below, and nobody reads its norm or asks it to raise."""
    strict = event.data.get("strict")
    asked = strict is not None and strict != FALSE
    return limit_of(event) >= OUT_OF_REACH and not asked and is_thrown_away(trace, event)


def is_thrown_away(trace: Trace, event: Event) -> bool:
    """Whether nothing reads what a clip returns: the call is a statement."""
    found = trace.node(event.place)
    return event.kind == "clip" and found is not None and isinstance(found[0].syntax.parents.get(found[1]), ast.Expr)


def unscale_text(trace: Trace, step: Event) -> str:
    """`scaler.unscale_(optimizer)` in the words of the scaler's step, without what only `step` takes."""
    return unscaling(parsed(trace.text(step.place))) or "scaler.unscale_(optimizer)"


def parsed(text: str) -> ast.AST | None:
    """An expression of its text."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def unscaling(step: ast.AST | None) -> str | None:
    """What unscales the gradients that a call of `scaler.step` would take."""
    match step:
        case ast.Call(func=ast.Attribute(value=owner, attr="step"), args=[optimizer, *_]) if not isinstance(optimizer, ast.Starred):
            return f"{ast.unparse(owner)}.unscale_({ast.unparse(optimizer)})"
    return None


def unscale_first(trace: Trace, entry: Entry, event: Event, step: Event, path: Path) -> Fix | None:
    """Unscale before a clip: move the `unscale_` that comes too late, or insert one where the optimizer is the only one."""
    here, there = trace.node(steps.seen_from(event, step)), trace.node(step.place)
    if here is None or there is None or here[0] is not there[0]:
        return None
    (file, node), (_, call) = here, there
    syntax = file.syntax
    statement = syntax.statement(node)
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign) or syntax.function(node) is not syntax.function(call):
        return None
    if not happens_with(file, statement, call) or is_read_before(entry, event) or unscaled_on_another_way(trace, event):
        return None
    late = late_unscaling(entry, event, step, path)
    if late:
        found = trace.node(late[0].place)
        moved = syntax.statement(found[1]) if found is not None and found[0] is file else None
        several = len({other.place for other in late}) > 1
        if several or not isinstance(moved, ast.Expr) or syntax.block(moved) is not syntax.block(statement):
            return None
        return Fix(f"Move `{file.text(moved)}` before it", Applicability.SAFE, (MoveStatement(file.span(moved), file.span(statement)),))
    text = unscaling(call)
    if text is None or len(optimizers_after(entry, event, path)) != 1 or not is_bound_before(file, call, statement):
        return None
    return Fix(f"Insert `{text}` before it", Applicability.SAFE, (InsertStatements(file.span(statement), (text,)),))


def happens_with(file: SourceFile, statement: ast.stmt, call: ast.AST) -> bool:
    """Whether a call comes in each round, and under each condition, in which a statement of the same function does."""
    step = file.syntax.statement(call)
    loops, around = ([a for a in file.syntax.ancestors(n) if isinstance(a, LOOPS)] for n in (statement, step))
    if loops != around or not conditions_of(file, step) <= conditions_of(file, statement):
        return False
    leaving = file.syntax.all(ast.Continue, ast.Break, ast.Return)
    return not any(statement.lineno < node.lineno < step.lineno for node in leaving)


def conditions_of(file: SourceFile, statement: ast.stmt) -> set[tuple[str, str]]:
    """The conditions that a statement stands under: each test with its arm."""
    found: set[tuple[str, str]] = set()
    child: ast.AST = statement
    for parent in file.syntax.ancestors(statement):
        arm = next((name for name, value in vars(parent).items() if isinstance(value, list) and child in value), "")
        if isinstance(parent, ast.If):
            found.add((ast.unparse(parent.test), arm))
        elif isinstance(parent, ast.Try | ast.ExceptHandler | ast.match_case) and arm != "finalbody":
            found.add((str(parent.lineno if not isinstance(parent, ast.match_case) else ast.unparse(parent.pattern)), arm))
        child = parent
    return found


def is_read_before(entry: Entry, event: Event) -> bool:
    """Whether something else clips or measures the same gradients before."""
    for other in reversed(entry.events[: next(n for n, e in enumerate(entry.events) if e is event)]):
        if other.kind == "backward" and extend(event.path, other.path) is not None:
            return False
        reads = other.kind in ("clip", "gradients read", "gradients changed") and extend(event.path, other.path) is not None
        if reads and (other.place, other.calls) != (event.place, event.calls):
            return True
    return False


def unscaled_on_another_way(trace: Trace, event: Event) -> bool:
    """Whether gradients are unscaled already on another way to the same place."""
    same = (o for _, o in trace.of(event.kind) if o.place == event.place and o.calls == event.calls)
    return any(scaled.unscaled for other in same for scaled in steps.scaled_at(other))


def late_unscaling(entry: Entry, event: Event, step: Event, path: Path) -> list[Event]:
    """Where the gradients are unscaled on some way from a clip to the step."""
    found: list[Event] = []
    for other, _ in steps.following(entry, event, path):
        if other is step:
            break
        if other.kind == "unscale":
            found.append(other)
    return found


def optimizers_after(entry: Entry, event: Event, path: Path) -> set[object]:
    """The optimizers that scalers step with the gradients of an event, before the next are computed."""
    found: set[object] = set()
    for other, _ in steps.following(entry, event, path):
        if other.kind == "backward":
            break
        if other.kind == "scaler step":
            found.add(other.data["key"])
    return found


def is_bound_before(file: SourceFile, call: ast.AST, statement: ast.stmt) -> bool:
    """Whether the names of a call stand for the same before a statement: nothing from there on to the call binds them."""
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    inside = any(isinstance(a, ast.comprehension | ast.ListComp | ast.GeneratorExp | ast.Lambda) for a in file.syntax.ancestors(call))
    bound = (n for n in file.syntax.stored if n.id in names and statement.lineno <= n.lineno <= call.lineno)  # type: ignore[attr-defined]
    return not inside and not any(bound)
