"""Where a program chooses the low-precision dtype that it computes in, for which devices, and what it asks of these before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mplint.configs.trainers.setup import BFLOAT_SUPPORT, Option
from mplint.findings import Location, Span
from mplint.frameworks.trainers.modes import Mode, modes
from mplint.frameworks.trainers.settings import Section
from mplint.frameworks.trainers.written import Configured, WrittenOptions, setups
from mplint.program.conditions import Path, extend
from mplint.program.lower import place_of
from mplint.program.machine import Args, Event
from mplint.program.trace import Entry, Trace, possible, shown_symbol
from mplint.program.values import BFLOAT, HALF, NONE, Constant, DType, Object, Place, State, Test, Unknown, Value
from mplint.program.verdict import Verdict

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.targets import Targets

LETTERS = {HALF: "float16", BFLOAT: "bfloat16"}
DEFAULTS = {"cuda": "float16", "cpu": "bfloat16", "xpu": "float16", "mps": "float16", "hpu": "bfloat16", "xla": "bfloat16"}  # of autocast
WEIGHTS = ("transformers.", "diffusers.")

# what programs ask of their device
CAPABILITY = frozenset(
    ["get_device_capability", "get_arch_list", "compute_capability", "check_compute_capability", "is_bfloat16_supported"]
)  # the last is unsloth's, which asks for compute capability 8
ASKED = re.compile(r"capab|ampere|support|(?:bf16|bfloat(?:16)?|fp16|half|amp)_?(?:ready|ok|avail)|has_(?:bf16|bfloat|fp16|tensor)", re.I)
NAMED = {
    "float16": re.compile(r"(?<!b)(?:fp|float)_?16|half", re.I),
    "bfloat16": re.compile(r"bf16|bfloat", re.I),
    "float8": re.compile(r"fp8|float8", re.I),
}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
GPU = frozenset({"cuda", "gpu", "gpus"})
OTHERS = frozenset({"cpu", "mps", "tpu", "tpus", "xla", "npu", "hpu", "xpu"})


class Choice(NamedTuple):
    """One dtype that the program may compute in, and the way through it on which it does.

    `span` is what names the dtype (the whole call where it is that call's default), `site` the place that puts it in force, `name` how
    that is called, `device` the device type it speaks of ("": any). `given`: what brings the dtype, as the call has it.
    """

    kind: str
    dtype: str
    file: SourceFile
    span: Span
    site: Place
    name: str
    device: str
    entry: Entry
    path: Path
    verdict: Verdict

    def fits(self, device: str) -> bool:
        """Whether it may take effect on that device type."""
        return self.device in ("", device)


def choices(trace: Trace) -> list[Choice]:
    """Every choice of float16, bfloat16 or float8, once a place and dtype: the surest."""
    held = trace.held.get("choices of half")
    if isinstance(held, list):
        return held
    found: dict[tuple[str, Span, str, str], Choice] = {}
    for choice in (*of_events(trace), *of_trainers(trace)):
        key = (choice.file.document.path, choice.span, choice.dtype, choice.device)
        before = found.get(key)
        if not choice.verdict.dead and (before is None or rank(choice) < rank(before)):
            found[key] = choice
    ordered = sorted(found.values(), key=lambda c: (c.file.document.path, c.span))
    trace.held["choices of half"] = ordered
    return ordered


def targets_of(trace: Trace, choice: Choice) -> Targets:
    """The versions and the hardware that the file of a choice is for."""
    return trace.targets(trace.path_of(choice.file))


def rank(choice: Choice) -> tuple[bool, int]:
    """The surest choice comes first."""
    return not choice.verdict.proven, len(choice.path)


# events


def of_events(trace: Trace) -> Iterator[Choice]:
    """Regions, policies, sharding, float8 and loaded weights."""
    for entry in trace.entries:
        for event in entry.of("autocast made"):
            yield from of_region(trace, entry, event)
        for event in entry.of("policy set"):
            for path, atom in possible(event.data["policy"], event.path):  # type: ignore[arg-type]
                name = str(atom.data[0]) if type(atom) is State and isinstance(atom.data, tuple) else ""
                dtype = "float8" if name.startswith("float8") else name.removeprefix("mixed_")
                if dtype in ("float16", "bfloat16", "float8"):
                    given = event.data["given"]
                    place = given.made if type(given) is Object and given.made is not None else event.place
                    yield from made(trace, entry, path, "policy", dtype, place, event.place, called(trace, event.place), "")
        for event in entry.of("sharding policy made", "model loaded"):
            kind = "weights" if event.kind == "model loaded" else "sharding"
            if kind == "weights" and not str(event.data["name"]).startswith(WEIGHTS):
                continue
            last = "from_pretrained" if kind == "weights" else str(event.data["name"]).rpartition(".")[2]
            dtype_given = event.data["dtype"]
            for path, letter in dtypes(dtype_given, event.path):  # type: ignore[arg-type]
                args = event.data["args"]
                at = place_of_argument(event, args, "torch_dtype", "dtype", "param_dtype")
                yield from made(trace, entry, path, kind, LETTERS[letter], at, event.place, last, "cuda" if kind == "sharding" else "")
        for event in entry.of("float8 asked"):
            yield from made(trace, entry, event.path, "float8", "float8", event.place, event.place, str(event.data["name"]), "")


def of_region(trace: Trace, entry: Entry, event: Event) -> Iterator[Choice]:
    """The dtypes of a region, for each device that it may be for."""
    args, dtype = event.data["args"], event.data["dtype"]
    for base in ways_on(event.data["enabled"], event.path):
        for path, device in devices(event.data["device"], base):
            if (dtype is None or dtype == NONE) and not (isinstance(args, Args) and args.opaque):
                if device in DEFAULTS:
                    yield from made(trace, entry, path, "autocast", DEFAULTS[device], event.place, event.place, "autocast", device)
                continue
            for both, letter in dtypes(dtype, path):  # type: ignore[arg-type]
                at = place_of_argument(event, args, "dtype")
                yield from made(trace, entry, both, "autocast", LETTERS[letter], at, event.place, "autocast", device)


def ways_on(enabled: object, path: Path) -> Iterator[Path]:
    """The paths on which something is switched on, or may be."""
    if enabled is None:
        yield path
        return
    for both, atom in possible(enabled, path):  # type: ignore[arg-type]
        if type(atom) is Test:
            on = extend(both, [(atom.key, atom.sense)])
            if on is not None:
                yield on
        elif type(atom) is Unknown:
            on = extend(both, [(("true", atom.symbol), True)])
            if on is not None:
                yield on
        elif type(atom) is not Constant or atom.value:
            yield both


def devices(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """The device types that an argument may name, "" for one that can't be told."""
    if value is None:
        yield path, ""
        return
    for both, atom in possible(value, path):  # type: ignore[arg-type]
        text = atom.value if type(atom) is Constant and isinstance(atom.value, str) else ""
        yield both, text.partition(":")[0]


def dtypes(value: Value | None, path: Path) -> Iterator[tuple[Path, str]]:
    """The half dtypes that a value may be."""
    for both, atom in possible(value, path) if value is not None else ():
        if type(atom) is DType and atom.letter in LETTERS:
            yield both, atom.letter


def place_of_argument(event: Event, args: object, *names: str) -> Place:
    """Where an argument stands, the call where that is not known."""
    if isinstance(args, Args):
        for name in names:
            at = args.place({"dtype": 1 if event.kind == "autocast made" else -1, "param_dtype": 0}.get(name, -1), name)
            if at is not None:
                return Place(event.place.path, at)
    return event.place


def made(
    trace: Trace, entry: Entry, path: Path, kind: str, dtype: str, place: Place, site: Place, name: str, device: str
) -> Iterator[Choice]:
    """A choice at the place that names its dtype."""
    place = named_at(trace, place, dtype) or place
    file = trace.file(place.path)
    if file is not None:
        yield Choice(kind, dtype, file, trace.span(place), site, name, device, entry, path, trace.verdict(entry, path))


def named_at(trace: Trace, place: Place, dtype: str) -> Place | None:
    """The expression that names a dtype for what stands at a place: there, or where the file gives that name a value; None elsewhere."""
    found = trace.node(place)
    if found is None:
        return None
    file, node = found
    names: set[str] = set()
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "getattr"):
        literal = next((a for a in (*node.args, *(k.value for k in node.keywords)) if names_dtype(a, dtype)), None)
        return placed(place.path, literal) if literal is not None else None
    for _ in range(4):
        if isinstance(node, ast.expr) and names_dtype(node, dtype):
            return placed(place.path, node)
        names = {n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}
        values = [v for v in assigned(file) if v[0] in names]
        direct = [value for _, value in values if names_dtype(value, dtype)]
        if direct:
            return placed(place.path, direct[0]) if len(direct) == 1 else None
        following = [value for _, value in values if not isinstance(value, ast.Constant) and value is not node]
        if len(following) != 1:
            return None
        node = following[0]
    return None


