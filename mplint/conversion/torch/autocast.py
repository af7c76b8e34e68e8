"""The program of torch.export under autocast: exported again with its whole computation in a region, outputs cast back to float32.

Exporting under an ambient autocast gives a float32 program, silently; autocast inside `forward` becomes a region of the program and
survives saving. State-dict names stay what they are.
"""

from __future__ import annotations

import builtins
import keyword
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree

from mplint.autocast_lists import known
from mplint.conversion.policy import ConversionError, Options, Policy
from mplint.conversion.result import Conversion
from mplint.conversion.torch.autocast_rules import Ruled, ruled
from mplint.conversion.torch.files import first_line, save, weight_bytes
from mplint.conversion.torch.operators import HEAVY, base_name
from mplint.conversion.torch.run import half_of
from mplint.conversion.torch.samples import Sample, home
from mplint.conversion.torch.verify import Expected, verify

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def convert_under_autocast(program: ExportedProgram, policy: Policy, options: Options, device: str, wanted: Expected) -> Conversion:
    """Export a program again under autocast and prove it by the rules of the device, and by running it on the CPU.

    Raises ConversionError where it can't be exported again.
    """
    made = _exported(program, wanted.samples[0], half_of(policy))
    size = weight_bytes(program)
    result = Conversion(policy, save=lambda target: _save_for(made, device, target), size_before=size, size_after=size)
    options.tell(f"following the rules of autocast on {device}")
    try:
        followed = ruled(program, policy, device, wanted)
    except Exception as error:
        raise ConversionError(f"autocast for {device} does not run it: {first_line(error)}") from None
    _count(result, followed, device)
    if followed.distances:
        whose = device if known(device) else f"cpu (those of {device} are not known)"
        count = len(followed.distances)
        result.verified.append(f"the rules of {policy.half} autocast on {whose}, followed on {count} sample{'s' if count > 1 else ''}")
    verify(result, program, made, wanted, followed.distances)
    result.notes.append(f"autocast for {device}: on other devices it computes in float32")
    return result


def _count(result: Conversion, followed: Ruled, device: str) -> None:
    """Write into a result what the rules of autocast compute in half, and what not."""
    for node, in_half, listed in followed.operations:
        heavy = base_name(node.target) in HEAVY
        result.operations += 1
        result.operations_half += in_half
        result.heavy += heavy
        result.heavy_half += heavy and in_half
        if not in_half:
            reason = f"autocast computes it in float32 on {device}" if listed else "it takes float32, and autocast leaves it so"
            result.kept.append((f"{node.name} ({base_name(node.target)})", reason))


def _exported(program: ExportedProgram, sample: Sample, dtype: torch.dtype) -> ExportedProgram:
    shapes = _dynamic_shapes(program, sample)
    module = _under_autocast(program, dtype)
    reason = ""
    for wanted in (shapes, _automatic(shapes)):
        own = sample.copy()
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                made = torch.export.export(module, own.args, own.kwargs, dynamic_shapes=wanted)
        except Exception as error:
            reason = first_line(error)
            continue
        if program.example_inputs is not None:
            made.example_inputs = program.example_inputs
        return made
    raise ConversionError(f"the program can't be exported again under autocast: {reason}")


def _under_autocast(program: ExportedProgram, dtype: torch.dtype) -> torch.nn.Module:
    """The program's module with `forward` under autocast. It shares the module's parameters, so that their names stay."""
    inner = program.module(check_guards=False)
    names, place = _argument_names(program), home(program)
    floats = [_is_float32(value) for value in _outputs(program)]

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for held in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
                self.__dict__[held] = getattr(inner, held)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(place, dtype):
            outputs = inner(*args, **kwargs)
        leaves, spec = _pytree.tree_flatten(outputs)
        # `to` would record the dtype that it met here, which may be another one on the device.
        kept = [
            torch.ops.aten._to_copy.default(leaf, dtype=torch.float32) if is_float else leaf
            for leaf, is_float in zip(leaves, floats, strict=True)
        ]
        return _pytree.tree_unflatten(kept, spec)

    scope: dict[str, Any] = {"call": call}
    passed = ", ".join([*names[0], *(f"{name}={name}" for name in names[1])])
    given = ", ".join([*names[0], *(["*", *names[1]] if names[1] else [])])
    exec(f"def forward(self, {given}): return call({passed})", scope)  # the signature is part of a program
    Mixed.forward = scope["forward"]
    return Mixed().train(inner.training)


