"""MP309: a live loss scaler around a forward pass that is never in half precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.choices import ways_on
from mplint.frameworks.libraries import Libraries
from mplint.frameworks.projects import is_never_in_half
from mplint.frameworks.torch.forwards import is_instance_from_elsewhere
from mplint.program.conditions import Condition, Key, Path, extend, tells_arms_apart
from mplint.program.entries import begins
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import (
    BFLOAT,
    HALF,
    SINGLE,
    Autocast,
    Constant,
    DType,
    Method,
    Object,
    Place,
    State,
    Step,
    Tensor,
    Unknown,
    atoms,
    options,
)
from mplint.program.verdict import speaks_of_precision
from mplint.python.document import is_test_path
from mplint.rule import Rule

from .replaced_steps import Replaced, called_before, replaced

DEVICES = re.compile(r"device|cuda|gpu|cpu|mps|xpu|tpu|npu|hpu", re.I)
# other ways into half precision
ELSEWHERE = ("autocast called", "trainer precision", "half parameters", "apex initialized", "trainer backward", "inside a trainer")
WAYS = 8
HELPERS = 2  # around a scaler, one in the other


class Plain(NamedTuple):
    """A way on which the loss that a scaler multiplies is float32, and the region that is switched off on it."""

    path: Path
    region: Place | None


class ScalerWithoutAutocast(Rule):
    """A GradScaler around a float32 forward pass

    ## What it does
    Finds a GradScaler that scales the loss of a forward pass in float32: none of the models that run for it enters autocast, or the
    autocast around them has float32 as its dtype, or is switched off, where the scaler is enabled all the same. Also a model that a class
    calls outside of autocast, in a method that replaces one of its base's which enters it; a scaler in a project of which no program
    speaks of half precision; and one that an object only holds and saves, and nothing scales or steps with.

    ## Why is this bad?
    Mixed precision was meant and is not there: no Tensor Cores, no memory saved. The scaler alone gains nothing, since float32 reaches
    down to 1e-38; it costs a pass over all gradients, and a wait for its result, in every step.

    ## Example
    ```python
    import torch

    def train(loader):
        model = torch.nn.Linear(64, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Use instead
    ```python
    import torch

    def train(loader):
        model = torch.nn.Linear(64, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Fix safety
    No fix is applied: enter autocast around the forward pass and the loss, or leave the scaler out.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp309.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling>
    """

    code = "MP309"
    name = "scaler-without-autocast"
    severity = Severity.WARNING
    fix = Applicability.DISPLAY
    frameworks = ("torch",)
    tokens = ("GradScaler(",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the scalers whose losses come from forward passes in float32."""
        found = [*self._in_entries(trace)]
        yield from found
        told = {finding.location for finding in found}
        yield from (finding for finding in (*self._in_projects(trace), *self._idle(trace)) if finding.location not in told)

    def _idle(self, trace: Trace) -> Iterator[Finding]:
        """Scalers that an object holds, and saves perhaps, while nothing in the project scales or steps with them."""
        told: set[Place] = set()
        for entry, made in trace.of("scaler made"):
            name = attribute_at(trace, made.place)
            if not name or made.place in told or is_test_path(made.place.path) or never_on(made.data["enabled"]):
                continue
            told.add(made.place)
            if trace.ask is None or not trace.ask(made.place.path, takes_gradients) or entry.of(*ELSEWHERE):
                continue
            if any(trace.ask(path, Uses(name)) for path in sorted(trace.words)):
                continue
            verdict = self.verdict(trace, entry, made.path, made.place, made)
            yield self.at(
                trace,
                made.place,
                f"`{name}` scales nothing: no program of this project calls its `scale` or `step`{verdict.condition()}",
                why="training runs as if mixed precision were off, and the gradients of float16 work would be lost without the scale",
                help=f"scale the loss, `{name}.scale(loss).backward()`, and step with `{name}.step(optimizer)`, or make no scaler",
                confidence=Confidence.MEDIUM,
            )

    def _in_projects(self, trace: Trace) -> Iterator[Finding]:
        """Scalers of losses that nobody sees being computed, in projects of which no program speaks of half precision."""
        scalings = {e.data["scaler"].made: e for _, e in trace.of("loss scaled") if type(e.data["scaler"]) is Object}
        makers = {(entry.path, made.place) for entry, made in trace.of("scaler made") if not is_test_path(entry.path)}
        told: set[Place] = set()
        for entry, made in trace.of("scaler made"):
            scaling = scalings.get(made.place)
            alone = entry.path == made.place.path and any(place == made.place and path != entry.path for path, place in makers)
            if scaling is None or alone or entry.hollow or entry.of(*ELSEWHERE) or never_on(made.data["enabled"]):
                continue
            place = owned_at(trace, entry, made)
            if place in told or is_test_path(place.path) or not is_never_in_half(trace, entry.path) or not is_program(trace, place.path):
                continue
            told.add(place)
            verdict = self.verdict(trace, entry, made.path, made.place, made)
            yield self.at(
                trace,
                place,
                f"`{trace.text(place).partition('(')[0]}` scales losses, and nothing in this project computes in half precision"
                + verdict.condition(),
                why="without autocast all of it is float32: nothing is gained, and each step pays for another pass over the gradients",
                help="run the forward pass and the loss under `torch.autocast`, or leave the scaler out",
                confidence=Confidence.MEDIUM,
                steps=(
                    *((Step(made.place, "the scaler is made here"),) if place != made.place else ()),
                    Step(scaling.place, "it scales here"),
                ),
            )

    def _in_entries(self, trace: Trace) -> Iterator[Finding]:
        """Those of which the forward passes are seen."""
        for entry in trace.entries:
            if entry.hollow:
                continue
            for made in entry.of("scaler made"):
                if not never_on(made.data["enabled"]) and not is_test_path(made.place.path) and not is_half_elsewhere(entry, made):
                    step = replaced(trace, entry, made)
                    yield from self._of(trace, entry, made) if step is None else [self._of_heir(trace, entry, made, step)]

    def _of(self, trace: Trace, entry: Entry, made: Event) -> Iterator[Finding]:
        if any(inside.data["event"] is made for inside in entry.of("inside a trainer")):
            return  # the trainer's region is around what it runs
        scalings = [e for e in entry.of("loss scaled") if e.data["scaler"] == made.data["scaler"]]
        reached = agreed(made.path.union(*(e.path for e in scalings)))
        ways = (narrow for way in plain_ways(trace, entry, made, scalings) for narrow in narrowed(entry, scalings, way, reached))
        chosen = (way for way in ways if is_chosen(trace, way.path, reached) and not shards_in_half(entry, way.path))
        plain = next((way for way in chosen if not is_on_in_training(trace, way.region)), None)
        if plain is not None and plain.region is None and are_under_regions(entry, scalings):
            return
        if plain is not None:
            yield self._told(trace, entry, made, scalings[0], plain)
            return
        dropped = [e for e in entry.of("autocast made") if not never_on(e.data["enabled"])]
        if dropped and scalings and not entry.of("autocast entered") and is_float32(scalings[0].data["loss"]):
            yield self.at(
                trace,
                made.place,
                f"`{trace.text(made.place).partition('(')[0]}` scales the loss of a forward pass that nothing runs in half precision",
                why="float32 gradients need no scale; mixed precision was meant, and the region that would bring it is never entered",
                help="enter the region around the forward pass and the loss",
                confidence=Confidence.HIGH if entry.script else Confidence.MEDIUM,
                steps=(Step(dropped[0].place, "this region is made, and dropped"), Step(scalings[0].place, "the loss is scaled here")),
            )

    def _of_heir(self, trace: Trace, entry: Entry, made: Event, step: Replaced) -> Finding:
        ways = list(ways_on(made.data["enabled"], step.called.path))
        verdict = self.verdict(trace, entry, ways[0] if ways else step.called.path, step.called.place)
        return self.at(
            trace,
            step.called.place,
            f"this model runs outside of autocast: `{step.called.function}` replaces a method that enters it{verdict.condition()}",
            why="its loss is scaled all the same, and all of it is float32: nothing is gained, and mixed precision was meant",
            help="enter the region around the forward pass and the loss, as the method that this one replaces does",
            confidence=Confidence.MEDIUM,
            steps=(
                Step(step.region, "the method that this one replaces enters autocast here"),
                Step(step.scaled.place, "the loss is scaled here"),
            ),
        )

    def _told(self, trace: Trace, entry: Entry, made: Event, scaling: Event, plain: Plain) -> Finding:
        place = owned_at(trace, entry, made)
        name = trace.text(place).partition("(")[0]
        verdict = self.verdict(trace, entry, plain.path, made.place, made, scaling)
        wrapped = (Step(made.place, "the scaler is made here"),) if place != made.place else ()
        scaled = (*wrapped, Step(scaling.place, "the loss is scaled here"))
        is_off = "is" if plain.path <= made.path | scaling.path or not verdict.proven else "may be"
        certain = verdict.proven and plain.path <= made.path | scaling.path
        if plain.region is None:
            return self.at(
                trace,
                place,
                f"`{name}` scales the loss of a forward pass that nothing runs in half precision{verdict.condition()}",
                why="without autocast all of it is float32: nothing is gained, and each step pays for another pass over the gradients",
                help="run the forward pass and the loss under `torch.autocast`, or leave the scaler out",
                confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
                steps=scaled,
            )
        return self.at(
            trace,
            place,
            f"`{name}` scales the loss of a forward pass for which autocast {is_off} switched off{verdict.condition()}",
            why="switched off, all of it is float32: nothing is gained, and each step pays for one more pass over the gradients",
            help=advice(trace, plain.region, name),
            confidence=Confidence.HIGH if certain and entry.script else Confidence.MEDIUM,
            steps=(Step(plain.region, f"autocast {is_off} switched off here"), *scaled),
        )


def is_half_elsewhere(entry: Entry, made: Event) -> bool:
    """Whether something else brings half precision where a scaler is on: not where another setting than the scaler's asks for it."""
    if any(HALF in e.data["dtypes"] for e in entry.of("module cast")):  # type: ignore[operator]
        return True
    own = made.path.union(*ways_on(made.data["enabled"], made.path))
    asked = {literal for event in entry.of("half parameters") for literal in event.path - own if is_of_precision(literal[0])}
    return any(event.kind != "half parameters" or event.path.isdisjoint(asked) for event in entry.of(*ELSEWHERE))


def is_on_in_training(trace: Trace, region: Place | None) -> bool:
    """Whether a region asks if a model trains, `enabled=amp and model.training`: what takes gradients has put it in that mode."""
    return region is not None and re.search(r"\w\.training\b", trace.text(region)) is not None


def attribute_at(trace: Trace, place: Place) -> str:
    """The attribute of its own to which an object assigns what is made at a place, or ""."""
    file, call = trace.node(place) or (None, None)
    parent = file.syntax.parents.get(call) if file is not None and call is not None else None
    target = parent.targets[0] if isinstance(parent, ast.Assign) else parent.target if isinstance(parent, ast.AnnAssign) else None
    match target:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def takes_gradients(data: bytes) -> bool:
    """Whether a program computes gradients."""
    return b".backward(" in data


@dataclass(frozen=True, slots=True)
class Uses:
    """The question whether a program does more with what it calls by a name than assign it, ask whether it is there, and keep its state."""

    name: str

    def __call__(self, data: bytes) -> bool:
        if self.name.encode() not in data:
            return False
        kept = rb"\bself\." + self.name.encode() + rb"(?:\s*(?::[^=\n]*)?=(?!=)|\.(?:load_)?state_dict\(|\s*:\s*$|\s+is\b|\s+(?:and|or)\b)"
        asked = rb"\b(?:if|and|or|not)\s+self\." + self.name.encode() + rb"\b(?!\s*[.(\[])"
        rest = re.sub(asked, b"", re.sub(kept, b"", re.sub(rb"(?m)#.*$", b"", data), flags=re.M))
        return re.search(rb"\b" + self.name.encode() + rb"\b", rest) is not None


def is_program(trace: Trace, path: str) -> bool:
    """Whether a file belongs to a project that runs programs of its own, and is no library for those of others."""
    project = trace.project
    if project is None:
        return False
    scripts = {p for p in trace.words if not is_test_path(p) and (ir := project.ir(p)) is not None and begins(ir)}
    return bool(scripts - {path}) and not Libraries(project, scripts.__contains__).holds(path)


def owned_at(trace: Trace, entry: Entry, made: Event) -> Place:
    """Where an entry makes a scaler: by a wrapper that other programs make too, where it makes that."""
    if not made.calls or not any(
        e.place == made.place for other in trace.entries if other.path != entry.path for e in other.of("scaler made")
    ):
        return made.place
    return made.calls[-1]


def are_under_regions(entry: Entry, scalings: list[Event]) -> bool:
    """Whether functions that take scaled gradients for their own sake run what they are of in regions: nothing of it may need a cast."""
    if entry.of("backward", "optimizer step", "scaler step"):
        return False
    regions = {(e.function, e.calls) for e in entry.of("autocast entered") if getattr(e.data["autocast"], "dtype", None) == HALF}
    return all((e.function, e.calls) in regions for e in scalings)


def advice(trace: Trace, region: Place, scaler: str) -> str:
    """What mends a scaler beside a region that is switched off: by a constant, or by a setting that the scaler doesn't follow."""
    match trace.node(region):
        case file, ast.Call(keywords=keywords):
            switch = next((keyword.value for keyword in keywords if keyword.arg == "enabled"), None)
            if isinstance(switch, ast.Constant):
                return f"switch it on where mixed precision is meant (`enabled=True`), or make no `{scaler}` there"
            if switch is not None:
                return f"let one switch decide both: `{scaler}(enabled={file.text(switch)})`"
    return "enable the scaler where autocast is on in float16, and nowhere else"


def shards_in_half(entry: Entry, path: Path) -> bool:
    """Whether a module is sharded on a path with a policy that may run it in half precision."""
    for sharded in entry.of("module sharded"):
        there = extend(path, sharded.path)
        dtypes = [atom for _, atom in possible(sharded.data["dtype"], there)] if there is not None else []  # type: ignore[arg-type]
        if any(not isinstance(dtype, Constant) and not (isinstance(dtype, DType) and dtype.letter == SINGLE) for dtype in dtypes):
            return True
    return False


def never_on(enabled: object) -> bool:
    """Whether a flag is certainly off."""
    return type(enabled) is Constant and not enabled.value


def is_float32(loss: object) -> bool:
    """Whether no region has computed a loss."""
    return all(type(a) is Tensor and not a.forward and HALF not in a.dtypes for _, a in options(loss))  # type: ignore[arg-type]


def plain_ways(trace: Trace, entry: Entry, made: Event, scalings: list[Event]) -> Iterator[Plain]:
    """The ways on which all losses of a live scaler come from models that run in float32."""
    if any(type(a) is Tensor and BFLOAT in a.forward for e in scalings for _, a in possible(e.data["loss"], e.path)):  # type: ignore[arg-type]
        return  # what is wrong is that it scales for bfloat16
    told: list[tuple[Event, list[Event]]] = []
    for scaling in scalings:
        again = any(is_round_before(other, scaling) for other, _ in told)  # an evaluation may stand between two rounds
        if not again and (called := before(entry, scaling)):
            told.append((scaling, called))
    known = [(scaling, called, all(is_known(trace, entry, event) for event in called)) for scaling, called in told]
    ways = [
        (scaling.path, [w for path in losses(scaling) for w in through(called, path, whole)][:WAYS]) for scaling, called, whole in known
    ]
    found: list[Plain] = []
    for number, (_, own) in enumerate(ways):
        others = ways[:number] + ways[number + 1 :]
        found += [joined for way in own if (joined := everywhere(way, others)) is not None]
    for way in found:
        for path in ways_on(made.data["enabled"], way.path):
            yield Plain(path, way.region)


def is_round_before(other: Event, scaling: Event) -> bool:
    """Whether a loss is scaled in an earlier round of the same loop."""
    return other.place == scaling.place and other.calls == scaling.calls and other.path <= scaling.path


def everywhere(way: Plain, others: list[tuple[Path, list[Plain]]]) -> Plain | None:
    """A way on which the other losses that are scaled there come from float32 too; None where one of them does not."""
    for path, ways in others:
        if extend(way.path, path) is None:
            continue  # it is not scaled on this way
        pairs = ((extend(way.path, other.path), way.region or other.region) for other in ways)
        shared = next((Plain(both, region) for both, region in pairs if both is not None), None)
        if shared is None:
            return None
        way = shared
    return way


def before(entry: Entry, scaling: Event) -> list[Event]:
    """The models that are called for a loss, with gradients: since the backward before it, in the function that scales it or below.

    Where none is, a wrapper of the scaler or a helper scales what it is given: those in the function that calls it.
    """
    called = [event for event in called_before(entry, scaling) if event.data["trained"]]
    for depth in range(len(scaling.calls), max(len(scaling.calls) - HELPERS, 0) - 1, -1):
        found: list[Event] = []
        for event in called:
            if event.calls[:depth] == scaling.calls[:depth] and not any(is_part_of(event, other) for other in found):
                found.append(event)
        if found:
            return found
    return []


def is_part_of(event: Event, other: Event) -> bool:
    """Whether a model, about which all is known, is called by another one in the regions around that."""
    if not event.data["followed"]:
        return False
    depth = len(other.calls)
    within = event.calls[:depth] == other.calls and event.calls[depth : depth + 1] == (other.place,)
    return within and {*atoms(event.data["autocast"])} <= {*atoms(other.data["autocast"])}  # type: ignore[arg-type]


def losses(scaling: Event) -> Iterator[Path]:
    """The paths on which no region has computed what is scaled."""
    for path, atom in possible(scaling.data["loss"], scaling.path):  # type: ignore[arg-type]
        if is_computed_plainly(atom):
            yield path


def through(called: list[Event], path: Path, whole: bool) -> list[Plain]:
    """The ways on which all models run outside of half precision: in regions that are off, or where nothing of theirs is unknown.

    `whole`: nothing that matters is unknown of any of them.
    """
    ways = [(Plain(path, None), True)]
    for event in called:
        further: list[tuple[Plain, bool]] = []
        for way, known in ways:
            there = extend(way.path, event.path)
            if there is None:
                further.append((way, known))
                continue
            for both, state in possible(event.data["autocast"], there):  # type: ignore[arg-type]
                if type(state) is Autocast and state.dtype is None:
                    region, followed = way.region or switched_off(state), known and (whole or bool(event.data["followed"]))
                    further += [(Plain(whole, region), followed) for whole in loaded_whole(event, both)]
        ways = further[:WAYS]
    return [way for way, known in ways if way.region is not None or known]


def is_known(trace: Trace, entry: Entry, event: Event) -> bool:
    """Whether nothing in a model can enter a region: it is followed, or no file that comes to a program speaks of half precision."""
    model = event.data["model"]
    if event.data["followed"] or type(model) is not Unknown:
        return bool(event.data["followed"])
    if model.symbol.partition(IDENTITY)[2] == event.place.path:  # a name that nothing in the file binds
        return False
    return entry.script and not is_instance_from_elsewhere(model) and is_never_in_half(trace, entry.path)


def loaded_whole(event: Event, path: Path) -> list[Path]:
    """The paths on which a model that was loaded has all of its weights in float32; the path itself for other models."""
    held = event.data["weights"]
    if held is None:
        return [path]
    return [both for both, state in possible(held, path) if is_whole(state)]  # type: ignore[arg-type]


def is_whole(state: object) -> bool:
    """Whether all groups of a model's weights are in float32."""
    groups = state.data if type(state) is State and isinstance(state.data, tuple) else ()
    return bool(groups) and all(group.dtype == SINGLE for group in groups)


def switched_off(state: Autocast) -> Place | None:
    """Where a region is made that is off."""
    identity = state.identity
    return identity[0] if isinstance(identity, tuple) and isinstance(identity[0], Place) else None


def agreed(literals: Path) -> Path:
    """What several paths say without contradicting each other."""
    return frozenset((key, sense) for key, sense in literals if (key, not sense) not in literals)


def narrowed(entry: Entry, scalings: list[Event], way: Plain, reached: Path) -> Iterator[Plain]:
    """A way with nothing but the conditions on the precision, or those that can be named, where these alone leave no other."""
    for is_kept in (is_of_precision, lambda key: not tells_arms_apart(key)):
        path = reached | {(key, sense) for key, sense in way.path - reached if is_kept(key)}
        met = any(extend(scaling.path, path) is not None for scaling in scalings)  # not what contradicts itself
        if met and all(is_plain(entry, scaling, path) for scaling in scalings):
            yield way._replace(path=path)


def is_plain(entry: Entry, scaling: Event, path: Path) -> bool:
    """Whether a loss that is scaled on a path can only come from models that run in float32."""
    there = extend(scaling.path, path)
    if there is None:
        return True
    loss = [atom for _, atom in possible(scaling.data["loss"], there)]  # type: ignore[arg-type]
    called = before(entry, scaling)
    states = [state for event in called for state in states_at(event, there)]
    whole = all(is_whole_at(event, there) for event in called)
    return whole and all(is_computed_plainly(atom) for atom in loss) and all(state.dtype is None for state in states)


def is_whole_at(event: Event, path: Path) -> bool:
    """Whether a model that was loaded has its weights in float32 wherever it is called on a path."""
    there = extend(path, event.path)
    held = event.data["weights"]
    return there is None or held is None or all(is_whole(state) for _, state in possible(held, there))  # type: ignore[arg-type]


def is_computed_plainly(atom: object) -> bool:
    """Whether no region has computed a loss, or an output of which it is an attribute, as far as it is known."""
    if type(atom) is Method:
        return is_computed_plainly(atom.receiver)
    return type(atom) is Unknown or (type(atom) is Tensor and not atom.forward and HALF not in atom.dtypes)


def states_at(event: Event, path: Path) -> list[Autocast]:
    """The regions that a model can run in on a path."""
    there = extend(path, event.path)
    found = possible(event.data["autocast"], there) if there is not None else []  # type: ignore[arg-type]
    return [state for _, state in found if type(state) is Autocast]


def is_of_precision(key: Key) -> bool:
    """Whether a condition is on a setting that is called after precisions, or on a device."""
    if key[0] not in ("true", "in"):
        return False
    words = " ".join((str(key[1]).partition(IDENTITY)[0], *map(str, key[2] if key[0] == "in" else ())))
    return bool(DEVICES.search(words)) or speaks_of_precision(words, ())


def is_chosen(trace: Trace, path: Path, reached: Path) -> bool:
    """Whether nothing but the precision is chosen on a path to what is reached, by something that has a name, where there is a GPU."""
    told = [literal for literal in path - reached if not tells_arms_apart(literal[0]) and not follows(literal, path)]
    unsaid = not told and any(key[1] != "test" for key, _ in path - reached)
    return not trace.is_dead(path) and not unsaid and all(chooses_precision(trace, key, sense) for key, sense in told)


def follows(literal: Condition, path: Path) -> bool:
    """Whether a path says already that not all of some conditions hold."""
    key, sense = literal
    return key[0] == "all" and not sense and any((inner, not held) in path for inner, held in key[1])


def chooses_precision(trace: Trace, key: Key, sense: bool) -> bool:
    """Whether a condition is one by which somebody chooses the precision, or is met on every GPU."""
    if key[0] == "all":
        return all(chooses_precision(trace, inner, True) for inner, _ in key[1])
    if key[0] not in ("true", "in"):
        return False
    shown = str(key[1]).partition(IDENTITY)[0]
    values = key[2] if key[0] == "in" else ()
    words = " ".join((shown, *map(str, values)))
    if DEVICES.search(words):
        return sense and "cuda" in words
    return str(key[1]) in trace.switches or speaks_of_precision(shown, values)
