"""MP107: an autocast call that raises, or that does not put the chosen dtype in force."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import AddImport, Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.program.conditions import Path, symbols_of
from mplint.program.lower import span_of
from mplint.program.machine import Args, Event, Switch
from mplint.program.trace import Trace, possible, shown_symbol
from mplint.program.values import DOUBLE, SINGLE, Atom, Constant, DType, Place, Step, Test, Unknown, Value
from mplint.program.verdict import needs
from mplint.python.arguments import argument_start
from mplint.python.syntax import argument
from mplint.rule import Rule

if TYPE_CHECKING:
    from mplint.program.values import Autocast
    from mplint.python.file import SourceFile

NEW = "torch.amp.autocast"
OLD = ("torch.cuda.amp.autocast", "torch.cpu.amp.autocast")
NEW_SCALER = "torch.amp.GradScaler"
OLD_SCALERS = ("torch.cuda.amp.GradScaler", "torch.cpu.amp.GradScaler")
REGION = ("enabled", "dtype", "cache_enabled")
SCALER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
PARAMETERS = {
    NEW: ("device_type", *REGION),
    **dict.fromkeys(OLD, REGION),
    NEW_SCALER: ("device", *SCALER),
    **dict.fromkeys(OLD_SCALERS, SCALER),
}
DTYPES = frozenset(("float16", "bfloat16", "float32", "float64"))
NOT_DEVICES = {"gpu", "GPU", "CUDA", "tpu", "half", "fp16", "bf16", "float", "fp32", "double", *DTYPES}
DEVICES = ("cuda", "cpu", "mps", "xpu")
GUARD = re.compile(r"device|cuda|gpu|cpu|amp|backend", re.I)
OF_TENSORS = frozenset({"float", "half", "bfloat16", "unsqueeze", "permute", "contiguous", "size"})  # methods, none of an array's
NUMBERED = re.compile(r"torch\.(cuda|xpu|accelerator)\.(current_device|current_device_index|device_count)\(\)$")
NO_TEST = frozenset(["import", "try"])  # unnamed conditions that no test asks for
ASKED = re.compile(r"signature|getfullargspec|co_varnames")
TRIED = 12  # lines of a try-statement that only tries something
IGNORED = {"enabled": "the scaler stays enabled whatever it says", "init_scale": "the scale starts at 65536"}
CHECKED_DEVICES = {"cpu", "mps", "xpu", "hpu", "xla"}  # where autocast accepts no dtype but float16 and bfloat16


class Mistake(NamedTuple):
    """What is wrong with a region at a place: `fix` from the call's syntax, where that is at hand."""

    place: Place
    message: str
    why: str
    help: str
    fix: Fix | None = None
    severity: Severity | None = None


class Written(NamedTuple):
    """The construction of a region in its file, with the argument in question."""

    file: SourceFile
    call: ast.Call
    value: ast.expr


