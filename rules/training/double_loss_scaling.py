"""MP308 double-loss-scaling."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Change, Confidence, Finding, Fix, RemoveStatement, Replace, Severity
from mplint.frameworks.trainers.hosted import STEPS
from mplint.frameworks.trainers.queries import in_float16, precision_around
from mplint.program.conditions import Path
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import ANY, HALF, Place, Step, Tensor, atoms
from mplint.python.document import is_test_path
from mplint.python.syntax import argument
from mplint.rule import Consequence, Rule
from mplint.source.file import SourceFile
from mplint.source.keras.loss_scale import is_loss_scale_optimizer, is_model_optimizer, makes_loss_scale_optimizer
from mplint.source.keras.policy import KerasPolicy
from mplint.source.keras.version import keras_major
from mplint.source.trainers.duties import trainer


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
                    verdict = trace.verdict(entry, path)
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

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Report nested wrappers, redundant ones in compile(), divisions before a step that divides, and losses scaled before a trainer."""
        for call in file.syntax.all(ast.Call):
            if makes_loss_scale_optimizer(file, call):
                yield from self._nested(file, call)
            elif isinstance(call.func, ast.Attribute):
                if call.func.attr == "compile":
                    yield from self._compiled(file, call)
                elif call.func.attr in ("apply_gradients", "apply"):
                    yield from self._divided(file, call, call.func.value)

    def _nested(self, file: SourceFile, call: ast.Call) -> Iterator[Finding]:
        inner = argument(call, "inner_optimizer", 0) or argument(call, "optimizer")
        if inner is None:
            return
        wrapped = [d for d in file.values.definitions(inner) if isinstance(d, ast.Call) and makes_loss_scale_optimizer(file, d)]
        if not wrapped or not is_loss_scale_optimizer(file, inner):
            return
        fix = None
        if len(call.args) + len(call.keywords) == 1:
            statement = file.syntax.statement(call)
            change: Change = Replace(file.span(call), file.text(inner))
            if isinstance(statement, ast.Assign) and statement.value is call and ast.unparse(statement.targets[0]) == ast.unparse(inner):
                change = RemoveStatement(file.span(statement))
            fix = Fix("wrap the optimizer once", Applicability.SAFE, (change,))
        yield self.finding(
            file,
            call,
            f"`{file.text(inner)}` is already a LossScaleOptimizer",
            why="Keras 3 divides the gradients by the scale twice, so every update is 32768 times too small; Keras 2 raises an error.",
            help="wrap the optimizer once",
            related=((wrapped[0], "wrapped here first"),) if wrapped[0] is not inner else (),
            fix=fix,
        )

    def _compiled(self, file: SourceFile, call: ast.Call) -> Iterator[Finding]:
        given = argument(call, "optimizer", 0)
        if given is not None and is_loss_scale_optimizer(file, given) and "mixed_float16" in file.fact(KerasPolicy).policy_at(call).names:
            message = "`compile` wraps the optimizer by itself under mixed_float16"
            why = "The explicit LossScaleOptimizer is kept, not doubled; it is needed only to set its arguments."
            yield self.finding(file, given, message, why=why, help="pass the plain optimizer", severity=Severity.INFO)

    def _divided(self, file: SourceFile, call: ast.Call, optimizer: ast.expr) -> Iterator[Finding]:
        if keras_major(file) == 2 or not (is_loss_scale_optimizer(file, optimizer) or is_model_optimizer(file, optimizer)):
            return
        given = argument(call, "grads_and_vars", 0) or argument(call, "grads")
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id == "zip" and given.args:
            given = given.args[0]
        for definition in file.values.definitions(given):
            for node in ast.walk(definition):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and self._is_scale(file, node.right, optimizer):
                    fix = Fix("leave the unscaling to the optimizer", Applicability.SAFE, (Replace(file.span(node), file.text(node.left)),))
                    yield self.finding(
                        file,
                        node,
                        f"the gradients are divided by `{file.text(node.right)}`, and `{file.text(call.func)}` divides them again",
                        why="A Keras 3 LossScaleOptimizer unscales when it applies gradients: every update is 32768 times too small.",
                        help="pass the scaled gradients",
                        related=((call, "divides by the scale as well"),),
                        fix=fix,
                    )

    def _is_scale(self, file: SourceFile, node: ast.expr, optimizer: ast.expr) -> bool:
        """Whether `node` is the optimizer's scale, which only Keras 3 calls dynamic_scale."""
        owner = ast.unparse(optimizer)
        return any(
            isinstance(d, ast.Attribute) and d.attr == "dynamic_scale" and ast.unparse(d.value) == owner
            for d in file.values.definitions(node)
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
    flags = [{literal for literal in path if literal[0][0] in ("true", "in")} for path in (one, other)]
    return all(flags) and flags[0].isdisjoint(flags[1])