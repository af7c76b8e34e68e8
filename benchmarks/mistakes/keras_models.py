"""Mistakes of Keras and TensorFlow: policies, layers and loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from mistakes.reach import computed, forward_of
from mistakes.sources import (
    Mutant,
    Program,
    always,
    blocks,
    calls_of,
    class_of,
    dotted,
    first_line,
    function_of,
    kinds_of,
    last_name,
    span,
    spans,
    text_of,
)

SETTERS = ("set_global_policy", "set_dtype_policy")
WIDE = frozenset(("Dense", "Conv1D", "Conv2D", "Conv3D"))


def sets_policy(program: Program) -> bool:
    """Whether the file sets a policy by itself."""
    return any(calls_of(program, *SETTERS))


def has_tape(program: Program) -> bool:
    """Whether the loop stands in the file."""
    return "tape" in program.text


training = kinds_of("training", has_tape, "policy")
numerics = kinds_of("numerics", sets_policy, "policy")
api = kinds_of("api", always)
shapes = kinds_of("shapes", sets_policy, "policy")


@training("scaled loss dropped", "MP301 MP302 MP313", "MP308")
def scaled_loss(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "get_scaled_loss", "scale_loss") if program.facts.wrapped else ():
        if isinstance(node.func, ast.Attribute) and len(node.args) == 1 and last_name(node.func.value) != "amp":
            yield taken_out(program, node, "apply_gradients", "gradient", "get_unscaled_gradients")


@training("gradients left scaled", "MP302", "MP304")
def left_scaled(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "get_unscaled_gradients") if program.facts.wrapped else ():
        if len(node.args) == 1:
            yield taken_out(program, node, "apply_gradients")


def taken_out(program: Program, node: ast.Call, *names: str) -> Mutant:
    """What is given in the place of a call; a finding is right at these calls, in other files where the function has none."""
    around = calls_of(function_of(program, node), *names)
    made = program.replace(node, text_of(program, node.args[0]), span(node) | spans(around))
    return made if calls_of(function_of(program, node), "apply_gradients") else replace(made, calls=names)


@training("loss scaled by two optimizers", "MP308", "MP102", alone=always)
def scaled_twice(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "LossScaleOptimizer"):
        if len(node.args) == 1 and not node.keywords:
            made = text_of(program, node)
            yield program.replace(node.args[0], made, span(node))


@training("optimizer no longer wrapped", "MP301", "MP115")
def unwrapped(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "LossScaleOptimizer"):
        loops = calls_of(program, "get_scaled_loss", "get_unscaled_gradients")
        if len(node.args) == 1 and not loops and calls_of(program, "apply_gradients") and program.mixed:
            yield program.replace(
                node, text_of(program, node.args[0]), spans(calls_of(program, "apply_gradients", "gradient")) | span(node)
            )


@numerics("float32 of the output dropped", "MP201")
def output_dtype(program: Program) -> Iterator[Mutant]:
    if not program.mixed:
        return
    for node in calls_of(program, "Dense", "Activation"):
        for keyword in node.keywords:
            named = keyword.arg == "dtype" and isinstance(keyword.value, ast.Constant) and keyword.value.value == "float32"
            if named and program.in_half(node):
                yield program.replace(keyword.value, "None", span(node))


def layer_places(program: Program) -> Iterator[tuple[ast.Assign, str]]:
    """The statements of layers' `call` after which a name is half under the project's policy."""
    if not program.mixed or not re.search(r"^import tensorflow as tf\b", program.text, re.M):
        return
    for node in program.nodes:
        if isinstance(node, ast.ClassDef) and any(last_name(base) in ("Layer", "Model") for base in node.bases) and program.in_half(node):
            forward = forward_of(node, "call")
            yield from computed(node, forward, WIDE) if forward is not None else ()


def inserted(program: Program, text: str) -> Iterator[Mutant]:
    """A line behind each of these statements."""
    for statement, name in layer_places(program):
        yield program.append(statement, text.format(x=name))


@numerics("mask beyond float16 in a layer", "MP204")
def mask(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = {x} + (1.0 - tf.cast({x} > 0, {x}.dtype)) * -1e9")


@numerics("epsilon lost in a layer", "MP205")
def epsilon(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = {x} / (tf.reduce_max(tf.abs({x})) + 1e-8)")


@numerics("float32 tensor in a layer", "MP209")
def float32_tensor(program: Program) -> Iterator[Mutant]:
    yield from inserted(program, "{x} = {x} * tf.random.uniform(tf.shape({x}))")


@numerics("compute dtype written as float32", "MP209")
def literal_dtype(program: Program) -> Iterator[Mutant]:
    for node in program.nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("compute_dtype", "_compute_dtype") and last_name(node.value) == "self":
            call = program.parents.get(node)
            while isinstance(call, ast.keyword):
                call = program.parents.get(call)
            around = function_of(program, node)
            method = isinstance(around, ast.FunctionDef) and around.name == "call" and class_of(program, node) is not None
            method = method and program.in_half(node)
            if (
                method
                and isinstance(call, ast.Call)
                and last_name(call.func) in ("cast", "zeros", "ones", "fill", "constant", "convert_to_tensor", "range")
            ):
                yield program.replace(node, '"float32"', frozenset(range(node.lineno - 3, (around.end_lineno or 0) + 1)))  # type: ignore[attr-defined]


@numerics("input in float16", "MP203")
def half_input(program: Program) -> Iterator[Mutant]:
    if not program.mixed:
        return
    for node in calls_of(program, "Input"):
        if not any(k.arg in ("dtype", "tensor", None) for k in node.keywords) and (node.args or node.keywords) and "keras" in program.text:
            last = node.keywords[-1].value if node.keywords else node.args[-1]
            if not isinstance(last, ast.Starred) and program.in_half(node):
                yield program.replace(last, f'{text_of(program, last)}, dtype="float16"', span(node))


@numerics("weight in float16", "MP210")
def half_weight(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "add_weight"):
        names = {k.arg for k in node.keywords}
        last = node.keywords[-1].value if node.keywords else None
        if last is not None and "keras" in program.text and not names & {"dtype", "trainable", None} and program.in_half(node):
            yield program.replace(last, f'{text_of(program, last)}, dtype="float16"', span(node))


@api("policy in pure float16", "MP105", "MP210 MP201")
def pure_policy(program: Program) -> Iterator[Mutant]:
    for constant in policy_names(program):
        if constant.value == "mixed_float16":
            setting = calls_of(function_of(program, constant), *SETTERS, "set_policy")
            if setting:
                yield program.replace(constant, '"float16"', span(constant) | spans(setting))


@api("policy name misspelled", "MP108", "MP115")
def misspelled(program: Program) -> Iterator[Mutant]:
    for constant in policy_names(program):
        yield program.replace(constant, '"mixed_fp16"')


@api("float16 on a TPU", "MP502")
def tpu(program: Program) -> Iterator[Mutant]:
    if "TPU" in program.text:
        for constant in policy_names(program):
            if constant.value == "mixed_bfloat16":
                yield program.replace(constant, '"mixed_float16"')


def policy_names(program: Program) -> Iterator[ast.Constant]:
    """The names of mixed policies that are given to what sets or makes one."""
    for call in calls_of(program, *SETTERS, "Policy", "DTypePolicy"):
        for node in [n for argument in call.args[:1] for n in ast.walk(argument)]:
            if isinstance(node, ast.Constant) and node.value in ("mixed_float16", "mixed_bfloat16"):
                yield node


@api("removed experimental policy call", "MP102")
def experimental(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "set_global_policy"):
        name = dotted(call.func)
        if name in ("tf.keras.mixed_precision.set_global_policy", "keras.mixed_precision.set_global_policy"):
            yield program.replace(call.func, name.replace(".set_global_policy", ".experimental.set_policy"))


@api("removed graph rewrite", "MP103", "MP115")
def graph_rewrite(program: Program) -> Iterator[Mutant]:
    for call in calls_of(program, "set_global_policy"):
        if dotted(call.func).startswith("tf.") and len(call.args) == 1 and isinstance(call.args[0], ast.Constant):
            yield program.replace(call, 'tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})')


@api("policy set behind the model", "MP106", "MP115", alone=always)
def policy_late(program: Program) -> Iterator[Mutant]:
    for block in blocks(program) if calls_of(program, *SETTERS) else ():
        for number, statement in enumerate(block):
            setting = isinstance(statement, ast.Expr) and calls_of(statement, *SETTERS) and "mixed" in text_of(program, statement)
            later = [s for s in block[number + 1 :] if builds_model(program, s)] if setting else []
            if later and statement.lineno == statement.end_lineno:
                lines = list(program.lines)
                moved = lines[statement.lineno - 1]
                end = later[0].end_lineno or later[0].lineno
                changed = [*lines[: statement.lineno - 1], *lines[statement.lineno : end], moved, *lines[end:]]
                yield Mutant("\n".join(changed), frozenset(range(first_line(later[0]) - 1, end + 1)))


def builds_model(program: Program, statement: ast.stmt) -> bool:
    """Whether a statement makes a layer, or a model of layers, at the level of the block."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    named = isinstance(value, ast.Call) and last_name(value.func) in ("Sequential", "Dense", "Conv2D")
    built = isinstance(value, ast.Call) and re.fullmatch(r"(build|create|make|get)_\w*model\w*", last_name(value.func)) is not None
    return named or built


