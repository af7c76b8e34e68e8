"""What stands in the way of mixed precision, with what to do about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from mplint.adopt.execution import Execution
from mplint.adopt.torch.losses import NUMBERS
from mplint.adopt.torch.models import Models, is_half
from mplint.adopt.torch.passages import DIFFERENTIATED, Passage, keeps_graph
from mplint.findings import Change
from mplint.program.values import ANY, DOUBLE, Tensor, Unknown
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import Function, argument, words_of
from mplint.recipes.float32 import float32_tensor
from mplint.recipes.scaler.plan import NoFix

# Packages whose engine runs the backward pass, and what to set there.
ENGINES = {
    "deepspeed": 'DeepSpeed runs the training: set `"{section}": {{"enabled": true}}` in its configuration',
    "colossalai": "ColossalAI runs the training: set the precision of its plugin",
    "apex": "apex takes part in the training: `mplint fix` replaces `apex.amp`",
    "torch_xla": "XLA compiles the training: use `torch_xla.amp` there",
}
SHARDS = (
    "torch.distributed.fsdp",
    "torch.distributed._composable.fsdp",
    "torch.distributed.tensor",
    "torch.distributed._tensor",
    "fairscale",
)
HIGHER = ("learn2learn", "higher", "functorch", "torchopt")
SPARSE_PRODUCTS = frozenset({"torch.spmm", "torch.sparse.mm", "torch.sparse.addmm", "torch.smm", "torch.hspmm"})
SPARSE = re.compile(r"\.to_sparse\w*\(|\btorch\.sparse\.|\bsparse_\w+_tensor\(")
NO_HALF = re.compile(
    r"torch\.(linalg\.(inv|inv_ex|solve|cholesky|svd|qr|eigh?|eigvalsh?|det|slogdet|lstsq|pinv|matrix_exp)"
    r"|inverse|cdist|svd|cholesky|cholesky_solve|qr|det|logdet|slogdet|quantile|lu|lu_solve|pinverse|matrix_exp)"
)
COMPLEX = re.compile(r"\btorch\.fft\.|\btorch\.i?stft\(|\bview_as_complex\(|\btorch\.complex\(|\bcomplex64\b")
IN_DOUBLE = "the program computes in float64, which autocast leaves as it is: go to float32 first"
DOUBLE_TEXT = re.compile(r"set_default_dtype\(\s*torch\.(float64|double)|DoubleTensor")


def of_program(execution: Execution, policy: str) -> None:
    """Raise NoFix for what concerns all loops of the program."""
    file = execution.file
    if (pinned := execution.targets.torch) is not None and pinned.below("1.6"):
        raise NoFix(f"the project pins torch {pinned.requirement()}, which has no autocast: move to a later one first")
    imported = imports(file)
    roots = {name.partition(".")[0] for name in imported}
    for package, reason in ENGINES.items():
        if package in roots:
            raise NoFix(reason.format(section="fp16" if policy == "mixed_float16" else "bf16"))
    if any(name.startswith(SHARDS) for name in imported):
        half = "float16, and scale the loss with a ShardedGradScaler" if policy == "mixed_float16" else "bfloat16"
        raise NoFix(f"the model is sharded: give `fully_shard` or FSDP a MixedPrecision policy with param_dtype=torch.{half}")
    if any(name.startswith(("torch.distributed.rpc", "torch.distributed.autograd")) for name in imported):
        raise NoFix("the model or its optimizer runs in other processes over RPC: open autocast where the forward pass runs")
    text = code_of(file)
    if re.search(r"fsdp|deepspeed", text, re.I):
        raise NoFix("the model is sharded in another file: choose half precision where that is done")
    if SPARSE.search(text) and multiplies_sparse(execution):
        raise NoFix("the program multiplies sparse tensors, which have no half kernels: keep those products in float32 first")
    if (path := multiplied_elsewhere(execution)) is not None:
        raise NoFix(f"`{path}` multiplies sparse tensors, which have no half kernels: keep those products in float32 first")
    if COMPLEX.search(text):
        raise NoFix("the program computes with complex numbers or FFTs, which half does not reach: keep those parts in float32 first")
    if DOUBLE_TEXT.search(text):
        raise NoFix(IN_DOUBLE)


def of_passages(models: Models, passages: Sequence[Passage]) -> None:
    """Raise NoFix where a forward pass computes in float64."""
    execution, syntax = models.execution, models.file.syntax
    waiting: list[ast.AST] = [s for p in passages for s in syntax.block(p.first) if position(p.first) <= position(s) <= position(p.last)]
    done: set[ast.AST] = set()
    while waiting:
        node = waiting.pop()
        if node in done:
            continue
        done.add(node)
        for item in ast.walk(node):
            if isinstance(item, ast.Name) and any(type(atom) is Tensor and atom.dtypes == {DOUBLE} for atom in execution.values(item)):
                raise NoFix(IN_DOUBLE)
            if isinstance(item, ast.Call):
                if isinstance(item.func, ast.Attribute) and item.func.attr == "double" and not counts(execution, item.func.value):
                    raise NoFix(IN_DOUBLE)
                waiting += execution.functions(item)


def counts(execution: Execution, node: ast.expr) -> bool:
    """Whether an expression gives integers or truth values: what is counted in float64 is no part of a forward pass."""
    found = execution.values(node)
    return bool(found) and all(type(atom) is Tensor and atom.dtypes <= NUMBERS for atom in found)


def imports(file: SourceFile) -> frozenset[str]:
    """Dotted names of everything that the file imports."""
    found = {f"{i.module or ''}.{a.name}" for i in file.syntax.all(ast.ImportFrom) if not i.level for a in i.names}
    return frozenset(found | {a.name for i in file.syntax.all(ast.Import) for a in i.names})


def of_models(execution: Execution) -> None:
    """Raise NoFix for what the models and loops of the program do that half does not allow."""
    for _, event in execution.events("module cast"):
        node = execution.node(event.place)
        letters = event.data["dtypes"]
        if isinstance(letters, frozenset) and letters == {DOUBLE}:
            raise NoFix(IN_DOUBLE)
        if isinstance(node, ast.Call) and isinstance(letters, frozenset) and letters & {"h", "b"}:
            raise NoFix(f"`{execution.file.text(node)}` casts the model as a whole: mixed precision keeps its weights in float32")


def without_half_kernel(execution: Execution) -> tuple[list[Change], list[ast.Call]]:
    """The casts of what goes in half precision into operations without a half kernel, and the calls where it is not clear what goes in."""
    changes: list[Change] = []
    unclear: list[ast.Call] = []
    file = execution.file
    for call in file.syntax.all(ast.Call):
        if not call.args or not any(NO_HALF.fullmatch(name) for name in file.names.candidates(call.func)):
            continue
        for given in call.args:
            found = execution.values(given)
            if any(is_half(atom) for atom in found):
                changes.append(float32_tensor(file, given))
            elif any(type(atom) is Unknown or (type(atom) is Tensor and atom.dtypes == {ANY}) for atom in found) and not is_cast(call):
                unclear += [call] if any(work.covered for work in execution.own_work(call)) else []
    return changes, unclear


def is_cast(call: ast.Call) -> bool:
    """Whether autocast itself gives an operation without a half kernel float32."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "cdist"


