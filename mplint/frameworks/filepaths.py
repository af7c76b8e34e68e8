"""Paths of files, as far as a program fixes them from their ends: `os.path.join(out, "best.keras")`, `Path("runs") / name`."""

from __future__ import annotations

import os
import posixpath

from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.conditions import Path
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.trace import possible
from mplint.program.values import Atom, Constant, Object, Place, Unknown, Value

vocabulary = Vocabulary()
KIND = "path"
JOINS = ("os.path.join", "posixpath.join")
PATHS = ("pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath")


def text_of(atom: Value | None) -> str | None:
    """The end of a path that is known, "/" between its parts; None for anything else."""
    if type(atom) is Constant and isinstance(atom.value, str):
        return atom.value
    if type(atom) is Object and atom.kind == KIND and isinstance(atom.id, tuple):
        return str(atom.id[1])
    return None


def ends_of(value: Value | None, path: Path) -> list[str]:
    """The known ends of the paths that a value may be."""
    found = [text_of(atom) for _, atom in possible(value, path)] if value is not None else []
    return [posixpath.normpath(text.replace("\\", "/")) for text in found if text]


def joined(parts: list[Atom], place: Place, kind: str) -> Value | None:
    """Parts put together: all of them, or those behind the last one that is open; None where the end itself is open."""
    texts = [text_of(part) for part in parts]
    if not texts or texts[-1] is None:
        return None
    first = next((n + 1 for n in range(len(texts) - 1, -1, -1) if texts[n] is None), 0)
    text = os.path.join(*(text or "" for text in texts[first:]))
    if first == 0 and all(type(part) is Constant for part in parts) and kind == "str":
        return Constant(text)
    opened = tuple(part.symbol if type(part) is Unknown else repr(part) for part in parts[:first])
    return Object((KIND, text, opened), KIND, kind, place)


@vocabulary.call(*JOINS)
def join_path(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`os.path.join(folder, name)`."""
    own = [type(a) is Unknown and a.symbol.startswith(("__file__", "os.path.dirname(", "os.path.abspath(")) for a in args.positional]
    if own and own[0] and "__file__" in repr(args.positional[0]) and all(type(a) is Constant for a in args.positional[1:]):
        return Constant("/".join(str(a.value) for a in args.positional[1:] if type(a) is Constant))
    found = None if args.opaque else joined(list(args.positional), place, "str")  # type: ignore[arg-type]
    if found is not None:
        return found
    text = ",".join(a.symbol.partition(IDENTITY)[0] if type(a) is Unknown else str(getattr(a, "value", "…")) for a in args.positional)
    return Unknown(f"os.path.join({text[:60]}){IDENTITY}{place.path}:{place.position}")


@vocabulary.prefix("pathlib.")
def new_path(m: Machine, name: str, args: Args, place: Place) -> Value | None:
    """`Path("runs", "best.keras")`."""
    if name not in PATHS or args.opaque:
        return None
    return joined(list(args.positional), place, "pathlib.Path")  # type: ignore[arg-type]


def divided(m: Machine, op: str, left: Atom, right: Atom, place: Place, in_place: bool = False) -> Value | None:
    """`folder / "best.keras"`: a text divides nothing else."""
    if op != "/" or text_of(right) is None or not (type(left) is Unknown or text_of(left) is not None):
        return None
    return joined([left, right], place, "pathlib.Path")


vocabulary.binaries.append(divided)


@vocabulary.method(KIND, "joinpath")
def joinpath(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    found = joined([receiver, *args.positional], place, "pathlib.Path")  # type: ignore[list-item]
    return found if found is not None else Unknown(f"path{IDENTITY}{place.path}:{place.position}")


@vocabulary.method(KIND, "as_posix", "resolve", "absolute", "expanduser", "__fspath__", "__str__")
def same(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """The same file by another way."""
    return receiver


@vocabulary.call("os.path.dirname", "os.path.abspath", "os.path.realpath")
def own_folder(m: Machine, name: str, args: Args, place: Place) -> Value:
    first = args.get(0)
    if type(first) is Unknown and first.symbol.startswith("__file__"):
        return first
    return Unknown(f"{name}(…){IDENTITY}{place.path}:{place.position}")
