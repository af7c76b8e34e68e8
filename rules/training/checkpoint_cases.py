"""What rules ask of checkpoints: whose scaler is missing in which, who resumes, and which owner loses the scaler that it holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from mplint.frameworks.projects import graph_of
from mplint.frameworks.torch.checkpoints import Held, key_read
from mplint.frameworks.torch.protocol import key_of
from mplint.frameworks.trainers.queries import in_float16
from mplint.program.conditions import Path, extend
from mplint.program.lower import IR, span_of
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import NONE, Chain, Class, Constant, Object, Place, Step, Unknown, Value, atoms
from mplint.program.verdict import keys_in
from mplint.python.document import is_test_path

ELEMENT = "element "  # beginning of the key of an item of a sequence
APEX = Object("apex amp", "scaler", "apex.amp")
ACCELERATE = "accelerate.Accelerator.scaler"
RESUMES = re.compile(r"resum|load_checkpoint|load_snapshot|load_ckpt|restore|load_state(?!_dict)|from_checkpoint", re.I)
READS = re.compile(r"^load$|load_?(?:state|check|ckpt|snap|model|weights|file)", re.I)
RESUMED = re.compile(r"resum|load_(?:checkpoint|snapshot|ckpt)", re.I)  # what a file to resume from is called
NO_SCALERS = ("model", "net", "opt", "sched", "ema", "critic", "actor", "head")  # in names of what has a state of another kind
SCALER_NAME = re.compile(r"(?:^|_)(?:(?:grad|loss|amp)_?)?scaler$", re.I)


class Case(NamedTuple):
    """One mistake: where, on which path, how sure, the step of the scaler, and other places with words."""

    place: Place
    path: Path
    sure: bool
    step: Place
    steps: Chain = ()
    name: str = ""
    scaler: Value = NONE
    optimizers: frozenset[str] = frozenset()
    by: str = ""
    saver: Place | None = None  # where the checkpoint is written


class Stepped(NamedTuple):
    """A scaler that steps an optimizer."""

    scaler: Value
    optimizers: frozenset[str]
    event: Event
    renewed: bool
    foreign: bool = False  # in another entry
    again: tuple[Event, ...] = ()  # the same step on other paths


def keys_of(value: object) -> frozenset[str]:
    """The keys of the objects that a value may be."""
    found: set[str] = set()
    for atom in atoms(value) if value is not None else ():  # type: ignore[arg-type]
        if not (type(atom) is Constant and atom.value is None):
            found.add(key_of(atom))
            if type(atom) is Object and atom.made is not None:
                found.add(repr(atom.made))  # made again by another call of the same method
            if type(atom) is Unknown and atom.symbol.partition(IDENTITY)[0].endswith("[]"):
                found.add(element_key(atom.symbol))
    return frozenset(found)


def element_key(symbol: str) -> str:
    """What tells an item of a sequence that nobody knows, whichever loop takes it: the sequence, by its name and the file that has it."""
    shown, _, identity = symbol.partition(IDENTITY)
    return f"{ELEMENT}{shown}{IDENTITY}{identity.partition(':')[0]}"


def ids_of(value: object) -> frozenset[str]:
    """What tells the objects that a value may be from others made at the same place."""
    return frozenset(key_of(a) for a in atoms(value)) if value is not None else frozenset()  # type: ignore[arg-type]


def steps_of(entry: Entry) -> list[Stepped]:
    """The scalers that step optimizers in an entry, each pair once. `renewed`: the scaler is built anew while the optimizer lives on."""
    found: dict[tuple[str, frozenset[str]], Stepped] = {}
    scalers = {key_of(e.data["scaler"]): e for e in entry.of("scaler made")}  # type: ignore[arg-type]
    optimizers = {key_of(e.data["optimizer"]): e for e in entry.of("optimizer made")}  # type: ignore[arg-type]
    for event in entry.of("scaler step"):
        keys = keys_of(event.data["optimizer"]).union(*map(keys_of, event.data["parts"]))  # type: ignore[call-overload]
        scaler = event.data["scaler"]
        made = scalers.get(key_of(scaler))  # type: ignore[arg-type]
        opt = next((optimizers[k] for k in sorted(keys) if k in optimizers), None)
        renewed = made is not None and bool(made.loops) and (opt is None or len(opt.loops) < len(made.loops))
        key = (key_of(scaler), keys)  # type: ignore[arg-type]
        first = found.get(key)
        own = Stepped(scaler, keys, event, renewed)  # type: ignore[arg-type]
        found[key] = first._replace(again=(*first.again, event)) if first is not None else own
    for event in entry.of("apex initialized"):
        for optimizer in event.data["optimizers"]:  # type: ignore[attr-defined]
            found.setdefault(("apex", keys_of(optimizer)), Stepped(APEX, keys_of(optimizer), event, False))
    return list(found.values())


def keeps_scale(trace: Trace, pair: Stepped) -> bool:
    """Whether the scale of apex is a number, as it is given or by default: it never changes, so that a resume loses nothing."""
    given = [atom for _, atom in possible(scale, pair.event.path)] if (scale := pair.event.get("scale")) is not None else []  # type: ignore[arg-type]
    switches = (trace.switches.get(atom.symbol) if type(atom) is Unknown else None for atom in given)
    values = [switch.default if switch is not None else atom for switch, atom in zip(switches, given, strict=True)]
    return bool(values) and all(type(value) is Constant and isinstance(value.value, int | float) for value in values)


def steps_of_trainers(trace: Trace, entry: Entry) -> list[Stepped]:
    """The scalers by which accelerators step optimizers in float16, where the program does not leave checkpoints to them."""
    if entry.of("trainer saved"):
        return []
    found: dict[frozenset[str], Stepped] = {}
    for event in entry.of("trainer step"):
        trainer = event.data["trainer"]
        made = in_float16(trace, entry, trainer, event.path)
        if made is None or made[0].data["title"] != "accelerate" or type(trainer) is not Object:
            continue
        scaler = Object(("scaler", trainer.id), "scaler", ACCELERATE, trainer.made)
        keys = keys_of(event.data["optimizer"])
        found.setdefault(keys, Stepped(scaler, keys, event._replace(path=made[1]), False))
    return list(found.values())


def stepped_elsewhere(trace: Trace, entry: Entry) -> list[Stepped]:
    """The scalers that step, in other entries of the program, an optimizer that this one saves: the same by where it is made.

    A main program that trains without a scaler is none of those that train with one, though a helper makes all their optimizers.
    """
    if not saves(entry) or any(holds(e, "scaler") for _, e in trace.of("checkpoint saved")):
        return []
    if entry.script and entry.of("optimizer step"):
        return []
    known = trace.held.get("stepped")
    if not isinstance(known, list):
        known = trace.held["stepped"] = [(other, s) for other in trace.entries for s in steps_of(other)]
    others = [s for other, s in known if other is not entry and not is_test_path(other.path)]
    return [s._replace(foreign=True, optimizers=frozenset(k for k in s.optimizers if not k.startswith(ELEMENT))) for s in others]


def saves(entry: Entry) -> Sequence[Event]:
    """The checkpoints that an entry writes."""
    return entry.of("checkpoint saved")


def holds(event: Event, what: str) -> list[Held]:
    """The states of a kind that a checkpoint (or an owner) holds."""
    return [h for h in event.data["holds"] if h.what == what]  # type: ignore[attr-defined]


def missing_scalers(trace: Trace, entry: Entry, stepped: list[Stepped]) -> Iterator[Case]:
    """Each optimizer state in a checkpoint whose live scaler has its state nowhere."""
    events = saves(entry)
    if any(e.data["handed"] and holds(e, "scaler") for e in events):
        return
    apart = [e for e in events if holds(e, "scaler") and not holds(e, "optimizer")]
    if apart:
        return
    kept = [Step(h.place, "another checkpoint holds it") for e in events for h in holds(e, "scaler") if h.place is not None]
    whole = any(holds(e, "scaler") for e in events)
    loads = [e for e in entry.of("state loaded") if e.data["what"] == "optimizer"]
    by_place: dict[Place, list[tuple[Event, Held, Stepped, Path]]] = {}
    for event in events:
        if event.data["handed"] or event.data["unknown"]:
            continue
        saved = holds(event, "scaler")
        if whole and all(h.what == "optimizer" for h in event.data["holds"]):  # type: ignore[attr-defined]
            continue  # a part, beside a checkpoint that is whole
        for held in [h for h in event.data["holds"] if h.what in ("optimizer", "unknown", "module")]:  # type: ignore[attr-defined]
            keys = keys_of(held.owner)
            pairs = [s for s in stepped if s.optimizers & keys and not s.renewed and not is_twin(entry, s, held.owner)]
            if saved and not all(only_of_others(pair, saved) for pair in pairs):
                continue
            pair, path = meeting(trace, entry, held.path, pairs)
            if pair is not None and path is not None and may_resume(trace, loads, held.owner, path):
                place = asked_at(trace, event) or (event.place if held.place is None or is_of_whole(pair, held.place) else held.place)
                by_place.setdefault(place, []).append((event, held, pair, path))
    for place, cases in by_place.items():
        for case in at_place(place, sorted(cases, key=lambda case: len(trace.verdict(entry, case[3]).switches))):
            yield case._replace(sure=case.sure and not whole, steps=(*case.steps, *kept[:1]))  # training may resume from the other alone


def is_twin(entry: Entry, pair: Stepped, owner: Value) -> bool:
    """Whether a main program makes the optimizer that it saves, and the one that a scaler steps, by two calls of the same code."""
    stepped = pair.event.data.get("optimizer")
    if not entry.script or pair.foreign or stepped is None:
        return False
    made = [*atoms(owner), *atoms(stepped)]  # type: ignore[arg-type]
    return all(type(atom) is Object and atom.kind == "optimizer" for atom in made) and ids_of(owner).isdisjoint(ids_of(stepped))


def only_of_others(pair: Stepped, saved: list[Held]) -> bool:
    """Whether the scalers that a checkpoint holds are known, and none is the one that steps an optimizer."""
    owners = [a for h in saved for a in atoms(h.owner)]
    known = type(pair.scaler) is Object and all(type(a) is Object and a.made is not None for a in owners)
    return known and not pair.foreign and keys_of(pair.scaler).isdisjoint(frozenset[str]().union(*(keys_of(a) for a in owners)))


def is_of_whole(pair: Stepped, place: Place) -> bool:
    """Whether an optimizer that is put together of others takes the state of one of them at a place: it is asked for it elsewhere."""
    types = [atom.type for atom in atoms(pair.event.data.get("optimizer", NONE)) if type(atom) is Object]  # type: ignore[arg-type]
    homes = [cls.id[1] for cls in types if type(cls) is Class and isinstance(cls.id, tuple)]
    return any(isinstance(home, Place) and inside(place, home) for home in homes)


def asked_at(trace: Trace, event: Event) -> Place | None:
    """The call of a saver which would save a scaler's state, too, if it were given the scaler; None where the saver has no room for it."""
    asked: Place | None = None
    inner = event.place
    for call in reversed(event.calls):
        found = trace.node(inner)
        function = found[0].syntax.function(found[1]) if found is not None else None
        if function is None or not any(is_room_for_scaler(parameter) for parameter in parameters_of(function)):
            return asked
        asked = inner = call
    return asked


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """The parameters of a function that have names."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def is_room_for_scaler(parameter: ast.arg) -> bool:
    """Whether a parameter of a saver takes the loss scaler."""
    return SCALER_NAME.search(parameter.arg) is not None


def at_place(place: Place, cases: list[tuple[Event, Held, Stepped, Path]]) -> Iterator[Case]:
    """The finding at a saver's place, however many optimizers it saves; of several, it is open which call saves the scaler's state."""
    owners = {ids_of(held.owner) for _, held, _, _ in cases if all(type(atom) is Object for atom in atoms(held.owner))}
    event, _, pair, path = cases[0]
    sure = type(pair.scaler) is Object and not pair.foreign
    if place in event.calls:  # of a saver that is not given the scaler
        saved = Step(cases[0][1].place or event.place, "the optimizer's state is saved here")
        yield Case(place, path, sure, pair.event.place, (saved,), "", pair.scaler)
        return
    steps = calls_from_elsewhere(event, place)
    optimizers = pair.optimizers if len(owners) < 2 else frozenset[str]()
    yield Case(place, path, sure, pair.event.place, steps, "", pair.scaler, optimizers, saver=event.place)


def calls_from_elsewhere(event: Event, place: Place) -> Chain:
    """The calls that lead into the file of a saver from others, the innermost first."""
    outside = [call for called, call in pairwise((place, *reversed(event.calls))) if call.path not in (called.path, place.path)]
    return tuple(
        Step(call, "this call leads there" if number else "this call saves it") for number, call in enumerate(outside[:MOST_CALLS])
    )


MOST_CALLS = 2


def together(trace: Trace, path: Path, other: Path) -> Path | None:
    """A path with what another one says of switches, alone or together, or None where they exclude each other."""
    told = ((literal, list(keys_in((literal,)))) for literal in other if literal[0][0] in ("true", "in", "all"))
    return extend(path, [literal for literal, keys in told if keys and all(trace.switch(key[1]) is not None for key in keys)])


def meeting(trace: Trace, entry: Entry, path: Path, pairs: list[Stepped]) -> tuple[Stepped | None, Path | None]:
    """The first of some steps that are taken where something on a path happens too, as that of its events which asks least of a user.

    With the path of both.
    """
    for pair in pairs:
        ways = [(event, both) for event in (pair.event, *pair.again) if (both := together(trace, path, event.path)) is not None]
        if ways:
            event, both = min(ways, key=lambda way: len(trace.verdict(entry, way[1]).switches)) if len(ways) > 1 else ways[0]
            return pair._replace(event=event), both
    return None, None


def may_resume(trace: Trace, loads: list[Event], owner: Value, path: Path) -> bool:
    """Whether an optimizer's state may be restored in a run that saves it: not where only others are, or where the options differ."""
    keys = keys_of(owner)
    if any(type(a) is Unknown for a in atoms(owner)):
        return True
    own = [e for e in loads if keys_of(e.data["object"]) & keys or any(type(a) is Unknown for a in atoms(e.data["object"]))]  # type: ignore[arg-type]
    if not own:
        return not loads
    own = [e for e in own if ids_of(e.data["object"]) & ids_of(owner)] or own  # of this run of its constructor
    return any(extend(path, [(key, sense) for key, sense in e.path if key[0] in ("true", "in")]) is not None for e in own)