@api("policy's name as a dtype", "MP116", "MP209")
def name_as_dtype(program: Program) -> Iterator[Mutant]:
    for node in program.nodes:
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "compute_dtype"
            and isinstance(program.parents.get(node), (ast.Call, ast.keyword))
        ):
            owner = text_of(program, node.value)
            call = program.parents[node]
            call = program.parents[call] if isinstance(call, ast.keyword) else call
            if isinstance(call, ast.Call) and last_name(call.func) in ("cast", "astype", "zeros", "ones", "convert_to_tensor", "constant"):
                if owner == "self":
                    yield program.replace(node, "self.dtype_policy.name")
                elif re.search(r"policy(\(\))?$", owner):
                    yield program.replace(node, f"{owner}.name")


@shapes("width not a multiple of 8", "MP401")
def odd_width(program: Program) -> Iterator[Mutant]:
    if not program.mixed:
        return
    widths = [
        (node, first)
        for node in calls_of(program, "Dense", "Conv2D", "Conv1D")
        for first in [*node.args, *(k.value for k in node.keywords if k.arg in ("units", "filters"))][:1]
        if isinstance(first, ast.Constant) and isinstance(first.value, int) and first.value >= 128 and first.value % 8 == 0
        if program.in_half(node)
    ]
    for node, width in sorted(widths, key=lambda pair: -pair[1].value)[:2]:  # type: ignore[operator, arg-type]
        yield program.replace(width, str(int(width.value) - 3), span(node))  # type: ignore[arg-type]


@shapes("vocabulary not a multiple of 8", "MP403")
def odd_vocabulary(program: Program) -> Iterator[Mutant]:
    for node in calls_of(program, "Embedding"):
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, int) and first.value >= 8192 and program.in_half(node):
            yield program.replace(first, str(first.value // 8 * 8 + 5), span(node))
