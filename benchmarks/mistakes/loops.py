"""Mistakes of the training loop in PyTorch, and of trainers that scale in the user's loop."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from mistakes.reach import is_half_region
from mistakes.sources import (
    Mutant,
    Program,
    always,
    blocks,
    calls_of,
    first_line,
    function_of,
    imports_torch,
    is_scaler,
    kinds_of,
    last_name,
    live,
    loops_of,
    method_of,
    of_scaler,
    scaler_calls,
    span,
    spans,
    statement_of,
    text_of,
    whole_loop,
)

CLIPS = ("clip_grad_norm_", "clip_grad_value_", "dispatch_clip_grad", "clip_grad_norm")

kind = kinds_of("training", whole_loop, "scaler")


def scaler_statements(program: Program, name: str) -> list[ast.stmt]:
    """The statements that are calls of a scaler's method."""
    found = [statement_of(program, call) for call in scaler_calls(program, name)]
    return [statement for statement in found if of_scaler(statement, name) is not None]


@kind("unscale_ removed before a clip", "MP304", "MP314")
def unscale_removed(program: Program) -> Iterator[Mutant]:
    for statement in scaler_statements(program, "unscale_"):
        clips = [c for c in calls_of(function_of(program, statement), *CLIPS) if c.lineno > statement.lineno]
        if clips:
            yield program.replace(statement, "pass", spans(clips))


@kind("clip moved before unscale_", "MP304", "MP314")
def clip_first(program: Program) -> Iterator[Mutant]:
    for block in blocks(program) if live(program) else ():
        for one, other in itertools.pairwise(block):
            if of_scaler(one, "unscale_") is not None and calls_of(other, *CLIPS) and one.end_lineno == other.lineno - 1:
                yield program.swap(one, other)


@kind("clip put before the scaler's step", "MP304", "MP314")
def clip_added(program: Program) -> Iterator[Mutant]:
    for statement, optimizer in unclipped_steps(program):
        yield program.insert(statement, f"torch.nn.utils.clip_grad_norm_({gradients_of(optimizer, 'p')}, 1.0)")


@kind("noise on scaled gradients", "MP314", "MP304")
def noise_added(program: Program) -> Iterator[Mutant]:
    for statement, optimizer in unclipped_steps(program):
        yield program.insert(
            statement,
            f"for p in {gradients_of(optimizer, 'p')}:\n"
            "    if p.grad is not None:\n"
            "        p.grad.add_(torch.randn_like(p.grad), alpha=0.01)",
        )


def unclipped_steps(program: Program) -> Iterator[tuple[ast.stmt, str]]:
    """The steps of scalers in functions that never unscale, with what is stepped."""
    for statement in scaler_statements(program, "step"):
        call = of_scaler(statement, "step")
        if call is None or not call.args or program.facts.unscaled or not imports_torch(program):
            continue
        if scaler_calls(function_of(program, statement), "scale") and not isinstance(call.args[0], ast.Starred):
            yield statement, text_of(program, call.args[0])


def gradients_of(optimizer: str, name: str) -> str:
    """The parameters that an optimizer steps."""
    return f'[{name} for g in {optimizer}.param_groups for {name} in g["params"]]'


@kind("update removed", "MP303", "MP310")
def update_removed(program: Program) -> Iterator[Mutant]:
    for statement in scaler_statements(program, "update"):
        call = of_scaler(statement, "update")
        around = function_of(program, statement)
        steps = scaler_calls(around, "step")
        if call is not None and not call.args and steps and len(scaler_calls(around, "update")) == 1:
            yield program.replace(statement, "pass", span(statement) | spans(steps))


@kind("step past the scaler", "MP302", "MP310 MP304 MP303 MP309")
def step_past(program: Program) -> Iterator[Mutant]:
    for statement in scaler_statements(program, "step"):
        call = of_scaler(statement, "step")
        if call is not None and len(call.args) == 1:
            yield program.replace(call, f"{text_of(program, call.args[0])}.step()")