def _save_for(program: ExportedProgram, device: str, target: str) -> None:
    """Write a program with its autocast regions for another device type than the one on which it was traced."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    regions = [node for graph in graphs for node in graph.nodes if "wrap_with_autocast" in str(node.target)]
    traced = [node.args for node in regions]
    try:
        for node in regions:
            node.args = (device, *node.args[1:])
        save(program, target)
    finally:
        for node, args in zip(regions, traced, strict=True):
            node.args = args


def _dynamic_shapes(program: ExportedProgram, sample: Sample) -> Any:
    """The dynamic sizes of a program in the form that export takes: by argument, {dimension: Dim}."""
    named: dict[str, Any] = {}

    def dim(size: Any) -> Any:  # a torch.SymInt
        symbol = size.node.expr
        if not symbol.is_symbol:
            return torch.export.Dim.AUTO
        if str(symbol) not in named:
            bounds = program.range_constraints.get(symbol)
            low, high = (int(bounds.lower), bounds.upper) if bounds is not None else (2, None)
            top = int(high) if high is not None and high.is_number and high.is_finite and high < 1 << 40 else None
            named[str(symbol)] = torch.export.Dim(str(symbol), min=low, max=top)
        return named[str(symbol)]

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return torch.export.Dim.DYNAMIC
        if not isinstance(value, torch.Tensor):
            return None
        free = {at: size for at, size in enumerate(value.shape) if not isinstance(size, int) and not size.node.expr.is_number}
        return {at: dim(size) for at, size in free.items()} or None

    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    values = [leaf(node.meta.get("val")) for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    signature = program.module_call_graph[0].signature
    assert signature is not None  # _argument_names has seen to it
    args, kwargs = _pytree.tree_unflatten(values, signature.in_spec)
    positional, _ = _argument_names(program)
    return dict(zip(positional, args, strict=True)) | dict(kwargs)


def _automatic(shapes: Any) -> Any:
    """The same sizes dynamic, with their relations left to export."""
    if isinstance(shapes, dict) and shapes and all(isinstance(key, int) for key in shapes):
        return dict.fromkeys(shapes, torch.export.Dim.AUTO)
    if isinstance(shapes, dict):
        return {key: _automatic(value) for key, value in shapes.items()}
    return type(shapes)(map(_automatic, shapes)) if isinstance(shapes, list | tuple) else shapes


def _argument_names(program: ExportedProgram) -> tuple[list[str], list[str]]:
    """The names of the positional and of the keyword arguments of `forward`.

    A positional argument called like a builtin ("input") gets an underscore: torch 2.13 can't name it in a program with regions.
    """
    signature = program.module_call_graph[0].signature
    if signature is None:
        raise ConversionError("the program does not say how it is called")
    count, keywords = signature.in_spec.child(0).num_children, list(signature.in_spec.child(1).context or [])
    names = [name for name in signature.forward_arg_names or [] if name not in keywords]
    positional = names[:count] if len(names) >= count else [f"arg{at}" for at in range(count)]
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in (*positional, *keywords)):
        raise ConversionError("its arguments have names that no function can take")
    return [f"{name}_" if hasattr(builtins, name) else name for name in positional], keywords


def _outputs(program: ExportedProgram) -> list[object]:
    """What is known of the values that the user gets."""
    nodes = {node.name: node for node in program.graph.nodes}
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    return [nodes[name].meta.get("val") if (name := getattr(spec.arg, "name", None)) in nodes else None for spec in specs]


def _is_float32(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32
