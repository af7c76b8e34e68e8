"""Versions of packages: what a comparison with one decides, by those that the project is for, or else by those of today."""

from __future__ import annotations

import re
from collections.abc import Callable

from mplint.frameworks.torch.devices import decided_by_the_machine
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.values import FALSE, TRUE, Atom, Constant, Items, Object, Place, Test, Unknown, Value
from mplint.versions import ANY, Versions

vocabulary = Vocabulary()

KIND = "version"
SUPPORTED = "supported versions"  # what a project keeps: the versions of a package that a program is for
PARSERS = (
    "packaging.version.parse",
    "packaging.version.Version",
    "packaging.version.LegacyVersion",
    "distutils.version.LooseVersion",
    "distutils.version.StrictVersion",
    "looseversion.LooseVersion",
    "pkg_resources.parse_version",
    "pkg_resources.packaging.version.parse",
    "pkg_resources.packaging.version.Version",
    "setuptools._distutils.version.LooseVersion",
    "torch.torch_version.TorchVersion",
    "mmcv.digit_version",
    "mmcv.utils.digit_version",
    "mmengine.utils.digit_version",
)
QUESTIONS = {  # functions that compare the version of a package with one
    "accelerate.utils.is_torch_version": "torch",
    "accelerate.utils.versions.is_torch_version": "torch",
    "transformers.utils.is_torch_version": "torch",
    "diffusers.utils.is_torch_version": "torch",
}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
NUMBERED = re.compile(r"\d+(\.\d+)*")
NEWEST = Versions((ANY, 0, 0))

Supported = Callable[[str, str], Versions | None]


def version_of(m: Machine, name: str, place: Place) -> Value | None:
    """`torch.__version__`: an object that says which package it is of."""
    package, _, last = name.rpartition(".")
    return Object((KIND, package), KIND, package, place) if last == "__version__" and package else None


vocabulary.externals.append(version_of)


@vocabulary.call(*PARSERS)
def parsed(m: Machine, name: str, args: Args, place: Place) -> Value:
    """A version for comparisons."""
    given = args.get(0, "version") or args.get(0, "vstring")
    if type(given) is Constant and isinstance(given.value, str):
        return Object((KIND, given.value), KIND, "", place)
    return given if type(given) is Object and given.kind == KIND else m.library.by_prefix(m, name, args, place)  # type: ignore[attr-defined]


def part_of(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """What is left of a version without its local part."""
    return atom if name in ("base_version", "public", "release") else None


vocabulary.attributes[KIND] = part_of


@vocabulary.call(*QUESTIONS)
def asked(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`is_torch_version(">=", "2.0")`."""
    op, bound = args.get(0, "operation"), args.get(1, "version")
    text = text_of(bound) if bound is not None else None
    known = None
    if type(op) is Constant and isinstance(op.value, str) and text is not None:
        known = decided(m, QUESTIONS[name], op.value, text, place)
    return known if known is not None else m.library.by_prefix(m, name, args, place)  # type: ignore[attr-defined]


def compared(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool) -> Value | None:
    """The version of a package beside one that is written there."""
    if type(left) is not Object and type(right) is not Object:
        return None
    if package_of(left) is None:
        left, right, op = right, left, MIRRORED.get(op, op)
    package, text = package_of(left), text_of(right)
    return decided(m, package, op, text, place) if package is not None and text is not None else None


vocabulary.binaries.append(compared)


def package_of(atom: Value) -> str | None:
    """The package whose version a value is."""
    return str(atom.type) or None if type(atom) is Object and atom.kind == KIND else None


def text_of(atom: Value) -> str | None:
    """A version that is written in the program: as a text, parsed, or as a tuple of numbers."""
    if type(atom) is Object and atom.kind == KIND and not atom.type:
        return str(atom.id[1])  # type: ignore[index]
    if type(atom) is Constant and isinstance(atom.value, str):
        return atom.value
    if type(atom) is Items and atom.rest is None and atom.items and all(type(v) is Constant and type(v.value) is int for v in atom.items):
        return ".".join(str(v.value) for v in atom.items)  # type: ignore[union-attr]
    return None


def supported(m: Machine, path: str, package: str) -> Versions | None:
    """The versions of a package that the program of a path is for; None where nobody knows."""
    question = m.project.kept.get(SUPPORTED)
    return question(path, package) if callable(question) else None


def decided(m: Machine, package: str, op: str, text: str, place: Place) -> Value | None:
    """Whether a package is of a version: what the newest that the project is for decides, where it is for several."""
    known = supported(m, place.path, package)
    if NUMBERED.match(text) is None:
        holds: bool | None = op == "!="  # no version of the package, but of something that stands in for it
    else:
        holds = (known or NEWEST).decide(op, text)
        holds = newest(known).decide(op, text) if holds is None else holds
    if holds is None:
        return None
    unknown = decided_by_the_machine(m, f"{package}.__version__ {op} {text}{IDENTITY}{holds}", TRUE if holds else FALSE, "release")
    return Test(("true", unknown.symbol), True) if type(unknown) is Unknown else None


def pinned_below(m: Machine, package: str, version: str, place: Place) -> bool:
    """Whether the project is for versions of a package that are all older than one."""
    known = supported(m, place.path, package)
    return known is not None and known.below(version)


def newest(known: Versions | None) -> Versions:
    """The newest of some versions."""
    return NEWEST if known is None or known.upper is None else Versions(known.last, known.upper)
