"""MP106 policy-set-too-late."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Fix, MoveStatement, Severity
from mplint.frameworks.keras.evidence import shared
from mplint.frameworks.keras.layers import SHAPES, by, is_preparing
from mplint.frameworks.keras.policies import MIXED, OPEN
from mplint.program.conditions import extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible, tensors_of
from mplint.program.values import Object, Place, State, Step, atoms
from mplint.python.document import is_test_path
from mplint.python.names import position
from mplint.rule import Consequence, Rule

OF_MODELS = ("model compiled", "model fit", "model run", "outputs read")


class Late(NamedTuple):
    """A policy that comes too late: where it is set, what had been built by then, and where that is used afterwards.

    `first` is what had been made first of all that takes the policy, be it an empty model.
    """

    setter: Event
    made: Event
    use: Event
    first: Event

    def places(self, made: Event) -> tuple[Place, Place]:
        """Where one function sets the policy and builds something, itself or by what it calls."""
        depth = shared(self.setter.calls, made.calls)
        return (*self.setter.calls, self.setter.place)[depth], (*made.calls, made.place)[depth]


def late_policies(trace: Trace, entry: Entry) -> list[Late]:
    """Where a program sets a mixed policy, a model that it had built by then, and where it uses that one afterwards."""
    built: dict[Hashable, Event] = {}
    waiting: dict[Hashable, tuple[Event, Event]] = {}
    begun: Event | None = None
    firsts: dict[Place, Event] = {}
    found: dict[Place, Late] = {}
    default = "float32" if entry.script else OPEN
    chosen = {event.place for event in entry.of("policy set")}  # float32 of `set_floatx` is no choice for some models alone
    for event in entry.events:
        if event.kind == "policy set" and is_mixed(event) and is_set_back(entry, event):
            continue
        if event.kind == "policy set" and is_mixed(event):
            before = {key: made for key, made in built.items() if entry.script or comes_before(trace, made, event)}
            waiting |= {key: (event, made) for key, made in before.items() if extend(made.path, event.path) is not None}
            if begun is not None:
                firsts.setdefault(event.place, begun)
            built, begun = {}, None
            continue
        for key in used(event):
            if key in waiting:
                setter, made = waiting[key]
                found.setdefault(setter.place, Late(setter, made, event, firsts.get(setter.place, made)))
        if begun is None and event.kind in ("container made", "layer made") and event.get("dtype") is None:
            begun = event
        if event.kind in ("layer made", "model made"):
            policy = event.data["policy"]
            for key in [key for key, (_, made) in waiting.items() if made.place == event.place]:
                del waiting[key]  # built once more, under the policy
            name, place = policy.data if type(policy) is State and isinstance(policy.data, tuple) else (None, None)
            if event.get("dtype") is None and name == default and place not in chosen and not is_neutral(event):
                built |= dict.fromkeys(made_by(event), event)
    return list(found.values())


def made_by(event: Event) -> list[Hashable]:
    """What stands for a layer or model in the events and tensors that come of it."""
    if event.kind == "model made":
        return [event.data["model"].id]  # type: ignore[attr-defined]
    return [event.data["layer"].id, by(event.place)]  # type: ignore[attr-defined]


def used(event: Event) -> list[Hashable]:
    """What stands for the layers and models that an event is about: those that it runs, and those whose tensors it builds upon."""
    if event.kind in OF_MODELS:
        return [event.data["model"].id]  # type: ignore[attr-defined]
    if event.kind == "model loaded":  # `clone_model` gives each layer the policy that it had
        given = event.data["args"].get(0, "model") if str(event.data["name"]).endswith(".clone_model") else None  # type: ignore[attr-defined]
        return [atom.id for atom in atoms(given) if type(atom) is Object] if given is not None else []
    if event.kind == "layer called":
        return [event.data["layer"].id, *(tag for tensor in event.data["given"] for tag in sorted(tensor.tags))]  # type: ignore[attr-defined]
    if event.kind == "model made":
        return [tag for _, tensor in tensors_of(event.data["outputs"], event.path) for tag in sorted(tensor.tags)]  # type: ignore[arg-type]
    return []


def is_neutral(event: Event) -> bool:
    """Whether a layer only prepares or shapes what it gets, or a model ends in such a one."""
    if event.kind == "layer made":
        return is_neutral_layer(str(event.data["name"]).rpartition(".")[2])
    given = [tensor for _, tensor in tensors_of(event.data["outputs"], event.path)]  # type: ignore[arg-type]
    return bool(given) and all(any(is_neutral_layer(tag[6:]) for tag in tensor.tags if tag.startswith("layer:")) for tensor in given)


def is_neutral_layer(name: str) -> bool:
    """Whether a layer has no floating computation worth a policy, by the name of its class."""
    return name in SHAPES or is_preparing(name)


def comes_before(trace: Trace, made: Event, setter: Event) -> bool:
    """Whether library code surely makes something before it sets a policy: in the same run of a method, or as its object is made."""
    return bool(made.calls) and (made.calls[:1] == setter.calls[:1] or trace.text(made.calls[0]).startswith("class "))


def is_mixed(event: Event) -> bool:
    """Whether a setter sets a mixed policy, whatever else it may."""
    found = possible(event.data["policy"], event.path)  # type: ignore[arg-type]
    return bool(found) and all(type(a) is State and isinstance(a.data, tuple) and a.data[0] in MIXED for _, a in found)


def is_set_back(entry: Entry, setter: Event) -> bool:
    """Whether the function that sets a policy, itself or by a helper, builds something under it and sets another one then.

    The policy is for what is built in between.
    """
    later = entry.events[next(n for n, event in enumerate(entry.events) if event is setter) + 1 :]
    built = False
    for event in later:
        built = built or event.kind in ("layer made", "model made", "model loaded")
        if event.kind != "policy set" or extend(event.path, setter.path) is None:
            continue
        together = event.frame == setter.frame or (bool(setter.calls) and event.calls[:-1] == setter.calls[:-1])
        return built and together and not is_mixed(event)
    return False


def moved_before(trace: Trace, late: Late) -> Fix | None:
    """Move the setter's statement before the one that builds, where one move does it."""
    where, building_place = late.places(late.first)
    made, held = trace.node(late.setter.place), trace.node(building_place)
    if where != late.setter.place or made is None or held is None or made[0] is not held[0]:
        return None
    file = made[0]
    setting: ast.AST = file.syntax.statement(made[1])
    building = file.syntax.statement(held[1])
    if file.location(setting).cell != file.location(building).cell:
        return None
    block = file.syntax.block(building)
    while setting not in block:
        parent = file.syntax.parents.get(setting)
        if not isinstance(parent, ast.If) or len(parent.body) != 1 or parent.orelse:
            return None
        setting = parent
    for name in (n for n in ast.walk(setting) if isinstance(n, ast.Name)):
        if not isinstance(name.ctx, ast.Load) or any(position(b.node) >= position(building) for b in file.names.reaching(name)):
            return None
    if len([s for s in ast.walk(setting) if isinstance(s, ast.stmt)]) > 2:
        return None
    move = MoveStatement(file.span(setting), file.span(building))
    return Fix("set the policy before the first layer is built", Applicability.UNSAFE, (move,))


