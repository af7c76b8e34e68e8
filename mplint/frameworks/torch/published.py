"""Functions with a backward of their own in the hands of callers who use autocast, where the project itself enters no region around them.

What tells that such callers are thought of: a Function beside it that is decorated, or a distribution whose code or tests use autocast.
Each is run once as they run it. Event: "function breaks under autocast".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from mplint.frameworks.torch.callers import Callers
from mplint.frameworks.torch.functions import PRODUCTS, applied, code_of, is_function, without_gradient
from mplint.frameworks.torch.promotion import UNKNOWN_TENSOR
from mplint.frameworks.torch.tensors import COUNTS, SURE, tensors_in
from mplint.program.entries import definitions, run, words_in
from mplint.program.expressions import class_member
from mplint.program.lower import IR
from mplint.program.machine import STATE, Args, Event, Machine
from mplint.program.trace import CALLERS, Ask, Entry, Trace, Words
from mplint.program.values import HALF, SINGLE, Autocast, Class, Code, Module, Place, Step, Unknown, Value, atoms
from mplint.python.document import is_test_path

FUNCTION = re.compile(rb"Function\)\s*:")
DECORATED = re.compile(rb"\bcustom_fwd\b")
# words of code that minds the dtypes of its tensors
REGIONS = frozenset(["autocast", "custom_fwd", "custom_bwd", "is_autocast_enabled", "get_autocast_gpu_dtype", "set_autocast_enabled"])
MINDFUL = REGIONS | {
    *("float", "half", "bfloat16", "double", "to", "type", "type_as", "dtype", "float32", "float16", "force_fp32", "auto_fp16")
}
PRODUCT = "a product"
COMMON = frozenset({"torch", "ctx", "F", "np", "numpy", "math", "einops", "dist", "triton", "tl", "self", "nn"})  # no compiled modules
STEPS = 60_000  # of all such runs


def defines_function(data: bytes) -> bool:
    """Whether a program defines a Function."""
    return FUNCTION.search(data) is not None


def decorates_function(data: bytes) -> bool:
    """Whether a program says `custom_fwd`."""
    return b"custom_fwd" in data and DECORATED.search(data) is not None


def run_functions(m: Machine, found: Trace, paths: Iterable[str], ask: Ask, callers: Callers) -> None:
    """Run the Functions that nothing is known to run under autocast, as a caller would who does."""
    known = [path for path in paths if not is_test_path(path)]
    offered = Offered(m, known, ask, callers)
    entries = (entry for entry in found.entries if entry.context != CALLERS)
    told = {event.data["forward"] for entry in entries for event in entry.of("custom function applied") if is_in_region(event)}
    left = STEPS
    for path in known:
        for statement, reason in offered.of(path) if ask(path, defines_function) else ():
            if left <= 0:
                return
            entry = Entry(path, statement[2], False, context=CALLERS)
            usual = reason.beside or callers.runs_itself(path)
            run(m, found, entry, partial(run_function, m, path, statement, reason, told, usual), home=path)
            left -= m.limit - max(m.left, 0)


def is_in_region(event: Event) -> bool:
    """Whether autocast may be on at an event."""
    state = event.data["autocast"]
    return any(type(a) is Autocast and a.dtype is not None for a in atoms(state))  # type: ignore[arg-type]


class Reason(NamedTuple):
    """What tells that callers of a Function may use autocast; `beside`: a Function that is decorated, and works as this one does."""

    step: Step
    beside: bool


@dataclass(slots=True)
class Offered:
    """The Functions of a project whose callers may use autocast."""

    m: Machine
    paths: list[str]
    ask: Ask
    callers: Callers
    decorated: list[tuple[str, IR]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in self.paths:
            if self.ask(path, decorates_function) and self.ask(path, defines_function):
                self.decorated += [(path, cls) for cls in self.functions(path) if is_decorated(cls)]

    def functions(self, path: str) -> Iterator[IR]:
        """The classes of a file that have a forward and a backward and name a Function as their base."""
        ir = self.m.project.ir(path)
        for statement in definitions(ir[1]) if ir is not None else ():
            if statement[0] == "class" and any(base[-1] == "Function" for base in statement[3] if base[0] in ("name", "attribute")):
                yield statement

    def of(self, path: str) -> Iterator[tuple[IR, Reason]]:
        """The Functions of a file that have no decorators, with what speaks for callers who use autocast."""
        for cls in self.functions(path):
            if is_decorated(cls) or (reason := self.reason(path, cls)) is None or self.is_minded(path, cls[2]):
                continue
            yield cls, reason

    def reason(self, path: str, cls: IR) -> Reason | None:
        """What tells that callers of a Function may use autocast."""
        folder = path.rpartition("/")[0]
        for home, other in sorted(self.decorated, key=lambda pair: pair[0] != path):
            if home.rpartition("/")[0] == folder and calls_of(other) & calls_of(cls):
                return Reason(Step(Place(home, other[1]), f"`{other[2]}` has `custom_fwd`"), True)
        if self.callers.uses_autocast(path):
            return Reason(Step(Place(path, cls[1]), "the library has callers in mind who use autocast"), False)
        return None

    def is_minded(self, path: str, name: str) -> bool:
        """Whether a function that mentions a Function, or what a file calls its `apply`, minds the dtypes of what it gives it."""
        names = {name, *self.aliases(path, name)}
        question = Words(tuple(sorted(names)))
        for user in self.paths:
            ir = self.m.project.ir(user) if self.ask(user, question) else None
            for code in functions_in(ir[1]) if ir is not None else ():
                if not names.isdisjoint(code[8]) and not MINDFUL.isdisjoint(code[8]):
                    return True
        return False

    def aliases(self, path: str, name: str) -> Iterator[str]:
        """The names that a file gives to the `apply` of a Function."""
        ir = self.m.project.ir(path)
        for statement in ir[1] if ir is not None else ():
            if statement[0] == "assign" and {name, "apply"} <= words_in(statement[3]):
                yield from (target[2] for target in statement[2] if target[0] == "name")


def functions_in(body: Iterable[IR]) -> Iterator[IR]:
    """The lowered functions of a module, and the methods of its classes."""
    for statement in definitions(list(body)):
        if statement[0] == "define":
            yield statement[2]
        else:
            yield from (s[2] for s in statement[6] if s[0] == "define")


def is_decorated(cls: IR) -> bool:
    """Whether some method of a class has a decorator of autocast's."""
    return any("custom_fwd" in words_in(s[2][6]) or "custom_bwd" in words_in(s[2][6]) for s in cls[6] if s[0] == "define")


