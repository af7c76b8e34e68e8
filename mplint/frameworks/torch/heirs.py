"""Classes of the project that extend torch's containers: `class Encoder(nn.Sequential)` holds what its base was given.

The slot `#modules` of an instance has the container that its base would be.
"""

from __future__ import annotations

from collections.abc import Sequence

from mplint.frameworks.torch.modules import CONTAINERS, HEIR, container
from mplint.frameworks.torch.protocol import base_names
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import class_member
from mplint.program.machine import Args, Machine
from mplint.program.values import Atom, Class, Object, Place, Value

vocabulary = Vocabulary()
# what lists and dicts of modules do themselves
OWN = frozenset({"append", "extend", "insert", "add_module", "items", "keys", "values", "children", "named_children", "pop", "update"})


def initialized(m: Machine, instance: Object, args: Args, place: Place) -> None:
    """`super().__init__(*layers)`."""
    base = next((name for name in base_names(m, instance) if name in CONTAINERS), None)
    if base is not None:
        m.write(instance.id, HEIR, container(m, base, CONTAINERS[base], ("heir", instance.id), args, place))


def made(m: Machine, instance: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """An instance of a class that leaves the constructor to its base."""
    if type(instance.type) is Class and class_member(m, instance.type, "__init__") is None:
        initialized(m, instance, args, place)


def modules_of(m: Machine, atom: Atom) -> Object | None:
    """The container that an instance is, None for anything else."""
    held = m.read(atom.id, HEIR) if type(atom) is Object and type(atom.type) is Class else None
    return held if type(held) is Object else None


def elements(m: Machine, atom: Atom, place: Place) -> Sequence[Value] | Value | None:
    """`for layer in self`."""
    held = modules_of(m, atom)
    return m.iterate(held, place.position, 1) if held is not None else None


def subscript(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """`self[0]`."""
    held = modules_of(m, receiver)
    return m.library.subscript(m, held, index, place) if held is not None else None


def methods(m: Machine, atom: Atom, name: str, args: Args, place: Place) -> Value | None:
    """`self.append(layer)`, `self.items()`."""
    held = modules_of(m, atom) if name in OWN else None
    return m.call_method(held, name, args, place.position, place.position) if held is not None else None


vocabulary.initialized.append(initialized)
vocabulary.made.append(made)
vocabulary.elements.append(elements)
vocabulary.subscripts.append(subscript)
vocabulary.atom_methods.append(methods)
