"""Library code in the light of what the project does with models: modules that nobody has resolved, run in the project's own autocast.

Where some program runs a model that is chosen at run time under float16 autocast, or has a trainer that offers it, each module of the
same part of the repository may be that model, or a part of it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mplint.frameworks.torch.callers import Callers, input_of
from mplint.frameworks.torch.candidates import Candidates, Shape, member_of, put_in_place
from mplint.frameworks.torch.foreign import Packages
from mplint.frameworks.torch.functions import code_of
from mplint.frameworks.torch.helpers import Helpers, holds_number
from mplint.frameworks.torch.modules import cast_module, has_module_base, home_of_content
from mplint.frameworks.torch.named import Named
from mplint.frameworks.torch.protocol import GRADIENTS_OFF
from mplint.frameworks.torch.published import run_functions
from mplint.frameworks.torch.reach import Reach, Reached
from mplint.frameworks.torch.results import is_excluded, unpacked
from mplint.frameworks.torch.tensors import is_module_name
from mplint.frameworks.torch.units import Units
from mplint.frameworks.trainers.managed import COMPUTES
from mplint.frameworks.trainers.queries import with_level
from mplint.program.calls import instantiate
from mplint.program.conditions import EMPTY, Path, extend
from mplint.program.entries import OWN_STEPS, call_open, definitions, is_cut, run, words_in, words_of
from mplint.program.expressions import bind, class_member, external_bases, home_of_instance
from mplint.program.lower import IR
from mplint.program.machine import IDENTITY, STATE, Args, Event, Machine
from mplint.program.trace import CALLERS, Ask, Entry, Guess, Trace, possible, shown_symbol
from mplint.program.values import (
    ANY,
    BFLOAT,
    DTYPE_NAMES,
    FALSE,
    HALF,
    TRUE,
    Atom,
    Autocast,
    By,
    Chain,
    Class,
    Code,
    Constant,
    DType,
    Function,
    Module,
    Object,
    Place,
    Step,
    Unknown,
    atoms,
)
from mplint.python.document import is_test_path

NUMBERS = re.compile(
    rb"\d[eE][-+]?\d|\d{5}|0\.0000|finfo|binary_cross_entropy|BCELoss|Function\b|[A-Z]\w*\.apply\(|\.var\(|\.std\("
    rb"|MelS(?:pectrogram|cale)\b|LogmelFilterBank|\.stft\(|\.float\(\)[.\w(), -]{0,40}@"
    rb"|\b(?:matmul|bmm|einsum|linear)\([^\n]{0,60}\.float\(\)"
    rb"|create_graph=True|linalg\.(?!\w*norm)|quantile\(|\b(?:svd|qr|pinverse|cholesky\w*)\(|_lowrank|\bfft\.|[gG]ram(?:_|\b|M)"
)
CONTEXT_STEPS = 200_000  # of all such runs, and
FILE_STEPS = 2_000  # more for each file, up to
MOST_STEPS = 400_000
SMALLEST_RUN = 8_000  # that a module gets, however many there are
SHALLOW_STEPS = 16_000  # of a run that enters no modules
USERS_STEPS = 100_000  # at least, of the runs of modules that users cast
MOST_STATES = 3  # in which one class is run
HAZARDS = frozenset({"pow", "square", "var", "std", "var_mean", "finfo"})  # what a cast module is read for, beside numbers beyond half
RANKS = {HALF: 0, ANY: 1, BFLOAT: 2}
MODEL = re.compile(r"model|net|module|forward", re.I)
OF_TORCH = "torch.nn."  # how the names of its layers begin
LOSS = re.compile(r"loss(es)?(?![a-z])[^.]*$|criteri(on|a)[^.]*$", re.I)


@dataclass(frozen=True, slots=True)
class Region:
    """An autocast state in which the project calls a model, where, and under which conditions.

    `cast`: no region, but a model that is cast to the dtype, weights and buffers. `trainer`: who enters it, around what steps a model
    has of its own. `classes`: the only ones that run in it, where these are known. `shape`: what the model is given, where it is called
    in a program that begins in the file `begun`. `callers`: users of a library enter it, of whom nobody knows. `trained`: gradients are
    computed there, so that a backward may follow. `meant`: what tells that such users run it so. `results`: how many names take what
    the model gives, where it is more than one. `registered`: the model is one of a registry, to which the file of `shape` adds some.
    """

    autocast: Autocast
    place: Place
    path: Path
    rank: tuple[object, ...]
    cast: bool = False
    trainer: str = ""
    classes: frozenset[Class] = frozenset()
    shape: Shape | None = None
    begun: str = ""
    callers: bool = False
    trained: bool = True
    meant: Chain = ()
    results: int = 0
    registered: bool = False


def regions(found: Trace, packages: Packages) -> list[Region]:
    """The half regions in which models run that nobody knows, float16 and the surest first."""
    result: list[Region] = []
    told = {event.place for entry in found.entries for event in entry.of("module cast", "cast to half") if is_called(entry, event)}
    for number, entry in enumerate(found.entries):
        for event in entry.of("unknown model called"):
            if is_test_path(event.place.path) or packages.give(event.data["model"]) or is_unbound(event):
                continue
            for path, region in possible(event.data["autocast"], event.path):  # type: ignore[arg-type]
                if type(region) is not Autocast or region.dtype not in (HALF, BFLOAT, ANY) or region.device in ("cpu", "mps"):
                    continue
                model = event.data["model"]
                shown = model.symbol.partition(IDENTITY)[0] if type(model) is Unknown else "model"
                chain = (*region.chain[:1], Step(event.place, f"{kind_of(shown)} that is chosen at run time is called here"))
                trained = event.data["trained"] is True
                rank = (RANKS[region.dtype], MODEL.search(shown) is None, not trained, len(path), not entry.script, number)
                letter = BFLOAT if region.dtype == BFLOAT else HALF
                shape = shape_of(model, event.data["args"])
                home = entry.path if entry.script else chain[0].place.path
                entered = replace(region, dtype=letter, chain=chain)
                count = unpacked(found.project, event.place)
                result.append(Region(entered, event.place, path, rank, shape=shape, begun=home, trained=trained, results=count))
        for event in entry.of("trainer precision"):
            given = event.data["dtypes"] if not packages.give(event.data["model"]) else None
            for guards, letter in given if isinstance(given, tuple) else ():
                both = extend(event.path, guards)
                if letter in (HALF, BFLOAT) and both is not None:
                    title = str(event.data["title"])
                    way, region = entered_by(found, event, title, both, letter)
                    rank = (RANKS[letter], False, False, len(way), not entry.script, number)
                    one = Region(region, event.place, way, rank, trainer=title, begun=begun(entry, event))
                    shapes = prepared_shapes(entry, event.data["trainer"], packages)
                    result += [one] if shapes is None else [replace(one, shape=shape) for shape in shapes]
        for event in entry.of("float16 offered"):
            guards = event.data["guards"]
            both = extend(event.path, guards) if isinstance(guards, frozenset) else None
            if both is not None:
                region = Autocast("cuda", HALF, (Step(event.place, f"{event.data['title']} runs the model in float16"),))
                rank = (0, False, False, len(both), not entry.script, number)
                one = Region(region, event.place, both, rank, begun=begun(entry, event))
                shapes = registered_shapes(found, event.get("registry"), packages)
                result += [replace(one, shape=shape, registered=True) for shape in shapes] or [one]
        result += casts(entry, number, packages, told)
    return sorted(result, key=lambda region: region.rank)


def kind_of(shown: str) -> str:
    """What something unknown that is called is, as its name says."""
    if LOSS.search(shown):
        return "a loss"
    return "a model" if MODEL.search(shown) else "a module"


def entered_by(found: Trace, event: Event, title: str, path: Path, letter: str) -> tuple[Path, Autocast]:
    """What a trainer computes in half precision by, and its path: apex by patching torch at the level O1, where it may be given that.

    At its other levels it refuses nothing, and a model's weights are as half as what they meet.
    """
    by_apex = title == "apex"
    step = Step(event.place, f"{'apex computes in' if by_apex else COMPUTES} {DTYPE_NAMES[letter]}", By.APEX if by_apex else None)
    region = Autocast("cuda", letter, (step,))
    if title != "apex":
        return path, region
    patched = with_level(found, event.data["precision"], path, "O1")  # type: ignore[arg-type]
    return (path, replace(region, by="apex's cast")) if patched is None else (patched, replace(region, by="apex"))


def prepared_shapes(entry: Entry, trainer: object, packages: Packages) -> list[Shape] | None:
    """The models that a trainer is given to prepare, which alone compute in its precision; None where any may be among them.

    accelerate has their `forward` alone compute in it: a model of which the program runs other methods only never does.
    """
    events = [event for event in entry.of("models prepared") if event.data["trainer"] == trainer]
    given = [atom for event in events for value in event.data["prepared"] for atom in atoms(value)]  # type: ignore[attr-defined]
    models = [atom for atom in given if not is_no_model(atom)]
    own = [atom for atom in models if not packages.give(atom)]
    past = {event.data["model"] for event in entry.of("run past forward")} if not is_cut(entry) else ()
    homes = {atom.type.path for atom in own if atom not in past and type(atom) is Object and type(atom.type) is Class}
    if not models or any(type(atom) is not Object or type(atom.type) is not Class for atom in own):
        return None
    return [Shape(0, frozenset(), True, home) for home in sorted(homes)]


def registered_shapes(found: Trace, registry: object, packages: Packages) -> list[Shape]:
    """The models that the project adds to a registry of another package, out of which a trainer builds the one that it runs."""
    if not isinstance(registry, str) or found.project is None:
        return []
    adds = Adds(registry)
    return [
        Shape(0, frozenset(), True, path) for path in sorted(found.project.paths) if not is_test_path(path) and packages.ask(path, adds)
    ]


@dataclass(frozen=True, slots=True)
class Adds:
    """The question whether a program adds classes to a registry."""

    registry: str

    def __call__(self, data: bytes) -> bool:
        return f"@{self.registry}.register".encode() in data


def is_no_model(atom: Atom) -> bool:
    """Whether something that a trainer prepares is what goes with a model: an optimizer, data, a schedule."""
    if type(atom) is Unknown:
        return NO_MODEL.search(shown_symbol(atom.symbol)) is not None
    return type(atom) is Constant or (type(atom) is Object and atom.kind in ("optimizer", "scheduler"))


NO_MODEL = re.compile(r"optim|sched|load|data|sampler|\blr", re.I)


def shape_of(model: object, args: object) -> Shape | None:
    """What the call of a model tells of it: its class where that is known, or else what it is given."""
    if type(model) is Unknown and isinstance(args, Args):
        return replace(Shape.of(args, member_of(model)), home=home_of_content(model) or home_of_instance(model))
    return Shape(0, frozenset(), True, model.type.path) if type(model) is Object and type(model.type) is Class else None


def begun(entry: Entry, event: Event) -> str:
    """The program that runs a region: a script, or what holds it."""
    return entry.path if entry.script else event.place.path


def is_called(entry: Entry, event: Event) -> bool:
    """Whether a function of the program, not the run of an entry by itself, leads to an event."""
    return entry.script or len(event.calls) > 1


def casts(entry: Entry, number: int, packages: Packages, told: set[Place]) -> Iterable[Region]:
    """The casts to half precision of models that nobody knows, or whose parts are known and may run where nobody looks.

    `told`: the casts of which callers tell what is cast, so that a helper which is run by itself adds nothing.
    """
    trained = bool(entry.of("backward", "trainer backward", "optimizer made", "trainer precision")) or not entry.script
    for event in entry.of("module cast"):
        letters, model, classes = event.data["dtypes"], event.data["module"], event.data["classes"]
        assert isinstance(classes, frozenset)
        if event.place in told and not is_called(entry, event):
            continue
        known = bool(classes) or (type(model) is Unknown and not packages.give(model) and not packages.is_narrowed(model, event.path))
        if known and letters in ({HALF}, {BFLOAT}) and not is_test_path(event.place.path):
            letter = HALF if letters == {HALF} else BFLOAT
            region = Autocast("cuda", letter, (Step(event.place, f"a model is cast to {DTYPE_NAMES[letter]} here", By.PARAMETERS),))
            rank = (RANKS[letter] + 3, False, False, len(event.path), not entry.script, number)
            home = begun(entry, event)
            yield Region(region, event.place, event.path, rank, cast=True, classes=classes, begun=home, trained=trained)


def is_unbound(event: Event) -> bool:
    """Whether an event calls a member of what nothing in its file binds, a module that nobody imports, that is not called a model.

    Or a layer that torch is said to have: none of the project's modules in either case.
    """
    model = event.data["model"]
    if type(model) is Object and model.kind == "layer" and str(model.type).startswith(OF_TORCH):
        return True
    if type(model) is not Unknown or is_module_name(model):
        return False
    shown, _, identity = model.symbol.partition(IDENTITY)
    return "." in shown and identity == event.place.path


def run_in_context(m: Machine, found: Trace, paths: Iterable[str], ask: Ask) -> None:
    """Run the modules of files that speak of numbers under the autocast state in which the project runs its models."""
    known = list(paths)
    callers = Callers(m.project, ask)
    run_modules(m, found, known, ask, callers)
    run_functions(m, found, known, ask, callers)


def run_modules(m: Machine, found: Trace, known: list[str], ask: Ask, callers: Callers) -> None:
    """Run the modules of such files, each in the nearest region."""
    offered = regions(found, Packages(m.project, ask))
    heirs = {path for path in known if ask(path, derives_with_numbers) and callers.run_in_half(path)}
    files = [path for path in known if path in heirs or ask(path, speaks_of_numbers)]
    others = [path for path in known if path not in heirs and ask(path, calls_functions)] if offered else []
    if not (files or others) or not (offered or heirs):
        return
    candidates, named = Candidates(m.project, ask), Named(m.project, ask, callers.libraries)
    nearby = Nearby(Units(m.project, known, ask), Ways(m), candidates, callers, named, Reach(candidates), offered)
    chosen = [(path, statement, states) for path in files for statement, states in classes_of(m, path, offered, nearby)]
    chosen += served_elsewhere(m, others, offered, nearby)
    left = min(CONTEXT_STEPS + FILE_STEPS * len({path for path, _, _ in chosen}.union(files)), MOST_STEPS)
    runs: list[Run] = []
    turns = [[(path, statement, states[turn]) for path, statement, states in chosen if len(states) > turn] for turn in range(MOST_STATES)]
    by_users = [one for waiting in turns for one in waiting if one[2].callers and one[2].cast]
    turns = [[one for one in waiting if not (one[2].callers and one[2].cast)] for waiting in turns]
    for waiting in (*turns, by_users):
        if waiting is by_users:
            left = max(left, USERS_STEPS)
        for number, (path, statement, region) in enumerate(waiting):
            if left <= 0:
                break
            before, m.called = m.called, set()
            m.limit = max(SMALLEST_RUN, min(OWN_STEPS, 2 * left // (len(waiting) - number)))
            entry = Entry(path, statement[2], False, context=CALLERS if region.callers else "autocast")
            entry.guesses = frozenset(nearby.guesses(region, path, statement))
            entry.meant, entry.offered = region.meant, nearby.is_offered(path, statement)
            entry.usual = region.callers and callers.runs_itself(path)
            one = Run(entry, region.cast)
            run(m, found, one.entry, partial(forward, m, path, statement, region, one), home=path)
            left -= m.limit - max(m.left, 0)
            if m.left > 0:  # what a run that ran out of steps has reached, it has not seen through
                one.reached = m.called
            elif not region.callers:
                left -= run_shallow(m, found, one, partial(forward, m, path, statement, region, Run(entry, region.cast)))
            m.called = before | m.called
            runs.append(one)
    m.limit = OWN_STEPS
    found.exhausted = found.exhausted or left <= 0
    forget_parts(found, runs)


def run_shallow(m: Machine, found: Trace, one: Run, start: Callable[[], None]) -> int:
    """Run a module again that ran out of steps, without entering those that it holds; the steps that this took."""
    m.limit, m.called, m.closed = SHALLOW_STEPS, set(), bool
    run(m, found, replace(one.entry, events=[]), start, home=one.entry.path)
    m.closed = None
    return m.limit - max(m.left, 0)


def classes_of(m: Machine, path: str, offered: Sequence[Region], nearby: Nearby) -> Iterable[tuple[IR, tuple[Region, ...]]]:
    """The classes of a file, each with the states in which it is run, the nearest first, and a cast by users of the library last.

    A model that one program casts, another may run under autocast: a class has a cast of its own or the nearest one, and the nearest
    region of those that belong together with it.
    """
    own = {cls.name: region for region in reversed(offered) for cls in region.classes if cls.path == path}
    cast = nearby.nearest((region for region in offered if region.cast and not region.classes), path)
    trained = nearby.nearest((region for region in offered if not region.cast and region.trained), path)
    entered = trained or nearby.nearest((region for region in offered if not region.cast), path)
    first = nearby.nearest((region for region in offered if region is cast or region is entered), path)
    shared = [first, *(region for region in (cast, entered) if region is not first)]
    if first is None and nearby.callers.run_in_half(path):
        shared = list(nearby.of_callers(path))
    cast_by_users = nearby.callers.cast_to_half(path)
    ir = m.project.ir(path) if any(shared) or own or cast_by_users else None
    for statement in definitions(ir[1]) if ir is not None else ():
        if statement[0] != "class":
            continue
        states = shared
        if statement[2] in own:
            states = [own[statement[2]], entered]
        elif first is not None and nearby.callers.is_left_to_users(path, statement) and not nearby.is_chosen(first, path, statement):
            states = list(nearby.of_callers(path))
        elif not any(region is not None and region.cast for region in states):
            states = [*states, *(region for region in nearby.of_callers(path) if region.cast)]
        called = nearby.calling(offered, path, statement) if any(region is not None and not region.callers for region in states) else None
        if called is not None and statement[2] not in own:
            states = [called, *(region for region in states if region is not None and region.cast)]
        if not is_hazardous(statement):
            states = [region for region in states if region is not None and not (region.callers and region.cast)]
        known = tuple(region for region in states if region is not None and nearby.may_hold(region, path, statement))
        if known:
            yield statement, known


def served_elsewhere(
    m: Machine, paths: Iterable[str], offered: Sequence[Region], nearby: Nearby
) -> list[tuple[str, IR, tuple[Region, ...]]]:
    """The classes of files without such numbers whose functions, in other files, hold them, with the project's states."""
    helpers = Helpers(nearby.reach)
    found: list[tuple[str, IR, tuple[Region, ...]]] = []
    for path in paths:
        ir = m.project.ir(path)
        served = [s for s in definitions(ir[1]) if s[0] == "class" and helpers.serve(path, s)] if ir is not None else []
        for statement, states in classes_of(m, path, offered, nearby) if served else ():
            entered = tuple(region for region in states if not region.callers)
            if entered and statement in served:
                found.append((path, statement, entered))
    return found