def placed(path: str, node: ast.expr) -> Place:
    """The place of a node."""
    return Place(path, place_of(node))


def assigned(file: SourceFile) -> Iterator[tuple[str, ast.expr]]:
    """What the file assigns, by the last part of the name."""
    for assign in file.syntax.all(ast.Assign):
        for target in assign.targets:
            if isinstance(target, ast.Name | ast.Attribute):
                yield target.id if isinstance(target, ast.Name) else target.attr, assign.value


def names_dtype(node: ast.expr, dtype: str) -> bool:
    """Whether an expression names a dtype, alone or as one of two."""
    match node:
        case ast.Constant(value=str(text)):
            return text.removeprefix("torch.").removeprefix("mixed_") == dtype
        case ast.Attribute(attr=attr):
            return attr == dtype or (attr == "half" and dtype == "float16")
        case ast.IfExp(body=body, orelse=orelse):
            return names_dtype(body, dtype) or names_dtype(orelse, dtype)
    return False


def called(trace: Trace, place: Place) -> str:
    """The last name of what is called at a place."""
    found = trace.node(place)
    func = found[1].func if found is not None and isinstance(found[1], ast.Call) else None
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else "policy"


# trainers


def of_trainers(trace: Trace) -> Iterator[Choice]:
    """The dtypes that trainers are set to."""
    for found in setups(trace):
        for mode in modes(found.setup) if found.setup.trainer != "deepspeed" else ():
            kind = "float8" if mode.dtype == "float8" and found.setup.trainer in ("lightning", "fabric") else "trainer"
            yield of_setting(found, mode, kind, found.path, found.verdict)
        for option, path in supported(trace, found):
            yield of_setting(found, Mode(option, "bfloat16", ""), "trainer", path, trace.verdict(found.entry, path))


