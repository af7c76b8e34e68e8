"""Converting programs of torch.export: the whole program under autocast, outputs cast back to float32, signature and dynamic sizes kept.

Exporting under an ambient autocast gives a float32 program, silently; autocast inside `forward` becomes a region of the program and
survives saving. State-dict names stay what they are.
"""

from __future__ import annotations

import builtins
import copy
import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mplint.conversion.distance import distance, judge
from mplint.conversion.policy import ConversionError, Options, Policy
from mplint.conversion.result import Conversion

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

# Operators that autocast computes in half, as torch.export writes them before decompositions.
HEAVY = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "einsum",
    "scaled_dot_product_attention",
)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
# What only a decomposed program holds: autocast does not know these names.
DECOMPOSED = frozenset(
    (
        "aten.convolution.default",
        "aten._softmax.default",
        "aten.native_layer_norm.default",
        "aten._native_batch_norm_legit_no_training.default",
    )
)
SEEDS = 2


def convert(path: str, policy: Policy, options: Options, device: str) -> Conversion:
    """Convert a .pt2 file for a device type ("cuda", "cpu" …); nothing is written.

    Raises ConversionError for a file that can't be loaded, a program that is decomposed already, and one that is not float32.
    """
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
    except Exception as error:
        raise ConversionError(f"{path} can't be loaded by torch {torch.__version__}: {_line(error)}") from None
    result = convert_program(program, policy, options, device)
    result.size_before = result.size_after = os.path.getsize(path)
    return result


def convert_module(module: torch.nn.Module, example_inputs: tuple[Any, ...], policy: Policy, options: Options, device: str) -> Conversion:
    """Export a live module in evaluation mode on example inputs, and convert the program.

    Raises ConversionError for a module that can't be exported.
    """
    import torch

    training = module.training
    try:
        program = torch.export.export(module.eval(), example_inputs)
    except Exception as error:
        raise ConversionError(f"the module can't be exported: {_line(error)}") from None
    finally:
        module.train(training)
    return convert_program(program, policy, options, device)


def convert_program(program: ExportedProgram, policy: Policy, options: Options, device: str) -> Conversion:
    """Convert a program and compare it with the original on the CPU."""
    import torch

    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    if DECOMPOSED & set(targets):
        raise ConversionError(
            "the program is decomposed to core operators, which autocast does not know: convert it before run_decompositions()"
        )
    if any("wrap_with_autocast" in target for target in targets):
        raise ConversionError("the program has autocast regions already: nothing to convert")
    if options.keep:
        raise ConversionError("--keep is for ONNX and Keras: autocast decides by operator")
    dtype = getattr(torch, policy.half)
    examples = _examples(program)
    made = _exported(program, examples, dtype)
    result = Conversion(policy, save=lambda target: _save(_for_device(made, device), target))
    heavy = [target for target in targets if _name(target).startswith(HEAVY) or _name(target) in RECURRENT]
    result.operations, result.heavy, result.heavy_half, result.operations_half = len(targets), len(heavy), len(heavy), len(heavy)
    result.kept = _kept(targets, device)
    _verify(result, program, made, examples)
    result.notes.append(f"autocast for {device}: move the loaded program to that device to run it in half")
    return result


def _exported(program: ExportedProgram, examples: tuple[tuple[Any, ...], dict[str, Any]], dtype: torch.dtype) -> ExportedProgram:
    import torch

    shapes = _dynamic_shapes(program, examples)
    module = _under_autocast(program, dtype)
    for wanted in (shapes, _automatic(shapes)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.export.export(module, examples[0], examples[1], dynamic_shapes=wanted)
        except Exception as error:
            reason = _line(error)
    raise ConversionError(f"the program can't be exported again under autocast: {reason}")


def _under_autocast(program: ExportedProgram, dtype: torch.dtype) -> torch.nn.Module:
    """The program's module with `forward` under autocast. It shares the module's parameters, so that their names stay."""
    import torch
    from torch.utils import _pytree

    inner = program.module(check_guards=False)
    floats = [_is_float32(node.meta.get("val")) for node in _outputs(program)]

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for held in ("_parameters", "_buffers", "_modules"):
                self.__dict__[held] = getattr(inner, held)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype):
            outputs = inner(*args, **kwargs)
        leaves, spec = _pytree.tree_flatten(outputs)
        # `to` would record the dtype that it met here, which may be another one on the device.
        kept = [
            torch.ops.aten._to_copy.default(leaf, dtype=torch.float32) if is_float else leaf
            for leaf, is_float in zip(leaves, floats, strict=True)
        ]
        return _pytree.tree_unflatten(kept, spec)

    names = _argument_names(program)
    scope: dict[str, Any] = {"call": call}
    passed = ", ".join([*names[0], *(f"{name}={name}" for name in names[1])])
    exec(f"def forward(self, {', '.join([*names[0], *names[1]])}): return call({passed})", scope)  # the signature is part of a program
    Mixed.forward = scope["forward"]
    return Mixed().eval()


