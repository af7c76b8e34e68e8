"""Converting programs of torch.export and live modules: autocast where it is right, else casts put into the graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from mplint.conversion.feeds import Data, load_feeds
from mplint.conversion.policy import ConversionError, Options, Policy, nearest
from mplint.conversion.result import Conversion
from mplint.conversion.torch.autocast import convert_under_autocast
from mplint.conversion.torch.files import first_line, load, save, weight_bytes
from mplint.conversion.torch.graph_pass import convert_graph
from mplint.conversion.torch.operators import DECOMPOSED
from mplint.conversion.torch.program import has_floats
from mplint.conversion.torch.run import largest
from mplint.conversion.torch.samples import input_names
from mplint.conversion.torch.script import program_of
from mplint.conversion.torch.verify import expected

if TYPE_CHECKING:
    from torch.export import ExportedProgram


DEVICES = ("cuda", "cpu", "mps", "xpu", "xla")


def convert(path: str, policy: Policy, options: Options, device: str, calibration: Sequence[str] = ()) -> Conversion:
    """Convert a .pt2 file for a device type ("cuda", "cpu" …); nothing is written.

    Raises ConversionError for a file that can't be loaded, and for a program that can't be run or is in half already.
    """
    options.tell("reading the program")
    return convert_program(load(path), policy, options, device, calibration)


def convert_script(path: str, policy: Policy, options: Options, device: str, calibration: Sequence[str]) -> Conversion:
    """Convert a TorchScript file to a program of torch.export, for inputs of the sizes of the data. Raises ConversionError."""
    options.tell("making a program of the TorchScript file")
    feeds = load_feeds(calibration, ()) if calibration else []
    program, arguments = program_of(path, feeds)
    named = dict(zip(arguments, input_names(program), strict=False))
    given = [feed.renamed(named) for feed in feeds]
    ranges = {named.get(name, name): bounds for name, bounds in options.ranges.items()}
    result = convert_with(program, policy, replace(options, ranges=ranges), device, given)
    result.notes.append("TorchScript became a program of torch.export (.pt2), for inputs of the sizes that the data has")
    return result


def export(module: torch.nn.Module, example_inputs: object, dynamic_shapes: Any = None) -> ExportedProgram:
    """The program of a live module in evaluation mode on example inputs. The module stays as it is.

    `example_inputs` are a tensor, a tuple or list of the positional arguments, or a dict of keyword arguments; `dynamic_shapes` are those
    of torch.export. Raises ConversionError for a module that can't be exported.
    """
    args, kwargs = call_arguments(example_inputs)
    modes = {part: part.training for part in module.modules()}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return torch.export.export(module.eval(), args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise ConversionError(f"the module can't be exported: {first_line(error)}; torch.export.draft_export says more") from None
    finally:
        for part, training in modes.items():
            part.training = training


def device_type(name: str) -> str:
    """The device type in "cuda" or "cuda:0"; raises ConversionError for one that has no autocast."""
    try:
        found = torch.device(name).type
    except RuntimeError:
        close = nearest(name, DEVICES)
        raise ConversionError(f"--device {name}: torch knows no such device; say cuda, cpu, mps, xpu, or xla for TPUs{close}") from None
    if not torch.amp.is_autocast_available(found):
        raise ConversionError(f"--device {name}: torch has no autocast for it; say cuda, cpu, mps, xpu, or xla for TPUs")
    return found


def call_arguments(example_inputs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and keyword arguments."""
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, torch.Tensor) or not isinstance(example_inputs, Iterable):
        return (example_inputs,), {}
    return tuple(example_inputs), {}


def convert_program(program: ExportedProgram, policy: Policy, options: Options, device: str, calibration: Sequence[str] = ()) -> Conversion:
    """Convert a program and compare it with the original on the CPU; the original stays as it is. Raises ConversionError."""
    return convert_with(program, policy, options, device, load_feeds(calibration, ()) if calibration else [])


def convert_with(program: ExportedProgram, policy: Policy, options: Options, device: str, feeds: Sequence[Data]) -> Conversion:
    """Convert a program with data.

    A program that torch.export made is exported again under autocast. Casts are put into the graph instead where the program is
    decomposed (autocast does not know those operators), where something is to stay float32, and where autocast fails its proof.
    """
    device = device_type(device)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    if any("wrap_with_autocast" in target for target in targets):
        raise ConversionError("the program has autocast regions already: nothing to convert; export the float32 module to plan it anew")
    if options.half_io:
        raise ConversionError("--half-io is for ONNX: programs keep their signature")
    if not has_floats(program):
        return _as_it_is(program, policy)
    names = input_names(program)
    for name in {*options.ranges, *(name for feed in feeds for name in feed)}:
        if name not in names:
            raise ConversionError(f"the program has no input {name!r}; it takes {', '.join(names)}{nearest(name, names)}")
    wanted = expected(program, policy, options, device, feeds)
    why = ""
    if DECOMPOSED.intersection(targets):
        why = "the program is decomposed to core operators, which autocast does not know"
    elif options.keep or options.reasons or options.halves:
        why = "autocast decides by operator and keeps nothing"
    else:
        options.tell("exporting again under autocast")
        try:
            result = convert_under_autocast(program, policy, options, device, wanted)
            result.advice += _move(device)
            result.observe = partial(largest, program, wanted.samples)
            if not result.problems and (result.heavy_half or not result.heavy):
                return result
            why = (
                f"under autocast for {device}, {result.problems[0]}"
                if result.problems
                else "autocast puts none of its heavy operators in half"
            )
        except ConversionError as error:
            why = str(error)
    result = convert_graph(program, policy, options, wanted)
    result.observe = partial(largest, program, wanted.samples)
    result.advice += _move(device)
    result.notes.append(f"casts are in the graph, for any device: {why}")
    if result.size_after < result.size_before:
        result.notes.append(
            f"weights are stored in {' and '.join(result.halves or (policy.half,))}, for inference: train from the original"
        )
    return result


def _move(device: str) -> list[str]:
    """The lines that put a loaded program on a device."""
    if device == "cpu":
        return []
    return [
        f"To run it on {device}:",
        "    from torch.export.passes import move_to_device_pass",
        f'    program = move_to_device_pass(torch.export.load("…"), "{device}")',
    ]


def _as_it_is(program: ExportedProgram, policy: Policy) -> Conversion:
    """The result for a program in which nothing is float32."""
    size = weight_bytes(program)
    result = Conversion(policy, save=lambda target: save(program, target), size_before=size, size_after=size)
    result.notes.append("nothing in the program computes in float32: it stays as it is")
    return result
