"""What MP302 says of loops that go past the trainer around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.configs.trainers.duties import kind_of, unscales_in_its_step
from mplint.findings import Applicability, Confidence, Finding, Fix, Replace
from mplint.frameworks.trainers.queries import in_float16
from mplint.program.conditions import extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import Atom, Place, State, Step
from mplint.python.file import SourceFile
from mplint.rule import Rule


def past_trainers(rule: Rule, trace: Trace, entry: Entry) -> Iterator[Finding]:
    """The clipping and the backward passes that go past a trainer, in whichever function or file they stand."""
    for event in entry.of("clip"):
        for path, state in possible(event.data["gradients"], event.path):  # type: ignore[arg-type]
            kind, trainer, where, unscaled = parts_of(state)
            found = in_float16(trace, entry, trainer, path) if kind == "managed" and not unscaled else None
            if found is None or event.data.get("threshold") is None or unscales_in_its_step(str(found[0].data["title"])):
                continue
            made, path = found
            verdict = rule.verdict(trace, entry, path, event.place)
            yield rule.at(
                trace,
                event.place,
                f"the gradients are clipped while still multiplied by the loss scale of {made.data['title']}{verdict.condition()}",
                why="the scale starts at 65536: a limit of 1.0 clips gradients above 0.00002, and nearly all updates have the same size",
                help="call the trainer's own clipping, which unscales them first",
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(made.place, f"{made.data['title']} trains in float16"), Step(where, "the loss is scaled here")),
                fix=through_trainer(trace, event.place, made),
            )
            break
    through = entry.of("trainer backward")
    for event in entry.of("trainer step"):
        for path, state in possible(event.data["gradients"], event.path):  # type: ignore[arg-type]
            kind, _, where, _ = parts_of(state)
            found = in_float16(trace, entry, event.data["trainer"], path) if kind == "plain" else None
            if found is None or found[0].data["title"] not in BY_SCALER:
                continue
            made, path = found
            if any(extend(path, other.path) is None for other in through):
                continue  # the other branch goes through the trainer
            verdict = rule.verdict(trace, entry, path, where)
            yield rule.at(
                trace,
                where,
                f"this backward pass goes past {made.data['title']}, which would scale the loss{verdict.condition()}",
                why=f"float16 gradients below 6e-8 become 0, and the step that {made.data['title']} has wrapped finds no scale and raises",
                help=f"call the trainer's own `{own_backward(made)}(loss)`",
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(made.place, f"{made.data['title']} trains in float16"), Step(event.place, "it steps this optimizer")),
                fix=through_trainer(trace, where, made),
            )
            break


def parts_of(state: Atom) -> tuple[str, object, Place, tuple[object, ...]]:
    """What a state of gradients says: its kind, who scaled them, where, and for whom they are unscaled."""
    if type(state) is State and isinstance(state.data, tuple) and state.data[2] is not None:
        kind, by, where, unscaled = state.data
        return kind, by, where, unscaled
    return "", None, Place("", 0), ()


def own_backward(made: Event) -> str:
    """What a trainer calls the backward pass that scales the loss."""
    kind = kind_of(str(made.data["trainer"].type))  # type: ignore[attr-defined]
    return kind.backward if kind is not None and kind.backward else "backward"


CLIPS = ("clip_grad_norm_", "clip_grad_value_")  # of torch, which accelerate has under the same names
BY_SCALER = ("accelerate", "Fabric", "Lightning")  # what steps by a scaler that has to have scaled


def through_trainer(trace: Trace, place: Place, made: Event) -> Fix | None:
    """The same call of the trainer's own method, where it takes the same arguments and the trainer is at hand."""
    match trace.node(place), trace.node(made.place):
        case (file, ast.Call(func=ast.Attribute(attr="backward", value=loss), args=[]) as call), (other, construction):
            method, given = "backward", ", ".join([file.text(loss), *(file.text(k) for k in call.keywords)])
        case (file, ast.Call() as call), (other, construction):
            method, given = (file.names.resolve(call.func) or "").rpartition(".")[2], ""
        case _:
            return None
    trainer = name_of(file, construction, call) if other is file and made.data["title"] == "accelerate" else None
    if trainer is None:
        return None
    if method == "backward":
        return Fix(f"Call `{trainer}.backward`", Applicability.SAFE, (Replace(file.span(call), f"{trainer}.backward({given})"),))
    if method not in CLIPS or any(k.arg in ("error_if_nonfinite", "foreach", None) for k in call.keywords):
        return None
    return Fix(f"Call `{trainer}.{method}`", Applicability.SAFE, (Replace(file.span(call.func), f"{trainer}.{method}"),))


def name_of(file: SourceFile, construction: ast.AST, place: ast.AST) -> str | None:
    """The name under which what a statement makes is known at another place of its function or class."""
    match file.syntax.parents.get(construction):
        case ast.Assign(targets=[ast.Name(id=name) as target]):
            return name if file.syntax.function(target) is file.syntax.function(place) else None
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self")) as target]):
            return file.text(target) if file.syntax.enclosing_class(target) is file.syntax.enclosing_class(place) else None
    return None
