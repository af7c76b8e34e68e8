"""Inputs on which a program is measured and proven: its own example inputs, varied ones, other sizes, calibration data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mplint.conversion.feeds import Wanted, check_data
from mplint.conversion.plausible import SEQUENCES, sequence
from mplint.conversion.policy import ConversionError, Options
from mplint.conversion.torch.operators import RECURRENT, base_name

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


SIZES_ONLY = re.compile(r"aten\.(new_\w+|\w+_like)(\.|$)")  # operators that take no values of a tensor


class Sample(NamedTuple):
    """What a program is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def copy(self) -> Sample:
        """The same values in tensors of their own, since programs may write into their inputs."""
        import torch
        from torch.utils import _pytree

        args, kwargs = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), (self.args, self.kwargs))
        return Sample(tuple(args), dict(kwargs))


def examples(program: ExportedProgram) -> Sample:
    """The inputs that were saved with a program; raises ConversionError where none were."""
    if program.example_inputs is None:
        raise ConversionError("the program was saved without example inputs: export it again with torch.export.export and save it")
    args, kwargs = program.example_inputs
    return Sample(tuple(args), dict(kwargs)).copy()


def home(program: ExportedProgram) -> str:
    """The device type on which a program's weights and inputs lie."""
    import torch
    from torch.utils import _pytree

    held = [*program.state_dict.values(), *_pytree.tree_leaves(program.example_inputs)]
    return next((value.device.type for value in held if isinstance(value, torch.Tensor)), "cpu")


def input_names(program: ExportedProgram) -> list[str]:
    """The names of the values that a caller gives, flattened, in order."""
    return [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]


def output_names(program: ExportedProgram) -> tuple[list[str], list[str]]:
    """The names of the tensors that the graph gives, those for buffers and inputs first, and of those among them that a caller gets."""
    specs = [spec for spec in program.graph_signature.output_specs if hasattr(spec.arg, "name")]
    return [spec.arg.name for spec in specs], [spec.arg.name for spec in specs if spec.kind.name == "USER_OUTPUT"]


def moved_by_inputs(program: ExportedProgram) -> set[str]:
    """The names of the float outputs that the values of an input may move, and not its sizes alone."""
    import torch

    taken, made = set(input_names(program)), set(output_names(program)[1])
    reached: set[Any] = set()
    found = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        given = node.op == "placeholder" and node.name in taken and isinstance(value, torch.Tensor)
        asks_sizes = isinstance(value, torch.SymInt | int) or SIZES_ONLY.match(str(node.target)) is not None
        if given or (not asks_sizes and any(one in reached for one in node.all_input_nodes)):
            reached.add(node)
            if node.name in made and isinstance(value, torch.Tensor) and value.is_floating_point():
                found.add(node.name)
    return found


def leaves(program: ExportedProgram, sample: Sample) -> list[Any]:
    """The values of a sample in the order of `input_names`."""
    from torch.utils import _pytree

    return list(_pytree.tree_leaves((sample.args, ordered(program, sample.kwargs))))