def calls_of(cls: IR) -> frozenset[str]:
    """What kinds of work a Function's methods do: matrix products, and the compiled modules that they call."""
    return frozenset(kind for s in cls[6] if s[0] == "define" for kind in work_in(s[2][4]))


def work_in(ir: object) -> Iterator[str]:
    """The kinds of work in lowered code."""
    for part in parts_of(ir, "binary", "call"):
        if is_product(part):
            yield PRODUCT
        elif part[0] == "call" and part[2][0] == "attribute" and part[2][2][0] == "name" and part[2][2][2] not in COMMON:
            yield part[2][2][2]


def run_function(m: Machine, path: str, statement: IR, reason: Reason, told: set[object], usual: bool) -> None:
    """One Function under autocast: with float32 tensors, and with one that autocast has made half; `usual`: the project does so itself."""
    frame = m.enter_module(Module(path, path))
    value = m.read(frame.id, statement[2])
    cls = next((a for a in atoms(value) if type(a) is Class), None) if value is not None else None
    m.events.clear()
    if cls is None or not is_function(m, cls):
        return
    forward, backward = (code_of(member[0]) if (member := class_member(m, cls, n)) is not None else None for n in ("forward", "backward"))
    if forward is None or backward is None or forward.path != path or not REGIONS.isdisjoint(forward.words | backward.words):
        return
    begun = Place(path, forward.place)
    if begun in told:
        return
    m.frames.append(frame)
    product = product_met(m, cls, forward, backward, begun)
    kernel = kernel_met(m, cls, forward, begun) if product is None and reason.beside and 0 not in without_gradient(backward) else None
    m.events.clear()
    if product is not None or kernel is not None:
        m.emit(
            "function breaks under autocast",
            begun,
            function=cls,
            forward=begun,
            product=product,
            kernel=kernel,
            reason=reason.step,
            usual=usual,
        )
    m.frames.pop()


