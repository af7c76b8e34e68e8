"""Mistakes of PyTorch's API, and of trainers' names for precision: a spelling decides."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mistakes.reach import is_half_region
from mistakes.sources import Mutant, Program, always, calls_of, dotted, function_of, guarded, kinds_of, last_name, span, text_of

kind = kinds_of("api", always)


@kind("old name of the scaler", "MP101")
def old_scaler(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "GradScaler"):
        if dotted(call.func) == "torch.amp.GradScaler" and not program.facts.old_torch and not guarded(program, call):
            given = [
                text_of(program, k.value) if k.arg is None else f"{k.arg}={text_of(program, k.value)}"
                for k in call.keywords
                if k.arg != "device"
            ]
            yield program.replace(call, f"torch.cuda.amp.GradScaler({', '.join(given)})")


@kind("old name of autocast", "MP101")
def old_autocast(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "autocast"):
        cuda = call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == "cuda"
        if dotted(call.func) in ("torch.autocast", "torch.amp.autocast") and not program.facts.old_torch and cuda and len(call.args) == 1:
            given = [f"{k.arg}={text_of(program, k.value)}" for k in call.keywords]
            yield program.replace(call, f"torch.cuda.amp.autocast({', '.join(given)})")


@kind("autocast without its device", "MP107")
def no_device(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "autocast"):
        if dotted(call.func) in ("torch.autocast", "torch.amp.autocast") and len(call.args) == 1:
            given = [f"{k.arg}={text_of(program, k.value)}" for k in call.keywords if k.arg]
            if len(given) == len(call.keywords):
                yield program.replace(call, f"{dotted(call.func)}({', '.join(given)})")


@kind("a device object given to autocast", "MP107")
def device_object(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "autocast"):
        first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "device_type"), None)
        literal = isinstance(first, ast.Constant) and isinstance(first.value, str)
        if dotted(call.func) in ("torch.autocast", "torch.amp.autocast") and first is not None and literal:
            yield program.replace(first, f"torch.device({text_of(program, first)})", span(call))


@kind("the scaler's device in the old class", "MP107", "MP101")
def device_as_scale(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "GradScaler"):
        if (
            dotted(call.func) in ("torch.cuda.amp.GradScaler", "amp.GradScaler")
            and not call.args
            and not call.keywords
            and "torch.cuda" in program.text
        ):
            yield program.replace(call, f'{dotted(call.func)}("cuda")')


@kind("region made and not entered", "MP111", "MP309 MP115 MP101 MP305")
def not_entered(program: Program) -> Iterator[Mutant]:
    for node in program.nodes:
        if (
            isinstance(node, ast.With)
            and len(node.items) == 1
            and is_half_region(program, node.items[0].context_expr)
            and node.items[0].optional_vars is None
        ):
            item = node.items[0].context_expr
            if node.lineno == item.lineno == item.end_lineno and node.body[0].lineno > node.lineno:
                lines = list(program.lines)
                indent = program.indent(node)
                lines[node.lineno - 1 : node.lineno] = [f"{indent}{text_of(program, item)}", f"{indent}if True:"]
                yield Mutant("\n".join(lines), frozenset((node.lineno, node.lineno + 1)), node.lineno, 1)


@kind("regions joined by `and`", "MP111", "MP309 MP115 MP101")
def joined(program: Program) -> Iterator[Mutant]:
    for node in program.nodes:
        if isinstance(node, ast.With) and len(node.items) == 2 and node.lineno == node.items[1].context_expr.end_lineno:
            one, other = (item.context_expr for item in node.items)
            plain = all(item.optional_vars is None for item in node.items)
            if plain and any(last_name(e.func) == "autocast" for e in (one, other) if isinstance(e, ast.Call)):
                text = program.lines[node.lineno - 1]
                if text[one.end_col_offset : other.col_offset].strip() == ",":
                    lines = list(program.lines)
                    lines[node.lineno - 1] = f"{text[: one.end_col_offset]} and {text[other.col_offset :]}"
                    yield Mutant("\n".join(lines), span(node.items[0].context_expr))


@kind("autocast as a bare decorator", "MP107 MP111", "MP101")
def bare_decorator(program: Program) -> Iterator[Mutant]:
    for node in program.nodes:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if (
                    isinstance(decorator, ast.Call)
                    and last_name(decorator.func) == "autocast"
                    and not decorator.args
                    and not decorator.keywords
                ):
                    yield program.replace(decorator, text_of(program, decorator.func))


@kind("legacy name of a trainer's precision", "MP110")
def legacy_precision(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "Trainer"):
        for keyword in call.keywords:
            if keyword.arg == "precision" and isinstance(keyword.value, ast.Constant) and keyword.value.value in ("16-mixed", "bf16-mixed"):
                old = "16" if keyword.value.value == "16-mixed" else '"bf16"'
                if "lightning" in program.text and function_of(program, call) is not None:
                    yield program.replace(keyword.value, old, span(call))
