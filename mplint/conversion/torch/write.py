"""Writing a plan into a program: casts where precision changes, weights stored in half where only half is asked of them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree

from mplint.conversion.planner import FLOAT
from mplint.conversion.policy import Policy
from mplint.conversion.torch.bodies import Bodies, turned
from mplint.conversion.torch.operators import FORM, base_name
from mplint.conversion.torch.program import Program, fitting, is_float
from mplint.conversion.torch.run import half_of, in_half, torch_half

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class Written(NamedTuple):
    """A program in mixed precision: how many casts it has more, its nodes that compute in half with the results that do and their dtype,
    and its bodies."""

    program: ExportedProgram
    casts: int
    halves: dict[fx.Node, tuple[int, ...]]
    dtypes: dict[fx.Node, torch.dtype]
    bodies: Bodies


def write(program: Program, halves: Sequence[bool], policy: Policy, stays: Collection[str] = ()) -> Written:
    """The program with the operations of `halves` in half; the original stays as it is.

    A weight keeps its name. It is stored in half where every operation that takes it computes in half, and where no other name shares
    its memory in float32; else it stays float32, and one cast serves all. Weights that are stored in half are for inference: an optimizer
    needs the float32 ones of the original. Heavy operators in branches and loop bodies that `stays` names remain
    float32.
    """
    return _Writer(program, halves, policy).written(stays)


def unstorable(program: Program, halves: Sequence[bool], beyond: Sequence[fx.Node]) -> list[fx.Node]:
    """Those of the constants `beyond` the range that the plan would cast in the graph, where they would become infinite."""
    stored = _stored(program, halves)
    return [node for node in beyond if node not in stored and any(halves[number] for number in program.takers.get(node, ()))]


def _stored(program: Program, halves: Sequence[bool]) -> dict[fx.Node, tuple[str, torch.dtype]]:
    """The placeholders that hold half, with their names in the state dict and that dtype: all that share a memory, or none of them."""
    exported = program.exported
    names = {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs if spec.target is not None}
    sharing: dict[int, list[fx.Node]] = {}
    for node in exported.graph.nodes:
        held = _held(exported, names[node.name]) if node.op == "placeholder" and node.name in names else None
        if isinstance(held, torch.Tensor):
            sharing.setdefault(held.untyped_storage()._cdata, []).append(node)
    found: dict[fx.Node, tuple[str, torch.dtype]] = {}
    for nodes in sharing.values():
        takers = [number for node in nodes for number in program.takers.get(node, ())]
        constant = all(program.producers.get(node, FLOAT) is None for node in nodes)
        wanted = {program.half_at(number) if halves[number] else "" for number in takers if number != FLOAT}
        if constant and len(wanted) == 1 and "" not in wanted and FLOAT not in takers:
            found |= {node: (names[node.name], torch_half(*wanted)) for node in nodes}
    return found


def _held(exported: ExportedProgram, name: str) -> object:
    return exported.state_dict[name] if name in exported.state_dict else exported.constants.get(name)


class _Writer:
    def __init__(self, program: Program, halves: Sequence[bool], policy: Policy) -> None:
        self.program, self.halves, self.half = program, halves, half_of(policy)
        self.module = copy.deepcopy(program.exported.graph_module)
        self.nodes: dict[fx.Node, fx.Node] = dict(zip(program.exported.graph.nodes, self.module.graph.nodes, strict=True))
        for old, new in self.nodes.items():
            new.name = old.name  # a copy renames what is called like a builtin ("input"), and signatures go by names
        self.stored = _stored(program, halves)
        self.last = [node for node in self.module.graph.nodes if node.op == "placeholder"][-1:]
        stacks = (node.meta.get("nn_module_stack") for node in self.module.graph.nodes)
        self.root = dict(list(next(filter(None, stacks), {}).items())[:1])  # the module that everything is in
        self.casts: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}

    def written(self, stays: Collection[str]) -> Written:
        made: dict[fx.Node, tuple[int, ...]] = {}
        dtypes: dict[fx.Node, torch.dtype] = {}
        for node, (_, half) in self.stored.items():
            self._turn(self.nodes[node], (0,), half)
        for old, new in self.nodes.items():
            number = self.program.numbers.get(old)
            in_half_now = number is not None and self.halves[number]
            if old.op == "output" or (old.op == "call_function" and base_name(old.target) not in FORM):
                wanted = torch_half(self.program.half_at(number)) if in_half_now and number is not None else torch.float32
                new.args, new.kwargs = fx.map_arg((old.args, old.kwargs), partial(self._version, dtype=wanted))
            if number is not None and in_half_now:
                outputs, half = self.program.operations[number].outputs, torch_half(self.program.half_at(number))
                new.args, new.kwargs = fitting(new, _retargeted(new, half), half)
                self._turn(new, outputs, half)
                made[new], dtypes[new] = outputs, half
        self.module.graph.lint()
        self.module.recompile()
        found = turned(self.module, self.half, stays)
        made |= dict.fromkeys(found.halves, (0,))
        dtypes |= dict.fromkeys(found.halves, self.half)
        return Written(self._exported(), len(self.casts) + found.casts, made, dtypes, found)

    def _turn(self, node: fx.Node, outputs: tuple[int, ...], half: torch.dtype) -> None:
        """Write into a node's description that these of its results are half."""
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            node.meta["val"] = value.to(half) if 0 in outputs else value
        elif isinstance(value, tuple | list):
            node.meta["val"] = type(value)(part.to(half) if at in outputs else part for at, part in enumerate(value))
            for user in node.users:
                if user.args[1] in outputs:
                    user.meta["val"] = user.meta["val"].to(half)
        node.meta.pop("tensor_meta", None)

    def _dtype(self, old: fx.Node) -> torch.dtype:
        """The dtype in which the written program has a float32 value of the original."""
        number = self.program.producers.get(old)
        if number is not None:
            return torch_half(self.program.half_at(number)) if self.halves[number] else torch.float32
        return self.stored[old][1] if old in self.stored else torch.float32

    def _version(self, old: fx.Node, dtype: torch.dtype) -> fx.Node:
        """The node that holds a value of the original in a precision; a new cast where there is none yet."""
        node = self.nodes[old]
        if not is_float(old) or old not in self.program.producers or self._dtype(old) == dtype:
            return node
        if (node, dtype) not in self.casts:
            place = self.last[0] if node.op == "placeholder" else node
            with self.module.graph.inserting_after(place):
                made: fx.Node = self.module.graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
            made.meta = {key: value for key, value in node.meta.items() if key in ("nn_module_stack", "stack_trace", "source_fn_stack")}
            made.meta.setdefault("nn_module_stack", self.root)
            made.meta["val"] = node.meta["val"].to(dtype)
            self.casts[node, dtype] = made
        found: fx.Node = self.casts[node, dtype]
        return found

    def _exported(self) -> ExportedProgram:
        original = self.program.exported
        outputs = next(node for node in reversed(self.module.graph.nodes) if node.op == "output").args[0]
        specs = []
        for spec, node in zip(original.graph_signature.output_specs, outputs, strict=True):
            renamed = isinstance(node, fx.Node) and hasattr(spec.arg, "name")
            specs.append(dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=node.name)) if renamed else spec)
        signature = type(original.graph_signature)(list(original.graph_signature.input_specs), specs)
        return type(original)(
            root=self.module,
            graph=self.module.graph,
            graph_signature=signature,
            state_dict=self._converted(original.state_dict),
            range_constraints=copy.deepcopy(original.range_constraints),
            module_call_graph=copy.deepcopy(original.module_call_graph),
            example_inputs=original.example_inputs,
            constants=self._converted(original.constants),
            verifiers=original.verifiers,
        )

    def _converted(self, held: dict[str, Any]) -> dict[str, Any]:
        """Parameters or constants with those in half that are stored so; what shared memory shares it again."""
        turned = [(_held(self.program.exported, name), half) for name, half in self.stored.values()]
        storages = {value.untyped_storage()._cdata: half for value, half in turned if isinstance(value, torch.Tensor)}
        made: dict[object, torch.Tensor] = {}
        found = dict(held)
        for name, value in held.items():
            if not isinstance(value, torch.Tensor) or value.untyped_storage()._cdata not in storages or value.dtype != torch.float32:
                continue
            key = (value.untyped_storage()._cdata, value.storage_offset(), value.shape, value.stride())
            if key not in made:
                half = in_half(value.detach(), storages[value.untyped_storage()._cdata])
                made[key] = torch.nn.Parameter(half, requires_grad=value.requires_grad) if isinstance(value, torch.nn.Parameter) else half
            found[name] = made[key]
        return found


def _retargeted(node: fx.Node, half: torch.dtype) -> Any:
    """The arguments of a node with half for float32."""
    found = _pytree.tree_map(lambda leaf: half if leaf is torch.float32 else leaf, (list(node.args), dict(node.kwargs)))
    return tuple(found[0]), found[1]