def _for_device(program: ExportedProgram, device: str) -> ExportedProgram:
    """The program with its autocast regions for another device type than the CPU on which it was traced."""
    found = copy.deepcopy(program)
    for module in found.graph_module.modules():
        graph = getattr(module, "graph", None)
        for node in graph.nodes if graph is not None else ():
            if "wrap_with_autocast" in str(node.target):
                node.args = (device, *node.args[1:])
    return found


def _verify(result: Conversion, program: ExportedProgram, made: ExportedProgram, examples: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    """Both programs on the CPU, where autocast computes and stores in half; then a round trip through a file."""
    import torch
    from torch.utils import _pytree

    original = program.module(check_guards=False)
    distances = []
    for seed in range(SEEDS):
        args, kwargs = examples if seed == 0 else _varied(examples, seed)
        with torch.no_grad():
            outputs = (module(*args, **kwargs) for module in (original, made.module(check_guards=False)))
            expected, got = ([leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)] for output in outputs)
        if [one.dtype for one in expected] != [other.dtype for other in got]:
            result.problems.append("an output has another dtype than the original's")
            return
        distances.append(distance([_array(one) for one in expected], [_array(other) for other in got]))
    result.verified.append(f"outputs against the original's under {result.policy.half} autocast on the CPU, on {SEEDS} samples")
    judge(result, distances)
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        target = os.path.join(folder, "again.pt2")
        result.save(target)
        again = torch.export.load(target)
    if list(again.state_dict) != list(program.state_dict):
        result.problems.append("the names of its parameters changed")
    else:
        result.verified.append("saved and loaded again")


def _array(tensor: torch.Tensor) -> Any:
    """A tensor as NumPy has it, which knows no bfloat16."""
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy(force=True)


def _save(program: ExportedProgram, target: str) -> None:
    """Write a program, whole or not at all."""
    import torch

    with tempfile.TemporaryDirectory(prefix=".mplint-", dir=os.path.dirname(os.path.abspath(target))) as folder:
        partial_path = os.path.join(folder, "program.pt2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(program, partial_path)
        os.replace(partial_path, target)


def _dynamic_shapes(program: ExportedProgram, examples: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
    """The dynamic sizes of a program in the form that export takes: by argument, {dimension: Dim}."""
    import torch
    from torch.utils import _pytree

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

    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    leaves = [
        {at: dim(size) for at, size in enumerate(value.shape) if not isinstance(size, int)} if isinstance(value, torch.Tensor) else None
        for value in values
    ]
    args, kwargs = _pytree.tree_unflatten([leaf or None for leaf in leaves], _pytree.tree_structure(examples))
    positional, _ = _argument_names(program)
    return dict(zip(positional, args, strict=True)) | dict(kwargs)


def _automatic(shapes: Any) -> Any:
    """The same sizes dynamic, with their relations left to export."""
    import torch

    if isinstance(shapes, dict) and all(isinstance(key, int) for key in shapes):
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
    return [f"{name}_" if hasattr(builtins, name) else name for name in positional], keywords


def _examples(program: ExportedProgram) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if program.example_inputs is None:
        raise ConversionError("the program was saved without example inputs: export it again with torch.export.export and save it")
    args, kwargs = program.example_inputs
    return tuple(args), dict(kwargs)


def _varied(examples: tuple[tuple[Any, ...], dict[str, Any]], seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs of the same kind: floats with the examples' mean and spread, everything else as it is."""
    import torch
    from torch.utils import _pytree

    generator = torch.Generator().manual_seed(seed)

    def vary(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() < 2:
            return value
        return torch.randn(value.shape, generator=generator).to(value.dtype) * value.std() + value.mean()

    args, kwargs = _pytree.tree_map(vary, examples)
    return tuple(args), dict(kwargs)


def _outputs(program: ExportedProgram) -> Sequence[Any]:
    """The nodes whose values the user gets."""
    wanted = [spec.arg.name for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes[name] for name in wanted if name in nodes]


def _is_float32(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _kept(targets: Sequence[str], device: str) -> list[tuple[str, str]]:
    """The operators that autocast computes in float32 on the device, each once."""
    import tomllib
    from importlib.resources import files

    table = tomllib.loads(files("mplint.data").joinpath("autocast_ops.toml").read_text(encoding="utf-8"))["torch"].get(device, {})
    floats = {name.partition(".")[0] for key in ("fp32", "fp32_set_opt_dtype") for name in table.get(key, ())}
    return [(name, f"autocast computes it in float32 on {device}") for name in dict.fromkeys(map(_name, targets)) if name in floats]


def _name(target: str) -> str:
    """The operator of "aten.conv2d.default": "conv2d"."""
    return target.split(".")[1] if target.startswith("aten.") else target


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:240]