LOSSES = re.compile(r"^(?:cross_entropy|\w+_loss|binary_cross_entropy(?:_with_logits)?|kl_div)$")


def computes_loss(cls: IR) -> bool:
    """Whether the `forward` of a class computes a loss whatever it is given: it is a step of training."""
    bodies = [s[2][4] for s in cls[6] if s[0] == "define" and s[2][2] == "forward"]
    always = (words_in(s) for body in bodies for s in body if s[0] in ("assign", "expression", "return"))
    return any(LOSSES.match(word) for words in always for word in words)


def is_hazardous(cls: IR) -> bool:
    """Whether a class has numbers that half precision can't hold, or squares, variances and the like."""
    return not HAZARDS.isdisjoint(words_of(cls)) or holds_number(cls)


@dataclass(slots=True)
class Run:
    """A module that was run by itself, its `forward`, and the functions that it saw through."""

    entry: Entry
    cast: bool
    own: Code | None = None
    reached: set[Code] = field(default_factory=set)


def forget_parts(found: Trace, runs: Sequence[Run]) -> None:
    """Leave out modules that others of the project call: there they have been run in the state that these give them."""
    counts = Counter((one.cast, code) for one in runs for code in one.reached)
    parts = {id(one.entry) for one in runs if one.own is not None and counts[one.cast, one.own] > (one.own in one.reached)}
    found.entries[:] = [entry for entry in found.entries if id(entry) not in parts]


