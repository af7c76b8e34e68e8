"""Running programs on the CPU to measure them: node by node, and whole with everything that a caller can see."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree

from mplint.conversion.policy import Policy
from mplint.conversion.torch.samples import Sample, leaves
from mplint.limits import FLOAT16_MAX

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Arrays = list[object]
After = Callable[[fx.Node, Any], Any]


def unchanged(_: fx.Node, result: Any) -> Any:
    """What most runs do after a node: nothing."""
    return result


class Runner(fx.Interpreter):
    """Runs the flat graph of a program; `after` sees each node's result and says what its users get.

    It goes through branches and loop bodies (cond, while_loop, scan, map) node by node too.
    """

    def __init__(self, module: fx.GraphModule, after: After = unchanged) -> None:
        super().__init__(module)
        self.after = after

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        return self.after(n, super().run_node(n))

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator; one that runs graphs of its own, within this runner."""
        if isinstance(target, torch._ops.HigherOrderOperator) and not kwargs:
            name = str(target)
            if name == "cond":
                taken, branch, other, operands = args
                return self._inner(branch if taken else other, *operands)
            if name == "while_loop":
                going, body, carried, rest = args
                while self._inner(going, *carried, *rest):
                    carried = self._inner(body, *carried, *rest)
                return tuple(carried)
            if name in ("scan", "map_impl") and (many := args[-2]) and len(many[0]):
                state = list(args[1]) if name == "scan" else []
                rows = []
                for row in zip(*many, strict=True):
                    found = self._inner(args[0], *state, *row, *args[-1])
                    state, made = list(found[: len(state)]), found[len(state) :]
                    rows.append(made)
                return [*state, *map(torch.stack, zip(*rows, strict=True))]
        return super().call_function(target, args, kwargs)

    def _inner(self, body: fx.GraphModule, *operands: Any) -> Any:
        return type(self)(body, self.after).run(*operands)


def flat_inputs(program: ExportedProgram, sample: Sample) -> list[Any]:
    """The values of the graph's placeholders: parameters, buffers, constants, what the caller gives."""
    given = iter(leaves(program, sample))
    found: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            found.append(next(given))
        elif spec.target in program.state_dict:
            held = program.state_dict[spec.target].detach()
            found.append(held.clone() if spec.kind.name == "BUFFER" else held)
        elif spec.target in program.constants:
            constant = program.constants[spec.target]
            found.append(constant.clone() if isinstance(constant, torch.Tensor) else constant)
        else:
            found.append(torch.empty(0))  # a token that orders operators with effects
    return found


def flat_run(program: ExportedProgram, sample: Sample, after: After = unchanged, runner: type[Runner] = Runner) -> Arrays:
    """The graph's outputs, those that go into buffers and inputs included; the program and the sample stay as they are."""
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        outputs = runner(program.graph_module, after).run(*flat_inputs(program, sample.copy()))
    return arrays(outputs)


def largest(program: ExportedProgram, samples: Iterable[Sample]) -> dict[str, float]:
    """The largest |value| that each operation of the graph gives on the samples, by name."""
    found: dict[str, float] = {}

    def after(node: fx.Node, result: Any) -> Any:
        if node.graph is program.graph and isinstance(result, torch.Tensor) and result.is_floating_point() and result.numel():
            size = float(result.detach().abs().max())
            found[node.name] = max(found.get(node.name, 0.0), size if not math.isnan(size) else math.inf)
        return result

    for sample in samples:
        flat_run(program, sample, after)
    return found


class Seen(NamedTuple):
    """What a caller sees of a run: the values, and the dtypes of the tensors among them."""

    values: Arrays
    dtypes: list[torch.dtype]


def caller(program: ExportedProgram) -> Callable[[Sample], Seen]:
    """What runs a program on a sample as its caller would.

    Seen are the outputs, and afterwards the inputs and the buffers that changed. The program's buffers get their old values back.
    """
    module = program.module(check_guards=False)

    def call(sample: Sample) -> Seen:
        before = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
        own = sample.copy()
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            outputs = module(*own.args, **own.kwargs)
            changed = {name: buffer for name, buffer in sorted(module.named_buffers()) if not torch.equal(buffer, before[name])}
            seen = (outputs, {name: buffer.detach().clone() for name, buffer in changed.items()}, own.args, own.kwargs)
            for name, buffer in changed.items():
                buffer.copy_(before[name])
        return Seen(arrays(seen), [leaf.dtype for leaf in _pytree.tree_leaves(seen) if isinstance(leaf, torch.Tensor)])

    return call


def arrays(outputs: Any) -> Arrays:
    """The tensors and numbers in outputs, as NumPy has them."""
    found: Arrays = []
    for leaf in _pytree.tree_leaves(outputs):
        if isinstance(leaf, torch.Tensor):
            found.append(array(leaf.detach()))
        elif isinstance(leaf, bool | int | float):
            found.append(np.asarray(leaf))
    return found


def array(tensor: torch.Tensor) -> Any:
    """A tensor as NumPy has it, which knows no bfloat16; a complex one as pairs."""
    plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return (plain.float() if plain.dtype in (torch.float16, torch.bfloat16) else plain).numpy(force=True)


def half_of(policy: Policy) -> torch.dtype:
    """The half dtype of a policy."""
    return torch_half(policy.half)


def torch_half(name: str) -> torch.dtype:
    """A half dtype by its name."""
    return torch.float16 if name == "float16" else torch.bfloat16


def in_half(tensor: torch.Tensor, half: torch.dtype) -> torch.Tensor:
    """A tensor stored in half. Finite numbers beyond the range become the largest finite one: a mask of -1e9 stays a mask."""
    if half != torch.float16:
        return tensor.to(half)
    return torch.where(tensor.isfinite(), tensor.clamp(-FLOAT16_MAX, FLOAT16_MAX), tensor).to(half)


def cast(value: Any, source: torch.dtype, target: torch.dtype) -> Any:
    """The tensors of dtype `source` in a structure as `target`, and the dtype itself where it is an argument."""

    def one(leaf: Any) -> Any:
        if leaf is source:
            return target
        return leaf.to(target) if isinstance(leaf, torch.Tensor) and leaf.dtype == source else leaf

    return _pytree.tree_map(one, value)
