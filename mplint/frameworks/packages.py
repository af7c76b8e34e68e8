"""Packages beside the frameworks: names and methods of which a table says that they change no precision.

What they give stays as unknown as it would be without; that this is all there is to say of them is what the table tells. Asked last.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from mplint import data
from mplint.frameworks.derived import keras_op, tf_function, torch_function
from mplint.frameworks.library import opaque_result
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import Args, Machine, shown
from mplint.program.values import Atom, Constant, External, Function, Method, Object, Place, Tensor, Test, Unknown, Value

vocabulary = Vocabulary()
SECTIONS = ("irrelevant", "host", "models")


@cache
def names() -> frozenset[str]:
    """The packages, modules and functions of the table."""
    table = tomllib.loads((Path(data.__file__).parent / "other_packages.toml").read_text(encoding="utf-8"))
    return frozenset(name for section in SECTIONS for name in table[section]["names"])


@cache
def packages() -> frozenset[str]:
    """The packages of the table."""
    return frozenset(name.partition(".")[0] for name in names())


def is_package(name: str) -> bool:
    """Whether a name is that of a package that the table knows."""
    return name in packages()


@cache
def without_models() -> frozenset[str]:
    """The packages of the table that have no models at all."""
    table = tomllib.loads((Path(data.__file__).parent / "other_packages.toml").read_text(encoding="utf-8"))
    return frozenset(name for section in ("irrelevant", "host") for name in table[section]["names"] if "." not in name)


@cache
def of_the_host() -> tuple[str, ...]:
    """The packages and modules of the table that make arrays and images on the host."""
    table = tomllib.loads((Path(data.__file__).parent / "other_packages.toml").read_text(encoding="utf-8"))
    return tuple(f"{name}." for name in table["host"]["names"])


def is_of_the_host(atom: Atom) -> bool:
    """Whether something unknown was made by what makes arrays and images on the host: a transform, and no model."""
    return type(atom) is Unknown and f"{shown(atom.symbol).partition('(')[0]}.".startswith(of_the_host())


@cache
def entering_no_region() -> frozenset[str]:
    """The packages of the table whose models and functions enter no region of half precision themselves."""
    table = tomllib.loads((Path(data.__file__).parent / "other_packages.toml").read_text(encoding="utf-8"))
    return frozenset(table["regionless"]["names"])


@cache
def model_makers() -> tuple[str, ...]:
    """The packages, modules and functions of the table that give models, and the packages whose models a vocabulary knows."""
    table = tomllib.loads((Path(data.__file__).parent / "other_packages.toml").read_text(encoding="utf-8"))
    return tuple(f"{name}." for section in ("host", "models") for name in table[section]["names"])


def gives_models(name: str) -> bool:
    """Whether what a dotted name of another package gives is its own: a model of its, or no model at all."""
    return f"{name}.".startswith(model_makers())


@cache
def methods() -> frozenset[str]:
    """The methods of unknown receivers of the table."""
    table = tomllib.loads((Path(data.__file__).parent / "other_packages.toml").read_text(encoding="utf-8"))
    return frozenset([*table["methods"]["irrelevant"], *table["methods"]["same"]])


@cache
def is_known(name: str) -> bool:
    """Whether the table has a dotted name, or a package or module that it lies in."""
    while name:
        if name in names():
            return True
        name = name.rpartition(".")[0]
    return False


@cache
def is_operation(name: str) -> bool:
    """Whether a function is an operation on tensors: of operands that nobody knows it gives what nobody knows."""
    found = (torch_function(name), tf_function(name), keras_op(name), keras_op(name.replace("keras.backend.", "keras.ops.")))
    return any(meaning is not None for meaning in found)


def of_table(m: Machine, atom: Atom, args: Args, place: Place) -> Value | None:
    """A call of which the table says that it changes no precision."""
    if not in_table(atom):
        return None
    note(m, atom, place)
    return opaque_result(m, atom, args, place)


def note(m: Machine, atom: Atom, place: Place) -> None:
    """Tell a recorder of a call that no vocabulary modelled: whether the table says that this is all there is to it."""
    if m.recorder is None:
        return
    if in_table(atom):
        m.recorder.assumed(m, place, atom, "other")
    else:
        m.missed(atom, place)


def in_table(atom: Atom) -> bool:
    """Whether the table knows what is called."""
    if type(atom) is External:
        return is_known(atom.name) or is_operation(atom.name)
    if type(atom) is Unknown:
        _, dot, last = shown(atom.symbol).rpartition(".")
        return (bool(dot) and last in methods()) or is_known(shown(atom.symbol).partition("(")[0])
    if type(atom) is Method:
        receiver = atom.receiver
        if type(receiver) is External:
            return is_known(receiver.name)
        return atom.name in methods() and type(receiver) in (Unknown, Object, Method, Constant, Function, Tensor, Test)
    return False


vocabulary.atom_calls.append(of_table)
