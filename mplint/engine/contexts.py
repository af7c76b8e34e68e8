"""Which functions and classes of a project run in half precision, and the chain of places that shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from mplint.engine.modules import ImportGraph
from mplint.findings import Location, Related
from mplint.source.summary import Call, Defined, Ref, Summary
from mplint.source.values import HALF

MAX_DEPTH = 8
MAX_CHAIN = 4
MAX_FILES = 250


class Node(NamedTuple):
    """A function or class of the project."""

    path: str
    name: str


class Cause(NamedTuple):
    """The half dtypes that may be in force, and the places that lead to it, the first one first."""

    dtypes: frozenset[str]
    chain: tuple[Related, ...]


class Summaries:
    """The summaries of files, each read when it is first asked for; None for a file that can't be read.

    After `MAX_FILES` no more are read, so that linking stays a small part of a check; what they would have proven is not reported.
    """

    def __init__(self, summarize: Callable[[Iterable[str]], Mapping[str, Summary]]) -> None:
        self._summarize = summarize
        self._known: dict[str, Summary | None] = {}

    def get(self, path: str) -> Summary | None:
        """The summary of one file."""
        if path not in self._known:
            if len(self._known) >= MAX_FILES:
                return None
            self._known[path] = self._summarize([path]).get(path)
        return self._known[path]


class Contexts:
    """Carries autocast regions and half-precision modules along calls, from file to file.

    It starts from the files in `speaking` and goes no further than `wanted`, the files through which the waiting findings can be reached.
    """

    def __init__(self, summaries: Summaries, graph: ImportGraph, wanted: frozenset[str], speaking: Sequence[str]) -> None:
        self.summaries, self.graph, self.wanted, self.speaking = summaries, graph, wanted, speaking
        self.modules = graph.modules
        self._by_caller: dict[str, dict[str, list[Call]]] = {}

    def of(self, path: str, scope: str) -> Cause | None:
        """What is in force in the function or class `scope` of a file, or in what it is part of."""
        while scope:
            if (cause := self.known.get(Node(path, scope))) is not None:
                return cause
            scope = scope.rpartition(".")[0]
        return None

    @cached_property
    def known(self) -> dict[Node, Cause]:
        """Every function and class that runs in half."""
        found: dict[Node, Cause] = {}
        queue: deque[Node] = deque()

        def reach(node: Node, cause: Cause) -> None:
            if node not in found and node.path in self.wanted:
                found[node] = cause
                queue.append(node)

        for path in self.speaking:
            summary = self.summaries.get(path)
            if summary is None:
                continue
            for call in summary.calls:
                dtypes = call.half & HALF
                if dtypes:
                    shown = " or ".join(sorted(dtypes))
                    for node in self.entered(call, path):
                        reach(node, Cause(dtypes, (Related(call.place, f"{shown} is in force here, where this is called under autocast"),)))
            for conversion in summary.conversions:
                for node in self.instances(conversion.target, path):
                    reach(
                        node,
                        Cause(frozenset({conversion.dtype}), (Related(conversion.place, f"the model is cast to {conversion.dtype} here"),)),
                    )
        while queue:
            node = queue.popleft()
            cause = found[node]
            for target, place in self.onward(node):
                chain = cause.chain
                if place is not None and len(chain) < MAX_CHAIN:
                    chain = (*chain, Related(place, f"`{target.name}` is used here"))
                reach(target, Cause(cause.dtypes, chain))
        return found

    def onward(self, node: Node) -> Iterator[tuple[Node, Location | None]]:
        """What running `node` runs: functions it calls, modules it holds, base classes."""
        defined = self.defined(node)
        for call in self.calls_in(node):
            if call.off or call.half:
                continue
            for target in self.entered(call, node.path, held=defined is not None and defined.is_class):
                if target != node:
                    yield target, call.place
        if defined is not None and defined.is_class:
            for base in defined.bases:
                for target in self.resolve(base.name, node.path):
                    yield target, None

    def calls_in(self, node: Node) -> list[Call]:
        """The calls that stand in `node`, methods and nested functions included."""
        table = self._by_caller.get(node.path)
        if table is None:
            table = self._by_caller[node.path] = {}
            summary = self.summaries.get(node.path)
            for call in summary.calls if summary is not None else ():
                name = call.caller
                while name:
                    table.setdefault(name, []).append(call)
                    name = name.rpartition(".")[0]
        return table.get(node.name, [])

    def entered(self, call: Call, path: str, held: bool = False) -> Iterator[Node]:
        """The functions, or classes of called instances, that a call runs; with `held` also classes that it builds (submodules)."""
        if call.value:
            yield from self.instances(call.target, path)
            return
        for node in self.resolve(call.target.name, path):
            defined = self.defined(node)
            if defined is not None and (not defined.is_class or held):
                yield node

    def defined(self, node: Node) -> Defined | None:
        """The definition behind a node."""
        summary = self.summaries.get(node.path)
        return summary.definitions.get(node.name) if summary is not None else None

    def resolve(self, name: str, path: str, depth: int = 0) -> list[Node]:
        """The functions and classes that a dotted name, as it stands in `path`, means."""
        if depth > MAX_DEPTH:
            return []
        if name.startswith(":"):
            own = self.summaries.get(path)
            return [Node(path, name[1:])] if own is not None and name[1:] in own.definitions else []
        found = self.located(name, path)
        if found is None:
            return []
        module, rest = found
        summary = self.summaries.get(module)
        if summary is None or not rest:
            return []
        head, _, tail = rest.partition(".")
        if rest in summary.definitions:
            return [Node(module, rest)]
        if head in summary.definitions:
            return [Node(module, head)]
        if head in summary.imports:
            return self.resolve(f"{summary.imports[head]}{'.' if tail else ''}{tail}", module, depth + 1)
        return [
            node for star in summary.stars for node in self.resolve(f"{star}{'' if star.endswith('.') else '.'}{rest}", module, depth + 1)
        ]

    def located(self, name: str, path: str) -> tuple[str, str] | None:
        """The project file that holds a dotted name, and the rest of the name within it."""
        head = name
        rest: list[str] = []
        while head.strip("."):
            module = self.modules.find(head, path)
            if module is not None:
                return module, ".".join(rest)
            head, _, last = head.rpartition(".")
            rest.insert(0, last)
            if name.startswith(".") and not head.strip("."):
                module = self.modules.find(head + "." if not head else head, path)
                return (module, ".".join(rest)) if module is not None else None
        return None

    def instances(self, ref: Ref, path: str, depth: int = 0) -> Iterable[Node]:
        """The classes of the project that the value may be an instance of."""
        if depth > MAX_DEPTH:
            return ()
        match ref.kind:
            case "made":
                return {n for node in self.resolve(ref.name, path) for n in self._made_by(node, depth)}
            case "any":
                found = self.located(ref.name, path)
                summary = self.summaries.get(found[0]) if found is not None and not found[1] else None
                if found is None or summary is None:
                    return ()
                names = [":" + name for name in summary.definitions if "." not in name]
                names += [name for name in summary.imports.values() if self.located(name, found[0]) is not None]
                names += [f"{star}.{name}" for star in summary.stars for name in self._public(star, found[0])]
                return {n for name in names for node in self.resolve(name, found[0]) for n in self._made_by(node, depth + 1)}
            case "param":
                return {n for argument, where in self.passed(ref, path) for n in self.instances(argument, where, depth + 1)}
        return ()

    def _public(self, star: str, path: str, depth: int = 0) -> list[str]:
        """The names that `from star import *` in `path` brings."""
        found = self.located(star, path)
        summary = self.summaries.get(found[0]) if found is not None else None
        if found is None or summary is None or depth > MAX_DEPTH:
            return []
        inner = [name for other in summary.stars for name in self._public(other, found[0], depth + 1)]
        return [name for name in (*summary.definitions, *summary.imports, *inner) if "." not in name]

    def _made_by(self, node: Node, depth: int) -> Iterable[Node]:
        defined = self.defined(node)
        if defined is None:
            return ()
        if defined.is_class:
            return {node}
        return {n for ref in defined.returns for n in self.instances(ref, node.path, depth + 1)}

    def passed(self, ref: Ref, path: str) -> Iterator[tuple[Ref, str]]:
        """What the callers of a function pass for one of its parameters, and in which file."""
        name = ref.name[1:]
        owner = name.removesuffix(".__init__")
        summary = self.summaries.get(path)
        defined = summary.definitions.get(name) if summary is not None else None
        if defined is None or ref.extra not in defined.parameters:
            return
        index = defined.parameters.index(ref.extra)
        if defined.parameters[:1] in (("self",), ("cls",)):
            index -= 1
        for where, call in self.callers(Node(path, owner)):
            for key, argument in call.arguments:
                if key in (index, ref.extra):
                    yield argument, where

    def callers(self, node: Node) -> Iterator[tuple[str, Call]]:
        """The calls of a function (or constructor) by name, in its own file and those that import it."""
        last = node.name.rpartition(".")[2]
        for path in sorted({node.path, *self.graph.sources.get(node.path, ())}):
            summary = self.summaries.get(path)
            for call in summary.calls if summary is not None else ():
                if not call.value and call.target.name.endswith(last) and node in self.resolve(call.target.name, path):
                    yield path, call
