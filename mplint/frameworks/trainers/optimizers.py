"""Which optimizers hold which parameters, and what of those is in float16 where they are stepped.

`optimizer.param_groups` shows one group, in which one tensor stands for the parameters of each model. What a program puts in their place
is what the optimizer steps from there on. The events: "half parameters", where an optimizer gets or steps parameters that are in float16,
at the place that made them so, "nothing to cast stepped", where all that it steps is in half precision, and "leaves stepped", where that
are tensors of the program's own and no model's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mplint.frameworks.torch.raised import OF_LAYER
from mplint.frameworks.torch.tensors import FROZEN, PARAMETER
from mplint.frameworks.trainers.weights import (
    GROUP,
    MAX_PARTS,
    OF,
    OWN,
    Group,
    groups_of,
    is_model,
    mentions_name,
    model_of,
    owner_of,
    parts,
    weights,
)
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import EMPTY, Path, either_way, extend
from mplint.program.expressions import class_member
from mplint.program.machine import IDENTITY, Event, Machine
from mplint.program.store import join
from mplint.program.values import (
    ANY,
    BFLOAT,
    HALF,
    NONE,
    TRUE,
    Atom,
    Class,
    Constant,
    Entries,
    Function,
    Items,
    Object,
    Place,
    State,
    Tensor,
    Unknown,
    Value,
    Wrapped,
    atoms,
    options,
)

vocabulary = Vocabulary()
GIVEN = "#given"  # the slot that says what a group held at first


class Chosen(NamedTuple):
    """A model, or a group of its parameters, that an optimizer is given, and under which conditions."""

    model: Atom
    group: str
    path: Path = EMPTY


def selected(m: Machine, value: Value) -> list[Chosen]:
    """The models (and groups of their parameters) that an optimizer is given, each once: under what any of the ways to it asks for."""
    found: dict[tuple[Atom, str], dict[Path, None]] = {}
    for model, group, path in each_selected(m, value, m.path):
        found.setdefault((model, group), {})[path - m.path] = None
    return [Chosen(model, group, either_way(list(ways))[0]) for (model, group), ways in found.items()][:MAX_PARTS]


def each_selected(m: Machine, value: Value, base: Path, depth: int = 0) -> Iterator[Chosen]:
    """The same, each with the path on which it is given."""
    for guards, atom in options(value):
        path = extend(base, guards)
        if path is None:
            continue
        if type(atom) is Object and atom.kind == "parameters":
            model = m.read(atom.id, "#of")
            ways = options(model) if model is not None else ()
            yield from (Chosen(a, "", both) for own, a in ways if (both := extend(path, own)) is not None)
        elif type(atom) is Tensor:
            held = model_of(m, atom)
            if held is not None or atom.dtypes == {HALF}:
                yield Chosen(*(held if held is not None else (atom, "")), path)
        elif depth > 4:
            continue
        elif type(atom) is Items:
            for inner in (*atom.items, *([atom.rest] if atom.rest is not None else [])):
                yield from each_selected(m, inner, path, depth + 1)
        elif type(atom) is Object and atom.kind in ("list", "set", "generator"):
            items = m.read(atom.id, "#items")
            yield from each_selected(m, items, path, depth + 1) if items is not None else ()
        elif type(atom) is Object and atom.kind == "dict":
            entries = m.read(atom.id, "#entries")
            for held_entries in atoms(entries) if entries is not None else ():
                params = held_entries.get("params") if type(held_entries) is Entries else None
                yield from each_selected(m, params, path, depth + 1) if params is not None else ()


def half_groups(m: Machine, chosen: Sequence[Chosen]) -> list[tuple[Path, Atom, Group]]:
    """The trained groups of parameters that are in float16, with the path on which they are."""
    found: list[tuple[Path, Atom, Group]] = []
    for model, wanted, given in chosen:
        base = extend(m.path, given)
        if base is None:
            continue
        if type(model) is Tensor:
            found += [(base, model, group) for group in created(m, "", model)]
            continue
        for part in parts(m, model) if not wanted else [model]:
            for guards, state in options(weights(m, part)):
                path = extend(base, guards)
                if path is None or mentions_name(guards):
                    continue
                for group in groups_of(state):
                    if group.dtype == HALF and group.trained and wanted in ("", group.name) and group.chain:
                        found.append((path, part, group))
                    elif group.name == OWN and group.dtype != HALF and group.trained and not wanted:
                        found += own_parameters(m, part, path)
    return found


def own_parameters(m: Machine, model: Atom, path: Path) -> list[tuple[Path, Atom, Group]]:
    """The parameters that a project's module creates in float16."""
    if type(model) is not Object or type(model.type) is not Class:
        return []
    held = [(name, guards, atom) for name, value in m.store.slots.of(model.id) for guards, atom in options(value)]
    held = [(name, guards, atom) for name, guards, atom in held if type(atom) is Tensor and PARAMETER in atom.tags]
    ways = [(extend(path, guards), group) for name, guards, atom in held for group in created(m, name, atom)]
    return [(both, model, group) for both, group in ways if both is not None]