def of_setting(found: Configured, mode: Mode, kind: str, path: Path, verdict: Verdict) -> Choice:
    """The choice of one setting."""
    title = found.setup.title
    return Choice(kind, mode.dtype, found.file, mode.option.place, found.event.place, title, mode.device, found.entry, path, verdict)


def supported(trace: Trace, found: Configured) -> Iterator[tuple[Option, Path]]:
    """The flag for bfloat16 where it is what torch says of its support, by emulation."""
    options = found.setup.options
    if not isinstance(options, WrittenOptions) or found.setup.trainer != "transformers":
        return
    section: Section = options.section
    setting, option = section.get("bf16"), options.option("bf16")
    for guards, held in setting.ways if setting is not None and option is not None else ():
        path = extend(found.path, guards)
        if type(held) is Unknown and path is not None and BFLOAT_SUPPORT.search(shown_symbol(held.symbol)):
            on = extend(path, [(("true", held.symbol), True)])
            if on is not None and option is not None:
                yield option, on


# what the program asks of its device


def asks_capability(trace: Trace, choice: Choice) -> bool:
    """Whether the file reads the device's compute capability anywhere: then it decides for itself."""
    assert trace.project is not None
    ir = trace.project.ir(trace.path_of(choice.file))
    words: frozenset[str] = ir[2] if ir is not None else frozenset()
    asked = "is_bf16_supported(including_emulation=" in words or {"get_device_properties", "major"} <= words
    return asked or not CAPABILITY.isdisjoint(words)


@cache
def texts(path: Path) -> tuple[tuple[str, bool, bool], ...]:
    """What the literals of a path say, as text: with its truth, and whether it names values."""
    found = []
    for key, sense in path:
        if key[0] in ("true", "in") and not BFLOAT_SUPPORT.search(said := shown_symbol(key[1])):
            if said.startswith("isinstance("):
                said += f", {str(key[1]).rpartition(', ')[2]}"
            values = " ".join(sorted(map(str, key[2]))) if key[0] == "in" else ""
            found.append((f"{said} {values}".strip(), sense, key[0] == "in"))
    return tuple(sorted(found))


def is_asked(path: Path) -> bool:
    """Whether a condition of a path asks what the device supports, by a name that the project may not define."""
    return any(ASKED.search(text) for text, _, _ in texts(path))


def counts_emulation(path: Path) -> bool:
    """Whether a path is taken where torch says that it supports bfloat16, by emulation."""
    return any(key[0] == "true" and sense and BFLOAT_SUPPORT.search(shown_symbol(key[1])) for key, sense in path)


def is_requested(trace: Trace, path: Path, dtype: str) -> bool:
    """Whether a path is taken only where the user asks for a dtype by name: `if args.fp16:`."""
    word = NAMED[dtype]
    for key, sense in path:
        switch = trace.switches.get(key[1]) if key[0] in ("true", "in") else None
        default = getattr(switch.default, "value", None) if switch is not None else None
        if key[0] == "true" and sense and not default and word.search(BFLOAT_SUPPORT.sub("", shown_symbol(key[1]))):
            return True
        if key[0] == "in" and sense and default not in key[2] and word.search(" ".join(map(str, key[2]))):
            return True
    return False


def excludes(path: Path, device: str) -> bool:
    """Whether the conditions of a path say that it is not taken on a device type ("cuda" or "cpu")."""
    own, other = (GPU, OTHERS) if device == "cuda" else (frozenset({"cpu"}), (GPU | OTHERS) - {"cpu"})
    for text, sense, _ in texts(path):
        words = {word.lower() for word in WORD.findall(text)}
        if words & own and words & other:
            continue
        if (words & own and not sense) or (words & other and sense):
            return True
    return False


def effect(trace: Trace, choice: Choice) -> tuple[tuple[Location, str], ...]:
    """The place where a dtype is put in force, where that is another line."""
    site = trace.location(choice.site)
    elsewhere = site.line != choice.span.line or trace.file(choice.site.path) is not choice.file
    return ((site, "the dtype takes effect here"),) if elsewhere else ()