@kind("backward without the scaler", "MP301 MP302 MP309 MP310", "MP303 MP304")
def scale_removed(program: Program) -> Iterator[Mutant]:
    for node in scaler_calls(program, "scale"):
        if len(node.args) == 1 and program.facts.stepped:
            steps = scaler_calls(function_of(program, node), "step")
            yield program.replace(node, bare(program, node.args[0]), span(node) | spans(steps))


def bare(program: Program, node: ast.expr) -> str:
    """The text of an expression, in parentheses where it needs them."""
    text = text_of(program, node)
    return text if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"


@kind("loss scaling taken out whole", "MP301", "MP115 MP309")
def unscaled(program: Program) -> Iterator[Mutant]:
    for function in dict.fromkeys(function_of(program, c) for c in scaler_calls(program, "scale")):
        calls = {name: [c for c in scaler_calls(function, name) if function_of(program, c) is function] for name in ("scale", "step")}
        if [len(found) for found in calls.values()] != [1, 1] or not program.facts.scaled:
            continue
        scale, step = calls["scale"][0], calls["step"][0]
        others = [statement_of(program, c) for name in ("update", "unscale_") for c in scaler_calls(function, name)]
        if len(scale.args) == len(step.args) == 1 and all(isinstance(other, ast.Expr) for other in others):
            changes: list[tuple[ast.AST, str]] = [(scale, bare(program, scale.args[0]))]
            changes += [(step, f"{text_of(program, step.args[0])}.step()"), *((other, "pass") for other in others)]
            yield program.replace_all(changes, span(scale) | span(step))


@kind("scaler dropped from a checkpoint", "MP307", needs="state")
def checkpoint_forgets(program: Program) -> Iterator[Mutant]:
    for node in program.nodes if scaler_calls(program, "state_dict") else ():
        if isinstance(node, ast.Dict) and any(key is not None for key in node.keys):
            values = [v for v in node.values if isinstance(v, ast.Call) and last_name(v.func) == "state_dict"]
            owners = [v.func.value for v in values if isinstance(v.func, ast.Attribute)]
            optimizers = [o for o in owners if "opt" in last_name(o).lower()]
            for key, value in zip(node.keys, node.values, strict=True):
                call = value.body if isinstance(value, ast.IfExp) else value
                named = isinstance(call, ast.Call) and last_name(call.func) == "state_dict" and isinstance(call.func, ast.Attribute)
                alone = len(scaler_calls(program, "state_dict")) == 1  # where there are several checkpoints, one is the one that is loaded
                if key is not None and named and is_scaler(call.func.value) and optimizers and alone:  # type: ignore[attr-defined]
                    lines = frozenset(range(node.lineno - 1, (node.end_lineno or node.lineno) + 12))
                    yield program.replace(value, "0", lines)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) and of_scaler(node, "state_dict") is not None:
            lines = frozenset(range(node.lineno - 25, node.lineno + 25))
            yield program.replace(node, "pass", lines)


@kind("scaler not restored", "MP307", needs="state")
def not_restored(program: Program) -> Iterator[Mutant]:
    for statement in scaler_statements(program, "load_state_dict"):
        if scaler_calls(program, "state_dict"):
            around = function_of(program, statement)
            passed = span(around) if isinstance(around, ast.FunctionDef) and around.name == "load_state_dict" else frozenset[int]()
            yield program.replace(statement, "pass", span(statement) | spans(calls_of(around, "load_state_dict", "load")) | passed)


@kind("scaler rebuilt in each epoch", "MP312", "MP101 MP307")
def rebuilt(program: Program) -> Iterator[Mutant]:
    for node, name in made_outside(program):
        for loop in (n for n in ast.walk(function_of(program, node)) if isinstance(n, (ast.For, ast.While))):
            used = any(isinstance(n, (ast.Name, ast.Attribute)) and text_of(program, n) == name for n in ast.walk(loop))
            if used and loop.lineno > node.lineno and not loops_of(program, loop):
                yield program.insert(loop.body[0], f"{name} = {text_of(program, node.value)}")
                break


@kind("scaler rebuilt in each step", "MP312", "MP101 MP307")
def rebuilt_in_step(program: Program) -> Iterator[Mutant]:
    for node, name in made_outside(program):
        for call in scaler_calls(function_of(program, node), "scale"):
            same = isinstance(call.func, ast.Attribute) and text_of(program, call.func.value) == name
            if same and call.lineno > node.lineno and loops_of(program, call):
                yield program.insert(statement_of(program, call), f"{name} = {text_of(program, node.value)}")


