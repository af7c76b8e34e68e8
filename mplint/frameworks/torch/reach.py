"""What a program comes to by names: the functions and classes that it uses, that these use, and so on through its imports.

An import alone brings nothing: who imports a module for one of its functions makes none of its classes. A method runs where something
that is come to has its name, or another package may call it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mplint.frameworks.torch.candidates import LOADERS, Candidates
from mplint.program.entries import definitions, words_in, words_of
from mplint.program.lower import IR
from mplint.program.lowered import parts

ALL = "*"


@dataclass(frozen=True, slots=True)
class Reached:
    """The names that a program comes to in files. `by_name`: it imports modules by names that it works out."""

    names: frozenset[tuple[str, str]]
    by_name: bool


@dataclass(frozen=True, slots=True)
class Top:
    """What stands at the top of a module: functions, classes and statements by the names that they bind, and imports."""

    own: dict[str, frozenset[str]]  # the words of what a name is bound to, of a class those that are used wherever it is
    methods: dict[str, tuple[tuple[str, frozenset[str]], ...]]  # the other methods of a class, with their words
    imports: tuple[tuple[str, str, str], ...]  # the name, the file that it comes from, and its name there ("": the module itself)
    words: frozenset[str]  # all that is used there
    entered: frozenset[str] = frozenset()  # the functions that a decorator enters in a table when the module is imported


@dataclass(slots=True)
class Reach:
    """Tells what the programs of a project come to."""

    candidates: Candidates
    tops: dict[str, Top] = field(default_factory=dict)
    known: dict[tuple[str, ...], Reached] = field(default_factory=dict)
    offers: dict[str, frozenset[str]] = field(default_factory=dict)
    alike: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)  # modules that take all names of each other share one

    def of(self, scripts: Iterable[str]) -> Reached:
        """What some programs come to that are run. What they import without naming it, they import for all that it holds."""
        key = tuple(sorted(scripts))
        if key not in self.known:
            begun = [(path, self.top(path).words) for path in key]
            idle = [home for path, words in begun for name, home, given in self.top(path).imports if not given and name not in words]
            entered = [
                (path, self.top(path).entered) for path in sorted(self.candidates.project.graph.below(key)) if self.top(path).entered
            ]
            self.known[key] = self.followed([*begun, *((home, self.offered(home)) for home in idle), *entered])
        return self.known[key]

    def of_classes(self, classes: Iterable[tuple[str, str]]) -> Reached:
        """What some classes come to, by path and name."""
        classes = sorted(classes)
        key = tuple(f"{path}:{name}" for path, name in classes)
        if key not in self.known:
            self.known[key] = self.followed([(path, frozenset({name})) for path, name in classes])
        return self.known[key]

    def of_models(self, classes: Iterable[tuple[str, str]]) -> Reached:
        """What some classes come to, and what is given to them where they are made: `Detector(build_backbone(args), head)`."""
        classes = sorted(classes)
        key = ("given", *(f"{path}:{name}" for path, name in classes))
        if key not in self.known:
            given = [part for path, name in classes for part in self.given_to(path, name)]
            self.known[key] = self.followed([*((path, frozenset({name})) for path, name in classes), *given])
        return self.known[key]

    def given_to(self, path: str, name: str) -> Iterable[tuple[str, frozenset[str]]]:
        """The words of what functions of a class's file, and of those that import it, give to the class when they make it."""
        project = self.candidates.project
        for home in sorted({path, *project.graph.sources.get(path, ())}):
            ir = project.ir(home)
            for statement in definitions(ir[1]) if ir is not None and name in ir[2] else ():
                if statement[0] == "define" and name in words_of(statement) and (words := words_given(statement[2][4], name)):
                    yield home, words

    def followed(self, pending: list[tuple[str, frozenset[str]]]) -> Reached:
        """What is come to from words of files."""
        found: set[tuple[str, str]] = set()
        said: set[str] = set()
        methods: list[tuple[str, str, frozenset[str]]] = []  # those that nobody has named yet
        followed: set[tuple[str, frozenset[str]]] = set()
        while pending:
            path, words = pending.pop()
            if (path, words) in followed and pending:
                continue
            followed.add((path, words))
            said |= words
            top = self.top(path)
            for name in words & top.own.keys():
                if (path, name) not in found:
                    found.add((path, name))
                    pending.append((path, top.own[name]))
                    methods += [(path, *method) for method in top.methods.get(name, ())]
            for name, home, given in top.imports:
                if name != ALL and name not in words:
                    continue
                wanted = words & self.offered(home) if name == ALL or not given else frozenset({given})
                new = frozenset(w for w in wanted if (home, w) not in found)
                found.update((home, w) for w in new if w not in self.top(home).own)
                if new:
                    pending.append((home, new))
            if not pending:
                pending = [(path, words) for path, name, words in methods if name in said]
                methods = [method for method in methods if method[1] not in said]
        return Reached(frozenset(found), not said.isdisjoint(LOADERS))

    def offered(self, path: str) -> frozenset[str]:
        """The names that a module has."""
        if path not in self.offers:
            found = self.offered_by(path)
            self.offers[path] = self.alike.setdefault(found, found)
        return self.offers[path]

    def offered_by(self, path: str) -> frozenset[str]:
        """The same, worked out."""
        found: set[str] = set()
        seen, pending = {path}, [path]
        while pending:
            top = self.top(pending.pop())
            found |= top.own.keys()
            for name, home, _ in top.imports:
                if name != ALL:
                    found.add(name)
                elif home not in seen:
                    seen.add(home)
                    pending.append(home)
        return frozenset(found)

    def top(self, path: str) -> Top:
        """What stands at the top of a module."""
        if path not in self.tops:
            self.tops[path] = Top({}, {}, (), frozenset())  # while it is read
            self.tops[path] = self.read(path)
        return self.tops[path]

    def read(self, path: str) -> Top:
        """The same, read."""
        ir = self.candidates.project.ir(path)
        if ir is None:
            return Top({}, {}, (), frozenset())
        own: dict[str, frozenset[str]] = {}
        shared: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}  # of thousands of names in one statement
        methods: dict[str, tuple[tuple[str, frozenset[str]], ...]] = {}
        said: set[str] = set()
        for statement in parts_at_top(ir[1]):
            if statement[0] == "class":
                waiting = tuple((s[2][2], words_of(s)) for s in statement[6] if s[0] == "define" and not is_called(s[2][2], statement))
                methods[statement[2]] = methods.get(statement[2], ()) + waiting
            words, names = bound_by(statement)
            said |= words_of(statement) if statement[0] in ("define", "class") else words
            for name in names:
                both = own.get(name, words), words
                if both not in shared:
                    shared[both] = both[0] | both[1]
                own[name] = shared[both]
        found = [entry for s in parts(ir[1], "import", "from") for entry in self.imported(path, s)]
        entered = frozenset(s[2][2] for s in parts_at_top(ir[1]) if s[0] == "define" and any(map(is_registering, s[2][6])))
        return Top(own, methods, tuple(dict.fromkeys(found)), frozenset(said), entered)

    def imported(self, path: str, statement: IR) -> Iterable[tuple[str, str, str]]:
        """What an import brings, where it is the project's."""
        project = self.candidates.project
        if statement[0] == "import":
            for given, alias in statement[2]:
                home = project.absolute(path, given)
                if home is not None and home.path:
                    yield alias or given.partition(".")[0], home.path, ""
            return
        _, _, module, level, names = statement
        home = project.relative(path, level, module) if level else project.absolute(path, module)
        for given, alias in names:
            inner = project.member(home, given) if home is not None and given != ALL else None
            if inner is not None and inner.path:
                yield alias or given, inner.path, ""
            if home is not None and home.path:
                yield alias or given, home.path, given


