"""Which classes of a project something in it names beside importing them: those of which it may make instances."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from mplint.frameworks.libraries import Libraries
from mplint.frameworks.texts import asked
from mplint.program.entries import words_in, words_of
from mplint.program.lower import IR
from mplint.program.lowered import imported_names, parts, takes_by_name
from mplint.program.project import Project
from mplint.program.trace import Ask, Words
from mplint.python.document import is_test_path


@dataclass(slots=True)
class Named:
    """Tells the classes that the programs of a project name, or hand to whoever asks for them by name."""

    project: Project
    ask: Ask
    libraries: Libraries
    known: dict[tuple[str, str], bool] = field(default_factory=dict)
    spoken: dict[tuple[str, str], bool] = field(default_factory=dict)
    read: dict[str, bool] = field(default_factory=dict)

    def may_be_made(self, path: str, cls: IR) -> bool:
        """Whether a program may make instances of a class of a file: it names it, registers it, or works out its name."""
        if not self.may_be_registered(path, cls):
            return False
        return bool(cls[4] or cls[5]) or self.is_named(path, cls[2]) or self.is_read_by_name(path)

    def may_be_registered(self, path: str, cls: IR) -> bool:
        """Whether a class is none that only a registry holds which nobody asks for it."""
        return not cls[5] or self.is_asked_for(path, cls) or self.is_named(path, cls[2])

    def is_asked_for(self, path: str, cls: IR) -> bool:
        """Whether somebody may ask a registry for a class: not where files of settings say another name of it, and nothing says its own."""
        keys = list(keys_of(cls))
        if len(keys) != len(cls[5]):
            return True  # decorators that may do anything
        asked_for = self.keys_asked_for()
        return any(self.is_spoken(path, key) or not asked_for.get(registry) for registry, key in keys)

    def keys_asked_for(self) -> dict[str, set[str]]:
        """The names that files of settings say of those in each registry."""
        if keys_of not in self.project.kept:
            found: dict[str, set[str]] = {}
            adding = (path for path in self.project.paths if not is_test_path(path) and self.ask(path, ADDS))
            for ir in (self.project.ir(path) for path in sorted(adding)):
                for cls in (statement for statement in flat(ir[1]) if statement[0] == "class") if ir is not None else ():
                    for registry, key in keys_of(cls):
                        if self.asked(("word", key)):
                            found.setdefault(registry, set()).add(key)
            self.project.kept[keys_of] = found
        return self.project.kept[keys_of]  # type: ignore[return-value]

    def is_offered(self, path: str, cls: IR) -> bool:
        """Whether users of a library come by a class of a file: something names it, or imports it, or nothing imports the file at all."""
        importing = [self.project.ir(user) for user in self.project.graph.users(path) if user != path]
        if not importing or self.may_be_made(path, cls):
            return True
        return any(ir is not None and any(takes(statement, cls[2]) for statement in flat(ir[1])) for ir in importing)

    def may_be_loaded(self, path: str, cls: IR) -> bool:
        """Whether a program that imports modules by names may come to a class: it goes over a folder's files, or some text says its name.

        That is the name of the class, or that of its module where nobody imports this otherwise, or which is the same in small letters.
        """
        if self.is_listed(path):
            return True
        if self.users(path) != [path]:
            return self.may_be_made(path, cls) or self.is_spoken(path, cls[2])
        stem = os.path.splitext(os.path.basename(path))[0]
        module = os.path.basename(os.path.dirname(path)) if stem == "__init__" else stem
        return self.is_spoken(path, module) or (stem == cls[2].lower() and self.is_spoken(path, cls[2]))

    def is_listed(self, path: str) -> bool:
        """Whether a program goes over the files of a folder around a path and imports modules by names."""
        return any(folder == "" or path.startswith(folder + "/") for folder in self.listed())

    def is_spoken(self, path: str, name: str) -> bool:
        """Whether a string of another program than that of a path holds a name as a word, or a file of settings or of instructions does."""
        if (path, name) not in self.spoken:
            in_strings = Quotes(name)
            others = (other for other in self.project.paths if other != path and not is_test_path(other))
            self.spoken[path, name] = any(self.ask(other, in_strings) for other in others) or bool(self.asked(("word", name)))
        return self.spoken[path, name]

    def members_spoken(self, path: str) -> frozenset[str]:
        """The members of a module that files of settings name together with it: `models.unet.SmallUNet`."""
        stem = os.path.splitext(os.path.basename(path))[0]
        return self.asked(("members", stem))  # type: ignore[return-value]

    def asked(self, question: tuple[str, str]) -> Hashable:
        """What the files of settings and of instructions beside the programs of a project say, as far as they are short."""
        return asked(self.project, question)

    def listed(self) -> list[str]:
        """The folders over whose files a program goes that imports modules by names."""
        if loaders not in self.project.kept:
            found = [path for path in self.project.paths if not is_test_path(path) and self.ask(path, loaders)]
            self.project.kept[loaders] = sorted({os.path.dirname(path) for path in found})
        return self.project.kept[loaders]  # type: ignore[return-value]

    def is_named(self, path: str, name: str) -> bool:
        """Whether a program names a class that stands in a file, other classes that nobody names and tests left out."""
        key = (path, name)
        if key not in self.known:
            self.known[key] = False  # while those that name it are looked at
            self.known[key] = any(self.names(user, path, name) for user in self.users(path))
        return self.known[key]

    def users(self, path: str) -> list[str]:
        """A file, and those that import it, themselves or through packages; no tests."""
        return [path, *sorted(user for user in self.project.graph.users(path) if user != path and not is_test_path(user))]

    def names(self, user: str, path: str, name: str) -> bool:
        """Whether one program names a class of another file, or of its own."""
        ir = self.project.ir(user) if self.ask(user, Words((name,))) else None
        for statement in flat(ir[1]) if ir is not None else ():
            kind = statement[0]
            if kind == "from":
                if any(given == name and alias not in (None, name) for given, alias in statement[4]):
                    return True
            elif kind == "class":
                own = user == path and statement[2] == name
                if not own and name in words_of(statement) and (statement[5] or self.is_named(user, statement[2])):
                    return True
            elif kind == "define":
                if name in words_of(statement):
                    return True
            elif kind != "import" and "__all__" not in words_in(statement) and name in words_in(statement):
                return True
        return False

    def is_read_by_name(self, path: str) -> bool:
        """Whether a program takes what a file defines by names that it works out."""
        if path not in self.read:
            self.read[path] = any(self.reads(user) or self.reads_loaded(user, path) for user in self.users(path))
        return self.read[path]

    def reads_loaded(self, user: str, path: str) -> bool:
        """Whether one program takes members of a module by names that it works out, where it imports that by a name which holds a file."""
        ir = self.project.ir(user)
        if ir is None or LOADER not in ir[2]:
            return False
        taken = {part[3][0] for part in parts(ir[1], "call") if is_called(part, "getattr") and part[3]}
        made = [
            part for part in parts(ir[1], "assign") if any(f"getattr({target[2]}," in ir[2] for target in part[2] if target[0] == "name")
        ]
        homes = {self.project.absolute(user, name) for value in (*taken, *(part[3] for part in made)) if (name := module_loaded(value))}
        below = self.project.graph.below([home.path for home in homes if home is not None and home.path])
        return path in below

    def reads(self, user: str) -> bool:
        """Whether one program takes members of a module that it imports, or its own, by names that it works out."""
        ir = self.project.ir(user)
        return ir is not None and takes_by_name(ir, imported_names(ir[1]))


@dataclass(frozen=True, slots=True)
class Quotes:
    """The question whether a string of a program holds a name as a word; that a package exports it says nothing."""

    name: str

    def __call__(self, data: bytes) -> bool:
        quoted = rb"""['"][^'"\n]*\b""" + re.escape(self.name.encode()) + rb"\b"
        return self.name.encode() in data and re.search(quoted, EXPORTS.sub(b"", data)) is not None


ADDS = Words((".register",))


def keys_of(cls: IR) -> Iterator[tuple[str, str]]:
    """The registries that a class's decorators add it to, by their names, each with the name that it gets there."""
    for decorator in cls[5]:
        call = decorator if decorator[0] == "call" else ("call", 0, decorator, (), ())
        if call[2][0] == "attribute" and call[2][2][0] == "name" and call[2][3].startswith("register"):
            given = [
                value[2] for value in (*call[3], *(value for _, value in call[4])) if value[0] == "constant" and isinstance(value[2], str)
            ]
            yield call[2][2][2], given[0] if given else cls[2]


def loaders(data: bytes) -> bool:
    """Whether a program imports modules by names and goes over the files of a folder."""
    return LISTS.search(data) is not None and b"import_module" in data


EXPORTS = re.compile(rb"__all__[^=\n]*=\s*[\[(][^\])]*[\])]")
LISTS = re.compile(rb"\b(?:listdir|scandir|iter_modules|walk_packages|glob)\(")


def flat(body: Iterable[IR]) -> Iterator[IR]:
    """The statements of a module, those under conditions one by one."""
    for statement in body:
        if statement[0] == "if":
            yield ("expression", statement[1], statement[2])
            yield from flat((*statement[3], *statement[4]))
        elif statement[0] == "try":
            yield from flat((*statement[2], *(s for handler in statement[3] for s in handler[3]), *statement[4], *statement[5]))
        else:
            yield statement


def takes(statement: IR, name: str) -> bool:
    """Whether a statement imports a name, or all names, from a module."""
    return statement[0] == "from" and any(given in (name, "*") for given, _ in statement[4])


LOADER = "import_module"


def module_loaded(value: IR) -> str:
    """The name by which an expression imports a module; "" for anything else, and for a name that is worked out."""
    given = value[3][0] if is_called(value, LOADER) and value[3] else value
    return given[2] if given[0] == "constant" and given is not value and isinstance(given[2], str) else ""


def is_called(value: IR, name: str) -> bool:
    """Whether an expression calls a function of a name, of whatever module."""
    return value[0] == "call" and value[2][0] in ("name", "attribute") and value[2][-1] == name