def resumes(trace: Trace, entry: Entry) -> bool:
    """Whether anything in the program takes training up again: what another one beside it in the checkout loads says nothing of it."""
    paths = {entry.path, *(e.place.path for e in entry.of("checkpoint saved", "owner saved", "scaler step"))}
    joined = graph_of(trace).joined
    loads = {event.place.path for other, event in loads_of_optimizers(trace) if may_be_called(trace, entry, paths, other, event)}
    if not {joined.get(path, path) for path in loads}.isdisjoint(joined.get(path, path) for path in paths):
        return True
    for path in sorted(paths):
        ir = trace.project.ir(path) if trace.project is not None else None
        if ir is None:
            continue
        said = [word for word in ir[2] if RESUMES.search(word)]
        if set(said) == {"restore"} and not any(READS.search(word) for word in ir[2]):
            said = []  # averaged weights, which are exchanged for those in training and back
        if restores_optimizer(ir) or (said and not (all(RESUMED.search(word) for word in said) and resumes_weights_alone(trace, path))):
            return True
    return False


def loads_of_optimizers(trace: Trace) -> list[tuple[Entry, Event]]:
    """Where the state of an optimizer is restored, with the beginnings of the program that lead there."""
    held = trace.held.get("loads of optimizers")
    if not isinstance(held, list):
        found = trace.of("state loaded")
        held = trace.held["loads of optimizers"] = [pair for pair in found if pair[1].data["what"] == "optimizer"]
    return held