def multiplies_sparse(execution: Execution) -> bool:
    """Whether sparse tensors may get to a model: made beside its calls or its layers, or handed out by a function."""
    models, file = Models(execution), execution.file
    for call in file.syntax.all(ast.Call):
        if not SPARSE.search(file.text(call) + "("):
            continue
        home = file.syntax.function(call)
        if home is None or isinstance(file.syntax.statement(call), ast.Return) or file.syntax.enclosing_class(call) is not None:
            return True
        if any(models.runs_model(s) for s in home.body) or is_returned(file, home, call):
            return True
    return False


def multiplied_elsewhere(execution: Execution) -> str | None:
    """Another file that runs with the program and multiplies by sparse matrices in its models."""
    for path in execution.run_with:
        file = execution.trace.file(path)
        if file is not None and any(
            name in SPARSE_PRODUCTS for call in file.syntax.all(ast.Call) for name in file.names.candidates(call.func)
        ):
            return path
    return None


def is_returned(file: SourceFile, function: Function, call: ast.Call) -> bool:
    """Whether a function returns what a call gives, by its name."""
    values = [s.value for s in ast.walk(function) if isinstance(s, ast.Return) and s.value is not None]
    names = [n for value in values for n in ast.walk(value) if isinstance(n, ast.Name)]
    return any(binding.value is call for name in names for binding in file.names.reaching(name))


