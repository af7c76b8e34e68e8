"""Devices: `torch.device` objects, which are no strings, and their types, which are."""

from __future__ import annotations

import re

from mplint.frameworks.vocabulary import Entered, Vocabulary
from mplint.program.expressions import symbol_of
from mplint.program.machine import IDENTITY, STATE, Args, Event, Machine, Switch, derived
from mplint.program.values import FALSE, NONE, TRUE, Atom, Constant, Place, Unknown, Value, alternatives

vocabulary = Vocabulary()
DEVICE = "torch.device"
TENSORS = ("torch.Tensor", "torch.FloatTensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter")
NAMED = re.compile(r"device(\(.*\))?$", re.DOTALL)


@vocabulary.call(DEVICE)
def device(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`torch.device("cuda")`: the same for the same argument."""
    given = args.get(0, "device")

    def one(atom: Atom) -> Value:
        if type(atom) is Unknown and atom.hint == DEVICE:
            return atom
        return Unknown(f"torch.device({symbol_of(atom)}){IDENTITY}{identity(atom)}", DEVICE)

    return m.each(given, one) if given is not None else Unknown(f"torch.device(){IDENTITY}{place.path}:{place.position}", DEVICE)


def identity(atom: Atom) -> str:
    """What tells two devices apart whose arguments look alike."""
    if type(atom) is Unknown:
        return atom.symbol.partition(IDENTITY)[2]
    return "" if type(atom) is Constant else repr(atom)[:80]


def read(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """The device of an annotated tensor, and the type of a device: CUDA where the machine decides, since this is for accelerators."""
    if type(atom) is Unknown and name == "device" and atom.hint in TENSORS:
        return Unknown(derived(atom, ".device").symbol, DEVICE)
    if type(atom) is Unknown and name in ("is_cuda", "is_cpu"):
        return decided_by_the_machine(m, derived(atom, f".{name}").symbol, TRUE if name == "is_cuda" else FALSE)
    if type(atom) is not Unknown or name != "type":
        return None
    shown, _, identity = atom.symbol.partition(IDENTITY)
    if atom.hint == DEVICE and shown.startswith("torch.device('") and shown.endswith("')"):
        return Constant(shown[len("torch.device('") : -2].partition(":")[0])
    if atom.hint == DEVICE or NAMED.search(shown):
        return decided_by_the_machine(m, f"{shown}.type{IDENTITY}{identity}", Constant("cuda"))
    return None


def decided_by_the_machine(m: Machine, symbol: str, value: Constant, kind: str = "machine") -> Unknown:
    """An unknown that has one value on the machines that mixed precision is for; what happens on others proves nothing."""
    m.switches.setdefault(symbol, Switch(symbol.partition(IDENTITY)[0], value, None, kind))
    return Unknown(symbol)


@vocabulary.call("torch.accelerator.current_accelerator")
def accelerator(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The machine's accelerator: one that mixed precision is for, or None."""
    there = ("true", decided_by_the_machine(m, "torch.accelerator.is_available()", TRUE).symbol)
    return alternatives([(frozenset({(there, True)}), Unknown(f"{name}()", DEVICE)), (frozenset({(there, False)}), NONE)])


@vocabulary.call("torch.cuda.is_available", "torch.accelerator.is_available")
def available(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Whether there is a GPU."""
    return decided_by_the_machine(m, f"{name}()", TRUE)


@vocabulary.call("torch.cuda.is_bf16_supported")
def has_bfloat16(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Whether the GPU has bfloat16, as those since Ampere do; what happens on an older one is said of these alone."""
    symbol = f"{name}()"
    m.switches.setdefault(symbol, Switch(symbol, TRUE, None, "card"))
    return Unknown(symbol)


vocabulary.atom_attributes.append(read)


# calls that are meant to fail


def expecting(m: Machine, atom: Atom, place: Place) -> Entered | None:
    """`with pytest.raises(…)`."""
    if type(atom) is Unknown and any(word in atom.symbol.partition(IDENTITY)[0] for word in ("pytest.raises(", ".assertRaises")):
        return NONE, ((STATE, "expected errors"), TRUE)
    return None


def region_made(m: Machine, event: Event) -> None:
    """A region whose making is meant to fail."""
    if m.state("expected errors") == TRUE:
        m.emit("error expected", event.place)


vocabulary.contexts.append(expecting)
vocabulary.follows("autocast made")(region_made)
vocabulary.defaults["expected errors"] = FALSE