def created(m: Machine, name: str, tensor: Atom) -> list[Group]:
    """The group of a tensor that is in float16 and trained; none of any other."""
    if type(tensor) is not Tensor or tensor.dtypes != {HALF} or not tensor.half or FROZEN in tensor.tags:
        return []
    if m.read(tensor.half[-1].place, "@frozen") == TRUE:
        return []
    return [Group(name, HALF, True, tensor.half, created=True)]


def optimizer_made(m: Machine, event: Event) -> None:
    """An optimizer is made over parameters, or gets more of them."""
    optimizer = event.data["optimizer"]
    given = event.get("parameters") or event.get("group")
    if type(optimizer) is not Object or given is None:
        return
    chosen = selected(m, given)  # type: ignore[arg-type]
    held = m.read(optimizer.id, "@trained") if event.kind == "parameters added" else None
    before = held.items if type(held) is Items else ()
    m.write(optimizer.id, "@leaves", Constant(not chosen and are_tensors(m, given)))  # type: ignore[arg-type]
    m.write(optimizer.id, "@trained", Items((*before, *(Items((c.model, Constant(c.group), State(c.path))) for c in chosen))[:MAX_PARTS]))
    for model, _, _ in chosen:
        if type(model) is not Tensor:
            m.write(owner_of(model), "@optimizer", optimizer)
    fill(m, optimizer)
    note_half(m, chosen, optimizer, event.place, "made")


def stepped(m: Machine, event: Event) -> None:
    """An optimizer steps."""
    optimizer = event.get("optimizer")
    for atom in atoms(optimizer) if optimizer is not None else ():  # type: ignore[arg-type]
        if type(atom) is not Object:
            continue
        put = put_in_place(m, atom)
        chosen = given_to(m, atom) if put is None else selected(m, put)
        note_half(m, chosen, atom, event.place, event.kind)
        if chosen and dtypes_of(m, chosen) <= {HALF, BFLOAT}:
            m.emit("nothing to cast stepped", event.place, optimizer=atom)
        elif not chosen and m.read(atom.id, "@leaves") == TRUE:
            m.emit("leaves stepped", event.place, optimizer=atom)


def dtypes_of(m: Machine, chosen: Sequence[Chosen]) -> frozenset[str]:
    """The dtypes that the parameters may have of which an optimizer trains some."""
    found: set[str] = set()
    for model, wanted, _ in chosen:
        if type(model) is Tensor:
            found |= model.dtypes
            continue
        for part in parts(m, model) if not wanted else [model]:
            states = (state for guards, state in options(weights(m, part)) if extend(m.path, guards) is not None)
            of = [group for state in states for group in groups_of(state) if group.trained is not False and wanted in ("", group.name)]
            found |= {group.dtype for group in of}
    return frozenset(found) or frozenset({ANY})


def are_tensors(m: Machine, value: Value) -> bool:
    """Whether all parameters are tensors of the program's own, and none is a weight of a model."""
    held = list(held_by(m, value))
    if not held or not all(type(atom) is Tensor and OF_LAYER not in atom.tags and model_of(m, atom) is None for atom in held):
        return False
    return set(held).isdisjoint(of_modules(m))


def of_modules(m: Machine) -> Iterator[Atom]:
    """What the project's modules hold as attributes."""
    stored = {atom for slot in list(m.store.slots.every()) for atom in atoms(m.store.get(*slot) or NONE)}
    for module in stored:
        if type(module) is Object and type(module.type) is Class and is_model(m, module):
            yield from (atom for name, value in m.store.slots.of(module.id) if not name.startswith(("@", "#")) for atom in atoms(value))


def held_by(m: Machine, value: Value, depth: int = 0) -> Iterator[Atom]:
    """What lists, and the groups of parameters in them, hold."""
    for atom in atoms(value):
        if type(atom) is Object and atom.kind in ("list", "set") and depth < MOST_NESTED:
            items = m.read(atom.id, "#items")
            yield from held_by(m, items, depth + 1) if items is not None else (atom,)
        elif type(atom) is Items and depth < MOST_NESTED:
            for inner in (*atom.items, *([atom.rest] if atom.rest is not None else [])):
                yield from held_by(m, inner, depth + 1)
        elif type(atom) is Object and atom.kind == "dict" and depth < MOST_NESTED:
            entries = m.read(atom.id, "#entries")
            given = [e.get("params") for e in atoms(entries) if type(e) is Entries] if entries is not None else []
            for params in given or [None]:
                yield from held_by(m, params, depth + 1) if params is not None else (atom,)
        else:
            yield atom