def code_of(file: SourceFile) -> str:
    """The program's text without its comments and docstrings."""
    told = [s for s in file.syntax.all(ast.Expr) if isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)]
    numbers = {number for s in told for number in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
    return "\n".join(line.partition("#")[0] for number, line in enumerate(file.lines, 1) if number not in numbers)


def of_backward(execution: Execution, backward: ast.Call, policy: str, inside: Sequence[ast.stmt] = ()) -> None:
    """Raise NoFix for what concerns one backward pass; `inside`: the statements that compute its loss, as far as they are in sight."""
    file = execution.file
    function = file.syntax.function(backward)
    if function is not None and any("compile" in file.text(d) or "jit" in file.text(d) for d in function.decorator_list):
        raise NoFix(f"`{function.name}` is compiled as a whole: compile the model and leave the step out of it")
    if not execution.callees(backward):
        raise NoFix("mplint can't follow the program up to here: open `torch.autocast` where its model runs")
    if execution.leaves(backward) and not execution.at(backward, "backward"):
        raise NoFix("its backward pass is a function of another file: adopt mixed precision there")
    given = argument(backward, "gradient", 0)
    owner = backward.func.value if isinstance(backward.func, ast.Attribute) else backward
    unknown = {type(atom) for atom in execution.values(owner)} <= {Unknown}
    if given is not None and argument(backward, "gradient") is None and unknown:
        raise NoFix(f"`{file.text(owner)}` runs the backward pass: choose half precision where that is made")
    if policy == "mixed_bfloat16":
        return
    if given is not None and (source := made_of_gradients(execution, given)) is not None:
        raise NoFix(
            f"the backward pass is given gradients that `{file.text(source)}` holds, which are scaled already where their loss is: scale "
            "one of both by hand; mixed_bfloat16 needs no scaling"
        )
    if (closure := closure_step(execution, backward)) is not None:
        raise NoFix(
            f"`{file.text(closure)}` runs the backward pass in a closure, and GradScaler takes no closures: "
            "mixed_bfloat16 needs no scaler, or step without one"
        )
    if (odd := odd_step(execution, backward)) is not None:
        raise NoFix(f"`{odd}` takes gradients that a scaler would scale, in a way of its own: mixed_bfloat16 needs no scaler")
    if (update := update_by_hand(file, function)) is not None:
        raise NoFix(f"`{update}` changes weights by hand, by gradients that a scaler would scale: let an optimizer do it")
    if differentiates_twice(execution, backward, inside):
        raise NoFix(DIFFERENTIATED)
    if (taken := gradients_inside(execution, inside)) is not None:
        raise NoFix(
            f"`{file.text(taken.func)}` takes gradients of float16 work inside of what this loss is made of, and nothing scales them: "
            "mixed_bfloat16 needs no scaling, or scale their loss by hand and divide them by the scale"
        )


def made_of_gradients(execution: Execution, given: ast.expr, depth: int = 0) -> ast.expr | None:
    """The gradients of another backward pass that what a backward pass is given is made of."""
    for node in ast.walk(given):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and not ast.unparse(node.value).endswith(("autograd", "torch")):
            return node
        if isinstance(node, ast.Call) and execution.leads_to(node, "gradients taken", "backward"):
            return node
        for binding in execution.file.names.reaching(node) if isinstance(node, ast.Name) and depth < 4 else ():
            if binding.value is not None and (found := made_of_gradients(execution, binding.value, depth + 1)) is not None:
                return found
    return None


def closure_step(execution: Execution, backward: ast.Call) -> ast.Call | None:
    """The optimizer's step that runs the backward pass as its closure."""
    for event in execution.at(backward, "backward"):
        for place in event.calls:
            node = execution.node(place)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and execution.at(node, "optimizer step"):
                return node
    return None


def odd_step(execution: Execution, backward: ast.Call) -> str | None:
    """A step of another name that the function of a backward pass has its optimizer take besides the usual one."""
    file = execution.file
    home = file.syntax.function(backward)
    called = [c for c in file.syntax.all(ast.Call) if isinstance(c.func, ast.Attribute) and file.syntax.function(c) is home]
    stepped = {ast.unparse(c.func.value) for c in called if c.func.attr == "step"}  # type: ignore[attr-defined]
    for call in called:
        match call.func:
            case ast.Attribute(value=value, attr=attr) if attr != "step" and "step" in words_of(attr) and ast.unparse(value) in stepped:
                return file.text(call)
    return None


def update_by_hand(file: SourceFile, function: Function | None) -> str | None:
    """The statement that changes weights by their gradients."""
    for node in file.syntax.all(ast.Attribute):
        if node.attr != "grad" or not isinstance(node.ctx, ast.Load) or file.syntax.function(node) is not function:
            continue
        match file.syntax.statement(node):
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr="add_" | "sub_" | "copy_" | "addcdiv_" | "addcmul_"))) as s:
                if not of_gradients(target):
                    return file.text(s)
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=value) as s if not of_gradients(target):
                if not any(isinstance(n, ast.Call) for n in ast.walk(value)):
                    return file.text(s)
            case ast.Assign(targets=[ast.Attribute(attr="data") | ast.Name()], value=ast.BinOp()) as s:
                return file.text(s)
    return None


def of_gradients(node: ast.AST) -> bool:
    """Whether an expression is a gradient, or is made of one (`autograd.grad` is a function)."""
    attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr == "grad"]
    return any(not ast.unparse(n.value).endswith(("autograd", "torch")) for n in attributes)


def differentiates_twice(execution: Execution, backward: ast.Call, inside: Sequence[ast.stmt]) -> bool:
    """Whether gradients are kept for a second differentiation in a way that adoption can't keep in float32."""
    roots = {name.partition(".")[0] for name in imports(execution.file)}
    if roots & set(HIGHER):
        return True
    flag = argument(backward, "create_graph")
    if flag is not None and not (isinstance(flag, ast.Constant) and flag.value is False):
        return True
    nodes = {node for statement in inside for node in ast.walk(statement)}
    for _, event in execution.events("gradients taken"):
        if keeps_graph(event) and execution.node(event.place) is None:
            chain = [node for place in event.calls if (node := execution.node(place)) is not None]
            if not nodes or not nodes.isdisjoint(chain):
                return True
    return False


def gradients_inside(execution: Execution, inside: Sequence[ast.stmt]) -> ast.Call | None:
    """The call in some statements that takes gradients of a loss of its own, which are used as they are."""
    nodes = {node for statement in inside for node in ast.walk(statement)}
    for _, event in execution.events("gradients taken"):
        node = execution.node(event.place)
        if isinstance(node, ast.Call) and node in nodes and not keeps_graph(event):
            return node
    return None
