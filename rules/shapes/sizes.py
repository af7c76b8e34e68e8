"""The layers that a program makes, their sizes, and whether they run in half: what the rules about shapes ask of the trace."""

from __future__ import annotations

import ast
from collections.abc import Collection, Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Replace
from mplint.frameworks.keras.layers import by
from mplint.frameworks.keras.policies import compute_letter
from mplint.frameworks.torch import steps
from mplint.program.lower import place_of
from mplint.program.machine import Args, Event
from mplint.program.trace import Trace, possible
from mplint.program.values import BFLOAT, HALF, Chain, Constant, Items, Object, Place, State, Step, Tensor, Value, atoms

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

# Parameter names of the sizes that come in and go out, by module; positions follow the constructors.
SIZES: dict[str, tuple[str | None, str | None]] = {
    "Linear": ("in_features", "out_features"),
    "LazyLinear": (None, "out_features"),
    "Embedding": ("num_embeddings", "embedding_dim"),
    **{f"{kind}{n}d": ("in_channels", "out_channels") for kind in ("Conv", "ConvTranspose") for n in "123"},
    **{kind: ("input_size", "hidden_size") for kind in ("LSTM", "GRU", "RNN")},
    "MultiheadAttention": ("embed_dim", None),
    "LayerNorm": ("normalized_shape", None),
    **{f"BatchNorm{n}d": ("num_features", None) for n in "123"},
}
CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D")
RECURRENT = ("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU")


class Size(NamedTuple):
    """A size of a layer: where it is given, the number, and where that is written (None: it is computed)."""

    place: Place
    number: int
    literal: Place | None


class Layer(NamedTuple):
    """A layer that the program makes: `before` and `after` are the sizes that come in and go out.

    `half`: it runs in half precision, `sure`: on every run, by the places of `steps`. `group`: the class or scope that makes it.
    `head`: a model gives what it computes.
    """

    event: Event
    kind: str
    before: Size | None
    after: Size | None
    group: Hashable
    half: bool
    sure: bool
    steps: Chain = ()
    head: bool = False


def layers(trace: Trace) -> list[Layer]:
    """The layers of the program, each once, in the order in which it makes them."""
    held = trace.held.get("sized layers")
    if not isinstance(held, list):
        held = trace.held["sized layers"] = [*torch_layers(trace), *keras_layers(trace)]
    return held


def size(trace: Trace, event: Event, index: int, name: str | None) -> Size | None:
    """A size among the arguments of a layer, where its file fixes it."""
    args = event.data["args"]
    assert isinstance(args, Args)
    if name is None or args.get(index, name) is None or (at := args.place(index, name)) is None:
        return None
    found = possible(args.get(index, name), event.path)  # type: ignore[arg-type]
    value = found[0][1] if len(found) == 1 else None
    if type(value) is not Constant or type(value.value) is not int:
        return None
    place = Place(event.place.path, at)
    literal = written(trace, place, name, value.value)
    return Size(place, value.value, literal) if literal is not None or is_computed(trace, place) else None


def written(trace: Trace, place: Place, parameter: str, number: int) -> Place | None:
    """Where the number is written that an argument holds: there, or by the name that stands there, in the same file."""
    found = trace.node(place)
    if found is None:
        return None
    file, node = found
    if isinstance(node, ast.Call):  # what is spread into it
        return None
    if isinstance(node, ast.Constant):
        return place
    places = {Place(place.path, place_of(value)) for value in given_to(trace, file, name_of(node), number)}
    return places.pop() if len(places) == 1 else None


def is_computed(trace: Trace, place: Place) -> bool:
    """Whether a size is computed of numbers that stand there: others may come from anywhere, such as a checkpoint."""
    found = trace.node(place)
    return found is not None and not any(isinstance(n, ast.Name | ast.Attribute | ast.Call) for n in ast.walk(found[1]))


def given_to(trace: Trace, file: SourceFile, name: str, number: int) -> list[ast.expr]:
    """The literals of a number that a file gives to a name: in assignments, fields, defaults and keywords."""
    key = f"numbers given in {file.document.path}"
    held = trace.held.get(key)
    if not isinstance(held, Given):
        held = trace.held[key] = Given()
        for other, value in values_given(file):
            if other and isinstance(value, ast.Constant) and type(value.value) is int:
                held.setdefault((other, value.value), []).append(value)
    return held.get((name, number), [])


class Given(dict[tuple[str, int], list[ast.expr]]):
    """The literals of numbers that a file gives to names, by the name and the number."""


def values_given(file: SourceFile) -> Iterator[tuple[str, ast.expr | None]]:
    """What a file gives to names, variables and attributes alike."""
    for assign in file.syntax.all(ast.Assign):
        yield from ((name_of(target), assign.value) for target in assign.targets)
    for field in file.syntax.all(ast.AnnAssign):
        yield name_of(field.target), field.value
    for arguments in file.syntax.all(ast.arguments):
        named = [*zip(reversed([*arguments.posonlyargs, *arguments.args]), reversed(arguments.defaults), strict=False)]
        for parameter, default in [*named, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]:
            yield parameter.arg, default
    for call in file.syntax.all(ast.Call):
        yield from ((keyword.arg or "", keyword.value) for keyword in call.keywords)