class InvalidAutocastCall(Rule):
    """Wrong arguments of torch.autocast

    ## What it does
    Finds calls of `torch.autocast` (and `torch.amp.autocast`) whose arguments are wrong: no device type, a `torch.device`, a bool or the
    number of a device (`torch.cuda.current_device()`) as first argument, a positional `enabled` where `dtype` stands, a decorator without
    parentheses, a dtype given as a string, a dtype that the device does not take, a device type for the old `torch.cuda.amp.autocast` or
    `torch.cuda.amp.GradScaler`, a flag or a number where `torch.amp.GradScaler` expects the device, `torch.amp.custom_fwd` without a device
    type, keywords that the class does not have (`torch.amp.GradScaler(device_type=…)`: it is `device` there), and a device or dtype fixed
    in the call although the script has an option for it.

    ## Why is this bad?
    The first parameter of the old `torch.cuda.amp.autocast` was `enabled`, that of `torch.autocast` is `device_type`, a string.
    `torch.autocast(True)` raises ValueError; `torch.autocast("cuda", True)` takes True for the dtype and raises TypeError when it is
    entered. `torch.autocast("cpu", dtype=torch.float32)` and a "cuda" autocast on another device only warn, and leave 100 % of the
    model in float32.

    ## Example
    ```python
    import torch

    device = torch.device("cuda")
    with torch.autocast(device, True):
        loss = model(batch)
    ```

    ## Use instead
    ```python
    import torch

    device = torch.device("cuda")
    with torch.autocast(device.type, enabled=True):
        loss = model(batch)
    ```

    ## Fix safety
    The fix names the argument, takes the device's type, or inserts the only device type that the file speaks of; where the file
    speaks of several there is no fix.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp107.py.

    ## References
    - https://docs.pytorch.org/docs/stable/amp.html#torch.autocast
    """

    code = "MP107"
    name = "invalid-autocast-call"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each wrong construction by the first of its mistakes, then options that no autocast reads."""
        yield from self._called(trace)
        right: list[Event] = []
        new = {event.place for _, event in trace.of("autocast made") if event.data["name"] == NEW}
        for entry in trace.entries:
            probes = {event.place for event in entry.of("error expected")}
            for event in entry.of("autocast made", "autocast without parentheses", "scaler made", "decorator without device"):
                if event.place in probes or is_tried(event) or event.get("own"):
                    continue
                if event.data["name"] in OLD and event.place in new:
                    continue  # whichever of the two the installed version has
                found = mistake(trace, event)
                if found is None:
                    right.append(event)
                    continue
                said, path = found
                verdict = self.verdict(trace, entry, path, said.place)
                yield self.at(
                    trace,
                    said.place,
                    said.message + verdict.condition(),
                    why=said.why,
                    help=said.help,
                    severity=said.severity,
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    fix=said.fix,
                )
        yield from self._unread(trace, [event for event in right if event.kind == "autocast made"])

    def _called(self, trace: Trace) -> Iterator[Finding]:
        """Calls of an object that torch.autocast has built, as if it were the class."""
        for entry, event in trace.of("autocast called"):
            built: Autocast = event.data["autocast"]  # type: ignore[assignment]
            text = trace.text(event.place)
            yield self.at(
                trace,
                event.place,
                f"`{text}` calls an autocast object{self.verdict(trace, entry, event.path, event.place).condition()}",
                why="The object takes the function that it decorates: without one the call raises TypeError.",
                help=f"Enter it as it is: `with {text.removesuffix('()')}:`.",
                steps=tuple(Step(step.place, "the autocast is built here") for step in built.chain[:1]),
            )

    def _unread(self, trace: Trace, made: list[Event]) -> Iterator[Finding]:
        """Regions with a device or a dtype of their own, in scripts whose user chooses that."""
        symbols = scaling(trace)
        by_path: dict[str, list[Event]] = {}
        for event in made:
            by_path.setdefault(event.place.path, []).append(event)
        for path, here in sorted(by_path.items()):
            device = option_for(trace, path, chooses_device)
            if device is not None and all(device_is(event, "cuda") for event in here) and runs_elsewhere(trace, path, device):
                for event in here:
                    if event.data["name"] == NEW and event.data["enabled"] is None and not is_spared(trace, event):
                        yield self._fixed_device(trace, event, device)
            dtype = option_for(trace, path, chooses_bfloat16, symbols)
            if dtype is not None and not any(event.data["dtype"] is not None or args_of(event).opaque for event in here):
                for event in here:
                    if event.data["enabled"] is None and device_is(event, "cuda"):
                        yield self._missing_dtype(trace, event, dtype)

    def _fixed_device(self, trace: Trace, event: Event, option: Switch) -> Finding:
        """An autocast for "cuda" in a script that can run on another device."""
        return self.at(
            trace,
            event.place,
            f"the device type of autocast is fixed to cuda, while `{named(option)}` is an option of this script",
            why="On another device than CUDA this autocast is off, with a warning at most, and the model runs in float32.",
            help="Derive it from the option, for instance `torch.autocast(torch.device(device).type, …)`.",
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            steps=(Step(option.place, "the option"),) if option.place is not None else (),
        )

    def _missing_dtype(self, trace: Trace, event: Event, option: Switch) -> Finding:
        """An autocast without dtype in a script whose dtype option reaches only the scaler."""
        return self.at(
            trace,
            event.place,
            f"autocast gets no dtype, while the option `{named(option)}` decides about loss scaling",
            why="Without `dtype=` autocast on CUDA computes in float16, also where the option says bfloat16.",
            help=f"Pass the dtype that `{named(option)}` names.",
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            steps=(Step(option.place, "the option"),) if option.place is not None else (),
        )


def is_tried(event: Event) -> bool:
    """Whether a short try-statement around a place looks what happens."""
    line = span_of(event.place.position)[0]
    for key, _ in event.path:
        if key[0] == "place" and "try" in key and key[1].path == event.place.path:
            first, _, last, _ = span_of(key[1].position)
            if first <= line <= last < first + TRIED:
                return True
    return False


# options


def named(option: Switch) -> str:
    """An option as its script reads it."""
    return option.name.lstrip("-").replace("-", "_")


def option_for(
    trace: Trace, path: str, fits: Callable[[str, list[str]], bool], symbols: frozenset[Hashable] | None = None
) -> Switch | None:
    """The first option of a script whose name and known values fit, among some symbols where these are given."""
    for symbol, switch in options_of(trace).get(path, ()):
        if switch.kind in ("option", "setting"):
            given = [switch.default.value] if type(switch.default) is Constant else []
            values = [v for v in (*given, *switch.choices) if isinstance(v, str)]
            if values and (symbols is None or symbol in symbols) and fits(named(switch), values):
                return switch
    return None


def options_of(trace: Trace) -> dict[str, list[tuple[Hashable, Switch]]]:
    """The switches of each program that has some."""
    known = trace.held.get("switches by path")
    if not isinstance(known, dict):
        known = trace.held["switches by path"] = dict[str, list[tuple[Hashable, Switch]]]()
        for symbol, switch in trace.switches.items():
            if switch.place is not None:
                known.setdefault(switch.place.path, []).append((symbol, switch))
    return known


def runs_elsewhere(trace: Trace, path: str, option: Switch) -> bool:
    """Whether a script is made for other devices than CUDA, as the values or the help of its option tell, or a test whether there is one.

    Where a checkpoint is loaded to (`map_location="cpu"`) says nothing of where the model runs.
    """
    file = trace.file(path) if option.kind == "option" else None
    if file is None:
        return True
    for node in file.syntax.all(ast.Constant):
        around = file.syntax.parents.get(node)
        loaded = isinstance(around, ast.keyword) and around.arg in ("map_location", "location")
        if isinstance(node.value, str) and not loaded and not CHECKED_DEVICES.isdisjoint(re.split(r"\W+", node.value.lower())):
            return True
    return any(node.attr == "is_available" for node in file.syntax.all(ast.Attribute))


def is_spared(trace: Trace, event: Event) -> bool:
    """Whether nothing is lost where a region for CUDA alone is off: it is meant for CUDA, or its models are cast to its dtype anyway."""
    dtype = event.data["dtype"]
    casts = [e for _, e in trace.of("module cast") if e.place.path == event.place.path]
    return is_guarded(trace, event) or (type(dtype) is DType and any(cast.data["dtypes"] == {dtype.letter} for cast in casts))


def is_guarded(trace: Trace, event: Event) -> bool:
    """Whether a condition on the way to a region may stand for the device, or be why a value that is computed is this one."""
    if any(GUARD.search(shown_symbol(symbol)) for symbol in symbols_of(event.path)):
        return True
    given = written(trace, event, "device_type", 0)
    plain = given is not None and isinstance(given.value, ast.Constant)
    return not plain and any(key[0] == "place" and not NO_TEST.intersection(key) for key, _ in event.path)


def chooses_device(name: str, values: list[str]) -> bool:
    """Whether an option is for the device."""
    return name in ("device", "device_type") and any(value.startswith(DEVICES) for value in values)


def chooses_bfloat16(name: str, values: list[str]) -> bool:
    """Whether bfloat16 is a value of an option."""
    return any("bf" in value for value in values)


def scaling(trace: Trace) -> frozenset[Hashable]:
    """The symbols that decide whether a scaler is enabled."""
    made = [event for _, event in trace.of("scaler made")]
    enabled = [atom for event in made for _, atom in possible(event.data["enabled"], event.path)]  # type: ignore[arg-type]
    return frozenset(atom.key[1] for atom in enabled if type(atom) is Test)


def args_of(event: Event) -> Args:
    """The arguments of a construction."""
    args = event.data["args"]
    assert isinstance(args, Args)
    return args


def device_is(event: Event, device: str) -> bool:
    """Whether a region is for a device, whatever the user chooses."""
    value = event.data["device"]
    return type(value) is Constant and str(value.value).partition(":")[0] == device


# single constructions


def mistake(trace: Trace, event: Event) -> tuple[Mistake, Path] | None:
    """What is wrong with a construction, and the path on which it is; None where nothing is."""
    name = str(event.data["name"])
    if event.kind == "autocast without parentheses":
        return without_parentheses(trace, event.place, name), event.path
    if event.kind == "decorator without device":
        return decorator_without_device(trace, event.place, name), event.path
    args = args_of(event)
    unknown = unknown_argument(trace, event, args, name)
    if unknown is not None:
        return unknown, event.path
    if event.kind == "scaler made":
        moved = device_as_scale(trace, event, args, name) or flag_as_device(trace, event, args, name)
        return (moved, event.path) if moved is not None else None
    if name in OLD:
        found = of_the_new(trace, event, args, name)
        return (found, event.path) if found is not None else None
    if name != NEW:
        return None
    if args.get(0, "device_type") is None:
        return None if args.opaque else (without_device(trace, event.place), event.path)
    for index, parameter, wrong in ((0, "device_type", wrong_device), (1, "dtype", wrong_dtype)):
        value, position = args.get(index, parameter), args.place(index, parameter)
        if value is None or position is None:
            continue
        place = Place(event.place.path, position)
        for path, atom in possible(value, event.path):
            if is_converted(trace, path, atom):
                continue
            said = wrong(trace, event, place, written(trace, event, parameter, index), atom)
            if said is not None:
                return said, path
    return None


def is_converted(trace: Trace, path: Path, atom: Atom) -> bool:
    """Whether a setting that is a string by default stands there only where it is given as something else, or a number is asked."""
    if type(atom) is Unknown and is_number(atom):
        return any(sense and key[0] == "true" and str(key[1]).startswith(f"isinstance({atom.symbol}, ") for key, sense in path)
    switch = trace.switches.get(atom.symbol) if type(atom) is Unknown else None
    if type(atom) is not Unknown or switch is None or type(switch.default) is not Constant or not isinstance(switch.default.value, str):
        return False
    asked = f"isinstance({atom.symbol}, "
    classes = [str(key[1])[len(asked) :] for key, sense in path if sense and key[0] == "true" and str(key[1]).startswith(asked)]
    return any("builtins.str" not in named for named in classes) or needs(switch, path, atom.symbol) is not None


def written(trace: Trace, event: Event, parameter: str, index: int) -> Written | None:
    """The argument of a construction in the syntax."""
    node = trace.node(event.place)
    if node is None or not isinstance(node[1], ast.Call):
        return None
    value = argument(node[1], parameter, index)
    return Written(node[0], node[1], value) if value is not None else None


def unknown_argument(trace: Trace, event: Event, args: Args, name: str) -> Mistake | None:
    """A keyword that the class does not have, where nothing on the way asks what it takes."""
    known = PARAMETERS.get(name)
    if known is None or any(ASKED.search(str(key)) for key, _ in event.path):
        return None
    for given, position in args.named_places.items():
        if given not in known:
            return Mistake(
                Place(event.place.path, position),
                f"`{name}` takes no `{given}`",
                f"It takes ({', '.join(known)}): the call raises TypeError.",
                better_argument(given, name, known),
            )
    return None


def better_argument(given: str, name: str, known: tuple[str, ...]) -> str:
    """What to write for an argument that a class does not have."""
    if given in ("device", "device_type"):
        other = next((parameter for parameter in known if parameter.startswith("device")), None)
        if other is not None:
            return f"Write `{other}=`."
        new = "torch.autocast" if name in OLD else "torch.amp.GradScaler"
        return f"Use `{new}`, whose first argument is the device type."
    return "Leave it out."


def of_the_new(trace: Trace, event: Event, args: Args, name: str) -> Mistake | None:
    """An old autocast that gets the device type (or the dtype), as `torch.autocast` does."""
    help = "Use `torch.autocast`, whose first argument is the device type."
    takes = f"`{name}` takes (enabled, dtype, cache_enabled): "
    first, position = args.get(0), args.place(0)
    if first is None or position is None or not all(is_name_or_dtype(atom) for _, atom in possible(first, event.path)):
        return None
    place = Place(event.place.path, position)
    message = f"`{trace.text(place)}` stands where `{name}` expects `enabled`"
    return Mistake(place, message, f"{takes}entering it raises TypeError.", help)


def device_as_scale(trace: Trace, event: Event, args: Args, name: str) -> Mistake | None:
    """An old scaler that gets the device type first, as `torch.amp.GradScaler` does."""
    first, position = args.get(0, "init_scale"), args.place(0, "init_scale")
    if name not in OLD_SCALERS or first is None or position is None:
        return None
    if not all(type(atom) is Constant and isinstance(atom.value, str) for _, atom in possible(first, event.path)):
        return None
    place = Place(event.place.path, position)
    return Mistake(
        place,
        f"`{trace.text(place)}` stands where `{name}` expects the first scale",
        "The scale of the loss is then no number, and scaling the first loss raises TypeError.",
        "Use `torch.amp.GradScaler`, whose first argument is the device type.",
    )


def flag_as_device(trace: Trace, event: Event, args: Args, name: str) -> Mistake | None:
    """A new scaler that gets `enabled`, or the first scale, where the device stands."""
    first, position = args.get(0), args.place(0)
    if name != NEW_SCALER or first is None or position is None:
        return None
    atoms = [atom for _, atom in possible(first, event.path)]
    flag = all(is_bool(trace, atom) for atom in atoms)
    if not flag and not all(type(atom) is Constant and isinstance(atom.value, int | float) for atom in atoms):
        return None
    place = Place(event.place.path, position)
    text, meant = trace.text(place), "enabled" if flag else "init_scale"
    return Mistake(
        place,
        f"`{text}` stands where `{name}` expects the device",
        f"torch takes the value without a word and ignores it: {IGNORED[meant]}.",
        f'Write `GradScaler("cuda", {meant}={text})`.',
        with_device(written(trace, event, "device", 0), meant),
        severity=Severity.WARNING,
    )


def decorator_without_device(trace: Trace, place: Place, name: str) -> Mistake:
    """`@torch.amp.custom_fwd`, which needs the device type by its name."""
    text = trace.text(place)
    called = text.partition("(")[0]
    return Mistake(
        place,
        f"`{called}` gets no device type",
        f"`{name}` needs `device_type=`, unlike torch.cuda.amp.{name.rpartition('.')[2]}: decorating the function raises TypeError.",
        f'Write `@{called}(device_type="cuda")`.',
    )


def is_name_or_dtype(atom: Atom) -> bool:
    """Whether a value is a string or a dtype."""
    return type(atom) is DType or (type(atom) is Constant and isinstance(atom.value, str))


def without_parentheses(trace: Trace, place: Place, name: str) -> Mistake:
    """`@torch.autocast`: the function itself becomes the first argument."""
    text, old = trace.text(place), name != NEW
    node = trace.node(place)
    given = "" if old else only_device(node[0]) if node is not None else None
    end = trace.span(place)[2:]
    return Mistake(
        place,
        f"`@{text}` has no parentheses: the function is taken for its first argument",
        "The name then holds an autocast object, and calling it does not run the function." if old else "It raises ValueError.",
        f'Write `@{text}("cuda")`.' if not old else f"Write `@{text}()`.",
        None if given is None else Fix(f"Write `@{text}({given})`", Applicability.SAFE, (Replace(Span(*end, *end), f"({given})"),)),
    )


def without_device(trace: Trace, place: Place) -> Mistake:
    """`torch.autocast()`: the device type has no default."""
    node, fix, called = trace.node(place), None, "torch.autocast"
    if node is not None and isinstance(node[1], ast.Call):
        file, call = node
        assert isinstance(call, ast.Call)
        called, given = file.text(call.func), only_device(file)
        first: ast.expr | ast.keyword | None = call.args[0] if call.args else call.keywords[0] if call.keywords else None
        line, column = argument_start(file, first) if first is not None else (file.span(call)[2], file.span(call)[3] - 1)
        if given is not None:
            text = given + (", " if first is not None else "")
            fix = Fix(f"Pass {given}", Applicability.SAFE, (Replace(Span(line, column, line, column), text),))
    return Mistake(
        place,
        f"`{called}` gets no device type",
        "`device_type` has no default: the call raises TypeError.",
        'Pass the device type, "cuda" or "cpu", as first argument.',
        fix,
    )


def is_bool(trace: Trace, atom: Atom) -> bool:
    """Whether a value is a bool, or a flag that is one."""
    if type(atom) is Test or (type(atom) is Constant and isinstance(atom.value, bool)):
        return True
    switch = trace.switches.get(atom.symbol) if type(atom) is Unknown else None
    flag = switch is not None and type(switch.default) is Constant and isinstance(switch.default.value, bool)
    return flag or (type(atom) is Unknown and atom.hint == "bool")


def wrong_device(trace: Trace, event: Event, place: Place, here: Written | None, atom: Atom) -> Mistake | None:
    """A first argument that is no device type."""
    text = trace.text(place)
    if is_bool(trace, atom):
        return Mistake(
            place,
            f"`{text}` stands where autocast expects the device type",
            "`torch.autocast` takes (device_type, dtype, enabled), unlike torch.cuda.amp.autocast; a bool raises ValueError.",
            f'Write `autocast("cuda", enabled={text})`.',
            with_device(here, "enabled"),
        )
    if type(atom) is Unknown and (atom.hint == "torch.device" or (here is not None and is_of_a_tensor(here, atom))):
        fix = None
        if here is not None and isinstance(here.value, ast.Name | ast.Attribute | ast.Call):
            end = here.file.span(here.value)[2:]
            fix = Fix(f"Pass `{text}.type`", Applicability.SAFE, (Replace(Span(*end, *end), ".type"),))
        return Mistake(
            place,
            f"`{text}` is a torch.device where autocast expects a string",
            "`torch.autocast` raises ValueError: Expected `device_type` of type `str`.",
            f"Pass `{text}.type`.",
            fix,
        )
    if is_number(atom):
        return Mistake(
            place,
            f"`{text}` is the number of a device where autocast expects its type",
            "`torch.autocast` raises ValueError: Expected `device_type` of type `str`.",
            'Pass the device type, "cuda" for a GPU, whatever its number.',
        )
    if type(atom) is DType or (type(atom) is Constant and atom.value in NOT_DEVICES):
        return Mistake(
            place,
            f"`{text}` is no device type",
            "The first parameter of `torch.autocast` is the device type; anything else raises an error.",
            'Pass "cuda", "cpu" or another device type first, and the dtype as `dtype=`.',
            with_device(here, "dtype") if type(atom) is DType else None,
        )
    return None


def is_number(atom: Atom) -> bool:
    """Whether a value is the number of a device: an integer, or the current device of CUDA, which is told by its number."""
    if type(atom) is Constant:
        return isinstance(atom.value, int) and not isinstance(atom.value, bool)
    return type(atom) is Unknown and NUMBERED.match(shown_symbol(atom.symbol)) is not None


def is_of_a_tensor(here: Written, device: Unknown) -> bool:
    """Whether `x.device` is asked of a parameter that its function takes for a tensor: by a method, or by calling a torch layer on it."""
    syntax, value = here.file.syntax, here.value
    function = syntax.function(value)
    match value:
        case ast.Attribute(value=ast.Name(id=name), attr="device") if function is not None and not device.hint:
            parameters = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            owner = syntax.enclosing_class(value)
            called = [call for call in ast.walk(function) if isinstance(call, ast.Call)]
            known = any(arg.arg == name for arg in parameters)
            return known and any(
                is_method_of(call, name) or (owner is not None and is_layer_on(here.file, owner, call, name)) for call in called
            )
    return False


def is_method_of(call: ast.Call, name: str) -> bool:
    """Whether a call is one of a method that only tensors have, by that name."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=own), attr=method):
            return own == name and method in OF_TENSORS
    return False