class PolicySetTooLate(Rule):
    """A dtype policy set after the layers that should follow it

    ## What it does
    Finds a global dtype policy that is set after the layers or models that should follow it were built; `clone_model` gives every layer
    of the copy the policy that it had.

    ## Why is this bad?
    A layer takes the global policy when it is constructed and keeps it. Layers built before the call go on computing in float32: no
    speed-up and no memory saved, without a warning; with some layers built later, the model is a mixture that casts back and forth.

    ## Example
    ```python
    from tensorflow import keras

    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1, dtype="float32")])
    keras.mixed_precision.set_global_policy("mixed_float16")
    model.compile("adam", "mse")
    ```

    ## Use instead
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1, dtype="float32")])
    model.compile("adam", "mse")
    ```

    ## Fix safety
    Unsafe: the model computes in half precision from then on, as the policy asks. The statement moves before the first layer, and only
    where it stands in the same block and nothing in between binds what it reads. Elsewhere there is no fix.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp106.py.

    ## References
    - https://www.tensorflow.org/guide/mixed_precision
    - https://keras.io/api/mixed_precision/policy/
    """

    code = "MP106"
    name = "policy-set-too-late"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("keras",)
    program = True
    tokens = ("set_global_policy", "set_policy", "set_dtype_policy")
    adoption = Consequence("the policy is set before the model that it is for", mends=True, fatal=False)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report policies that a program sets after it has built a model which it goes on to use."""
        for entry in trace.entries:
            for late in late_policies(trace, entry):
                verdict = self.verdict(trace, entry, late.setter.path, late.setter.place)
                building = late.places(late.made)[1]
                name = trace.text(building).partition("(")[0]
                yield self.at(
                    trace,
                    late.setter.place,
                    f"the policy is set after `{name}` has built its layers in float32{verdict.condition()}",
                    why="A layer takes the global policy when it is built: what was built before stays float32 and gains no speed.",
                    help="set the policy before the first layer or model is built",
                    severity=Severity.INFO if is_test_path(late.setter.place.path) else None,
                    confidence=Confidence.HIGH if entry.script and verdict.proven else Confidence.MEDIUM,
                    steps=(Step(building, "built here, in float32"), Step(late.use.place, "used here, still in float32")),
                    fix=moved_before(trace, late),
                )
