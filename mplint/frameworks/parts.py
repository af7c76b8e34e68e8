"""Parts that a program chooses when it runs: hooks, callbacks, engines, plugins.

A method of a value that nobody knows runs on the classes of the project that may stand there: those that define the method, do something
with gradients in it, and are called like the value (`self.engine`: an `AMPEngine`, or what derives from an `Engine`). Of single values each
class is a case of its own; of hooks that only clip or read, each may be there or not. So it is where an event is announced by name:
`self.call_hook("after_backward")`, `task.run_hooks(Events.on_backward.name)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from mplint.frameworks.library import unknown_result
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.calls import call
from mplint.program.conditions import Path
from mplint.program.expressions import bind, class_member, external_bases
from mplint.program.machine import IDENTITY, Args, Machine, Switch, derived
from mplint.program.project import Project
from mplint.program.trace import Trace
from mplint.program.values import (
    FALSE,
    NONE,
    Atom,
    Class,
    Code,
    Constant,
    External,
    Function,
    Items,
    Method,
    Module,
    Object,
    Place,
    Unknown,
    Value,
    Wrapped,
    atoms,
)
from mplint.python.document import is_test_path

vocabulary = Vocabulary()
MOST = 4  # classes that are tried for one value
DEEPEST = 9  # calls below which none is tried
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ANNOUNCES = re.compile(r"hook|callback|event|handler|notify|trigger|signal", re.I)
CHOSEN = re.compile(r"^\w+ in \S*$| is$")
ROUNDS = re.compile(r"(#\d+)+$")
STEPS = frozenset({"backward", "step"})
CLIPS = frozenset(
    ["clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads", "clip_gradients", "dispatch_clip_grad", "adaptive_clip_grad"]
)
OBJECTS = frozenset({"model", "net", "network", "module", "optimizer", "optim", "opt", "loss", "criterion", "scheduler", "scaler", "grad"})
OTHERS = frozenset({"data", "loader", "args", "config", "cfg", "self", "torch", "fn", "func", "function", "base", "abstract", "get"})
COMMON = OBJECTS | OTHERS


class Part(NamedTuple):
    """A class of the project that handles gradients in a method: its file, its name, the words of its name and bases, and what it does."""

    path: str
    name: str
    words: frozenset[str]
    steps: bool
    code: Code


def words_of(name: str) -> frozenset[str]:
    """The words of an identifier, in the singular."""
    return frozenset(word.lower().removesuffix("s") for word in WORD.findall(name))


def parts_of(project: Project) -> dict[str, list[Part]]:
    """The parts of a project by the methods in which they handle gradients."""
    held = project.kept.get("parts")
    if isinstance(held, dict):
        return held
    found: dict[str, list[Part]] = {}
    for path in files_of(project):
        ir = project.ir(path)
        for statement in ir[1] if ir is not None and handles(ir[2]) else ():
            if statement[0] == "class" and handles(statement[7]):
                bases = [str(base[-1]) for base in statement[3] if base[0] in ("name", "attribute")]
                steps = any(member[0] == "define" and not STEPS.isdisjoint(member[2][8]) for member in statement[6])
                words = frozenset[str]().union(*(words_of(name) for name in (statement[2], *bases))) - COMMON
                for member in statement[6]:
                    if member[0] == "define" and handles(member[2][8]) and not member[2][2].startswith("__"):
                        found.setdefault(member[2][2], []).append(Part(path, statement[2], words, steps, Code(path, member[2])))
    project.kept["parts"] = found
    return found


def files_of(project: Project) -> list[str]:
    """The programs that speak of mixed precision or clip gradients, tests left out."""
    held = project.kept.get("programs with parts")
    return [path for path in held if not is_test_path(path)] if isinstance(held, tuple) else []


def users_of_parts(project: Project, clipping: Iterable[str]) -> dict[str, frozenset[str]]:
    """The programs that clip gradients around methods of parts which scale the loss, or run a backward pass between stages of such parts,
    with the names by which they do.
    """
    names = scaling_methods(project)
    found: dict[str, frozenset[str]] = engines_of(project)
    for path in clipping if names else ():
        ir = project.ir(path) if not is_test_path(path) else None
        if ir is not None and not names.isdisjoint(ir[2]):
            found[path] = names & ir[2]
    return found


def engines_of(project: Project) -> dict[str, frozenset[str]]:
    """Programs with a class that runs and announces the backward pass, for parts that scale at one stage and step at another."""
    split = [part.words for part in parts_in_stages(project)]
    found: dict[str, frozenset[str]] = {}
    for path in project.paths if split else ():
        ir = project.ir(path) if not is_test_path(path) else None
        for statement in ir[1] if ir is not None and "backward" in ir[2] else ():
            if statement[0] == "class" and "backward" in statement[7]:
                told = [words_of(word) for word in statement[7] if ANNOUNCES.search(word)]
                if any(not words.isdisjoint(own) for words in split for own in told):
                    found[path] = frozenset({"backward"})
    return found


def parts_in_stages(project: Project) -> list[Part]:
    """The parts that scale a loss, step by the scaler, and leave the backward pass to who calls them."""
    methods: dict[tuple[str, str], list[Part]] = {}
    for part in (part for parts in parts_of(project).values() for part in parts):
        methods.setdefault((part.path, part.name), []).append(part)
    found = [(parts[0], frozenset[str]().union(*(part.code.words for part in parts))) for parts in methods.values()]
    return [part for part, words in found if words >= {"scale", "step"} and "backward" not in words]


def handles(words: frozenset[str]) -> bool:
    """Whether code does something with gradients by its words: it clips them, or goes by a scaler."""
    return not words.isdisjoint(CLIPS) or any("scaler" in word.lower() for word in words)


def scaling_methods(project: Project) -> frozenset[str]:
    """The names of methods in which some part scales a loss and runs its backward."""
    return frozenset(
        name for name, parts in parts_of(project).items() if name != "backward" and any("backward" in p.code.words for p in parts)
    )


def candidates(m: Machine, name: str, words: frozenset[str]) -> list[Part]:
    """The parts that may stand for a value of these words, as far as they define the method; none where that says too little."""
    found = [part for part in parts_of(m.project).get(name, ()) if not part.words.isdisjoint(words - COMMON)]
    near = [part for part in found if m.frames and part.path.split("/")[0] == m.frames[-1].path.split("/")[0]]
    return (near or found)[:MOST] if len(near or found) <= 3 * MOST else []


def shown(value: Value) -> str:
    """The last name of a value, "" where it has none."""
    if type(value) is Unknown:
        text = value.symbol.partition(IDENTITY)[0]
    elif type(value) is Method:
        return value.name
    else:
        return ""
    names = re.findall(r"[A-Za-z_]\w*", text.split("(")[0])
    return names[-1] if names else ""


def of_unknown(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """A method of a value that nobody knows."""
    if type(atom) not in (Unknown, Method) or len(m.calls) > DEEPEST:
        return None
    if name in parts_of(m.project):
        title = shown(atom)
        if title[:1].isupper():
            return None  # its class is known
        hint = atom.hint.rpartition(".")[2] if type(atom) is Unknown else ""
        found = candidates(m, name, words_of(title) | words_of(hint))
        if found:
            return run_parts(m, atom, title, repr_of(atom), found, name, args, place)
    if ANNOUNCES.search(name):
        announced(m, atom, name, args, place)
    return None


vocabulary.atom_methods.append(of_unknown)


def of_called(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """A method that was looked up first: `getattr(hook, name)(self)`."""
    if type(atom) is not Unknown:
        return None
    head, _, name = atom.symbol.partition(IDENTITY)[0].rpartition(".")
    if not head or name not in parts_of(m.project):
        return None
    return of_unknown(m, Unknown(f"{head}{IDENTITY}{atom.symbol.partition(IDENTITY)[2]}"), name, args, place)


vocabulary.atom_calls.append(of_called)


def is_chosen(path: Path) -> bool:
    """Whether something happens on a path only where a part of the project is chosen."""
    return any(key[0] in ("true", "in") and isinstance(key[1], str) and CHOSEN.search(key[1].partition(IDENTITY)[0]) for key, _ in path)


def repr_of(atom: Atom) -> str:
    """What tells a value from others."""
    return atom.symbol if type(atom) is Unknown else repr(atom)[:160]


def announced(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> None:
    """`task.run_hooks("on_backward")`: the hooks of the project that wait for it."""
    if type(atom) is Object and atom.kind != "instance":
        return
    for event in list(event_names(args.positional[0]))[:1] if args.positional else ():
        for method in (event, f"on_{event}"):
            found = candidates(m, method, words_of(name))
            if found:
                title = "hooks" if "hook" in name.lower() else "callbacks"
                run_parts(m, atom, title, f"{title}{IDENTITY}{method}", [p for p in found if not p.steps], method, Args((atom,)), place)
                return


def event_names(value: Value) -> Iterator[str]:
    """The event that an argument names, as a method would be called."""
    for atom in atoms(value):
        if type(atom) is Constant and isinstance(atom.value, str):
            yield atom.value
        parts = [part for part in dotted(atom).split(".") if part not in ("", "name", "value")]
        if parts:
            yield parts[-1].lower()


def dotted(value: Value) -> str:
    """The dotted name of a value, "" where it has none."""
    if type(value) is Method:
        return f"{dotted(value.receiver)}.{value.name}"
    if type(value) is External:
        return value.name
    return value.symbol.partition(IDENTITY)[0] if type(value) is Unknown else ""


def run_parts(m: Machine, atom: Atom, title: str, symbol: str, found: Iterable[Part], name: str, args: Args, place: Place) -> Value | None:
    """Run a method of the parts that may be there: what steps, one instead of the other; what only looks or clips, there or not."""
    result: Value | None = None
    chosen = [] if comes_again(m, atom) else list(found)  # the next of several is another part
    symbol = ROUNDS.sub("", symbol)  # the same parts are there in all rounds
    drivers = [part for part in chosen if part.steps]
    others = [part for part in chosen if not part.steps]
    first = all(CLIPS.isdisjoint(part.code.words) for part in drivers)  # what clips is meant for before a step that doesn't clip itself
    run_optional(m, others if first else (), title, symbol, name, args, place)
    if drivers:
        key = f"{title} is{IDENTITY}{symbol}"
        callee = derived(atom, "." + name) if type(atom) is Unknown else Method(atom, name)
        m.switches.setdefault(key, Switch(title or "it", NOBODY, place, "setting"))
        names = frozenset(part.name for part in drivers)
        arms: list[tuple[Path, Callable[[], tuple[bool, Value]]]]
        arms = [(frozenset({(("in", key, frozenset({part.name})), True)}), arm(m, part, symbol, name, args, place)) for part in drivers]
        arms.append((frozenset({(("in", key, names), False)}), partial(otherwise, m, callee, args, place)))
        result = m.fork(arms)[1]
    run_optional(m, () if first else others, title, symbol, name, args, place)
    return result


NOBODY = Constant("")  # whose instance something unknown is by default


def is_supposed(trace: Trace, path: Path) -> bool:
    """Whether a path takes something unknown for an instance of a class of the project, which has the methods that are called."""
    chosen = (trace.switch(key[1]) for key, sense in path if key[0] == "in" and sense)
    return any(switch is not None and switch.default == NOBODY for switch in chosen)


def comes_again(m: Machine, atom: Atom) -> bool:
    """Whether a value is what a loop goes over, in a later round: each part is there once."""
    if type(atom) is not Unknown:
        return False
    later = [loop.over for frame in m.frames for loop in frame.loops if loop.round > 0 and loop.over is not None]
    seen = [a for value in later for held in atoms(value) for a in (held.items if type(held) is Items else (held,))]
    return any(type(a) is Unknown and a.symbol == atom.symbol for a in seen)


def run_optional(m: Machine, parts: Iterable[Part], title: str, symbol: str, name: str, args: Args, place: Place) -> None:
    """Run a method of the parts that only look or clip, each there or not."""
    for part in parts:
        key = f"{part.name} in {title}{IDENTITY}{symbol}"
        m.switches.setdefault(key, Switch(f"{part.name} in {title}", FALSE, place, "setting", test=True))
        present = (frozenset({(("true", key), True)}), arm(m, part, symbol, name, args, place))
        m.fork([present, (frozenset({(("true", key), False)}), lambda: (True, NONE))])


def otherwise(m: Machine, callee: Atom, args: Args, place: Place) -> tuple[bool, Value]:
    """The case that none of the project's classes stands there."""
    for handler in m.library.atom_calls:  # type: ignore[attr-defined]
        value = handler(m, callee, args, place) if handler is not of_called else None
        if value is not None:
            return True, value
    return True, unknown_result(m, callee, args, place)


