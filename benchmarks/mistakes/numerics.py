"""Mistakes of numerics in PyTorch: put into modules whose forward a float16 region runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mistakes.reach import computed, forward_of, is_half_region, reached_alone
from mistakes.sources import (
    Mutant,
    Program,
    calls_of,
    dotted,
    function_of,
    imports_torch,
    kinds_of,
    last_name,
    span,
    spans,
    statements,
    text_of,
)

kind = kinds_of("numerics", reached_alone, "scaler")
MATRIX_WORK = frozenset(("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d"))
FORCED = re.compile(r"float\(|float32|dtype=")


def half_places(program: Program) -> Iterator[tuple[ast.Assign, str]]:
    """The statements after which a name surely is half: what matrix work computes in a forward that a region runs."""
    if not imports_torch(program):
        return
    for node in program.nodes:
        if isinstance(node, ast.ClassDef) and node.name in program.facts.half:
            forward = forward_of(node)
            yield from computed(node, forward, MATRIX_WORK) if forward is not None else ()


def inserted(program: Program, text: str) -> Iterator[Mutant]:
    """A line behind each of these statements."""
    for statement, name in half_places(program):
        yield program.append(statement, text.format(x=name))


@kind("fill beyond float16", "MP204")
def fill(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = {x}.masked_fill({x} < 0, -1e9)")


@kind("clamp beyond float16", "MP204")
def clamp(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = {x}.clamp(-1e6, 1e6)")


@kind("epsilon lost in a division", "MP205")
def division(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = {x} / ({x}.abs().amax() + 1e-8)")


@kind("epsilon lost in a logarithm", "MP205")
def logarithm(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = torch.log(torch.sigmoid({x}) + 1e-10)")


@kind("epsilon lost under a root", "MP205")
def root(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = torch.sqrt(torch.relu({x}) + 1e-12)")


@kind("softmax forced to half", "MP202")
def softmax(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = {x} * torch.softmax({x}, dim=1, dtype=torch.float16)")


@kind("mask of attention beyond float16", "MP204")
def attention_mask(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "masked_fill", "masked_fill_"):
        around = function_of(program, call)
        if not isinstance(call.func, ast.Attribute) or len(call.args) != 2 or not isinstance(around, ast.FunctionDef):
            continue
        owner = program.parents.get(around)
        reached = isinstance(owner, ast.ClassDef) and owner.name in program.facts.half and around.name == "forward"
        product = re.search(rf"\b{re.escape(text_of(program, call.func.value))}\s*=.*(matmul|einsum|@|bmm)", text_of(program, around))
        minimum = re.fullmatch(
            r"float\(['\"]-inf['\"]\)|-(torch|math|np)\.inf|-1e4|-1e3|-10000(\.0)?|torch\.finfo\(.*\)\.min", text_of(program, call.args[1])
        )
        if reached and product and minimum and not FORCED.search(text_of(program, around)):
            yield program.replace(call.args[1], "-1e9", span(call))


def losses(program: Program) -> dict[str, str]:
    """The names that losses of torch get, with the class of each."""
    return {
        text_of(program, n.targets[0]): last_name(n.value.func)
        for n in program.nodes
        if isinstance(n, ast.Assign)
        and isinstance(n.value, ast.Call)
        and last_name(n.value.func).endswith("Loss")
        and dotted(n.value.func).startswith(("nn.", "torch.nn."))
    }


def regions(program: Program) -> Iterator[ast.With]:
    """The regions of a file that compute in float16."""
    for node in program.nodes:
        if isinstance(node, ast.With) and any(is_half_region(program, item.context_expr) for item in node.items) and program.facts.scaled:
            yield node


@kind("cross-entropy of probabilities under autocast", "MP206", alone=lambda program: True)
def probabilities(program: Program) -> Iterator[Mutant]:
    made = losses(program)
    for region in regions(program):
        for call in calls_of(region, "binary_cross_entropy_with_logits"):
            if call.args and isinstance(call.func, ast.Attribute):
                before = text_of(program, call.func.value)
                given = text_of(program, call.args[0])
                changes: list[tuple[ast.AST, str]] = [(call.func, f"{before}.binary_cross_entropy"), (call.args[0], f"({given}).sigmoid()")]
                yield program.replace_all(changes, span(call))
        for call in [n for n in ast.walk(region) if isinstance(n, ast.Call)]:
            if made.get(text_of(program, call.func)) == "BCEWithLogitsLoss" and call.args:
                created = [
                    n.value.func
                    for n in program.nodes
                    if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and last_name(n.value.func) == "BCEWithLogitsLoss"
                ]
                if len(created) == 1 and isinstance(created[0], ast.Attribute):
                    owner = text_of(program, created[0].value)
                    changes = [(created[0], f"{owner}.BCELoss"), (call.args[0], f"({text_of(program, call.args[0])}).sigmoid()")]
                    yield program.replace_all(changes, span(call) | span(created[0]))


@kind("loss taken outside the region", "MP202", "MP211", alone=lambda program: True)
def loss_outside(program: Program) -> Iterator[Mutant]:
    made = losses(program)
    for region in regions(program):
        last = region.body[-1]
        if len(region.body) < 2 or not isinstance(last, ast.Assign) or not isinstance(last.value, ast.Call) or not last.value.args:
            continue
        name = dotted(last.value.func)
        known = made.get(name) in ("CrossEntropyLoss", "BCEWithLogitsLoss", "NLLLoss") or re.fullmatch(
            r"(F|nn\.functional|torch\.nn\.functional)\.(cross_entropy|binary_cross_entropy_with_logits)", name
        )  # a distance to a target in float32 is in float32 anyway
        output = text_of(program, last.value.args[0])
        given = any(
            isinstance(s, ast.Assign) and text_of(program, s.targets[0]) == output and isinstance(s.value, ast.Call) for s in region.body
        )
        trained = calls_of(function_of(program, region), "backward", "scale")
        if known and given and trained and not FORCED.search(text_of(program, region)):
            lines = list(program.lines)
            indent = program.indent(region)
            width = len(program.indent(last)) - len(indent)
            for n in sorted(span(last)):
                lines[n - 1] = lines[n - 1][width:]
            yield Mutant("\n".join(lines), span(last))


@kind("custom_fwd dropped", "MP208")
def custom_fwd(program: Program) -> Iterator[Mutant]:
    for node in program.nodes:
        if isinstance(node, ast.ClassDef) and any(last_name(base) == "Function" for base in node.bases):
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
            decorators = [
                d
                for m in methods
                for d in m.decorator_list
                if last_name(d.func if isinstance(d, ast.Call) else d) in ("custom_fwd", "custom_bwd")
            ]
            matrix_work = re.search(r"matmul|\bmm\(|linear\(|conv\dd\(|einsum| @ |bmm", ast.unparse(node))
            if decorators and matrix_work and program.facts.scaled:
                changes: list[tuple[ast.AST, str]] = [(d, "(lambda f: f)") for d in decorators]
                yield program.replace_all(changes, span(node))


@kind("trained model cast to half", "MP105 MP210", "MP301 MP309")
def model_in_half(program: Program) -> Iterator[Mutant]:
    if not program.facts.scaled:
        return
    for statement in statements(program):
        name = moved_model(program, statement)
        around = function_of(program, statement)
        trained = [
            c for c in ast.walk(around) if isinstance(c, ast.Call) and c.args and text_of(program, c.args[0]) == f"{name}.parameters()"
        ]
        later = [c for c in trained if c.lineno > statement.lineno and re.search(r"optim|Adam|SGD|Lion", dotted(c.func))]
        if name and later:
            made = program.append(statement, f"{name}.half()")
            yield Mutant(made.text, made.lines | spans(later) | {n + 1 for n in spans(later)}, made.inserted, made.count)


def moved_model(program: Program, statement: ast.stmt) -> str:
    """The model that a statement moves to its device."""
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
        owner = text_of(program, value.func.value)
        same = isinstance(statement, ast.Expr) or text_of(program, statement.targets[0]) == owner
        return owner if same and re.fullmatch(r"(self\.)?\w*(model|net)\w*", owner) else ""
    return ""


@kind("positions in half", "MP212")
def positions(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "arange"):
        owner = program.parents.get(function_of(program, call))
        limit = (
            re.search(r"max_\w*(len|length|positions?|seq_len)\w*\s*(:\s*int)?\s*=\s*(\d{4,})", text_of(program, owner))
            if isinstance(owner, ast.ClassDef)
            else None
        )
        for keyword in call.keywords:
            if (
                keyword.arg == "dtype"
                and text_of(program, keyword.value) in ("torch.float", "torch.float32")
                and limit
                and int(limit[3]) > 2048
            ):
                yield program.replace(keyword.value, "torch.float16", span(call))
