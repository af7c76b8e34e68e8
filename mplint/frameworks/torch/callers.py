"""Modules of a library that its users run in half precision: which they are, by what the library's own code and tests say of float16."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mplint.frameworks.libraries import Libraries
from mplint.frameworks.outside import Sign, lines_of, place_in, said_in_texts
from mplint.frameworks.torch.promotion import UNKNOWN_TENSOR
from mplint.frameworks.torch.tensors import NAMES_WHOLE
from mplint.program.entries import begins, words_in, words_of
from mplint.program.lower import IR
from mplint.program.machine import Args
from mplint.program.project import Project
from mplint.program.store import join
from mplint.program.trace import Ask
from mplint.program.values import HALF, SINGLE, By, Code, Place, Step, Value
from mplint.python.document import is_test_path

# what a program says that casts something to float16, makes it so, or has it run so, its comments left out; no mere name of a dtype
FLOAT16 = re.compile(
    rb"(?:\bdtype\s*=|\.to\(|\.type\(|\.astype\()[^=()\n]*\btorch\.(?:float16|half)\b|\btorch\.cuda\.HalfTensor\b|\.half\(\)"
    rb"|[\"']16-mixed[\"']|\b(?:use_)?fp16\s*=\s*True\b|\bprecision\s*=\s*[\"']?16\b"
)
# a function that asks what a machine can do, with the lines that are indented below it
TRIES = re.compile(
    rb"(?m)^([ \t]*)(?:async )?def \w*(?:self_?test|probe|smoke|benchmark|supports?_|is_supported|capabilit)\w*.*\n(?:(?:\1[ \t)\]].*)?\n)*"
)
# a tensor of written sizes in float16: a program that asks what the machine can do makes it, or one that shows something
TRIAL = re.compile(
    rb"\btorch\.(?:randn?|zeros|ones|empty|full)\(\s*[\[(]?[\d, \t]+[\])]?,[^()\n]*\bdtype\s*=\s*torch\.(?:float16|half)\b[^()\n]*\)"
)
MEASURES = re.compile(
    r"(?:^|[/_])(?:bench|benchmarks?|benchmarking|profile|profiling|perf)(?:[/_.]|$)", re.I
)  # paths of what only measures
NAMED = re.compile(rb"\btorch\.(?:cuda\.)?(?:float16|half)\b|[\"']fp16[\"']")  # a dtype by its name, for a test to try modules in
# a dtype that is asked after: of a model's tensors where modules are defined, and elsewhere of whatever data
TESTED = re.compile(rb"(?:[=!]=|\bin\b|\bis\b(?:[ \t]+not\b)?)[ \t]*[\[({]?[\w.,\s]*\btorch\.(?:float16|half)\b")
# a model that is cast to float16, or loaded so
CAST = re.compile(
    rb"\b(?i:\w*(?:model|net|module|encoder|decoder|pipeline|pipe|transformer|unet|vae|clip|lm)\w*)(?:\(\))?"
    rb"\.(?:(?:cuda|eval)\(\)\.)?(?:half\(\)|to\([^()\n]*\btorch\.(?:float16|half)\b)|\btorch_dtype\s*=\s*torch\.(?:float16|half)\b"
)
DEFINES = re.compile(rb"\bdef forward\b")
SCALER = re.compile(rb"\bGradScaler\(")
# a function or class at the top of a program, with the lines that are indented below it, or close its parameters
DEFINITION = re.compile(rb"(?m)^(?:async )?(?:def|class) (\w+).*\n(?:(?:[ \t)\]].*)?\n)*")
AUTOCAST = re.compile(rb"(?<!\bdef )\bautocast\(|\bis_autocast_enabled\(|\bcustom_fwd\b")
# a region that may be on, or a trainer that makes one
REGION = re.compile(
    rb"(?<!\bdef )\bautocast\((?![^()\n]*\benabled[ \t]*=[ \t]*False)|[\"']16-mixed[\"']|\bfp16[ \t]*=[ \t]*True\b"
    rb"|\bprecision[ \t]*=[ \t]*[\"']?16\b"
)
BFLOAT16 = re.compile(rb"\bbfloat16\b|\bbf16\b")
PARTS = (
    b"float16",
    b"half",
    b"Half",
    b"fp16",
    b"16-mixed",
    b"precision",
    b"bf16",
    b"autocast",
    b"GradScaler",
    b"custom_fwd",
)  # one in each of these
# the region of a module's own forward pass, which is followed: it does not tell that somebody runs others so
OWN = re.compile(rb"(?m)^[ \t]*@[\w.]*\bautocast\([^()\n]*\)[ \t]*\n(?=[ \t]*def forward\b)")
COMMENT = re.compile(rb"(?m)#.*$|^[ \t]*>>>.*$")
MODULES = re.compile(rb"\btorch\b")


@dataclass(frozen=True, slots=True)
class Spoken:
    """Where a part of a program speaks of what computes in float16, of models cast to it, of its names, of a loss scaler, of autocast, of
    bfloat16, and of regions that may be on: packed ranges, 0 where it does not.
    """

    half: int
    cast: int
    named: int
    scaler: int
    autocast: int
    bfloat: int
    region: int

    @classmethod
    def of(cls, code: bytes, begun: int = 0) -> Spoken:
        """What code speaks of, its comments left out, where `begun` lines stand before it."""
        meant = TRIAL.sub(lines_of, TRIES.sub(lines_of, code))
        found = (
            place_in(meant if words is FLOAT16 else code, words) for words in (FLOAT16, CAST, NAMED, SCALER, AUTOCAST, BFLOAT16, REGION)
        )
        return cls(*(place + begun if place else 0 for place in found))


SILENT = Spoken(0, 0, 0, 0, 0, 0, 0)


def speaks_of_float16(data: bytes) -> tuple[tuple[str, Spoken], ...]:
    """What the parts of a program speak of, the functions and classes at its top by their names, the rest and modules by ""."""
    if not any(part in data for part in PARTS) or MODULES.search(data) is None:
        return ()
    code = OWN.sub(lines_of, COMMENT.sub(lines_of, data))
    if DEFINES.search(code) is not None:
        return (("", Spoken.of(code)),)
    code = TESTED.sub(lines_of, code)
    parts = [(match[1].decode(), Spoken.of(match[0], code.count(b"\n", 0, match.start()))) for match in DEFINITION.finditer(code)]
    return tuple((name, said) for name, said in (("", Spoken.of(DEFINITION.sub(lines_of, code))), *parts) if said != SILENT)


def speaks_of_autocast(data: bytes) -> bool:
    """Whether a program speaks of autocast."""
    if b"autocast" not in data and b"custom_fwd" not in data:
        return False
    return MODULES.search(data) is not None and AUTOCAST.search(COMMENT.sub(b"", data)) is not None


def defines_modules(data: bytes) -> bool:
    """Whether a program defines modules."""
    return DEFINES.search(data) is not None


def runs(path: str, said: Spoken) -> int:
    """Where a part of a program runs modules in float16, or tests them so; 0 where it does not."""
    return (said.half or said.named or said.region) if is_test_path(path) else said.region


@dataclass(slots=True)
class Callers:
    """Tells which files hold modules that users of a library run in float16."""

    project: Project
    ask: Ask
    libraries: Libraries = field(init=False)
    known: dict[tuple[str, frozenset[str]], Sign | None] = field(default_factory=dict)
    casting: dict[tuple[str, frozenset[str]], bool] = field(default_factory=dict)
    running: dict[tuple[str, frozenset[str]], bool] = field(default_factory=dict)
    speaking: dict[str, list[tuple[str, str, Spoken]]] = field(default_factory=dict)
    entered: dict[str, bool] = field(default_factory=dict)
    uses: dict[str, frozenset[str]] = field(default_factory=dict)
    importers: dict[str, list[str]] = field(default_factory=dict)
    mentioned: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.libraries = Libraries(self.project, self.is_program)

    def is_program(self, path: str) -> bool:
        """Whether a file is run as it is, and no other imports it."""
        ir = self.project.ir(path)
        return ir is not None and not self.project.graph.users(path) and begins(ir)

    def run_in_half(self, path: str) -> bool:
        """Whether a file belongs to a library that has float16 in mind."""
        return self.sign(path) is not None

    def sign(self, path: str) -> Sign | None:
        """What tells that the library which a file belongs to has float16 in mind; None where nothing does, or it is no library's."""
        if not self.libraries.holds(path):
            return None
        root = self.libraries.root_of(os.path.dirname(path)) or ""
        apart = root, self.apart(root, path)
        if apart not in self.known:
            self.known[apart] = self.of_programs(*apart) or said_in_texts(self.project, root)
        return self.known[apart]

    def cast_to_half(self, path: str) -> bool:
        """Whether a file belongs to a library whose models are cast to float16, by its own code, its examples or its tests."""
        if not self.run_in_half(path):
            return False
        root = self.libraries.root_of(os.path.dirname(path)) or ""
        apart = root, self.apart(root, path)
        if apart not in self.casting:
            self.casting[apart] = self.meant(self.spoken(*apart), lambda _, said: said.cast) is not None
        return self.casting[apart]

    def runs_itself(self, path: str) -> bool:
        """Whether a file belongs to a library that itself runs modules in float16, whichever they are: its trainers, or its tests.

        What only names the dtype of a tensor, or a text that speaks of it, does not tell that somebody runs these.
        """
        if not self.run_in_half(path):
            return False
        root = self.libraries.root_of(os.path.dirname(path)) or ""
        apart = root, self.apart(root, path)
        if apart not in self.running:
            self.running[apart] = self.meant(self.spoken(*apart), runs) is not None
        return self.running[apart]

    def uses_autocast(self, path: str) -> bool:
        """Whether a file belongs to a library whose own code or tests use autocast."""
        if not self.libraries.holds(path):
            return False
        root = self.libraries.root_of(os.path.dirname(path)) or ""
        if root not in self.entered:
            self.entered[root] = any(self.ask(below, speaks_of_autocast) for below in self.below(root))
        return self.entered[root]

    def below(self, root: str) -> list[str]:
        """The programs below a folder."""
        return [path for path in self.project.paths if (not root or path.startswith(f"{root}/")) and path.endswith(".py")]

    def apart(self, root: str, path: str) -> frozenset[str]:
        """The scripts below a folder that speak of float16 and import a file by no way: what they run in it is something else.

        One that imports nothing of the project and loads what it runs may run anything of it.
        """
        scripts = {said for said, _, _ in self.spoken(root) if said != path and not is_test_path(said) and self.is_program(said)}
        below = ((script, self.project.graph.below([script])) for script in scripts)
        return frozenset(script for script, reached in below if path not in reached and not (len(reached) == 1 and self.loads(script)))

    def loads(self, path: str) -> bool:
        """Whether a program loads something by torch's `load`, which may be a whole model."""
        ir = self.project.ir(path)
        return ir is not None and "load" in ir[2]

    def of_programs(self, root: str, apart: frozenset[str]) -> Sign | None:
        """What tells that the programs below a folder have something computed in float16, or under autocast and not in bfloat16 alone.

        What a helper says that only tests call, nobody else means; nor does a loss scaler say anything without autocast.
        """
        spoken = self.spoken(root, apart)
        found = self.meant(spoken, lambda path, said: said.half or (said.named if is_test_path(path) else 0))
        if found is not None:
            return found
        entered = self.meant(spoken, lambda _, said: said.autocast)
        if entered is None or self.meant(spoken, lambda _, said: said.scaler) is not None:
            return entered
        return entered if self.meant(spoken, lambda _, said: said.bfloat) is None else None

    def spoken(self, root: str, apart: frozenset[str] = frozenset()) -> list[tuple[str, str, Spoken]]:
        """What the parts of the programs below a folder but some speak of, by path and name, tests last."""
        found = self.speaking.get(root)
        if found is None:
            paths = sorted(self.below(root), key=lambda path: (is_test_path(path), path))
            found = [(path, name, said) for path in paths for name, said in self.ask(path, speaks_of_float16) if said != SILENT]
            self.speaking[root] = found
        return [part for part in found if part[0] not in apart]

    def meant(self, spoken: Iterable[tuple[str, str, Spoken]], says: Callable[[str, Spoken], int]) -> Sign | None:
        """The first of the parts that say something which tells what the library is for."""
        for path, name, said in spoken:
            place = says(path, said)
            if place and self.is_meant(path, name):
                return Sign(path, place)
        return None

    def is_meant(self, path: str, name: str) -> bool:
        """Whether a part of a program tells what a library is for: used by more than tests, or in a test of the library's modules."""
        if is_test_path(path):
            tested = {used for used in self.project.graph.targets.get(path, ()) if not is_test_path(used)}
            tested |= self.project.graph.below(used for used in tested if used.endswith("__init__.py"))
            return not tested or any(self.ask(used, defines_modules) for used in tested)
        return MEASURES.search(path) is None and (not name or name in self.used(path))

    def used(self, path: str) -> frozenset[str]:
        """The functions and classes at the top of a program that something beside tests uses, or that no test does either."""
        if path not in self.uses:
            self.uses[path] = self.used_of(path)
        return self.uses[path]

    def used_of(self, path: str) -> frozenset[str]:
        ir = self.project.ir(path)
        own = {name_of(s): s for s in ir[1] if s[0] in ("define", "class")} if ir is not None else {}
        users = [user for user in self.project.graph.users(path) if user != path]
        tests = [self.project.ir(user) for user in users if is_test_path(user)]
        others = [self.project.ir(user) for user in users if not is_test_path(user)]
        found = {name for name in own if any(names(other, name) for other in others)}
        found |= {name for name in own if not any(names(test, name) for test in tests)}
        pending = [s for s in ir[1] if s[0] not in ("define", "class")] if ir is not None else []
        pending += [own[name] for name in found]
        while pending:
            words = words_at(pending.pop())
            new = {name for name in own if name in words and name not in found}
            found |= new
            pending += [own[name] for name in new]
        return frozenset(found)

    def is_left_to_users(self, path: str, cls: IR) -> bool:
        """Whether a class of a library is for its users alone: nothing in the project that imports it does more than pass its name on."""
        if cls[5] or not self.run_in_half(path):
            return False
        return not any(self.mentions(user, cls[2], user == path) for user in (path, *self.users(path)))

    def users(self, path: str) -> list[str]:
        """The programs that import one."""
        found = self.importers.get(path)
        if found is None:
            found = self.importers[path] = self.project.importers(path)
        return found

    def mentions(self, path: str, name: str, own: bool) -> bool:
        """Whether a program does something with a name beside importing it; `own`: the program that defines it."""
        words = self.mentioned.get(path)
        if words is None:
            words = self.mentioned[path] = mentioned(self.project.ir(path))
        return any(name in held for cls, held in words.items() if not own or cls != name)


