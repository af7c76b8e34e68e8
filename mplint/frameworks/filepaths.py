"""Paths of files, as far as a program fixes them from their ends: `os.path.join(out, "best.keras")`, `Path("runs") / name`.

What it works out from its own place, `Path(__file__).resolve().parents[1] / "configs"`, counts from the program's folder, and is known
from its beginning.
"""

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
PARENTS = "parents of a path"
DIRNAME = "os.path.dirname("  # begins the symbol of the folder of a program, or of one around it
OWN = "own place"  # begins what tells the program from whose folder a path counts
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


def own_path(program: str, text: str, place: Place) -> Object:
    """The path that counts from the folder of a program."""
    return Object((KIND, posixpath.normpath(text), (OWN, program)), KIND, "pathlib.Path", place)


def program_of(atom: Value | None) -> str | None:
    """The program from whose folder a path counts; None where it is no such path."""
    if type(atom) is Object and atom.kind == KIND and isinstance(atom.id, tuple) and atom.id[2][:1] == (OWN,):
        return str(atom.id[2][1])
    return None


def spelled(atom: Value | None, folder: str) -> str | None:
    """A path that a program spells out, or works out from its own place, as it counts from a folder; None for any other."""
    if type(atom) is Constant and isinstance(atom.value, str):
        return atom.value
    program, text = program_of(atom), text_of(atom)
    if program is None or text is None:
        return None
    return os.path.relpath(os.path.join(os.path.dirname(program), text), folder or ".")


def joined(parts: list[Atom], place: Place, kind: str) -> Value | None:
    """Parts put together: all of them, or those behind the last one that is open; None where the end itself is open."""
    texts = [text_of(part) for part in parts]
    if not texts or texts[-1] is None:
        return None
    program = program_of(parts[0])
    if program is not None and all(type(part) is Constant for part in parts[1:]):
        return own_path(program, posixpath.join(*(text or "" for text in texts)), place)
    first = next((n + 1 for n in range(len(texts) - 1, -1, -1) if texts[n] is None), 0)
    text = os.path.join(*(text or "" for text in texts[first:]))
    if first == 0 and all(type(part) is Constant for part in parts) and kind == "str":
        return Constant(text)
    opened = tuple(part.symbol if type(part) is Unknown else repr(part) for part in parts[:first])
    return Object((KIND, text, opened), KIND, kind, place)


@vocabulary.call(*JOINS)
def join_path(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`os.path.join(folder, name)`."""
    folders = folders_up(args.get(0))
    if folders is not None and all(type(a) is Constant for a in args.positional[1:]):
        own = os.path.basename(place.path) + "/.." * folders
        return Constant(posixpath.normpath(posixpath.join(own, *(str(a.value) for a in args.positional[1:] if type(a) is Constant))))
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
    folders = folders_up(args.get(0)) if len(args.positional) == 1 else None
    if folders is not None:
        return own_path(place.path, os.path.basename(place.path) + "/.." * folders, place)
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


@vocabulary.reads(KIND)
def part_of_path(m: Machine, receiver: Atom, name: str, place: Place) -> Value | None:
    """The folder around what counts from a program's own, and the folders around that one."""
    program, text = program_of(receiver), text_of(receiver)
    if program is None or text is None:
        return None
    if name == "parent":
        return own_path(program, f"{text}/..", place)
    return Object((PARENTS, text, program), PARENTS, "pathlib.Path", place) if name == "parents" else None


def around(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """`Path(__file__).parents[1]`."""
    if type(receiver) is not Object or receiver.kind != PARENTS or not isinstance(receiver.id, tuple):
        return None
    if type(index) is not Constant or type(index.value) is not int or index.value < 0:
        return None
    return own_path(receiver.id[2], f"{receiver.id[1]}/{'../' * (index.value + 1)}", place)


vocabulary.subscripts.append(around)


@vocabulary.call("os.path.dirname", "os.path.abspath", "os.path.realpath")
def own_folder(m: Machine, name: str, args: Args, place: Place) -> Value:
    first = args.get(0)
    if folders_up(first) is not None:
        assert type(first) is Unknown
        return Unknown(f"{DIRNAME}{first.symbol}") if name == "os.path.dirname" else first
    return Unknown(f"{name}(…){IDENTITY}{place.path}:{place.position}")


def folders_up(value: Value | None) -> int | None:
    """How many folders above a program's own file a text is, `os.path.dirname(__file__)`; None for any other."""
    if type(value) is not Unknown:
        return None
    shown = value.symbol.partition(IDENTITY)[0]
    count = shown.count(DIRNAME)
    return count if shown.removeprefix(DIRNAME * count) == "__file__" else None
