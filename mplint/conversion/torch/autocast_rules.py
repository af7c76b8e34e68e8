"""What autocast of a device type makes of a program, followed on the CPU: which operators it runs in half, and how far outputs move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree

from mplint.autocast_lists import list_of
from mplint.conversion.distance import Distance
from mplint.conversion.policy import Policy
from mplint.conversion.torch.operators import RECURRENT, base_name
from mplint.conversion.torch.run import Runner, cast, flat_run, half_of
from mplint.conversion.torch.steps import by_steps, is_recurrent
from mplint.conversion.torch.verify import Expected

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(slots=True)
class Ruled:
    """How far outputs are from the original's on each sample, and for each operator on floats whether it computes in half and is listed."""

    distances: list[Distance] = field(default_factory=list)
    operations: list[tuple[fx.Node, bool, bool]] = field(default_factory=list)


def ruled(program: ExportedProgram, policy: Policy, device: str, wanted: Expected) -> Ruled:
    """Run a program as autocast for a device type would: listed operators in half or float32, all others in what they get.

    A heavy operator computes in float32 and stores in half, as tensor cores do. A device type without a list counts as the CPU.
    """
    rules = _rules(device)
    half = half_of(policy)
    found = Ruled()
    seen: dict[fx.Node, tuple[bool, bool]] = {}

    class Follower(Runner):
        def run_node(self, n: fx.Node) -> Any:
            if n.op != "call_function":
                return super().run_node(n)
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            result, listed = _follow(n, args, kwargs, rules, half, type(self))
            if base_name(n.target) != str(n.target) and (_floats((args, kwargs)) or _floats(result)):
                seen[n] = half in _floats(result), listed
            return result

    references = [flat_run(program, sample) for sample in wanted.samples]
    for at, sample in enumerate(wanted.samples):
        found.distances.append(wanted.far(references, at, flat_run(program, sample, runner=Follower)))
    found.operations = [(node, *facts) for node, facts in seen.items()]
    return found


def _follow(node: fx.Node, args: Any, kwargs: Any, rules: dict[str, str], half: torch.dtype, runner: type[Runner]) -> tuple[Any, bool]:
    """The result of an operator under the rules, and whether it is listed as one for float32."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        if "wrap_with_set_grad_enabled" in str(target):
            return runner(args[1]).run(*args[2:]), False
        if isinstance(target, torch._ops.HigherOrderOperator):
            with torch.autocast("cpu", half):
                return target(*args, **kwargs), False
        return target(*args, **kwargs), False
    rule = rules.get(_full_name(target), "")
    if rule == "banned":
        raise NotImplementedError(f"autocast refuses {_full_name(target)}")
    if rule == "lower":
        rounded = cast(_plainly((args, kwargs), torch.float32, half), half, torch.float32)
        result = by_steps(target, rounded[0], half) if is_recurrent(node) and not kwargs else target(*rounded[0], **rounded[1])
        return _plainly(result, torch.float32, half), False
    dtypes = _floats((args, kwargs))
    if rule.startswith("fp32") or (rule == "promote" and torch.float32 in dtypes):
        args, kwargs = _plainly((args, kwargs), half, torch.float32)
        return target(*args, **kwargs), True
    if rule == "" and torch._C._dispatch_has_kernel_for_dispatch_key(_qualified(target), "CompositeImplicitAutograd"):
        with torch.autocast("cpu", half):  # its parts are looked up one by one
            return target(*args, **kwargs), False
    if half not in dtypes:
        return target(*args, **kwargs), False
    try:
        return target(*args, **kwargs), False
    except (RuntimeError, NotImplementedError):  # the CPU has no half kernel where others may have one
        args, kwargs = _plainly((args, kwargs), half, torch.float32)
        result = target(*args, **kwargs)
        return (result if torch.float32 in dtypes else _plainly(result, torch.float32, half)), False


def _plainly(value: Any, source: torch.dtype, target: torch.dtype) -> Any:
    """The tensors of a dtype as another, and nothing else."""
    return _pytree.tree_map(lambda leaf: leaf.to(target) if isinstance(leaf, torch.Tensor) and leaf.dtype == source else leaf, value)


def _floats(value: Any) -> set[torch.dtype]:
    return {leaf.dtype for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.dtype in FLOATS}


def _qualified(target: torch._ops.OpOverload) -> str:
    """As the dispatcher has it: "aten::softmax.int"."""
    return f"aten::{_full_name(target)}"


def _full_name(target: torch._ops.OpOverload) -> str:
    """As the lists have it: "linear", "softmax.int"."""
    name = target._schema.name.partition("::")[2]
    return f"{name}.{target._schema.overload_name}" if target._schema.overload_name else name


def _rules(device: str) -> dict[str, str]:
    """The list that each operator is on, by its name."""
    rules = list_of(device, "cpu")
    if "_thnn_fused_lstm_cell" in rules:  # the fused kernels that recurrent layers end in take everything in half
        rules = rules | {f"{name}.{form}": "lower" for name in RECURRENT for form in ("input", "data")}
    return rules