def names(ir: IR | None, name: str) -> bool:
    """Whether a module has a name anywhere."""
    return ir is not None and any(name in words_at(statement) for statement in ir[1])


def words_at(statement: IR) -> frozenset[str]:
    """The words of a statement at the top of a module: of an import the names that it takes from another one."""
    if statement[0] == "from":
        return frozenset(given for given, _ in statement[4])
    return words_of(statement) if statement[0] in ("define", "class") else words_in(statement)


def name_of(statement: IR) -> str:
    """What a function or class is called."""
    return str(statement[2] if statement[0] == "class" else statement[2][2])


def mentioned(ir: IR | None) -> dict[str, set[str]]:
    """The names with which a module does something beside importing them: those in each of its classes by its name, all others by ""."""
    found: dict[str, set[str]] = {"": set()}
    for statement in ir[1] if ir is not None else ():
        if statement[0] == "from":
            found[""].update(given for given, alias in statement[4] if alias is not None)
        elif statement[0] == "class":
            found.setdefault(statement[2], set()).update(words_of(statement))
        elif statement[0] == "define":
            found[""] |= words_of(statement)
        elif not (statement[0] == "import" or exports(statement)):
            found[""] |= words_in(statement)
    return found


def exports(statement: IR) -> bool:
    """Whether a statement lists the names that a module offers."""
    return statement[0] in ("assign", "augmented") and "__all__" in words_in(statement)


def input_of(code: Code, guard: str, cast: bool = False) -> Args:
    """The arguments of a module's `forward`: a tensor that is half or not, where the first is one of floats, and others.

    A module that is cast (`cast`) takes half alone.
    """
    own = [name for name, kind, _, _ in code.parameters[1:] if kind == "positional"]
    if not own or NAMES_WHOLE.search(own[0]):
        return Args(opaque=True)
    place = Place(code.path, code.place)
    key = ("place", place, guard)
    half = UNKNOWN_TENSOR.but(dtypes=frozenset({HALF}), half=(Step(place, "a caller's float16 tensor comes in here", By.CALLER),))
    if cast:
        return Args((half,), opaque=True)
    given: Value = join([(frozenset({(key, True)}), half), (frozenset({(key, False)}), UNKNOWN_TENSOR.but(dtypes=frozenset({SINGLE})))])
    return Args((given,), opaque=True)
