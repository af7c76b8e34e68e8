"""Which functions and classes of a project run in half precision, and the chain of places that shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from mplint.engine.modules import Modules
from mplint.findings import Location, Related
from mplint.source.summary import Call, Defined, Ref, Summary
from mplint.source.values import HALF

MAX_DEPTH = 8
MAX_CHAIN = 4


class Node(NamedTuple):
    """A function or class of the project."""

    path: str
    name: str


class Cause(NamedTuple):
    """The half dtypes that may be in force, and the places that lead to it, the first one first."""

    dtypes: frozenset[str]
    chain: tuple[Related, ...]


class Contexts:
    """Carries autocast regions and half-precision modules along calls, from file to file."""

    def __init__(self, summaries: Mapping[str, Summary], modules: Modules) -> None:
        self.summaries = summaries
        self.modules = modules

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
            if node not in found:
                found[node] = cause
                queue.append(node)

        for path, summary in sorted(self.summaries.items()):
            for call in summary.calls:
                dtypes = call.half & HALF
                if dtypes:
                    shown = " or ".join(sorted(dtypes))
                    for node in self.entered(call, path):
                        reach(node, Cause(dtypes, (Related(call.place, f"{shown} is in force here, where this is called under autocast"),)))
            for conversion in summary.conversions:
                for node in self.instances(conversion.target, path):
                    reach(node, Cause(frozenset({conversion.dtype}), (Related(conversion.place, f"the model is cast to {conversion.dtype} here"),)))
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
        summary = self.summaries[node.path]
        defined = summary.definitions.get(node.name)
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
        return [call for call in self.summaries[node.path].calls if call.caller == node.name or call.caller.startswith(node.name + ".")]

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
            return [Node(path, name[1:])] if name[1:] in self.summaries[path].definitions else []
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
        return [node for star in summary.stars for node in self.resolve(f"{star}{'' if star.endswith('.') else '.'}{rest}", module, depth + 1)]

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
                if found is None or found[1] or found[0] not in self.summaries:
                    return ()
                summary = self.summaries[found[0]]
                names = [":" + name for name in summary.definitions if "." not in name]
                names += [name for name in summary.imports.values() if self.located(name, found[0]) is not None]
                names += [f"{star}.{name}" for star in summary.stars for name in self._public(star, found[0])]
                return {n for name in names for node in self.resolve(name, found[0]) for n in self._made_by(node, depth + 1)}
            case "param":
                return {n for argument, where in self.passed(ref, path) for n in self.instances(argument, where, depth + 1)}
        return ()

    def _public(self, star: str, path: str) -> list[str]:
        found = self.located(star, path)
        summary = self.summaries.get(found[0]) if found is not None else None
        return [name for name in summary.definitions if "." not in name] if summary is not None else []

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
        defined = self.summaries[path].definitions.get(name)
        if defined is None or ref.extra not in defined.parameters:
            return
        index = defined.parameters.index(ref.extra)
        if defined.parameters[:1] in (("self",), ("cls",)):
            index -= 1
        for where, call in self.callers.get(Node(path, owner), []):
            for key, argument in call.arguments:
                if key in (index, ref.extra):
                    yield argument, where

    @cached_property
    def callers(self) -> dict[Node, list[tuple[str, Call]]]:
        """The calls of each function (and constructor) of the project, by name."""
        table: dict[Node, list[tuple[str, Call]]] = {}
        for path, summary in self.summaries.items():
            for call in summary.calls:
                if not call.value:
                    for node in self.resolve(call.target.name, path):
                        table.setdefault(node, []).append((path, call))
        return table