def may_be_called(trace: Trace, entry: Entry, paths: set[str], other: Entry, event: Event) -> bool:
    """Whether a program may restore a state as another beginning does: a main program that was run to its end does what it did.

    What else there is in the files that write its checkpoints is part of their format, and what they import may be called by its name.
    """
    if other is entry or event.place.path in paths:
        return True
    below = graph_of(trace).below([entry.path]) if entry.script else ()
    if not entry.script or not entry.complete:
        return not entry.script or not other.script or event.place.path in below
    if other.script or event.place.path not in below:
        return False
    named = (trace.project.ir(path) for path in below if path != event.place.path) if trace.project is not None else ()
    return any(ir is not None and event.function in ir[2] for ir in named)


def resumes_weights_alone(trace: Trace, path: str) -> bool:
    """Whether a file reads what it calls a file to resume from, and loads a model's state of it."""
    loaded = {e.place for _, e in trace.of("state loaded") if e.data["what"] != "scaler" and e.place.path == path}
    for place in sorted(loaded):
        found = trace.node(place)
        function = found[0].syntax.function(found[1]) or found[0].tree if found is not None else None
        for node in ast.walk(function) if function is not None else ():
            match node:
                case ast.Call(ast.Attribute(attr="load") | ast.Name("load"), [given, *_]) if RESUMED.search(ast.unparse(given)):
                    return True
    return False


