"""Modules of a library that its users run in half precision: which they are, by what the library's own code and tests say of float16."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from mplint.frameworks.libraries import Libraries
from mplint.frameworks.torch.promotion import UNKNOWN_TENSOR
from mplint.frameworks.torch.tensors import NAMES_WHOLE
from mplint.frameworks.torch.units import Ask
from mplint.program.entries import begins, words_in, words_of
from mplint.program.lower import IR
from mplint.program.machine import Args
from mplint.program.project import Project
from mplint.program.store import join
from mplint.program.values import HALF, SINGLE, Code, Place, Step, Value

# what a program says that runs in float16, or is run so, its comments left out
FLOAT16 = re.compile(
    rb"\btorch\.(?:cuda\.)?(?:float16|half|HalfTensor)\b|\.half\(\)|\bGradScaler\(|[\"']16-mixed[\"']|[\"']fp16[\"']|\bfp16=True|\buse_fp16\b"
)
# a dtype that is asked after: of a model's tensors where modules are defined, and elsewhere of whatever data
TESTED = re.compile(rb"(?:[=!]=|\bin\b|\bis\b(?:[ \t]+not\b)?)[ \t]*[\[({]?[\w.,\s]*\btorch\.(?:float16|half)\b")
DEFINES = re.compile(rb"\bdef forward\b")
AUTOCAST = re.compile(rb"\bautocast\(|\bis_autocast_enabled\(|\bcustom_fwd\b")
BFLOAT16 = re.compile(rb"\bbfloat16\b|\bbf16\b")
COMMENT = re.compile(rb"(?m)#.*$|^\s*>>>.*$")
MODULES = re.compile(rb"\btorch\b")


def speaks_of_float16(data: bytes) -> tuple[bool, bool, bool]:
    """Whether a program speaks of torch's float16, of autocast, and of bfloat16."""
    if MODULES.search(data) is None:
        return False, False, False
    code = COMMENT.sub(b"", data)
    meant = code if DEFINES.search(code) is not None else TESTED.sub(b"", code)
    return FLOAT16.search(meant) is not None, AUTOCAST.search(code) is not None, BFLOAT16.search(code) is not None


@dataclass(slots=True)
class Callers:
    """Tells which files hold modules that users of a library run in float16."""

    project: Project
    ask: Ask
    libraries: Libraries = field(init=False)
    known: dict[str, bool] = field(default_factory=dict)
    entered: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.libraries = Libraries(self.project, self.is_program)

    def is_program(self, path: str) -> bool:
        """Whether a file is run as it is, and no other imports it."""
        ir = self.project.ir(path)
        return ir is not None and not self.project.graph.users(path) and begins(ir)

    def run_in_half(self, path: str) -> bool:
        """Whether a file belongs to a library that has float16 in mind."""
        if not self.libraries.holds(path):
            return False
        root = self.libraries.root_of(os.path.dirname(path)) or ""
        if root not in self.known:
            self.known[root] = self.has_float16_in_mind(root)
        return self.known[root]

    def uses_autocast(self, path: str) -> bool:
        """Whether a file belongs to a library whose own code or tests use autocast."""
        if not self.libraries.holds(path):
            return False
        root = self.libraries.root_of(os.path.dirname(path)) or ""
        if root not in self.entered:
            self.entered[root] = any(self.ask(below, speaks_of_float16)[1] for below in self.below(root))
        return self.entered[root]

    def below(self, root: str) -> list[str]:
        """The programs below a folder."""
        return [path for path in self.project.paths if (not root or path.startswith(f"{root}/")) and path.endswith(".py")]

    def has_float16_in_mind(self, root: str) -> bool:
        """Whether the programs below a folder speak of float16, or of autocast and not of bfloat16 alone."""
        answers = [self.ask(path, speaks_of_float16) for path in self.below(root)]
        if any(half for half, _, _ in answers):
            return True
        return any(autocast for _, autocast, _ in answers) and not any(bfloat for _, _, bfloat in answers)

    def is_left_to_users(self, path: str, cls: IR) -> bool:
        """Whether a class of a library is for its users alone: nothing in the project that imports it does more than pass its name on."""
        if cls[5] or not self.run_in_half(path):
            return False
        return not any(mentions(self.project.ir(user), cls[2], user == path) for user in (path, *self.project.importers(path)))


def mentions(ir: IR | None, name: str, own: bool) -> bool:
    """Whether a module does something with a name beside importing it; `own`: the module that defines it."""
    for statement in ir[1] if ir is not None else ():
        if statement[0] == "from":
            if any(name == given and alias is not None for given, alias in statement[4]):
                return True
        elif statement[0] in ("define", "class"):
            if not (own and statement[2] == name) and name in words_of(statement):
                return True
        elif not (statement[0] == "import" or exports(statement)) and name in words_in(statement):
            return True
    return False


def exports(statement: IR) -> bool:
    """Whether a statement lists the names that a module offers."""
    return statement[0] in ("assign", "augmented") and "__all__" in words_in(statement)


def input_of(code: Code, guard: str) -> Args:
    """The arguments of a module's `forward`: a tensor that is half or not, where the first is one of floats, and others."""
    own = [name for name, kind, _, _ in code.parameters[1:] if kind == "positional"]
    if not own or NAMES_WHOLE.search(own[0]):
        return Args(opaque=True)
    place = Place(code.path, code.place)
    key = ("place", place, guard)
    half = UNKNOWN_TENSOR.but(dtypes=frozenset({HALF}), half=(Step(place, "a caller's float16 tensor comes in here"),))
    given: Value = join([(frozenset({(key, True)}), half), (frozenset({(key, False)}), UNKNOWN_TENSOR.but(dtypes=frozenset({SINGLE})))])
    return Args((given,), opaque=True)