def name_of(target: ast.AST) -> str:
    """The name of a variable or an attribute, "" for anything else."""
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def group_of(trace: Trace, place: Place) -> Hashable:
    """What the sizes of a layer must agree with: its class, or the scope that makes it."""
    found = trace.node(place)
    if found is None:
        return place.path
    file, node = found
    return file.syntax.enclosing_class(node) or file.syntax.scope(node)


def torch_layers(trace: Trace) -> Iterator[Layer]:
    """The modules of PyTorch, and the regions in which they run."""
    ran: dict[Hashable, tuple[bool, Chain]] = {}
    for entry, event in trace.of("sized layer run"):
        layer = event.data["layer"]
        for path, region in steps.in_half(event.data["autocast"], event.path):
            verdict = trace.verdict(entry, path)
            if type(layer) is Object and region.dtype in (HALF, BFLOAT) and not verdict.dead and not ran.get(layer.made, (False,))[0]:
                chain = tuple(Step(step.place, "autocast is entered here") for step in region.chain[:1])
                ran[layer.made] = (verdict.proven, chain)
    seen: set[tuple[Place, int | None, int | None]] = set()
    for _, event in trace.of("sized layer made"):
        kind = str(event.data["name"]).rpartition(".")[2]
        if kind not in SIZES:
            continue  # a cell, or a layer of another package
        before, after = SIZES[kind]
        first = size(trace, event, 0, before)
        last = size(trace, event, 0 if kind.startswith("Lazy") else 1, after)
        key = (event.place, first.number if first else None, last.number if last else None)
        if key not in seen:
            seen.add(key)
            sure, chain = ran.get(event.place, (False, ()))
            yield Layer(event, kind, first, last, group_of(trace, event.place), event.place in ran, sure, chain)


def keras_layers(trace: Trace) -> Iterator[Layer]:
    """The layers of Keras, and the policies under which they compute."""
    heads: set[str] = set()
    for entry in trace.entries:
        models = {getattr(event.data["model"], "id", None): event for event in entry.of("model made")}  # the last state of each
        heads |= {tag for event in models.values() for tensor in tensors(event.data["outputs"]) for tag in tensor.tags}
    seen: set[tuple[Place, int | None]] = set()
    for entry, event in trace.of("layer made"):
        kind = str(event.data["name"]).rpartition(".")[2]
        embeds = kind == "Embedding"
        names = {"Dense": "units", **dict.fromkeys(RECURRENT, "units"), **dict.fromkeys(CONVOLUTIONS, "filters")}
        name = "input_dim" if embeds else names.get(kind.replace("Separable", "").replace("Transpose", ""))
        found = size(trace, event, 0, name)
        if found is None or (event.place, found.number) in seen:
            continue
        seen.add((event.place, found.number))
        half, sure, chain = in_policy(trace, entry, event)
        head = by(event.place) in heads
        group = group_of(trace, event.place)
        yield Layer(event, kind, found if embeds else None, None if embeds else found, group, half, sure, chain, head)


def in_policy(trace: Trace, entry: object, event: Event) -> tuple[bool, bool, Chain]:
    """Whether a layer computes in half by its policy, surely, and where that was set."""
    ways = possible(event.data["policy"], event.path)  # type: ignore[arg-type]
    for path, atom in ways:
        if type(atom) is State and isinstance(atom.data, tuple) and compute_letter(str(atom.data[0])) in (HALF, BFLOAT):
            verdict = trace.verdict(entry, path)  # type: ignore[arg-type]
            where = atom.data[1]
            chain = (Step(where, "the policy is set here"),) if isinstance(where, Place) and where != event.place else ()
            if not verdict.dead:
                return True, verdict.proven and len(ways) == 1, chain
    return False, False, ()


def tensors(value: object) -> Iterator[Tensor]:
    """The tensors in a value."""
    for atom in atoms(value):  # type: ignore[arg-type]
        if type(atom) is Tensor:
            yield atom
        elif type(atom) is Items:
            for item in atom.items:
                yield from tensors(item)


def given(event: Event, name: str, index: int = -1) -> Value | None:
    """An argument of a layer."""
    args = event.data["args"]
    assert isinstance(args, Args)
    return args.get(index, name)


def multiple(number: int, step: int) -> int:
    """The next multiple of `step` that is not below `number`."""
    return -(-number // step) * step


def replaced(trace: Trace, sizes: Collection[Size], new: int) -> tuple[Replace, ...] | None:
    """Changes that give all of `sizes` (of one number) the value `new`; None where the number is also used for anything else."""
    literals = {s.literal for s in sizes if s.literal is not None}
    if not sizes or any(s.literal is None for s in sizes) or len({place.path for place in literals}) != 1:
        return None
    number, file = next(iter(sizes)).number, trace.file(next(iter(literals)).path)
    if file is None:
        return None
    used = [c for c in file.syntax.all(ast.Constant) if c.value == number and type(c.value) is int]
    if {place_of(c) for c in used} != {place.position for place in literals}:
        return None
    return tuple(Replace(trace.span(place), str(new)) for place in sorted(literals, key=lambda p: trace.span(p)))