def restores_optimizer(ir: object) -> bool:
    """Whether lowered code calls `load_state_dict` on what is called an optimizer."""
    pending = [ir]
    while pending:
        node = pending.pop()
        if not isinstance(node, tuple):
            continue
        if len(node) == 4 and node[0] == "attribute" and node[3] == "load_state_dict" and "opt" in last_name(node[2]).lower():
            return True
        pending += [part for part in node if isinstance(part, tuple)]
    return False


def last_name(ir: IR) -> str:
    """The last identifier of a dotted expression."""
    return str(ir[-1]) if ir[0] in ("name", "attribute") else ""


def lost_by_owners(trace: Trace, entry: Entry, stepped: list[Stepped]) -> Iterator[Case]:
    """The owners of live scalers whose own state holds the optimizer's and not the scaler's."""
    saved = saves(entry)
    if any(holds(e, "scaler") for e in saved):
        return
    for event in entry.of("owner saved"):
        if event.data["by"] != "state_dict" and not is_gathered(entry, event):
            continue
        owner = event.data["owner"]
        cls = owner.type if type(owner) is Object and type(owner.type) is Class else None
        if cls is None or holds(event, "scaler"):
            continue
        pair = next((s for s in stepped if s.scaler == event.data["scaler"]), None)
        pair = pair or next((s for s in stepped if s.event.place.path == cls.path), None)
        if pair is None or pair.renewed:
            continue
        own = [h for h in event.data["holds"] if h.what == "optimizer" or keys_of(h.owner) & pair.optimizers]  # type: ignore[attr-defined]
        if not own and not event.data["inherited"]:
            continue
        saver = event.data["saves"]
        steps = (Step(saver, "it is saved by this"),) if saver != event.place and type(saver) is Place else ()
        step = Step(pair.event.place, "the scaler steps the optimizer here")
        yield Case(
            event.place, pair.event.path, bool(own), pair.event.place, (*steps, step), str(event.data["name"]), by=str(event.data["by"])
        )