class Ways:
    """Which files scripts lead to together."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.graph = m.project.graph
        self.known: dict[str, frozenset[str] | None] = {}
        self.over: dict[str, set[str]] = {}

    def connect(self, region: str, path: str) -> bool:
        """Whether the scripts that lead to a module's file, if there are any, lead to a region's file too, or no import tells of them."""
        if path not in self.known:
            self.known[path] = self.reached(path)
        reached = self.known[path]
        if reached is None:
            return True
        if region not in self.over:
            self.over[region] = set(self.graph.above([region]))
        return not reached.isdisjoint(self.over[region])

    def reached(self, path: str) -> frozenset[str] | None:
        """What the scripts above a file lead to; None where it may be imported by its name."""
        leading = [p for p in self.graph.above([path]) if not is_test_path(p)]
        scripts = [p for p in leading if is_script(self.m, p)]
        if not scripts or any(not self.graph.sources.get(p) and not is_script(self.m, p) for p in leading):
            return None
        return frozenset(self.graph.below([*scripts, path]))


def is_script(m: Machine, path: str) -> bool:
    """Whether a program runs something where it is the main program."""
    ir = m.project.ir(path)
    return ir is not None and any(s[0] == "if" and "__name__" in words_in(s[2]) for s in ir[1])


def derives_with_numbers(data: bytes) -> bool:
    """Whether a program derives classes, and holds such numbers: of modules that inherit their `forward`."""
    return b"\nclass " in data and b"torch" in data and NUMBERS.search(data) is not None


@dataclass(frozen=True, slots=True)
class Nearby:
    """Which region a module may run in, of those of the project."""

    units: Units
    ways: Ways
    candidates: Candidates
    callers: Callers
    named: Named
    reach: Reach
    offered: Sequence[Region]
    by_name: dict[Reached, Reached] = field(default_factory=dict)

    def nearest(self, offered: Iterable[Region], path: str) -> Region | None:
        """The nearest region that belongs together with a module's file, the surest first among equals."""
        near = [region for region in offered if self.reaches(region, path)]
        if len({region.begun for region in near}) > 1:
            near = [region for region in near if not is_test_path(region.begun) and self.names_some(region, path)] or near
        return max(near, key=lambda region: self.units.nearness(region.place.path, path), default=None)

    def calling(self, offered: Iterable[Region], path: str, cls: IR) -> Region | None:
        """The nearest region that calls a method which a class of a file has, of something unknown: `model.training_loss(batch)`."""
        methods = {s[2][2] for s in cls[6] if s[0] == "define"}
        calls = (region for region in offered if region.shape is not None and not region.cast and region.shape.member in methods)
        return self.nearest(calls, path)

    def names_some(self, region: Region, path: str) -> bool:
        """Whether what runs a region comes to something of a file by its name."""
        found = self.reach.of([*self.candidates.scripts(region.begun), region.begun])
        return any((path, name) in found.names for name in self.reach.top(path).own)

    def reaches(self, region: Region, path: str) -> bool:
        """Whether what runs in a region may be a module of a file."""
        home = region.place.path
        if not self.units.together(home, path) or not self.ways.connect(home, path):
            return False
        return self.candidates.admit(region.begun, region.shape, path)

    def of_callers(self, path: str) -> Iterable[Region]:
        """What users of a library run a module of a file in: a region of theirs, and cast, where models of the library are."""
        sign = self.callers.sign(path)
        if sign is None:
            return
        words = f"a caller runs this module under float16 autocast{sign.words}"
        autocast, place = Autocast("cuda", HALF, (Step(Place(path, 0), words),)), Place(path, 0)
        yield Region(autocast, place, EMPTY, (), callers=True, meant=sign.steps)
        if self.callers.cast_to_half(path):
            yield Region(autocast, place, EMPTY, (), cast=True, callers=True, meant=sign.steps)

    def is_chosen(self, region: Region, path: str, cls: IR) -> bool:
        """Whether a program of the project takes a class by a name that it works out, or that a text says where modules are loaded so."""
        if self.named.is_read_by_name(path):
            return True
        return self.candidates.is_open(region.begun) and self.named.is_spoken(path, cls[2])

    def is_offered(self, path: str, cls: IR) -> bool:
        """Whether users of a library make instances of a class of a file."""
        libraries = self.named.libraries
        return libraries.holds(path) and not libraries.is_left_aside(path) and self.named.is_offered(path, cls)

    def may_hold(self, region: Region, path: str, cls: IR) -> bool:
        """Whether something may make an instance of a class of a file, and hand it to a region."""
        if region.callers or any(own.path == path and own.name == cls[2] for own in region.classes):
            return True
        calls = {
            (other.shape, other.results)
            for other in self.offered
            if other.shape is not None and other.results and other.begun == region.begun
        }
        if calls and is_excluded(self.candidates, calls, path, cls):
            return False
        if not self.candidates.scripts(region.begun):
            return self.named.libraries.holds(path) or self.candidates.is_within_reach(region.begun, path)
        if self.candidates.is_partly_out_of_sight(region.begun):
            return True
        by_name = path != region.begun and self.candidates.is_open(region.begun)
        return self.named.may_be_loaded(path, cls) if by_name else self.named.may_be_made(path, cls)

    def guesses(self, region: Region, path: str, cls: IR) -> Iterator[Guess]:
        """What is taken for granted where a class of a file is run in a region."""
        if region.cast and not region.trained and computes_loss(cls):
            yield Guess.UNTRAINED
        if any(own.path == path and own.name == cls[2] for own in region.classes):
            return
        if region.callers:
            if not self.named.is_offered(path, cls):
                yield Guess.UNMADE
            elif self.named.libraries.is_left_aside(path):
                yield Guess.ASIDE
            return
        if not (region.shape is not None and region.shape.home == path):
            yield Guess.CHOSEN
        if path in (region.begun, region.place.path) or self.may_be_used_unseen(region, path):
            return
        leading = self.candidates.scripts(region.begun)
        if leading and self.named.users(path) == [path] and not self.is_spoken_of(path, cls[2] if is_home_of(path, cls) else ""):
            yield Guess.UNREACHED
        elif not self.named.may_be_registered(path, cls) or not self.is_made(region, leading, path, cls):
            yield Guess.UNMADE

    def is_made(self, region: Region, leading: Sequence[str], path: str, cls: IR) -> bool:
        """Whether what runs a region comes to a class, and what is called there may be one or hold it."""
        if region.registered:
            return self.is_taken(region, path, cls)
        if leading and not self.comes_to(self.reach.of([*leading, region.begun]), path, cls):
            return False
        return self.is_taken(region, path, cls) or (not leading and self.comes_to(self.reach.of([region.begun]), path, cls))

    def is_taken(self, region: Region, path: str, cls: IR) -> bool:
        """Whether a class is one that a call in a region fits, or a part of one."""
        entered = region.autocast.chain[:1]
        shapes = {other.shape for other in self.offered if other.autocast.chain[:1] == entered}
        return None in shapes or any(self.comes_to(self.reach.of_models(self.candidates.taking(s)), path, cls) for s in shapes if s)

    def may_be_used_unseen(self, region: Region, path: str) -> bool:
        """Whether modules that a program imports, and that are nowhere to be found, may stand beside a file and use it."""
        folders = path.split("/")[:-1]
        packages = ("/".join((*folders[: n + 1], "__init__.py")) for n in range(len(folders)))
        return self.candidates.is_partly_out_of_sight(region.begun) and not any(map(self.candidates.project.is_file, packages))

    def comes_to(self, reached: Reached, path: str, cls: IR) -> bool:
        """Whether a class is come to: by names, by a table that it is added to, or by the name of its module where it is looked up."""
        if (path, cls[2]) in reached.names or cls[5] or self.named.is_read_by_name(path):
            return True
        if not reached.by_name or not self.is_spoken_of(path, cls[2]):
            return False
        return not self.named.members_spoken(path) & self.reach.offered(path) or (path, cls[2]) in self.loaded(reached).names

    def loaded(self, reached: Reached) -> Reached:
        """What programs come to that load what files of settings name."""
        if reached not in self.by_name:
            paths = [path for path in self.candidates.project.paths if not is_test_path(path)]
            named = ((path, self.named.members_spoken(path) & self.reach.offered(path)) for path in paths)
            self.by_name[reached] = self.reach.of_classes((*reached.names, *((path, name) for path, names in named for name in names)))
        return self.by_name[reached]

    def is_spoken_of(self, path: str, name: str = "") -> bool:
        """Whether some text says the name of a class or of its module, or a program goes over the files of its folder."""
        stem = os.path.splitext(os.path.basename(path))[0]
        return self.named.is_listed(path) or any(self.named.is_spoken(path, word) for word in (name, stem) if word)


