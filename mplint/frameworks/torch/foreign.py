"""Models that other packages give: of which it is known that they are no modules of the project."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mplint.frameworks.packages import gives_models
from mplint.frameworks.torch.tensors import MAKERS
from mplint.program.conditions import Path
from mplint.program.machine import IDENTITY
from mplint.program.project import Project
from mplint.program.trace import Ask
from mplint.program.values import Atom, Object, Unknown, atoms

# an instance of a class that is known by its name, or what such a class of a package loads
CLASS = re.compile(r"(?:(?:[a-z_]\w*\.)*[A-Z]\w*|(?:[a-z_]\w*\.)+[A-Z]\w*\.from_\w+)\(")
REGISTERS = re.compile(rb"(?m)^[ \t]*@[\w.]*regist|\bregister_model\b|\bregister_for_auto_class\b|\.register\(")
WHOLE = frozenset({"torch.nn.Module", "torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel"})  # what any model may be
KINDS = ("model", "pipeline")


def registers(data: bytes) -> bool:
    """Whether a program adds something to a table of names."""
    return REGISTERS.search(data) is not None


@dataclass(slots=True)
class Packages:
    """Tells which models are other packages' own. `registering`: whether the project adds to tables out of which a package may build."""

    project: Project
    ask: Ask
    registering: bool = field(init=False)

    def __post_init__(self) -> None:
        self.registering = any(self.ask(path, registers) for path in self.project.paths)

    def give(self, model: object) -> bool:
        """Whether a model, where there is one, is known to be another package's."""
        return model is not None and all(self.is_own(atom) for atom in atoms(model))  # type: ignore[arg-type]

    def is_narrowed(self, model: object, path: Path) -> bool:
        """Whether a path holds only for a model of other packages' classes, or of kinds of modules that nobody knows."""
        if type(model) is not Unknown:
            return False
        asked = f"isinstance({model.symbol}, "
        kinds = [str(key[1]).removeprefix(asked).removesuffix(")") for key, sense in path if sense and str(key[1]).startswith(asked)]
        return any(kind not in WHOLE and (kind == "?" or kind.startswith("torch.")) for kind in kinds)

    def is_own(self, atom: Atom) -> bool:
        """The same of one atom."""
        if type(atom) is Object:
            made = atom.type
            return atom.kind in KINDS and isinstance(made, str) and not (self.registering and made.rpartition(".")[2].startswith("Auto"))
        if type(atom) is not Unknown:
            return False
        shown = atom.symbol.partition(IDENTITY)[0]
        if CLASS.match(shown) is not None:
            return True
        name, called, _ = shown.partition("(")
        made_by_name = self.registering and name.rpartition(".")[2].startswith(MAKERS)
        return bool(called) and "." in name and gives_models(name) and not made_by_name
