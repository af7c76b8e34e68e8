"""The branches and loop bodies of a program (cond, while_loop, scan): heavy operators in half, and what enters and leaves in float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from mplint.conversion.policy import Options
from mplint.conversion.torch.operators import HEAVY, RECURRENT, base_name
from mplint.conversion.torch.program import is_float, names_of
from mplint.conversion.torch.run import flat_run
from mplint.conversion.torch.samples import Sample

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class Bodies(NamedTuple):
    """How many heavy operators in the bodies of a program are half now, and the casts that this took."""

    half: int = 0
    casts: int = 0


class Inside(NamedTuple):
    """What says how bodies turn to half: the user's options, and the names of those that no sample runs."""

    options: Options
    unseen: frozenset[str] = frozenset()


def bodies(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """The graphs within a graph."""
    return (inner for inner in module.modules() if isinstance(inner, fx.GraphModule) and inner is not module)


def heavy_within(module: fx.GraphModule) -> int:
    """How many heavy operators the bodies of a graph have."""
    nodes = (node for body in bodies(module) for node in body.graph.nodes)
    return sum(node.op == "call_function" and base_name(node.target) in HEAVY for node in nodes)


def never_taken(program: ExportedProgram, samples: Sequence[Sample]) -> frozenset[str]:
    """The names of the branches of a program's conds that no sample takes."""
    seen: dict[fx.Node, set[bool]] = {}

    def after(node: fx.Node, result: Any) -> Any:
        for user in node.users:
            if str(user.target) == "cond" and user.args[0] is node:
                seen.setdefault(user, set()).add(bool(result))
        return result

    for sample in samples:
        flat_run(program, sample, after)
    pairs = ((node.args[1 if side else 2], taken, side) for node, taken in seen.items() for side in (True, False))
    return frozenset(str(branch.target) for branch, taken, side in pairs if side not in taken and isinstance(branch, fx.Node))


def turned(module: fx.GraphModule, half: torch.dtype, options: Options, unseen: Collection[str] = ()) -> Bodies:
    """Put the heavy operators of the bodies of a graph in half, each with casts around it; what enters and leaves a body keeps its type.

    Bodies that are `unseen` stay as they are.
    """
    count = casts = 0
    left = {id(inner) for name in unseen for inner in module.get_submodule(name).modules()}
    for body in bodies(module):
        if id(body) in left:
            continue
        made: dict[fx.Node, fx.Node] = {}
        for node in list(body.graph.nodes):
            if node.op != "call_function" or base_name(node.target) not in HEAVY:
                continue
            if base_name(node.target) in RECURRENT or not is_float(node) or options.stays(names_of(node)):
                continue
            for operand in filter(is_float, node.all_input_nodes):
                if operand not in made:
                    made[operand] = _cast(body, operand, half)
                node.replace_input_with(operand, made[operand])
            node.meta["val"] = node.meta["val"].to(half)
            back = _cast(body, node, torch.float32)
            node.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
            count, casts = count + 1, casts + 1
        casts += len(made)
        body.graph.lint()
        body.recompile()
    return Bodies(count, casts)


def _cast(body: fx.GraphModule, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A cast of a value right after it, or after the last input of the body."""
    place = node if node.op != "placeholder" else [one for one in body.graph.nodes if one.op == "placeholder"][-1]
    with body.graph.inserting_after(place):
        made: fx.Node = body.graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
    made.meta = {key: value for key, value in node.meta.items() if key in ("nn_module_stack", "stack_trace", "source_fn_stack")}
    made.meta["val"] = node.meta["val"].to(dtype)
    return made