def is_gathered(entry: Entry, event: Event) -> bool:
    """Whether what an owner's method gives is written by somebody else, as far as its program shows, and its optimizer is restored."""
    written = any(h.place == event.place for e in saves(entry) for h in holds(e, "optimizer"))
    if written or any(holds(e, "scaler") for e in entry.of("owner saved") if e.data["owner"] == event.data["owner"]):
        return False
    optimizers = frozenset[str]().union(*(keys_of(h.owner) for h in holds(event, "optimizer")))
    loads = [e for e in entry.of("state loaded") if e.data["what"] == "optimizer"]
    return any(keys_of(e.data["object"]) & optimizers for e in loads)


def not_restored(trace: Trace, entry: Entry, stepped: list[Stepped]) -> Iterator[Case]:
    """Where the optimizer's state is loaded, in a program that saves the scaler's state beside it and never loads it."""
    for event in saves(entry):
        scalers = [h for h in holds(event, "scaler") if h.place is not None]
        if not scalers or not holds(event, "optimizer"):
            continue
        for load in entry.of("state loaded"):
            keys = keys_of(load.data["object"])
            pair, path = meeting(trace, entry, load.path, [s for s in stepped if s.optimizers & keys and not s.renewed])
            if load.data["what"] != "optimizer" or pair is None or path is None or scalers[0].place is None:
                continue
            files = {entry.path, event.place.path, load.place.path, pair.event.place.path}
            if not loads_scaler(trace, entry, pair.scaler, files):
                yield Case(load.place, path, True, pair.event.place, (Step(scalers[0].place, "the scaler's state is saved here"),))


def dropped(trace: Trace, entry: Entry, stepped: list[Stepped]) -> Iterator[Case]:
    """The owners of scalers whose `load_state_dict` drops the state that was saved of them, where the optimizer's is restored."""
    loads = [e for e in entry.of("state loaded") if e.data["what"] == "optimizer"]
    for event in entry.of("state dropped"):
        own = keys_of(event.data["scaler"])
        for pair in stepped:
            restored = any(keys_of(load.data["object"]) & pair.optimizers for load in loads)
            if pair.renewed or not restored or keys_of(pair.scaler).isdisjoint(own):
                continue
            kept = [h for e in saves(entry) if holds(e, "optimizer") for h in holds(e, "scaler") if keys_of(h.owner) & own]
            saved = next((h.place for h in kept if h.place is not None), None)
            if saved is not None:
                yield Case(event.place, pair.event.path, True, pair.event.place, (Step(saved, "the scaler's state is saved here"),))
                break