def note_half(m: Machine, chosen: Sequence[Chosen], optimizer: Object, place: Place, how: str, only_added: bool = False) -> None:
    """Emit what parameters in float16 an optimizer holds; `only_added`: of those that were added to models, adapters."""
    if keeps_copies(m, optimizer):
        return
    base = m.path
    for path, model, group in half_groups(m, chosen):
        if only_added and group.name == OWN:
            continue
        m.path = path
        told = {"model": model, "group": group.name, "chain": group.chain, "created": group.created}
        m.emit("half parameters", place, **told, optimizer=optimizer, how=how)
    m.path = base


def keeps_copies(m: Machine, optimizer: Object) -> bool:
    """Whether an optimizer of the project's own keeps float32 copies of the parameters, which it steps and writes back to them."""
    member = class_member(m, optimizer.type, "step") if type(optimizer.type) is Class else None
    step = member[0] if member is not None else None
    while type(step) is Wrapped:
        step = step.callee
    words = step.code.words if type(step) is Function else frozenset()
    cast, written = {"float", "float32"}, {".data=", "copy_"}
    return not words.isdisjoint(cast) and not words.isdisjoint(written) and any(COPIES.search(word) for word in words)


MOST_NESTED = 6  # lists in lists
COPIES = re.compile(r"^state$|master|fp32|float32|main_param|copies")


# the groups of an optimizer


def given_to(m: Machine, optimizer: Object) -> list[Chosen]:
    """The models (and groups of their parameters) that an optimizer was given, as far as the path allows."""
    held = m.read(optimizer.id, "@trained")
    found: list[Chosen] = []
    for items in (pair.items for pair in (held.items if type(held) is Items else ()) if type(pair) is Items):
        group, given = items[1], items[2]
        if type(group) is Constant and type(given) is State and extend(m.path, given.data) is not None:  # type: ignore[arg-type]
            found += [Chosen(atom, str(group.value), given.data) for atom in atoms(items[0])]  # type: ignore[arg-type]
    return found


def groups(m: Machine, optimizer: Atom, name: str, place: Place) -> Value | None:
    """`optimizer.param_groups`: a list with a group that stands for all."""
    if type(optimizer) is not Object or name != "param_groups" or not given_to(m, optimizer):
        return None
    if put_in_place(m, optimizer) is None:
        fill(m, optimizer)  # with the dtypes that the models have by now
    return Object(("param_groups", optimizer.id), "list", "builtins.list", optimizer.made)


def fill(m: Machine, optimizer: Object) -> None:
    """Put into the group of an optimizer what the optimizer was given."""
    params, group = of_group(optimizer)
    held = Items(tuple(standing_for(m, chosen.model, chosen.group) for chosen in given_to(m, optimizer)))
    m.write(params.id, "#items", held)
    m.write(params.id, GIVEN, held)
    m.write(group.id, "#entries", Entries((("params", params),), Unknown(f"param_group{IDENTITY}{optimizer.id!r}"[:200])))
    m.write(("param_groups", optimizer.id), "#items", Items((group,)))


vocabulary.attributes["optimizer"] = groups


def of_group(optimizer: Object) -> tuple[Object, Object]:
    """The list of parameters that an optimizer was given, and the group that holds it."""
    params = Object(("params", optimizer.id), "list", "builtins.list", optimizer.made)
    return params, Object(("param_group", optimizer.id), "dict", "builtins.dict", optimizer.made)


def standing_for(m: Machine, model: Atom, group: str) -> Atom:
    """A parameter that stands for those of a model, or of one group of them."""
    if type(model) is Tensor:
        return model
    key = repr(owner_of(model))[:400]
    m.write((OF, key), "#model", model)
    letters = {HALF} if half_groups(m, [Chosen(model, group)]) else {ANY}
    return Tensor(frozenset(letters), tags=frozenset({PARAMETER, OF + key, GROUP + group}))


def put_in_place(m: Machine, optimizer: Object) -> Value | None:
    """The parameters that the groups of an optimizer hold by now; None where they are those that it was given."""
    params, group = of_group(optimizer)
    entries = m.read(group.id, "#entries")
    held = join((g, e.get("params") or NONE) for g, e in options(entries) if type(e) is Entries) if entries is not None else params
    ways = [atom for guards, atom in options(held) if extend(m.path, guards) is not None]
    untouched = m.read(params.id, "#items") == m.read(params.id, GIVEN)
    return None if untouched and all(atom == params for atom in ways) else held


vocabulary.follows("optimizer made", "parameters added")(optimizer_made)
vocabulary.follows("optimizer step", "scaler step", "trainer step")(stepped)