def product_met(m: Machine, cls: Class, forward: Code, backward: Code, place: Place) -> Place | None:
    """Where backward multiplies a half gradient with what forward was given in float32; None where forward gives no half."""
    again = product_with(backward, kept_as_given(forward, backward)) if MINDFUL.isdisjoint(backward.words) else None
    if again is None:
        return None
    full = UNKNOWN_TENSOR.but(dtypes=frozenset({SINGLE}))
    result = under_autocast(m, cls, Args([full if is_float(name) else Unknown(name) for name in given_to(forward)]), place)
    made = tensors_in(m, result) if result is not None else []
    return again if made and all(t.dtypes == {HALF} for t in made) else None


def kept_as_given(forward: Code, backward: Code) -> frozenset[str]:
    """What a backward calls the tensors that its forward has saved as they were given."""
    assigned = {name for ir in parts_of(forward.body, "assign") for target in ir[2] for name in words_in(target)}
    own = {name for name, *_ in forward.parameters} - assigned
    saved = [ir for ir in parts_of(forward.body, "call") if ir[2][-1] == "save_for_backward"]
    taken = [ir for ir in parts_of(backward.body, "assign") if ir[3][0] == "attribute" and ir[3][3] in ("saved_tensors", "saved_variables")]
    if len(saved) != 1 or len(taken) != 1 or taken[0][2][0][0] != "tuple":
        return frozenset()
    pairs = zip(taken[0][2][0][2], saved[0][3], strict=False)
    return frozenset(to[2] for to, of in pairs if to[0] == of[0] == "name" and of[2] in own)


def product_with(backward: Code, kept: frozenset[str]) -> Place | None:
    """The first product of a backward that takes one of some tensors and something that is computed of the gradient."""
    grown = {name for name, *_ in backward.parameters[1:]}
    for ir in parts_of(backward.body, "assign"):
        if ir[3][0] != "attribute" and not grown.isdisjoint(words_in(ir[3])):
            grown |= {name for target in ir[2] for name in words_in(target)}
    for ir in parts_of(backward.body, "call", "binary"):
        factors = ir[3:5] if ir[0] == "binary" else ir[2:4]
        words = words_in(factors)
        if is_product(ir) and not words.isdisjoint(kept) and not words.isdisjoint(grown - kept):
            return Place(backward.path, ir[1])
    return None


def is_product(ir: IR) -> bool:
    """Whether a lowered expression multiplies matrices."""
    return bool(ir[2] == "@") if ir[0] == "binary" else ir[2][-1] in PRODUCTS


def parts_of(ir: object, *kinds: str) -> Iterator[IR]:
    """The parts of lowered code that are of some kinds, in order."""
    if not isinstance(ir, tuple):
        return
    if len(ir) > 3 and ir[0] in kinds and isinstance(ir[1], int):
        yield ir
    for part in ir:
        yield from parts_of(part, *kinds)


def kernel_met(m: Machine, cls: Class, forward: Code, place: Place) -> Place | None:
    """Where forward hands a compiled function the half tensor that it was given beside a float32 one that it has made."""
    names = given_to(forward)
    if not names or not is_float(names[0]) or not MINDFUL.isdisjoint(forward.words):
        return None
    half = UNKNOWN_TENSOR.but(dtypes=frozenset({HALF}), tags=frozenset({SURE}))
    under_autocast(m, cls, Args([half, *(Unknown(name) for name in names[1:])]), place)
    return next((event.place for event in m.events if event.kind == "kernel called"), None)


def under_autocast(m: Machine, cls: Class, args: Args, place: Place) -> Value | None:
    """What a Function gives in a caller's region."""
    region = Autocast("cuda", HALF, (Step(place, "a caller runs this function under autocast"),))
    results: list[Value | None] = []

    def body() -> bool:
        results.append(applied(m, cls, args, place))
        return True

    m.scoped((STATE, "autocast"), region, body)
    return results[0] if results else None


def given_to(forward: Code) -> list[str]:
    """The parameters of a forward that every call gives, its context left out."""
    return [name for name, kind, default, *_ in forward.parameters if kind == "positional" and default is None][1:]


def is_float(name: str) -> bool:
    """Whether a parameter's name says of no whole numbers or marks."""
    return COUNTS.search(name) is None
