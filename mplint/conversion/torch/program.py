"""A functional program of torch.export as the planner sees it: which operators can turn to half, and which tensors flow between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree

from mplint.conversion import planner
from mplint.conversion.planner import FLOAT, HEAVY_GAIN, LIGHT_GAIN
from mplint.conversion.policy import Options, Policy
from mplint.conversion.torch.operators import ADDING_UP, FILLING, FORM, GUARDING, HEAVY, LIMITING, base_name
from mplint.conversion.torch.run import cast, flat_run, torch_half
from mplint.conversion.torch.samples import Sample
from mplint.limits import FLOAT16_MAX

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FLOATS = (torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128, torch.complex32)
TINY = {"float16": 2.0**-24, "bfloat16": 1e-38}  # smaller numbers are 0 in half, or next to it


@dataclass(slots=True)
class Operation(planner.Operation[fx.Node]):
    """A node of the graph; `outputs` are the positions of the results that turn to half with it."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return "interface" if self.node is None else f"{self.node.name} ({base_name(self.node.target)})"


@dataclass(slots=True)
class Program(planner.Planned[Operation, fx.Node]):
    """What the planner reads, and which operation each node is; `half` is the dtype of operations that say nothing else."""

    exported: ExportedProgram = field(kw_only=True)
    half: str = field(kw_only=True)
    numbers: dict[fx.Node, int] = field(default_factory=dict)

    def half_at(self, number: int) -> str:
        """The half dtype that an operation would have."""
        return self.operations[number].half or self.half

    def halves_of(self, node: fx.Node) -> tuple[str, ...]:
        """The half dtypes that a tensor would have: that of what makes it, and those of what takes it."""
        producer = self.producers.get(node)
        around = [*(() if producer is None else (producer,)), *self.takers.get(node, ())]
        found = [at for at in around if at != FLOAT and not self.operations[at].stays]
        return tuple(dict.fromkeys(map(self.half_at, found))) or (self.half,)


def is_float(node: object) -> bool:
    """Whether a node's value is a float32 tensor."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def has_floats(program: ExportedProgram) -> bool:
    """Whether anything in a program computes on float32 tensors."""
    return any(is_float(node) for module in _graphs(program) for node in module.graph.nodes if node.op == "call_function")


def functional(program: ExportedProgram) -> ExportedProgram:
    """The program with nothing that writes in place, its operators as they are."""
    nodes = [node for module in _graphs(program) for node in module.graph.nodes if node.op == "call_function"]
    in_place = any(isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable for node in nodes)
    return program.run_decompositions({}) if in_place or program.dialect == "TRAINING" else program


def _graphs(program: ExportedProgram) -> Iterator[fx.GraphModule]:
    return (module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule))


def analyze(exported: ExportedProgram, policy: Policy, options: Options, sample: Sample, device: str) -> Program:
    """The program of an exported graph. Each operator is tried in half once, as it meets its inputs on the sample.

    Heavy ones are only run where the program is for the CPU itself, which may lack forms of them that others have.
    """
    program = Program([Operation(None, stays="the program's own interface")], exported=exported, half=policy.half)
    wanted = {node: options.half_of(names_of(node), policy.half) for node in exported.graph.nodes if node.op == "call_function"}
    tried = _tried(exported, wanted, sample, device)
    held = {
        spec.arg.name
        for spec in exported.graph_signature.input_specs
        if spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR") and spec.target not in _mutated(exported)
    }
    for node in exported.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            if is_float(node):
                program.producers[node] = None if node.op == "placeholder" and node.name in held else FLOAT
            continue
        taken = [operand for operand in node.all_input_nodes if is_float(operand) and base_name(node.target) not in FORM]
        number = FLOAT
        if node.op == "call_function" and str(node.target) != "<built-in function getitem>":
            if _touches(node):
                outputs, stays = tried[node]
                stays = stays or _stays(node, wanted[node], options)
                gain = HEAVY_GAIN if base_name(node.target) in HEAVY else LIGHT_GAIN if outputs else 0.0
                program.operations.append(Operation(node, (0,), outputs, gain, stays, wanted[node]))
                number = program.numbers[node] = len(program.operations) - 1
                if is_float(node):
                    program.producers[node] = number if 0 in outputs else FLOAT
        elif is_float(node):  # an item of an operator's results
            source, position = node.args
            maker = program.numbers.get(source, FLOAT)
            program.producers[node] = maker if position in program.operations[maker].outputs else FLOAT
        for operand in taken:
            program.takers.setdefault(operand, []).append(number)
    return program


def _touches(node: fx.Node) -> bool:
    """Whether an operator takes or gives a float32 tensor."""
    if base_name(node.target) in FORM:
        return False
    if any(is_float(operand) for operand in node.all_input_nodes):
        return True
    results = _pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(value, torch.Tensor) and value.dtype == torch.float32 for value in results)


def _mutated(exported: ExportedProgram) -> set[str]:
    """The names of the buffers that the program writes."""
    return {spec.target for spec in exported.graph_signature.output_specs if spec.kind.name.endswith("MUTATION") and spec.target}


def names_of(node: fx.Node) -> list[str]:
    """What a user may call an operator: its node, its name with and without the overload, the modules that it is in."""
    modules = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return [node.name, base_name(node.target), str(node.target), *modules]


def _stays(node: fx.Node, half: str, options: Options) -> str:
    """Why an operator that has a half form stays float32 for what it means; "" where nothing says so."""
    name = base_name(node.target)
    if asked := options.stays(names_of(node)):
        return asked
    if isinstance(node.target, torch._ops.OpOverload) and _draws(node, node.target):
        return "in half it draws other random numbers"
    if name in ADDING_UP or (name in ("index_put", "put") and True in node.args):
        return f"it adds up one by one, on some devices in {half} itself"
    if name in GUARDING:
        for number in _numbers(node):
            if 0 < abs(number) < TINY[half]:
                return f"its constant {number:g} vanishes in {half}"
    return ""


def _draws(node: fx.Node, target: torch._ops.OpOverload) -> bool:
    """Whether an operator draws random numbers, which a dropout does only in training and with a probability."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    formal = [argument.name for argument in target._schema.arguments]
    given = dict(zip(formal, node.args, strict=False)) | node.kwargs
    chance = next((given[name] for name in ("dropout", "dropout_p", "p") if name in given), 0.0 if "dropout_p" in formal else 1.0)
    return given.get("train", True) is not False and bool(chance != 0)


