"""The branches and loop bodies of a program (cond, while_loop, scan): heavy operators in half, and what enters and leaves in float32."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import fx

from mplint.conversion.policy import Options, Policy
from mplint.conversion.torch.operators import HEAVY, RECURRENT, base_name
from mplint.conversion.torch.program import is_float, names_of


class Bodies(NamedTuple):
    """The heavy operators in the bodies of a program that are half now, and the casts that this took."""

    halves: tuple[fx.Node, ...] = ()
    casts: int = 0


def heavy_within(module: fx.GraphModule) -> dict[str, fx.Node]:
    """The heavy operators that the bodies of a graph have, by the names of the bodies and their own."""
    found: dict[str, fx.Node] = {}
    for path, body in module.named_modules():
        if body is not module and isinstance(body, fx.GraphModule):
            nodes = (node for node in body.graph.nodes if node.op == "call_function" and base_name(node.target) in HEAVY)
            found |= {f"{path}.{node.name}": node for node in nodes}
    return found


def staying(module: fx.GraphModule, policy: Policy, options: Options, largest: Mapping[fx.Node, float]) -> dict[str, str]:
    """Why heavy operators in the bodies of a graph stay float32, by their names.

    `largest` says how large each tensor gets that a sample makes, with a margin: those of a body that none runs are not there.
    """
    found: dict[str, str] = {}
    for name, node in heavy_within(module).items():
        if base_name(node.target) in RECURRENT or not is_float(node):
            found[name] = "in a body it has no half form"
        elif asked := options.stays(names_of(node)):
            found[name] = asked
        elif node not in largest:
            found[name] = "no sample runs it"
        else:
            sizes = {one.name: largest.get(one, 0.0) for one in (node, *filter(is_float, node.all_input_nodes))}
            most = max(sizes, key=lambda one: sizes[one])
            if sizes[most] > policy.largest:
                found[name] = f"{most} may reach {sizes[most]:.3g}, beyond the {policy.largest:.5g} of {policy.half}"
    return found


def turned(module: fx.GraphModule, half: torch.dtype, stays: Collection[str]) -> Bodies:
    """Put the heavy operators of the bodies of a graph in half but those that stay, each with casts around it.

    What enters and leaves a body keeps its type.
    """
    halves: list[fx.Node] = []
    casts: dict[fx.Node, fx.Node] = {}
    for name, node in heavy_within(module).items():
        if name in stays:
            continue
        for operand in filter(is_float, node.all_input_nodes):
            if operand not in casts:
                casts[operand] = _cast(operand, half)
            node.replace_input_with(operand, casts[operand])
        node.meta["val"] = node.meta["val"].to(half)
        users = list(node.users)
        back = _cast(node, torch.float32)
        for user in users:
            user.replace_input_with(node, back)
        halves.append(node)
    for body in module.modules():
        if body is not module and isinstance(body, fx.GraphModule):
            body.graph.lint()
            body.recompile()
    return Bodies(tuple(halves), len(casts) + len(halves))


def _cast(node: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A cast of a value right after it, or after the last input of the body."""
    place = node if node.op != "placeholder" else [one for one in node.graph.nodes if one.op == "placeholder"][-1]
    with node.graph.inserting_after(place):
        made: fx.Node = node.graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
    made.meta = {key: value for key, value in node.meta.items() if key in ("nn_module_stack", "stack_trace", "source_fn_stack")}
    made.meta["val"] = node.meta["val"].to(dtype)
    return made
