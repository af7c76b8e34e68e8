"""Functions with numbers that half precision can't hold, which a module calls and another file defines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mplint.frameworks.torch.reach import ALL, Reach
from mplint.frameworks.torch.tensors import BANNED
from mplint.limits import FLOAT16_MAX, FLOAT16_SMALLEST_NORMAL
from mplint.program.entries import definitions, words_of
from mplint.program.lower import IR

REFUSED = BANNED | {"finfo"}  # words that matter beside such numbers
DEPTH = 4  # of functions that call each other


@dataclass(slots=True)
class Helpers:
    """Tells which classes compute by functions of other files that hold such numbers."""

    reach: Reach
    functions: dict[str, dict[str, IR]] = field(default_factory=dict)
    known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def serve(self, path: str, cls: IR) -> bool:
        """Whether a class of a file calls such a function, by its name or by the name of its module."""
        bodies = [words_of(s) for s in cls[6] if s[0] == "define"]
        return any(self.is_hazardous(*target) for target in self.called(path, frozenset[str]().union(*bodies)))

    def called(self, path: str, words: frozenset[str]) -> Iterator[tuple[str, str]]:
        """The functions that words of a file may mean, by path and name: its own, and those that it imports."""
        yield from ((path, name) for name in sorted(words & self.own(path).keys()))
        for name, home, given in self.reach.top(path).imports:
            if name == ALL or not given:
                if name == ALL or name in words:
                    yield from ((home, one) for one in sorted(words & self.reach.offered(home)))
            elif name in words:
                yield home, given

    def is_hazardous(self, path: str, name: str, depth: int = DEPTH) -> bool:
        """Whether a function holds such a number, or a function that it calls does."""
        key = (path, name)
        if key not in self.known:
            self.known[key] = False  # of functions that call themselves
            function = self.own(path).get(name)
            if function is not None and (not REFUSED.isdisjoint(words_of(function)) or holds_number(function)):
                self.known[key] = True
            elif depth > 0:
                words = words_of(function) if function is not None else frozenset({name})
                others = (target for target in self.called(path, words) if target != key)
                self.known[key] = any(self.is_hazardous(*target, depth - 1) for target in others)
        return self.known[key]

    def own(self, path: str) -> dict[str, IR]:
        """The functions at the top of a file."""
        if path not in self.functions:
            ir = self.reach.candidates.project.ir(path)
            found = (s for s in definitions(ir[1]) if s[0] == "define") if ir is not None else ()
            self.functions[path] = {s[2][2]: s for s in found}
        return self.functions[path]


def holds_number(ir: IR) -> bool:
    """Whether something holds a number that float16 rounds to infinity, to 0 or to a subnormal one."""
    pending: list[object] = [ir]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            value = node[2] if len(node) == 3 and node[0] == "constant" else None
            if isinstance(value, int | float) and (abs(value) > FLOAT16_MAX or 0 < abs(value) < FLOAT16_SMALLEST_NORMAL):
                return True
            pending += node
    return False