def ordered(program: ExportedProgram, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments in the order of the signature."""
    signature = program.module_call_graph[0].signature
    names = list(signature.in_spec.child(1).context or []) if signature is not None else []
    return {name: kwargs[name] for name in names if name in kwargs} if len(names) == len(kwargs) else kwargs


def with_leaves(program: ExportedProgram, sample: Sample, values: Sequence[Any]) -> Sample:
    """A sample of the same structure with other values."""
    from torch.utils import _pytree

    _, spec = _pytree.tree_flatten((sample.args, ordered(program, sample.kwargs)))
    args, kwargs = _pytree.tree_unflatten(list(values), spec)
    return Sample(tuple(args), dict(kwargs))


def varied(program: ExportedProgram, sample: Sample, seed: int, options: Options, *, integers: bool) -> Sample:
    """Inputs of the same kind: floats with the sample's mean and spread or in the ranges named, integers (if asked) in another order."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def shuffled(value: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(value.numel(), generator=generator).to(value.device)
        return value.reshape(-1)[order].reshape(value.shape)

    def vary(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            return value
        if name in options.ranges and value.is_floating_point():
            low, high = options.ranges[name]
            return (torch.rand(value.shape, generator=generator) * (high - low) + low).to(value)
        if value.is_complex() or not value.is_floating_point():
            return shuffled(value) if integers and not value.is_complex() else value
        known = value.double()
        if not bool(known.isfinite().all()) or (len(set(known.reshape(-1)[:4096].tolist())) == 2 and value.numel() > 2):
            return shuffled(value)  # a mask
        if value.numel() < 2:
            return value
        spread = float(known.std()) or max(1.0, float(known.abs().max()))
        made = torch.randn(value.shape, generator=generator, dtype=torch.float64) * spread + float(known.mean())
        return (made.abs() if float(known.min()) >= 0 and float(known.std()) > 0 else made).to(value)

    return with_leaves(
        program, sample, [vary(name, value) for name, value in zip(input_names(program), leaves(program, sample), strict=True)]
    )


def sequences(program: ExportedProgram, sample: Sample, options: Options) -> list[Sample]:
    """The sample with sequences whose steps follow each other, of each kind, for the inputs that a recurrent operator goes along."""
    axes = {name: axis for name, axis in _walked(program).items() if name not in options.ranges}

    def made(kind: str, name: str, value: Any) -> Any:
        if name not in axes:
            return value
        import torch

        drawn = torch.from_numpy(sequence(value.shape, axes[name], kind, np.random.default_rng(SEQUENCES.index(kind))))
        known = value.double()
        spread = float(known.std()) or 1.0
        return (drawn.abs() * spread if float(known.min()) >= 0 else drawn * spread + float(known.mean())).to(value)

    names, values = input_names(program), leaves(program, sample)
    return [
        with_leaves(program, sample, [made(kind, name, value) for name, value in zip(names, values, strict=True)])
        for kind in (SEQUENCES if axes else ())
    ]


def _walked(program: ExportedProgram) -> dict[str, int]:
    """The axis of each float input that has as many steps as a recurrent operator behind it takes."""
    import torch

    given, found = set(input_names(program)), dict[str, int]()
    for node in program.graph.nodes:
        if base_name(node.target) not in RECURRENT or not hasattr(node.args[0], "meta"):
            continue
        sizes = node.args[0].meta["val"].shape
        axis = 1 if node.args[-1] is True else 0  # the last argument says whether batches come first
        stack, seen = [node.args[0]], set()
        while stack:
            before = stack.pop()
            seen.add(before)
            stack += [one for one in before.all_input_nodes if one not in seen]
            value = before.meta.get("val")
            if before.name in given and isinstance(value, torch.Tensor) and value.is_floating_point():
                alike = [at for at, size in enumerate(value.shape) if str(size) == str(sizes[axis])]
                if alike:
                    found[before.name] = axis if axis in alike else alike[0]
    return found


def scaled(program: ExportedProgram, sample: Sample, factor: float) -> Sample:
    """The sample with its floats multiplied."""
    import torch

    grown = [v * factor if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in leaves(program, sample)]
    return with_leaves(program, sample, grown)


def resized(program: ExportedProgram, sample: Sample, options: Options) -> Sample | None:
    """The sample with one more (or less) of every dynamic size; None where none is dynamic."""
    import torch

    names = set(input_names(program))
    metas = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    sizes: dict[Any, int] = {}
    for symbol, bounds in program.range_constraints.items():
        hint = next((_hint(size, symbol) for meta in metas for size in getattr(meta, "shape", ()) if _hint(size, symbol) is not None), None)
        if hint is not None:
            sizes[symbol] = hint + 1 if bounds.upper >= hint + 1 else max(hint - 1, int(bounds.lower))
    if not sizes:
        return None
    made = []
    for meta, value in zip(metas, leaves(program, sample), strict=True):
        if not isinstance(value, torch.Tensor) or not isinstance(meta, torch.Tensor):
            made.append(value)
            continue
        shape = [size if isinstance(size, int) else int(size.node.expr.subs(sizes)) for size in meta.shape]
        fitted = value
        for axis, size in enumerate(shape):
            index = torch.arange(size, device=value.device) % max(1, value.shape[axis])
            fitted = fitted.index_select(axis, index)
        made.append(fitted)
    return with_leaves(program, sample, made)


def _takes(program: ExportedProgram) -> dict[str, Wanted]:
    """What the tensors among the inputs are, with None for sizes that may vary."""
    import torch

    names, found = set(input_names(program)), {}
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" and node.name in names else None
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).partition(".")[2].replace("bfloat16", "float32")
            sizes = tuple(size if isinstance(size, int) else None for size in value.shape)
            found[node.name] = Wanted(dtype, sizes)
    return found


def _hint(size: Any, symbol: Any) -> int | None:
    """The example's value of a size that is this symbol and nothing more."""
    if isinstance(size, int) or size.node.expr != symbol:
        return None
    hint = size.node.hint
    return int(hint) if hint is not None else None


def calibrated(program: ExportedProgram, sample: Sample, feeds: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """Samples from arrays by input name; raises ConversionError for one of another type or shape."""
    import torch

    made = []
    takes = _takes(program)
    for feed in feeds:
        check_data(feed, {name: wanted for name, wanted in takes.items() if name in feed})
        values = []
        for name, value in zip(input_names(program), leaves(program, sample), strict=True):
            given = torch.from_numpy(feed[name].copy()) if name in feed and isinstance(value, torch.Tensor) else value
            values.append(given.to(value.dtype) if isinstance(value, torch.Tensor) else given)
        made.append(with_leaves(program, sample, values))
    return made
