"""Which programs run a function of a project, by the names that functions, classes and tables mention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from mplint.program.entries import definitions, imports, words_in
from mplint.program.lower import IR
from mplint.program.lowered import own_modules, takes_by_name
from mplint.program.project import Project
from mplint.python.document import is_test_path

# methods that a framework calls: who makes an instance runs them
CALLED_BACK = frozenset(
    {"build", "call", "compile", "compute_loss", "compute_mask", "compute_metrics", "compute_output_shape", "configure_optimizers", "fit"}
    | {"forward", "loss", "make_predict_function", "make_test_function", "make_train_function", "minimize", "predict_step", "reset_state"}
    | {"reset_states", "result", "test_step", "train_step", "training_step", "update_state", "update_step", "validation_step"}
    | {"add_loss", "apply_gradients", "get_config", "sample", "log_prob"}
)
MODULE = ""  # what a module does as it is run
BUILTIN = frozenset({"property", "staticmethod", "classmethod"})


class Unit(NamedTuple):
    """A function, a method (`cls` holds it), or what a module does as it is run, with the words that it mentions."""

    path: str
    cls: str
    name: str
    words: frozenset[str]

    @property
    def known_as(self) -> str:
        """The name that who runs it mentions: its own, or that of the class whose instances a framework calls."""
        return self.cls if self.cls and (self.name.startswith("__") or self.name in CALLED_BACK) else self.name


class Uses:
    """Who mentions what in a project. `mentions`: whether the text of a file has a word."""

    def __init__(self, project: Project, mentions: Callable[[str, str], bool]) -> None:
        self.project = project
        self.mentions = mentions
        self.units: dict[str, list[Unit]] = {}
        self.found: dict[tuple[str, str], frozenset[str] | None] = {}

    def programs(self, path: str, name: str) -> frozenset[str] | None:
        """The files that run, as they are run themselves, what a file defines by a name.

        None where a decorator of the project gets it, or something on the way to it, and may hand it to anybody.
        """
        key = (path, name)
        if key not in self.found:
            self.found[key] = self.search(path, name)
        return self.found[key]

    def search(self, path: str, name: str) -> frozenset[str] | None:
        """See `programs`."""
        seen = {(path, name)}
        queue = [(path, name)]
        programs: set[str] = set()
        while queue:
            home, wanted = queue.pop()
            if self.is_registered(home, wanted):
                return None
            for file in sorted({home, *self.project.graph.above([home])}):
                if is_test_path(file) or not self.mentions(file, wanted):
                    continue
                for unit in self.of(file):
                    if wanted not in unit.words or (file == home and unit.known_as == wanted):
                        continue
                    if unit.name == MODULE:
                        programs.add(file)
                    elif (file, unit.known_as) not in seen:
                        seen.add((file, unit.known_as))
                        queue.append((file, unit.known_as))
        return frozenset(programs)

    def are_taken_by_name(self, path: str) -> bool:
        """Whether a program takes members of what a file defines, or of other modules beside it, by names that it works out."""
        for file in sorted({path, *self.project.graph.above([path])}):
            ir = self.project.ir(file) if not is_test_path(file) else None
            if ir is not None and takes_by_name(ir, own_modules(self.project, file, ir[1])):
                return True
        return False

    def of(self, path: str) -> list[Unit]:
        """The units of a file."""
        if path not in self.units:
            ir = self.project.ir(path)
            self.units[path] = list(units(path, ir)) if ir is not None else []
        return self.units[path]

    def is_registered(self, path: str, name: str) -> bool:
        """Whether a decorator of the project gets a function or class of a file, and may keep it somewhere."""
        ir = self.project.ir(path)
        for statement in definitions(ir[1]) if ir is not None else ():
            if statement[0] == "define" and statement[2][2] == name and any(self.is_own(path, d) for d in statement[2][6]):
                return True
            if statement[0] == "class" and statement[2] == name and any(self.is_own(path, d) for d in statement[5]):
                return True
        return False

    def is_own(self, path: str, decorator: IR) -> bool:
        """Whether a decorator is of the project itself."""
        while decorator[0] in ("attribute", "call", "method"):
            decorator = decorator[2]
        ir = self.project.ir(path)
        if decorator[0] != "name" or ir is None:
            return True
        root = decorator[2]
        for statement in imports(ir[1]):
            if statement[0] == "import" and any((alias or name.partition(".")[0]) == root for name, alias in statement[2]):
                return any((alias or name.partition(".")[0]) == root and self.project.absolute(path, name) for name, alias in statement[2])
            if statement[0] == "from" and any((alias or name) == root for name, alias in statement[4]):
                return bool(statement[3]) or self.project.absolute(path, statement[2]) is not None
        return root not in BUILTIN


def units(path: str, ir: IR) -> Iterator[Unit]:
    """The functions and methods of a module, the tables that it fills, and what else it does as it is run."""
    aliases = {alias: name for s in imports(ir[1]) if s[0] == "from" for name, alias in s[4] if alias}
    for statement in definitions(ir[1]):
        if statement[0] == "define":
            yield Unit(path, "", statement[2][2], meant(statement[2][8], aliases))
        else:
            bases = words_in(statement[3])
            for method in statement[6]:
                if method[0] == "define":
                    yield Unit(path, statement[2], method[2][2], meant(method[2][8], aliases))
            yield Unit(path, statement[2], "__init__", meant(bases, aliases))
    done: set[str] = set()
    for statement in ir[1]:
        if statement[0] in ("define", "class", "import", "from"):
            continue
        names = [target[2] for target in statement[2] if target[0] == "name"] if statement[0] == "assign" else []
        for name in names:
            yield Unit(path, "", name, meant(words_in(statement[3]), aliases))
        done |= words_in(statement)
    yield Unit(path, "", MODULE, meant(frozenset(done), aliases))


def meant(words: frozenset[str], aliases: Mapping[str, str]) -> frozenset[str]:
    """Words, with the names for which they stand as aliases."""
    return words | {aliases[word] for word in words if word in aliases} if not words.isdisjoint(aliases) else words