def never_written(trace: Trace, entry: Entry) -> Iterator[Case]:
    """Where a scaler's state is taken from a key that no checkpoint of the program has, and is saved under another one.

    `name` is the key. Where its presence is tested, nothing raises, and a checkpoint of other programs may have it.
    """
    written = [e for _, e in trace.of("checkpoint saved")] if entry.of("state loaded") else []
    if not written or any(e.data["keys"] is None for e in written):
        return
    loads = [(e, read) for e in entry.of("state loaded") if (read := key_read(e.data["state"])) is not None]  # type: ignore[arg-type]
    keys = frozenset[str]().union(*(e.data["keys"] for e in written))  # type: ignore[arg-type]
    for load, (key, checkpoint) in loads:
        if load.data["what"] != "scaler" or key in keys or asks_for(load.path, key):
            continue
        siblings = {other for e, (other, source) in loads if source == checkpoint and e is not load}
        own = [e for e in written if any(keys_of(h.owner) & keys_of(load.data["object"]) for h in holds(e, "scaler"))]
        saved = next((e for e in own if e.place.path == load.place.path or siblings & e.data["keys"]), None)  # type: ignore[operator]
        files = {entry.path, load.place.path, *(e.place.path for e in written)}
        if saved is not None and not any(writes_key(trace, path, key) for path in sorted(files)):
            yield Case(load.place, load.path, True, load.place, (Step(saved.place, "the scaler's state is saved here"),), key)


def asks_for(path: Path, key: str) -> bool:
    """Whether a path looks first whether a key is there."""
    return any(repr(key) in str(literal[1]) for literal, _ in path if literal[0] == "true")


def writes_key(trace: Trace, path: str, key: str) -> bool:
    """Whether a file's code has a key in a dict, an item of that name that is set, or an argument of that name."""
    pending: list[object] = [trace.project.ir(path) if trace.project is not None else None]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            keys = [name for name, _ in node[2]] if node[:1] == ("dict",) else node[2] if node[:1] == ("assign",) else ()
            if node[:1] == (key,) or any(has_constant(part, key) for part in keys):
                return True
            pending += [part for part in node if isinstance(part, tuple)]
    return False


def has_constant(ir: object, wanted: str) -> bool:
    """Whether lowered code has a string in it."""
    if not isinstance(ir, tuple):
        return False
    return (ir[:1] == ("constant",) and ir[2] == wanted) or any(has_constant(part, wanted) for part in ir)


def loads_scaler(trace: Trace, entry: Entry, scaler: Value, files: set[str]) -> bool:
    """Whether a scaler's state is loaded, or any code of these files restores what is called a scaler."""
    for other, event in trace.of("state loaded"):
        passed_on = event.function == "load_state_dict" and len(event.calls) < 2 and not other.script  # which nobody calls
        ours = other is entry or event.place.path in files or not keys_of(event.data["object"]).isdisjoint(keys_of(scaler))
        if event.data["what"] == "scaler" and ours and not passed_on:
            return True
    known = trace.held.setdefault("loads scaler", {})
    assert isinstance(known, dict)
    for path in sorted(files):
        if path not in known:
            ir = trace.project.ir(path) if trace.project is not None else None
            named = ir is not None and "load_state_dict" in ir[2] and any("scaler" in w.lower() or w == "amp" for w in ir[2])
            known[path] = named and restores(ir)
        if known[path]:
            return True
    return False


def restores(ir: object) -> bool:
    """Whether lowered code calls `load_state_dict` on anything that may be a scaler; that one passes it on says nothing."""
    modules, owners, pending = set[str](), list[str](), [ir]
    while pending:
        node = pending.pop()
        if not isinstance(node, tuple) or (node[:1] == ("function",) and node[2] == "load_state_dict"):
            continue
        if node[:1] == ("import",):
            modules.update(bound or name.partition(".")[0] for name, bound in node[2])
        if len(node) == 4 and node[0] == "attribute" and node[3] == "load_state_dict":
            owners.append(last_name(node[2]))
        pending += [part for part in node if isinstance(part, tuple)]
    return any(owner not in modules and not any(word in owner.lower() for word in NO_SCALERS) for owner in owners)


def inside(place: Place, other: Place) -> bool:
    """Whether a place lies in another."""
    if place.path != other.path:
        return False
    one, around = span_of(place.position), span_of(other.position)
    return around.line <= one.line and one.end_line <= around.end_line and around.end_line > around.line
