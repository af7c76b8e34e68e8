"""What a scaler that is switched off steps with."""

from __future__ import annotations

from typing import Any

from mplint.frameworks.torch.protocol import disabled_step
from mplint.program.conditions import Path
from mplint.program.values import Atom, Object, Place, State, Value, alternatives, atoms

SCALER = Object("scaler", "scaler", "torch.amp.GradScaler")
HERE = Place("train.py", 1)
FIRST: Path = frozenset({(("true", "first"), True)})


class Machine:
    """As much of the interpreter as a step asks for."""

    def __init__(self, gradients: Value) -> None:
        self.gradients = gradients
        self.told: list[Any] = []

    def state(self, name: str) -> Value:
        return self.gradients if name == "gradients" else State(None)

    def emit(self, kind: str, place: Place, **data: Any) -> None:
        self.told.append((kind, data["gradients"]))


def stepped_with(*gradients: Atom) -> list[Atom]:
    """The gradients of the step, where the state may be any of these, whatever holds."""
    machine = Machine(alternatives([(FIRST if number else frozenset(), atom) for number, atom in enumerate(gradients)]))
    disabled_step(machine, SCALER, None, HERE)  # type: ignore[arg-type]
    ((kind, told),) = machine.told
    assert kind == "optimizer step"
    return list(atoms(told))


def test_a_scaler_that_is_off_has_not_scaled_the_gradients() -> None:
    plain = State(("plain", HERE))
    assert stepped_with(plain, State(("scaled", "scaler", HERE))) == [plain]


def test_another_scaler_may_have() -> None:
    scaled = State(("scaled", "other", HERE))
    assert stepped_with(scaled, State(("scaled", "scaler", HERE))) == [scaled]