def is_layer_on(file: SourceFile, owner: ast.ClassDef, call: ast.Call, name: str) -> bool:
    """Whether a call runs one of a class's own torch layers on a name alone."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=layer), args=[ast.Name(id=given)], keywords=[]) if given == name:
            made = [node for node in ast.walk(owner) if isinstance(node, ast.Assign) and is_attribute(node.targets, layer)]
            calls = [node.value for node in made if isinstance(node.value, ast.Call)]
            return bool(made) and len(calls) == len(made) and all((file.names.resolve(c.func) or "").startswith("torch.nn.") for c in calls)
    return False


def is_attribute(targets: list[ast.expr], attr: str) -> bool:
    """Whether an assignment gives `self` an attribute."""
    return [ast.unparse(target) for target in targets] == [f"self.{attr}"]


def wrong_dtype(trace: Trace, event: Event, place: Place, here: Written | None, atom: Atom) -> Mistake | None:
    """A dtype argument that is no dtype, or none that the device takes."""
    text = trace.text(place)
    if is_bool(trace, atom):
        fix = None
        if here is not None and here.value in here.call.args:
            line, column = argument_start(here.file, here.value)
            fix = Fix(f"Write `enabled={text}`", Applicability.SAFE, (Replace(Span(line, column, line, column), "enabled="),))
        return Mistake(
            place,
            f"`{text}` stands where autocast expects the dtype",
            "`torch.autocast` takes (device_type, dtype, enabled): with a bool as dtype, entering it raises TypeError.",
            f"Write `enabled={text}`.",
            fix,
        )
    switch = trace.switches.get(atom.symbol) if type(atom) is Unknown else None
    default: Value | None = switch.default if switch is not None else atom
    if type(default) is Constant and isinstance(default.value, str):
        return named_dtype(place, text, here, default.value)
    devices = {str(a.value).partition(":")[0] for _, a in possible(event.data["device"], event.path) if type(a) is Constant}  # type: ignore[arg-type]
    wide = event.data["dtype"] in (DType(SINGLE), DType(DOUBLE))  # whatever the user chooses
    if wide and devices and devices <= CHECKED_DEVICES and event.data["enabled"] is None:
        return Mistake(
            place,
            f"autocast on {' or '.join(sorted(devices))} does not take `{text}`",
            "On every device but CUDA, autocast supports float16 and bfloat16 only: it warns, stays off, and all runs in float32.",
            "Use `dtype=torch.bfloat16`, or `enabled=False` where float32 is meant.",
            severity=Severity.WARNING,
        )
    return None


def named_dtype(place: Place, text: str, here: Written | None, name: str) -> Mistake:
    """A dtype given by its name."""
    known = name in DTYPES
    better = f"torch.{name}" if here is not None and isinstance(here.value, ast.Constant) else f"getattr(torch, {text})"
    fix = None
    if known and here is not None:
        change = Replace(here.file.span(here.value), better)
        imported = "torch" in here.file.names.bindings.get(here.file.tree, {})
        fix = Fix(f"Pass `{better}`", Applicability.SAFE, (change,) if imported else (AddImport("torch"), change))
    return Mistake(
        place,
        f"`{text}` is a string where autocast expects a dtype",
        "Entering the autocast raises TypeError: the dtype must be a torch.dtype.",
        f"Pass `{better}`." if known else "Pass a torch dtype.",
        fix,
    )


def with_device(here: Written | None, name: str) -> Fix | None:
    """Put the only device of the file first, and give the first argument its name."""
    given = only_device(here.file) if here is not None else None
    if here is None or given is None or len(here.call.args) != 1 or here.call.args[0] is not here.value:
        return None
    if any(keyword.arg == name for keyword in here.call.keywords):
        return None
    line, column = argument_start(here.file, here.value)
    text = f"{given}, {name}="
    title = f"Write `{text}{here.file.text(here.value)}`"
    return Fix(title, Applicability.SAFE, (Replace(Span(line, column, line, column), text),))


def only_device(file: SourceFile) -> str | None:
    """The device type that the file speaks of, as a literal; None where it speaks of none or of several."""
    spoken: set[str] = set()
    for node in file.syntax.all(ast.Constant):
        if isinstance(node.value, str) and (device := node.value.partition(":")[0]) in ("cuda", *CHECKED_DEVICES):
            spoken.add(device)
    attributes = {a.attr for a in file.syntax.all(ast.Attribute)}
    spoken |= {device for device in DEVICES if device in attributes}
    return f'"{spoken.pop()}"' if len(spoken) == 1 else None
