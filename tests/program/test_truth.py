"""What the truth of a value is, where nothing that the value can be is possible on the path."""

from __future__ import annotations

from mplint.frameworks.known import frameworks
from mplint.frameworks.python import bool_
from mplint.program import values
from mplint.program.expressions import negate
from mplint.program.interpreter import interpreter
from mplint.program.machine import Args
from mplint.program.project import Project

OPTION = ("true", "option")


def test_a_value_that_a_path_excludes_is_neither_true_nor_false() -> None:
    m = interpreter(Project([], lambda path: None, frozenset()), frameworks(), 100)
    m.path = frozenset((("all", frozenset({(OPTION, truth)})), False) for truth in (True, False))
    option = values.Test(OPTION, True)
    assert negate(m, option) is values.NONE
    assert bool_(m, "builtins.bool", Args((option,)), values.Place("a.py", 0)) is option
