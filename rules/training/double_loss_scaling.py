"""MP308 double-loss-scaling."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.configs.trainers.duties import trainer
from mplint.findings import Applicability, Change, Confidence, Finding, Fix, RemoveStatement, Replace, Severity
from mplint.frameworks.keras import steps as keras_steps
from mplint.frameworks.trainers.hosted import STEPS
from mplint.frameworks.trainers.queries import in_float16, precision_around
from mplint.program.conditions import Key, Path
from mplint.program.machine import Args, Event
from mplint.program.trace import Entry, Trace, possible, shown_symbol
from mplint.program.values import ANY, HALF, NONE, Atom, Object, Place, State, Step, Tensor, atoms
from mplint.python.document import is_test_path
from mplint.python.file import SourceFile
from mplint.python.syntax import argument
from mplint.rule import Consequence, Rule


class DoubleLossScaling(Rule):
    """A loss scaled, or gradients unscaled, twice

    ## What it does
    Finds a loss that is scaled, or gradients that are unscaled, twice: a `LossScaleOptimizer` inside another one, and gradients divided by
    the scale by hand before a Keras 3 `LossScaleOptimizer` applies them, which divides them again. In PyTorch, a loss that a GradScaler of
    the program's own scales before a trainer that is set to float16 (Lightning, Fabric, accelerate, transformers) scales it again.

    ## Why is this bad?
    In Keras 3 the outer optimizer scales the loss by 32768 and both divide the gradients by it: every update is 32768 times too small, and
    nothing is raised. Keras 2 refuses the nested wrapper with an error. Two GradScalers multiply the loss by 65536 each: in float16 it
    overflows until the trainer's own scale has sunk, and what remains of the program's scale multiplies every update.

    ## Example
    ```python
    import keras

    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
    optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    ```

    ## Use instead
    ```python
    import keras

    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
    ```

    ## Fix safety
    Safe: the outer wrapper, or the division, is taken away; one scaling remains. Offered where the outer wrapper has no other argument.
    `scaler.scale(loss)` becomes `loss` where nothing else is done with the scaler.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp308.py.

    ## References
    - https://keras.io/api/optimizers/loss_scale_optimizer/
    """

    code = "MP308"
    name = "double-loss-scaling"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("keras", "torch")
    tokens = ("LossScaleOptimizer", "dynamic_scale", ".scale(")
    program = True
    adoption = Consequence("the loss is scaled once", mends=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the losses that a scaler has scaled before a trainer scales them, and the trainer's optimizers that a scaler steps."""
        for entry in trace.entries:
            for event in entry.of("trainer backward", "trainer's optimizer stepped"):
                steps = event.kind == "trainer's optimizer stepped"
                loss = event.get("loss")
                scaled = [p for p, a in possible(loss, event.path) if type(a) is Tensor and a.scaled] if loss is not None else []  # type: ignore[arg-type]
                for path in [event.path] if steps else scaled:
                    found = in_float16(trace, entry, event.data["trainer"], path)
                    if found is None:
                        continue
                    made, path = found
                    if are_alternatives(made.path, event.path):
                        continue
                    verdict = self.verdict(trace, entry, path, event.place)
                    title = made.data["title"]
                    what = f"steps an optimizer that {title} steps by its own scaler" if steps else f"gets a loss that {title} scales again"
                    yield self.at(
                        trace,
                        event.place,
                        f"`{trace.text(event.place)}` {what}{verdict.condition()}",
                        why="The loss is multiplied by 65536 twice, and only one scale is divided out of the gradients.",
                        help=f"hand {title} the plain loss, and leave the scaler out",
                        confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                        steps=(Step(made.place, f"{title} trains in float16"),),
                        fix=None if steps else unscaled(trace, entry, loss),
                    )
                    break

            yield from self._in_steps(trace, entry)
            yield from self._in_keras(trace, entry)

    def _in_steps(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """Losses that are scaled in a step that a trainer runs, which runs backward and steps by itself."""
        for inside in entry.of("inside a trainer"):
            kind, event = trainer(str(inside.data["trainer"])), inside.data["event"]
            assert isinstance(event, Event)
            running = STEPS.intersection(inside.data["functions"])  # type: ignore[arg-type]
            if event.kind != "loss scaled" or event.path or inside.data["by_hand"] or not running or "scale" not in kind.does:
                continue
            outer, built = precision_around(trace, kind, event.place.path)
            twice = outer == {HALF}
            if not twice and (ANY not in outer or built is not None):
                continue
            fix, text = plain_loss(trace, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{text}` scales a loss that {kind.title} {'scales again' if twice else 'takes over'}",
                why="The loss is multiplied by 65536 twice, and only one scale is divided out of the gradients."
                if twice
                else f"{kind.title} runs backward and steps by itself: it never divides by this scale, which starts at 65536.",
                help=f"hand {kind.title} the plain loss, and leave the scaler out",
                severity=Severity.INFO if is_test_path(event.place.path) else None,
                confidence=Confidence.HIGH if twice else Confidence.MEDIUM,
                steps=(Step(built, f"{kind.title} is set to float16 here"),) if built is not None else (),
                fix=fix,
            )

    def _in_keras(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """Wrappers within wrappers, redundant ones in `compile`, and divisions before a step that divides."""
        for event in entry.of("loss scale optimizer made"):
            inner = [(path, a) for path, a in possible(event.data["inner"] or NONE, event.path)]  # type: ignore[arg-type]
            if inner and all(keras_steps.is_wrapped(a) for _, a in inner):
                yield self._nested(trace, event, inner[0][1])
        for event in entry.of("model compiled"):
            yield from self._compiled(trace, event)
        for event, later in keras_steps.divided_by_hand(entry):
            verdict = self.verdict(trace, entry, event.path, event.place)
            found = trace.node(event.place)
            yield self.at(
                trace,
                event.place,
                f"the gradients are divided by the scale, and `{trace.text(later.place).partition('(')[0]}` divides them again"
                + verdict.condition(),
                why="A Keras 3 LossScaleOptimizer unscales when it applies gradients: every update is 32768 times too small.",
                help="pass the scaled gradients",
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(later.place, "this divides by the scale as well"),),
                fix=undivided(*found) if found is not None else None,
            )

    def _nested(self, trace: Trace, event: Event, inner: Atom) -> Finding:
        found = trace.node(event.place)
        made = inner.made if isinstance(inner, Object) else None
        wrapped = file_text(found, inner_of(found[1])) if found is not None else ""
        return self.at(
            trace,
            event.place,
            f"`{wrapped or trace.text(event.place)}` is already a LossScaleOptimizer",
            why="Keras 3 divides the gradients by the scale twice, so every update is 32768 times too small; Keras 2 raises an error.",
            help="wrap the optimizer once",
            steps=(Step(made, "it is wrapped here first"),) if made is not None else (),
            fix=wrapped_once(*found) if found is not None else None,
        )

    def _compiled(self, trace: Trace, event: Event) -> Iterator[Finding]:
        policies = [a for _, a in possible(event.data["policy"], event.path)]  # type: ignore[arg-type]
        given = [a for _, a in possible(event.data["optimizer"] or NONE, event.path)]  # type: ignore[arg-type]
        mixed = any(type(a) is State and isinstance(a.data, tuple) and a.data[0] == "mixed_float16" for a in policies)
        args = event.data["args"]
        place = args.place(0, "optimizer") if isinstance(args, Args) else None
        if mixed and given and all(map(keras_steps.is_wrapped, given)):
            yield self.at(
                trace,
                Place(event.place.path, place) if place is not None else event.place,
                "`compile` wraps the optimizer by itself under mixed_float16",
                why="The explicit LossScaleOptimizer is kept, not doubled; it is needed only to set its arguments.",
                help="pass the plain optimizer",
                severity=Severity.INFO,
            )


def unscaled(trace: Trace, entry: Entry, loss: object) -> Fix | None:
    """The change that hands on the loss as it was before a scaler scaled it, once."""
    scalers = {a.scaled for a in atoms(loss) if type(a) is Tensor}  # type: ignore[arg-type]
    places = {e.place for e in entry.of("loss scaled") if getattr(e.data["scaler"], "id", None) in scalers}
    return plain_loss(trace, places.pop())[0] if len(places) == 1 else None


def plain_loss(trace: Trace, place: Place) -> tuple[Fix | None, str]:
    """The change that hands on what a scaler scales, where that is all the scaler does, and the text of what scales it."""
    node = trace.node(place)
    if node is None or not isinstance(node[1], ast.Call) or not isinstance(node[1].func, ast.Attribute):
        return None, trace.text(place)
    file, call, func = node[0], node[1], node[1].func
    text = file.text(func.value)
    used = {f.attr for c in file.syntax.all(ast.Call) if isinstance(f := c.func, ast.Attribute) and file.text(f.value) == text}
    if used != {"scale"} or len(call.args) != 1:
        return None, file.text(func)
    change = Replace(file.span(call), file.text(call.args[0]))
    return Fix("leave the scaling to the trainer", Applicability.SAFE, (change,)), file.text(func)


def are_alternatives(one: Path, other: Path) -> bool:
    """Whether two things happen under flags of their own: then nothing says that both are ever set."""
    first, second = ({literal for literal in path if is_flag(literal[0])} for path in (one, other))
    return bool(first - second) and bool(second - first)


def is_flag(key: Key) -> bool:
    """Whether a condition has a name, and asks for more than how many rounds there were."""
    return key[0] in ("true", "in") and " % " not in shown_symbol(key[1])


def inner_of(call: ast.AST) -> ast.expr | None:
    """The optimizer that a call wraps."""
    return argument(call, "inner_optimizer", 0) or argument(call, "optimizer") if isinstance(call, ast.Call) else None


def file_text(found: tuple[SourceFile, ast.AST], node: ast.AST | None) -> str:
    """The source text of a node in the file of another one."""
    return found[0].text(node) if node is not None else ""


def wrapped_once(file: SourceFile, call: ast.AST) -> Fix | None:
    """Take the outer one of two wrappers away, where nothing but the optimizer is given to it."""
    inner = inner_of(call)
    if inner is None or not isinstance(call, ast.Call) or len(call.args) + len(call.keywords) != 1:
        return None
    statement = file.syntax.statement(call)
    change: Change = Replace(file.span(call), file.text(inner))
    if isinstance(statement, ast.Assign) and statement.value is call and ast.unparse(statement.targets[0]) == ast.unparse(inner):
        change = RemoveStatement(file.span(statement))
    return Fix("wrap the optimizer once", Applicability.SAFE, (change,))


def undivided(file: SourceFile, division: ast.AST) -> Fix | None:
    """Leave the gradients as they are."""
    if not isinstance(division, ast.BinOp):
        return None
    return Fix("leave the unscaling to the optimizer", Applicability.SAFE, (Replace(file.span(division), file.text(division.left)),))