def made_outside(program: Program) -> Iterator[tuple[ast.Assign, str]]:
    """The scalers that are made outside of loops, with the names they get."""
    for node in program.nodes:
        made = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and last_name(node.value.func) == "GradScaler"
        if made and not loops_of(program, node) and program.facts.stepped:
            yield node, text_of(program, node.targets[0])  # type: ignore[attr-defined, misc]


@kind("backward moved into the region", "MP305")
def into_region(program: Program) -> Iterator[Mutant]:
    for block in blocks(program) if calls_of(program, "autocast") else ():
        for one, other in itertools.pairwise(block):
            if not isinstance(one, ast.With) or not is_half_region(program, one.items[0].context_expr):
                continue
            if method_of(other, "backward") is None or other.lineno != other.end_lineno or one.body[-1].lineno == one.lineno:
                continue
            lines = list(program.lines)
            lines[other.lineno - 1] = program.indent(one.body[0]) + lines[other.lineno - 1].strip()
            yield Mutant("\n".join(lines), span(other))


@kind("step twice before the update", "MP310")
def step_twice(program: Program) -> Iterator[Mutant]:
    yield from doubled(program, "step")


@kind("unscale_ twice", "MP310")
def unscale_twice(program: Program) -> Iterator[Mutant]:
    yield from doubled(program, "unscale_")


def doubled(program: Program, name: str) -> Iterator[Mutant]:
    """A scaler's method that is called twice."""
    for statement in scaler_statements(program, name):
        call = of_scaler(statement, name)
        if call is not None and isinstance(statement, ast.Expr):
            yield program.replace(statement, f"{text_of(program, call)}; {text_of(program, call)}")


@kind("unscale_ behind the step", "MP310", "MP304")
def unscale_late(program: Program) -> Iterator[Mutant]:
    for statement in scaler_statements(program, "step"):
        call = of_scaler(statement, "step")
        if call is not None and isinstance(statement, ast.Expr) and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
            scaler, optimizer = text_of(program, call.func.value), text_of(program, call.args[0])
            yield program.replace(statement, f"{text_of(program, call)}; {scaler}.unscale_({optimizer})")


@kind("update moved before the step", "MP310", "MP303 MP304")
def update_early(program: Program) -> Iterator[Mutant]:
    for block in blocks(program) if live(program) else ():
        for one, other in itertools.pairwise(block):
            if of_scaler(one, "step") is not None and of_scaler(other, "update") is not None and one.end_lineno == other.lineno - 1:
                yield program.swap(one, other)


@kind("another optimizer unscaled", "MP304 MP310", "MP314")
def other_unscaled(program: Program) -> Iterator[Mutant]:
    for statement in scaler_statements(program, "unscale_"):
        call = of_scaler(statement, "unscale_")
        if call is None or len(call.args) != 1:
            continue
        around = function_of(program, statement)
        own = text_of(program, call.args[0])
        steps = [c for c in scaler_calls(around, "step") if len(c.args) == 1 and function_of(program, c) is around]
        stepped = [text_of(program, c.args[0]) for c in steps]
        clips = [c for c in calls_of(around, *CLIPS) if c.lineno > statement.lineno]
        for other in dict.fromkeys(stepped):
            if other != own and own in stepped and clips:
                yield program.replace(call.args[0], other, span(statement) | spans(clips))


@kind("autocast in bfloat16 beside a scaler", "MP306", "MP101 MP107")
def bfloat(program: Program) -> Iterator[Mutant]:
    if imports_torch(program):
        yield from given_to_regions(program, "dtype", "torch.bfloat16")


@kind("autocast switched off beside a scaler", "MP309", "MP101")
def nothing_in_half(program: Program) -> Iterator[Mutant]:
    yield from given_to_regions(program, "enabled", "False")


