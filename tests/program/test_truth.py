"""What the truth of a value is, where nothing that the value can be is possible on the path."""

from __future__ import annotations

from mplint.frameworks.known import frameworks
from mplint.frameworks.python import bool_
from mplint.program.expressions import negate
from mplint.program.interpreter import interpreter
from mplint.program.machine import Args
from mplint.program.project import Project
from mplint.program.values import FALSE, NONE, TRUE, Alternatives, Place

GIVEN = (("true", "option"), True)
LEFT = (("true", "option"), False)


def test_a_value_of_other_paths_is_neither_true_nor_false() -> None:
    m = interpreter(Project([], lambda path: None, frozenset()), frameworks(), 100)
    m.path = frozenset({GIVEN})
    value = Alternatives(((frozenset({LEFT}), TRUE), (frozenset({LEFT}), FALSE)))
    assert negate(m, value) is NONE
    assert bool_(m, "builtins.bool", Args((value,)), Place("a.py", 0)) is value