def is_home_of(path: str, cls: IR) -> bool:
    """Whether a module is called like a class of it, in small letters."""
    return os.path.splitext(os.path.basename(path))[0] == str(cls[2]).lower()


def speaks_of_numbers(data: bytes) -> bool:
    """Whether a program holds a module, and large or small numbers or what else half precision is bad for, or a module's own steps."""
    if b"def training_step" in data and b"automatic_optimization" in data:
        return True
    return (b"def forward" in data or b"def training_step" in data) and b"torch" in data and NUMBERS.search(data) is not None


def calls_functions(data: bytes) -> bool:
    """Whether a program holds a module that may compute by functions of other files, and holds no such numbers itself."""
    runs = b"def forward" in data or b".forward =" in data
    return runs and b"torch" in data and b"import" in data and not speaks_of_numbers(data)


def forward(m: Machine, path: str, statement: IR, region: Region, one: Run) -> None:
    """The `forward` of a module with unknown arguments, inside a region."""
    frame = m.enter_module(Module(path, path))
    value = m.read(frame.id, statement[2])
    cls = next((a for a in atoms(value) if type(a) is Class), None) if value is not None else None
    m.events.clear()
    if cls is None or not has_module_base(m, cls):
        return
    names = begun_by(region, external_bases(m, cls))
    names = (*names, *(other for name in names for other in put_in_place(statement, name, region.trained)))
    members = [found for name in names if (found := class_member(m, cls, name)) is not None]
    if not members:
        return
    member = members[0]
    one.own = code_of(member[0]) if member[1] == cls else None  # another heir may run an inherited one
    m.path = switches_of(m, region.path)
    m.frames.append(frame)
    made = instantiate(m, cls, Args(opaque=True), statement[1])
    m.events.clear()
    instance = made if type(made) is Object else None

    def body() -> bool:
        for member, owner in members:
            if code_of(member) not in m.called:
                callee = bind(m, member, instance, cls, owner, statement[1])
                for atom in list(atoms(callee))[:1]:
                    if region.callers and type(atom) is Function:
                        m.call(atom, input_of(atom.code, CALLERS, region.cast), statement[1])
                    else:
                        call_open(m, atom, statement[1])
        return True

    begun = Place(path, one.own.place if one.own is not None else statement[1])
    if region.cast and instance is not None:
        dtype = DType(region.autocast.dtype or HALF)
        if region.callers:
            cast_module(m, instance, dtype, begun, words="a caller casts this model to {}")
        else:
            cast_module(m, instance, dtype, region.place)
        m.events.clear()
        body()
    elif not region.cast:
        entered = region.autocast
        if region.callers:
            entered = replace(entered, chain=(Step(begun, entered.chain[0].words),))
        m.scoped((STATE, GRADIENTS_OFF), FALSE if region.trained else TRUE, lambda: m.scoped((STATE, "autocast"), entered, body))
    m.frames.pop()


def begun_by(region: Region, bases: Iterable[str]) -> tuple[str, ...]:
    """The methods of a module that run in a region: a trainer's own steps, or the one that is called, before what these call."""
    if region.trainer == "Lightning" and any(base.endswith(".LightningModule") for base in bases):
        return "training_step", "forward"
    member = region.shape.member if region.shape is not None else ""
    return (member, "forward") if member else ("forward",)


def switches_of(m: Machine, path: Path) -> Path:
    """The conditions of a path that a user can turn."""
    return frozenset(literal for literal in path if literal[0][0] in ("true", "in") and literal[0][1] in m.switches) or EMPTY