def arm(m: Machine, part: Part, symbol: str, name: str, args: Args, place: Place) -> Callable[[], tuple[bool, Value]]:
    """One part's method, as the arm of a fork."""

    def run() -> tuple[bool, Value]:
        made = instance_of(m, part, symbol, place)
        if made is None or type(made.type) is not Class:
            return True, NONE
        member = class_member(m, made.type, name)
        if member is None:
            return True, NONE
        return True, call(m, bind(m, member[0], made, made.type, member[1], place.position), args, place.position)

    return run


def instance_of(m: Machine, part: Part, symbol: str, place: Place) -> Object | None:
    """The instance of a part that stands for a value: the same for all its methods."""
    frame = m.enter_module(Module(part.path, part.path))
    value = m.read(frame.id, part.name)
    cls = next((a for a in atoms(value) if type(a) is Class), None) if value is not None else None
    if cls is None:
        return None
    made = Object(("part", cls.id, symbol), "instance", cls, place)
    if m.read(made.id, "#set") is None:
        m.write(made.id, "#set", NONE)
        m.library.instantiated(m, made, external_bases(m, cls), Args(opaque=True), place)
        init = class_member(m, cls, "__init__")
        if init is not None and type(init[0]) in (Function, Wrapped):
            call(m, bind(m, init[0], made, cls, init[1], place.position), Args(opaque=True), place.position)
    return made