def words_given(body: Iterable[IR], name: str) -> frozenset[str]:
    """The words of the arguments with which some code calls a name, and of what it has put in the variables among them."""
    held: dict[str, set[str]] = {}
    found: set[str] = set()
    pending: list[object] = [tuple(body)]
    while pending:
        part = pending.pop()
        if not isinstance(part, tuple):
            continue
        pending += part
        if part[:1] == ("assign",) and len(part) > 3:
            for target in names_bound(part[2]):
                held.setdefault(target, set()).update(words_in(part[3]))
        elif part[:1] == ("call",) and len(part) > 3 and isinstance(part[2], tuple) and part[2][-1] == name:
            found |= words_in(part[3:])
    followed: set[str] = set()
    while new := [held[word] for word in found & held.keys() - followed]:
        followed |= found & held.keys()
        found = found.union(*new)
    return frozenset(found)


def names_bound(targets: object) -> Iterable[str]:
    """The variables among the targets of an assignment."""
    for target in targets if isinstance(targets, tuple) else ():
        if isinstance(target, tuple):
            if target[:1] == ("name",):
                yield target[2]
            elif target[:1] in (("tuple",), ("list",)):
                yield from names_bound(target[2])


def parts_at_top(body: Iterable[IR]) -> Iterable[IR]:
    """The statements at the top of a module, and those below conditions there."""
    for statement in body:
        if statement[0] == "if":
            yield ("expression", statement[1], statement[2])
            yield from parts_at_top((*statement[3], *statement[4]))
        elif statement[0] == "try":
            yield from parts_at_top((*statement[2], *(s for handler in statement[3] for s in handler[3]), *statement[4], *statement[5]))
        else:
            yield statement


def is_registering(decorator: IR) -> bool:
    """Whether a decorator enters a function in a table: `@MODELS.register("large")`."""
    named = decorator[2] if decorator[0] == "call" else decorator
    return named[0] in ("name", "attribute") and "regist" in str(named[-1]).lower()


PLAIN = frozenset({"Module", "object", "Function", "ABC", "Dataset"})  # bases that call no methods but those of theirs
THEIRS = frozenset({"forward", "backward", "call", "setup_context", "from_config"})  # the last by a `configurable` constructor


def is_called(name: str, cls: IR) -> bool:
    """Whether a method of a class is called by others than those who name it: by Python, or by a base that is another package's."""
    return name in THEIRS or (name[:2] == name[-2:] == "__") or any(words_in(base).isdisjoint(PLAIN) for base in cls[3])


def bound_by(statement: IR) -> tuple[frozenset[str], tuple[str, ...]]:
    """The words of a statement, and the names that it binds or changes."""
    if statement[0] == "define":
        return words_of(statement), (statement[2][2],)
    if statement[0] == "class":
        body = [words_of(s) if s[0] == "define" else words_in(s) for s in statement[6] if s[0] != "define" or is_called(s[2][2], statement)]
        return words_in(statement[3:6]).union(*body), (statement[2],)
    if statement[0] in ("import", "from"):
        return frozenset(), ()
    words = words_in(statement)
    return words, tuple(words)
