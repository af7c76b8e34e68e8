"""Under which key a scaler's states of an optimizer stand."""

from __future__ import annotations

from mplint.frameworks.torch.protocol import is_several
from mplint.program.expressions import an_item
from mplint.program.machine import Machine
from mplint.program.values import Constant, Unknown, alternatives


def test_what_is_too_much_to_list_is_one_optimizer_and_an_item_may_be_another_one_in_each_round() -> None:
    machine = Machine.__new__(Machine)
    too_many = alternatives((frozenset(), Constant(n)) for n in range(40))
    assert isinstance(too_many, Unknown) and not is_several(machine, too_many)
    item = an_item(too_many, 1)
    assert isinstance(item, Unknown) and is_several(machine, item)
    assert not is_several(machine, Unknown("opt"))