def _numbers(node: fx.Node) -> list[float]:
    """The numbers that an operator computes with."""
    return [float(leaf) for leaf in _pytree.tree_leaves((node.args, node.kwargs)) if isinstance(leaf, int | float)]


def fitting(node: fx.Node, arguments: Any, half: torch.dtype) -> Any:
    """The arguments of an operator in half, with the numbers that it fills in or limits by within the range."""
    name = base_name(node.target)
    if half != torch.float16 or name not in FILLING | LIMITING:
        return arguments

    def limited(leaf: Any) -> Any:
        if not isinstance(leaf, float) or leaf != leaf or abs(leaf) == float("inf"):
            return leaf
        return max(-FLOAT16_MAX, min(FLOAT16_MAX, leaf))

    return _pytree.tree_map(limited, arguments)


def _tried(
    exported: ExportedProgram, wanted: Mapping[fx.Node, str], sample: Sample, device: str
) -> dict[fx.Node, tuple[tuple[int, ...], str]]:
    """For each operator the results that turn to half with its inputs, and why it has no half form."""
    found: dict[fx.Node, tuple[tuple[int, ...], str]] = {}
    known: dict[object, tuple[tuple[int, ...], str]] = {}
    values: dict[fx.Node, Any] = {}
    uses = {node: len(node.users) for node in exported.graph.nodes}

    def after(node: fx.Node, result: Any) -> Any:
        if node not in uses:  # within a body
            return result
        if node.op == "call_function" and str(node.target) != "<built-in function getitem>" and _touches(node):
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            half = torch_half(wanted[node])
            key = (str(node.target), half, tuple(map(_kind, _pytree.tree_leaves((args, kwargs)))), _used(node))
            if key not in known:
                known[key] = _try(node, args, kwargs, result, half, natively=device == "cpu")
            found[node] = known[key]
        for operand in node.all_input_nodes:  # what nobody else needs is let go
            uses[operand] -= 1
            if not uses[operand]:
                values.pop(operand, None)
        values[node] = result
        return result

    flat_run(exported, sample, after)
    return found


def _kind(leaf: Any) -> object:
    return (leaf.dtype, leaf.dim()) if isinstance(leaf, torch.Tensor) else leaf if isinstance(leaf, torch.dtype) else type(leaf)


def _used(node: fx.Node) -> tuple[int, ...]:
    """The positions of the results that somebody takes."""
    if not isinstance(node.meta.get("val"), tuple | list):
        return (0,)
    return tuple(sorted({user.args[1] for user in node.users if user.users and isinstance(user.args[1], int)}))


def _try(node: fx.Node, args: Any, kwargs: Any, result: Any, half: torch.dtype, *, natively: bool) -> tuple[tuple[int, ...], str]:
    word = str(half).partition(".")[2]
    name = base_name(node.target)
    if not isinstance(node.target, torch._ops.OpOverload):
        return (), "what enters and leaves its graphs stays float32"
    if node.target.namespace not in ("aten", "prims"):
        return (), f"nobody knows {node.target} in {word}"
    tensors = [leaf for leaf in _pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
    other = next((tensor.dtype for tensor in tensors if tensor.dtype in FLOATS), None)
    if other is not None:
        return (), f"it has {str(other).partition('.')[2]} beside float32"
    args, kwargs = fitting(node, (args, kwargs), half)
    outcomes = []
    for device in ("meta",) if name in HEAVY and not natively else ("meta", "cpu"):
        try:
            ready = cast((args, kwargs), torch.float32, half)
            if device == "meta":
                ready = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), ready)
            with torch.random.fork_rng(devices=()):
                outcomes.append([getattr(leaf, "dtype", None) for leaf in _outcomes(node.target(*ready[0], **ready[1]))])
        except Exception as error:
            if device == "cpu" or name in HEAVY:
                return (), f"torch has no {word} form of it: {str(error).splitlines()[0][:120]}"
    outputs = []
    for position in _used(node):
        before = getattr(_outcomes(result)[position], "dtype", None)
        after = {outcome[position] for outcome in outcomes}
        if after == {half} and before == torch.float32:
            outputs.append(position)
        elif after != {before}:
            return (), f"in {word} it gives another type than float32 or {word}"
    return tuple(outputs), ""


def _outcomes(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple | list) else (result,)
