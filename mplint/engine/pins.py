"""Which versions of torch, Keras and TensorFlow a project supports, from its own dependency pins.

Four kinds of files speak of them: dependency files (requirements, pyproject.toml, setup.py, conda environments …) say what the project
supports; lock files say which version everybody gets; container files and CI jobs say what it is run with, and count for libraries that
no dependency file bounds. Where none of these bounds a library, the lowest version that the README installs or asks for is supported too.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mplint.engine.installs import LATEST, Installed, container, installs, notebook_installs, plain, script_installs
from mplint.python.neighbors import ROOT_MARKS
from mplint.versions import Version, parse_versions
from mplint.versions import Versions as Versions

if TYPE_CHECKING:
    import ast

# Distributions, as pip and conda name them, and the library that each one is.
LIBRARIES = {
    "torch": "torch",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "keras": "keras",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-macos": "tensorflow",
    "tensorflow-rocm": "tensorflow",
    "intel-tensorflow": "tensorflow",
    "tf-nightly": "tensorflow",
    "tf-nightly-gpu": "tensorflow",
    "tf-keras": "tf-keras",
    "tensorflow-addons": "tensorflow-addons",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "lightning-fabric": "lightning",
    "mosaicml": "composer",
    "peft": "peft",
    "pytorch-lightning": "lightning",
    "transformers": "transformers",
}
TRAINERS = ("accelerate", "composer", "deepspeed", "lightning", "peft", "transformers")
# The first TensorFlow whose tf.keras is Keras 3.
KERAS_3 = "2.16"

Pins = dict[str, Versions]

_REQUIREMENT = re.compile(r"\s*(?:-\s+)?['\"]?(?:[\w.-]+::)?([A-Za-z][\w.-]*?)\s*(?:\[[^\]]*\])?\s*(\(?[<>=!~^].*)?")
_NAMES = re.compile(rb"torch|tensorflow|keras|tf-nightly|accelerate|deepspeed|lightning|mosaicml|peft|transformers", re.I)
# Folders whose files speak of the folder that they lie in, at most two deep.
_REQUIREMENT_FOLDERS = frozenset(
    ("requirements", "requirement", "reqs", "deps", "dependencies", "environments", "environment", "envs", "conda")
)
_RUN_FOLDERS = frozenset(
    (
        *(".github", ".circleci", ".devcontainer", "workflows", "ci"),
        *("docker", "dockerfiles", "container", "containers", "build", "builds", "install"),
    )
)
_MAX_SIZE = 4_000_000
# By the folder that they speak of, the files and folders that were looked into for pins, whether they are there or not: what has been
# read once is known for the run.
_CONSULTED: defaultdict[str, set[str]] = defaultdict(set)
_OUTERMOST: set[str] = set()  # folders beyond which nothing was looked for


class LibraryVersions(NamedTuple):
    """The supported versions of each library; None where nothing pins it. `trainers` are those of trainers by name."""

    torch: Versions | None = None
    keras: Versions | None = None
    tensorflow: Versions | None = None
    trainers: tuple[tuple[str, Versions], ...] = ()


def project_pins(start: str) -> LibraryVersions:
    """The pins that govern the file or folder `start`: for each library the nearest ones upwards, up to the repository's root.

    Outside of a repository they are those of the first folder upwards that has any. Several pins of one
    library in one folder are joined: what any of them supports, the project supports.
    """
    folder = os.path.abspath(start)
    return _library_versions(folder if os.path.isdir(folder) else os.path.dirname(folder))


@cache
def _library_versions(folder: str) -> LibraryVersions:
    pins = _inherited(folder)
    return library_versions_of(pins if pins.get("torch", Versions()) != Versions() else {**pins, **_told_by_readme(folder)})


def library_versions_of(pins: Pins) -> LibraryVersions:
    """The targets that pins of distributions give; which Keras it is may follow from the TensorFlow that is pinned."""
    torch, keras, tensorflow = (pins.get(library) for library in ("torch", "keras", "tensorflow"))
    trainers = tuple((name, pins[name]) for name in TRAINERS if name in pins)
    if "tensorflow-addons" in pins and not (tensorflow and tensorflow.upper):
        tensorflow = Versions(tensorflow.lower if tensorflow else None, (2, 16, 0))  # it never came to run with Keras 3
    if "tf-keras" in pins and tensorflow and tensorflow.at_least(KERAS_3):
        return LibraryVersions(torch, None, None, trainers)  # tf.keras may be either Keras there
    if keras is None and tensorflow:
        if tensorflow.below(KERAS_3):
            keras = Versions((2, 0, 0), (3, 0, 0))
        elif tensorflow.at_least(KERAS_3):
            keras = Versions((3, 0, 0), None)
    return LibraryVersions(torch, keras, tensorflow, trainers)


def targets_with(start: str, source: str, *, notebook: bool) -> LibraryVersions | None:
    """The targets of a program that installs what it needs (a notebook's `!pip install tensorflow==2.0`); None where it installs nothing.

    What it installs wins over the project's pins, and the last of several commands over the earlier ones.
    """
    if "install" not in source and "tensorflow_version" not in source:
        return None
    own = installed(notebook_installs(source) if notebook else script_installs(source), last=True)
    if not own:
        return None
    folder = os.path.abspath(start)
    pins = _inherited(folder if os.path.isdir(folder) else os.path.dirname(folder))
    if "tensorflow" in own:
        pins = {library: versions for library, versions in pins.items() if library not in ("keras", "tf-keras")}
    return library_versions_of(pins | own)


def installed(found: Iterable[Installed], *, last: bool = False, commands: bool = False) -> Pins:
    """The pins that requirements make: joined, or with `last` those of the last one for each library.

    In `commands` a library without a version is whatever version there is; in a list of requirements it says nothing.
    """
    pins: Pins = {}
    for distribution, requirement in found:
        library = library_of(distribution)
        newest = _NEWEST.get(distribution) if requirement == LATEST else None
        versions = Versions(newest, None) if newest else parse_versions(requirement)
        if versions is None and (library in _TOLD_BY_NAME or (commands and not requirement)):
            versions = Versions()
        if library and versions:
            pins[library] = pins[library].joined(versions) if library in pins and not last else versions
    return pins


# What says something of the others by being there at all.
_TOLD_BY_NAME = ("tf-keras", "tensorflow-addons")
# What an upgrade brings at least; later releases count as these do. tensorflow-gpu is no more, and its upgrade brings an old one.
_NEWEST = {"tensorflow": (2, 16, 0), "tensorflow-cpu": (2, 16, 0), "tf-nightly": (2, 16, 0), "keras": (3, 0, 0), "torch": (2, 6, 0)}


def library_of(distribution: str) -> str | None:
    """The library that a distribution is, or None."""
    return LIBRARIES.get(re.sub(r"[._-]+", "-", distribution).lower())


def consulted(files: Iterable[str]) -> set[str]:
    """The files and folders in which the pins of some files were looked for, whether they are there or not."""
    pending = {os.path.dirname(os.path.abspath(path)) for path in files}
    seen: set[str] = set()
    while pending:
        seen |= pending
        pending = {os.path.dirname(folder) for folder in pending - _OUTERMOST} - seen
    return {path for folder in seen & _CONSULTED.keys() for path in _CONSULTED[folder]}


@cache
def _inherited(folder: str) -> Pins:
    _CONSULTED[folder].add(folder)
    try:
        names = frozenset(os.listdir(folder))
    except OSError:
        return {}
    own = _read_folder(folder, names)
    parent = os.path.dirname(folder)
    if names & ROOT_MARKS or parent in (folder, os.path.expanduser("~")):
        _OUTERMOST.add(folder)
        return own
    if not _in_repository(parent) and any(_reader(name) for name in names if _may_pin(name)):
        return own  # outside of a repository the first folder with pins is the project
    return _inherited(parent) | own


@cache
def _told_by_readme(folder: str) -> Pins:
    """What the nearest README upwards says of torch: the lowest version, for it may tell of others that work.

    Outside of a repository the first folder upwards that has a README is the project.
    """
    readmes = [name for name in _listed(folder, folder) if name.lower() in _READMES]
    lower = min(filter(None, (_lowest_in(folder, name) for name in readmes)), default=None)
    if lower is not None:
        return {"torch": Versions(lower, None)}
    parent = os.path.dirname(folder)
    if any(os.path.exists(os.path.join(folder, mark)) for mark in ROOT_MARKS) or parent in (folder, os.path.expanduser("~")):
        return {}
    return {} if readmes and not _in_repository(parent) else _told_by_readme(parent)


def _lowest_in(folder: str, name: str) -> Version | None:
    """The lowest torch that the commands and the requirements of a README name."""
    path = os.path.join(folder, name)
    _CONSULTED[folder].add(path)
    try:
        with open(path, "rb") as stream:
            text = stream.read(_MAX_README).decode("utf-8", "replace")
    except OSError:
        return None
    asked = [version for name, version in installs(text) if library_of(name) == "torch" and version != LATEST]
    asked += [f">={found[1]}" for line in text.splitlines() if _ASKS.search(line) for found in _TORCH.finditer(line)]
    lowers = [found.lower for version in asked if (found := parse_versions(version)) is not None and found.lower is not None]
    return min(lowers, default=None)


_READMES = frozenset(("readme", "readme.md", "readme.rst", "readme.txt", "install.md"))
_MAX_README = 400_000
# A line that asks for something: an entry of a list that begins with it, or a sentence that says so; and the torch that it names.
_ASKS = re.compile(r"^\W*(?:\d+\W+)?(?:py)?torch\b|\b(?:install|requir|environment|depend|prerequisite|tested|python ?[23])", re.I)
_TORCH = re.compile(r"(?<![\w/.-])(?:py)?torch\b[\s*_`:(]*(?:version\W*)?(?:==|>=|~=|=|≥|>)?\s*v?([0-3]\.\d{1,2}(?:\.\d+)?)", re.I)


@cache
def _in_repository(folder: str) -> bool:
    """Whether `folder` or one above it is the root of a repository."""
    marks = [os.path.join(folder, mark) for mark in sorted(ROOT_MARKS)]
    if any(os.path.exists(mark) for mark in marks):
        return True
    _CONSULTED[folder].update(marks)
    parent = os.path.dirname(folder)
    return parent != folder and _in_repository(parent)


class _Place(NamedTuple):
    """A file that may pin something for a folder; `within`: the folder in it that speaks of it, if the file lies in one."""

    folder: str
    name: str
    within: str = ""

    @property
    def path(self) -> str:
        """Where the file lies."""
        return os.path.join(self.folder, self.within, self.name)


def _read_folder(folder: str, names: frozenset[str]) -> Pins:
    places = [_Place(folder, name) for name in sorted(names) if _may_pin(name)]
    within = sorted(names & (_REQUIREMENT_FOLDERS | _RUN_FOLDERS))
    within += [os.path.join(".github", inner) for inner in sorted(_RUN_FOLDERS)] if ".github" in names else []
    places += [_Place(folder, name, inner) for inner in within for name in _listed(os.path.join(folder, inner), folder)]
    wanted, locked, run = ([(place, reader) for place in places if (reader := find(place))] for find in (_declares, _locks, _runs))
    pins = _read(wanted)
    for library, versions in _read(locked).items():
        declared = pins.get(library)
        lower = min((v.lower for v in (declared, versions) if v and v.lower), default=None)
        pins[library] = Versions(lower, versions.upper)
    declaring = [place for place, _ in wanted]
    return {**_read([(place, reader) for place, reader in run if place not in declaring]), **pins}


def _may_pin(name: str) -> bool:
    """Whether a file of that name may pin anything: most are modules, which don't."""
    return not name.endswith(".py") or name == "setup.py" or name.lower().startswith("dockerfile")


def _listed(folder: str, home: str) -> list[str]:
    _CONSULTED[home].add(folder)
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read(places: Iterable[tuple[_Place, Reader]]) -> Pins:
    """The pins of several files, joined."""
    pins: Pins = {}
    for place, reader in places:
        for library, versions in _pins_of(place, reader).items():
            pins[library] = pins[library].joined(versions) if library in pins else versions
    return pins


def _pins_of(place: _Place, reader: Reader) -> Pins:
    path = place.path
    _CONSULTED[place.folder].add(path)
    try:
        if os.path.getsize(path) > _MAX_SIZE:
            return {}
        with open(path, "rb") as stream:
            data = stream.read()
        found = [Installed(*item) for item in reader(data.decode("utf-8-sig", "replace"))] if _NAMES.search(data) else []
        return installed(found, commands=reader in (container, installs))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return {}  # a broken file pins nothing


Requirement = tuple[str, str]
Reader = Callable[[str], Iterator[Requirement]]

_TEXT = re.compile(r"(?:^|[^a-z])(?:reqs?|pip|packages|deps)(?:[^a-z]|$)|requirement|constraints|dependencies", re.I)
_CONDA = re.compile(r"(?:^|[^a-z])(?:envs?|conda)(?:[^a-z]|$)|environment", re.I)
_CI = re.compile(r"\.(?:travis|gitlab-ci|appveyor)\.ya?ml|azure-pipelines.*\.ya?ml|(?:set_?up|install|build|environment|env).*\.sh", re.I)


def _reader(name: str) -> Reader | None:
    """What reads a dependency file of that name, or None."""
    stem, suffix = os.path.splitext(name)
    if suffix in (".txt", ".in"):
        return _lines if _TEXT.search(stem) else None
    if suffix in (".yml", ".yaml"):
        return _lines if stem.startswith(("environment", "conda")) else _conda if _CONDA.search(stem) or _TEXT.search(stem) else None
    return {"pyproject.toml": _pyproject, "Pipfile": _pipfile, "setup.cfg": _lines, "setup.py": _setup, "tox.ini": _lines}.get(name)


def _declares(place: _Place) -> Reader | None:
    """What reads a dependency file; in a folder of requirements every text is one."""
    folder, name = os.path.basename(place.within), place.name
    if folder in _RUN_FOLDERS and name.endswith((".yml", ".yaml", ".toml")):
        return None
    if folder in _REQUIREMENT_FOLDERS and name.endswith((".txt", ".in")):
        return _lines
    return _conda if folder in _REQUIREMENT_FOLDERS and name.endswith((".yml", ".yaml")) else _reader(name)


def _locks(place: _Place) -> Reader | None:
    return {"poetry.lock": _lock, "uv.lock": _lock, "pdm.lock": _lock, "Pipfile.lock": _pipfile_lock}.get(place.name)


def _runs(place: _Place) -> Reader | None:
    """What reads a container file or a CI job, or None."""
    folder, name = os.path.basename(place.within), place.name
    if name.lower().startswith("dockerfile") or name.lower().endswith(".dockerfile") or name == "Containerfile":
        return container
    if _CI.fullmatch(name):
        return installs
    return container if folder in _RUN_FOLDERS and name.endswith((".yml", ".yaml", ".sh")) else None


def _lines(text: str) -> Iterator[Requirement]:
    """One requirement a line: requirements files, setup.cfg, and the lists of a conda environment."""
    for line in text.splitlines():
        yield from _split(line.split(" #")[0])


def _conda(text: str) -> Iterator[Requirement]:
    """The lists of a conda environment; other YAML files hold no dependencies."""
    if "dependencies:" in text:
        yield from _lines(text)


def _lock(text: str) -> Iterator[Requirement]:
    """The packages of poetry.lock, uv.lock and pdm.lock."""
    for name, version in re.findall(r'^name = "([^"\n]+)"\nversion = "([^"\n]+)"', text, re.M):
        yield name, f"=={version}"


def _pipfile_lock(text: str) -> Iterator[Requirement]:
    import json

    document = _table(json.loads(text))
    for section in ("default", "develop"):
        yield from _tables(_table(document.get(section)))


def _split(requirement: str) -> Iterator[Requirement]:
    """Name and version part of `torch[extra] >=2.1,<3 ; python_version > "3.8"` or of conda's `pytorch=2.1=py3.11_cuda`."""
    name, _, source = requirement.split(";")[0].partition(" @ ")
    built = re.search(r"[/-]v?(\d+\.\d+(?:\.\d+)?)(?:[^/]*\.whl)?(?:#.*)?$", source.strip()) if source else None
    if built is None and requirement.strip().endswith(".whl"):
        yield from installs(f"pip install {requirement}")
        return
    match = _REQUIREMENT.fullmatch(name.split(" --")[0].strip().rstrip("'\","))
    if match:
        yield match[1], f"=={built[1]}" if built else plain((match[2] or "").strip())


def _pyproject(text: str) -> Iterator[Requirement]:
    import tomllib

    document = tomllib.loads(text)
    project = _table(document.get("project"))
    lists = [
        project.get("dependencies"),
        *_table(project.get("optional-dependencies")).values(),
        *_table(document.get("dependency-groups")).values(),
    ]
    for requirements in lists:
        for requirement in requirements if isinstance(requirements, list) else ():
            if isinstance(requirement, str):
                yield from _split(requirement)
    poetry = _table(_table(document.get("tool")).get("poetry"))
    groups = [_table(group).get("dependencies") for group in _table(poetry.get("group")).values()]
    for table in (poetry.get("dependencies"), poetry.get("dev-dependencies"), *groups):
        yield from _tables(_table(table))


def _pipfile(text: str) -> Iterator[Requirement]:
    import tomllib

    document = tomllib.loads(text)
    for section in ("packages", "dev-packages"):
        yield from _tables(_table(document.get(section)))


def _tables(table: dict[str, object]) -> Iterator[Requirement]:
    """`torch = "^2.1"`, `torch = {version = "^2.1"}`, or a list of such tables."""
    for name, value in table.items():
        for item in value if isinstance(value, list) else (value,):
            version = item.get("version") if isinstance(item, dict) else item
            if isinstance(version, str):
                yield name, version


def _setup(text: str) -> Iterator[Requirement]:
    """The strings of a setup.py that read as requirements, in lists and as `install_requires`; nothing of it is run."""
    import ast

    tree = ast.parse(text)
    known: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name):
            value = _string(statement.value, known)
            if value is not None:
                known[target.id] = value
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            for item in node.elts:
                yield from _split(_string(item, known) or "")
        elif isinstance(node, ast.keyword) and node.arg == "install_requires":
            for line in (_string(node.value, known) or "").split("\n"):
                yield from _split(line)


def _string(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """The string that an expression of constants and known names makes, or None."""
    import ast

    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [_string(left, known), _string(right, known)]
        case ast.JoinedStr(values=values):
            parts = [_string(v.value if isinstance(v, ast.FormattedValue) else v, known) for v in values]
        case _:
            return None
    return None if None in parts else "".join(part for part in parts if part is not None)


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
