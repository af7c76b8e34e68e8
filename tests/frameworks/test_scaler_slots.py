"""Under which key a scaler's states of an optimizer stand."""

from __future__ import annotations

from mplint.frameworks.torch.protocol import is_several
from mplint.program.machine import Machine
from mplint.program.values import Constant, Unknown, alternatives


def test_what_is_too_much_to_list_may_be_another_optimizer_in_each_round() -> None:
    machine = Machine.__new__(Machine)
    too_many = alternatives((frozenset(), Constant(n)) for n in range(40))
    assert isinstance(too_many, Unknown) and is_several(machine, too_many)
    assert not is_several(machine, Unknown("opt"))