def given_to_regions(program: Program, name: str, value: str) -> Iterator[Mutant]:
    """All regions of a file that makes a scaler and steps through it, with another argument; none where a region has it."""
    made, regions = calls_of(program, "GradScaler"), calls_of(program, "autocast")
    given = any(k.arg in (name, None) for c in regions for k in c.keywords) or any(len(c.args) > 1 for c in regions)
    old = any(c.args and not isinstance(c.args[0], ast.Constant) for c in regions) and name == "enabled"
    if not made or not regions or given or old or not live(program) or program.facts.regions != {program.path}:
        return
    text = program.text
    for call in sorted(regions, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0), reverse=True):
        end = program.offset(call.end_lineno or 0, (call.end_col_offset or 0) - 1)
        comma = ", " if call.args or call.keywords else ""
        text = f"{text[:end].rstrip(', ')}{comma}{name}={value}{text[end:]}"
    yield Mutant(text, spans([*made, *regions]))


@kind("scaler no longer tied to float16", "MP306", "MP101")
def always_scaled(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "GradScaler") if live(program) else ():
        enabled = [k for k in call.keywords if k.arg == "enabled"]
        tied = enabled and "float16" in text_of(program, enabled[0].value) and "bfloat16" in program.text
        possible = tied and program.facts.project.possible(enabled[0].value, False, function_of(program, call))
        if possible and not is_fixed(program, enabled[0].value, "float16"):
            yield program.replace(enabled[0].value, "True", span(call) | spans(scaler_calls(program, "scale")))


def is_fixed(program: Program, test: ast.expr, value: str) -> bool:
    """Whether the name that a test asks for is given one text in its file, and no other by what is executed there."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    given = [n.value for n in program.nodes if isinstance(n, ast.Assign) and any(last_name(t) in names for t in n.targets)]
    return bool(given) and not calls_of(program, "exec") and all(isinstance(v, ast.Constant) and v.value == value for v in given)


@kind("one region around the whole loop", "MP311", "MP305 MP101 MP308 MP310")
def around_loop(program: Program) -> Iterator[Mutant]:
    for statement in dict.fromkeys(function_of(program, c) for c in scaler_calls(program, "step")):
        if not isinstance(statement, ast.FunctionDef) or not imports_torch(program):
            continue
        steps = scaler_calls(statement, "step")
        if any(loops_of(program, c) for c in steps):
            lines = {first_line(statement), *(n + 1 for c in steps for n in span(c))}
            lines |= {n.lineno + 1 for c in steps for n in loops_of(program, c)}
            yield program.insert(statement, '@torch.autocast("cuda")', lines)


# trainers that scale in the user's loop

trainer = kinds_of(
    "training", lambda program: re.search(r"Accelerator\(|Fabric\(|LightningModule|deepspeed\.initialize", program.text) is not None
)


@trainer("backward past the accelerator", "MP302", "MP301 MP308 MP304")
def accelerator_backward(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "backward"):
        if (
            program.facts.accelerated
            and isinstance(node.func, ast.Attribute)
            and last_name(node.func.value) in ("accelerator", "fabric")
            and len(node.args) == 1
            and not calls_of(node.args[0], "scale")
        ):
            lines = spans(calls_of(function_of(program, node), "step"))
            yield program.replace(node, f"{bare(program, node.args[0])}.backward()", span(node) | lines)


@trainer("clip past the accelerator", "MP304 MP302", "MP314")
def accelerator_clip(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "clip_grad_norm_"):
        if (
            program.facts.accelerated
            and isinstance(node.func, ast.Attribute)
            and last_name(node.func.value) == "accelerator"
            and "import torch" in program.text
        ):
            yield program.replace(node.func, "torch.nn.utils.clip_grad_norm_")


@trainer("backward past Lightning", "MP302", "MP301")
def lightning_backward(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "manual_backward"):
        if len(node.args) == 1:
            yield program.replace(
                node, f"{bare(program, node.args[0])}.backward()", spans(calls_of(function_of(program, node), "step")) | span(node)
            )


@trainer("fp16 and bf16 at once", "MP109", alone=always)
def both_halves(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "TrainingArguments", "Seq2SeqTrainingArguments"):
        for keyword in call.keywords:
            on = keyword.arg == "fp16" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if on and not any(k.arg == "bf16" for k in call.keywords):
                yield program.replace(keyword.value, "True, bf16=True", span(call))
