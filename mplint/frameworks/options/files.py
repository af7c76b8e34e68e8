"""Configuration files of the project as values: hydra's composition, and YAML or JSON files that the program names."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mplint.configs.hydra import FOLDERS_UP, MAX_DEPTH, Listed, Reader, Tree, merge, near, text_of
from mplint.configs.hydra import Value as Given
from mplint.frameworks.filepaths import KIND as PATH
from mplint.frameworks.filepaths import program_of, spelled
from mplint.frameworks.options.classes import open_instance
from mplint.frameworks.options.namespaces import KIND, filled, leaf, namespace, put
from mplint.frameworks.vocabulary import Vocabulary
from mplint.limits import FLOAT16_MAX
from mplint.program.expressions import entries_of, items_of
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.values import (
    NONE,
    TRUE,
    Atom,
    Class,
    Constant,
    Entries,
    Function,
    Items,
    Module,
    Object,
    Partial,
    Place,
    Unknown,
    Value,
    Wrapped,
    atoms,
)
from mplint.python.suffixes import SUFFIXES
from mplint.python.syntax import words_of

vocabulary = Vocabulary()
STORE = ("hydra", "config store")
READ = (*SUFFIXES, ".toml")
FOLDERS = ("configs", "config", "conf", "cfgs", "cfg", "options", "hparams", "recipes", "experiments")  # of configuration files
MOST_FILES = 24  # of a folder of configurations
MOST_VALUES = 5  # of one setting in them
MOST_SETTINGS = 1_000  # side by side: what holds more is data, as a vocabulary is
SMALL, LARGE = 1e-5, FLOAT16_MAX  # numbers that half precision holds well

# trees of files as values


def section(m: Machine, tree: Mapping[str, object], name: str, identity: str, place: Place) -> Object:
    """A namespace of what files say: each value a default that its user may replace."""
    made = namespace(m, ("file", identity, name), "omegaconf.DictConfig", place, name, rest=True)
    for key, held in tree.items() if len(tree) <= MOST_SETTINGS else ():
        value = value_of_file(m, held, f"{name}.{key}" if name else key, identity, place)
        if value is not None:
            put(m, made, key, value)
    return made


def value_of_file(m: Machine, held: object, dotted: str, identity: str, place: Place) -> Value | None:
    """What a file holds under a name: a section, a list, a default; of numbers that are large or small beyond half precision themselves."""
    if isinstance(held, dict):
        return section(m, held, dotted, identity, place)
    if isinstance(held, Listed) and len(held.items) <= MOST_SETTINGS:
        items = [value_of_file(m, item, f"{dotted}[{n}]", identity, place) for n, item in enumerate(held.items)]
        made = Object(("file list", identity, dotted), "list", "builtins.list", place)
        m.write(made.id, "#items", Items(tuple(value for value in items if value is not None)))
        return made
    if isinstance(held, Offered):
        return leaf(m, dotted, f"file:{identity}", Switch(dotted, None, place, "setting", offered=held.values))
    if not isinstance(held, Given):
        return None
    value = held.constant
    if isinstance(value, float) and value and not SMALL <= abs(value) <= LARGE:
        return Constant(value)
    unset = isinstance(value, str) and (value == "???" or "${" in value)
    return leaf(m, dotted, f"file:{identity}", Switch(dotted, None if unset else Constant(value), place, "setting"))


def root(m: Machine, name: str, identity: str, place: Place) -> Object:
    """Settings of a file that nobody can read."""
    made = namespace(m, ("file", identity), "omegaconf.DictConfig", place, name, rest=True)
    m.write(made.id, "#nameless", TRUE)
    return made


def load(m: Machine, path: Value | None, place: Place, name: str = "") -> Object | None:
    """The settings of a file whose path the program spells out, or has as an option's default; of one that its user names, what those say
    that lie in the project's folders of configurations. None for any other.
    """
    atom = next(iter(atoms(path))) if path is not None else None
    if type(atom) is Object and atom.kind == "file":
        return load(m, m.read(atom.id, "#path"), place, name)
    own = spelled(atom, os.path.dirname(place.path)) if program_of(atom) is not None else None
    if own is not None:
        atom = Constant(own)
    if type(atom) is Unknown and (switch := m.switches.get(atom.symbol)) is not None:
        if switch.default in (None, NONE) and switch.kind == "option":
            return offered(m, place, name)
        atom = switch.default if type(switch.default) is Constant else None
    if type(atom) is not Constant or not isinstance(atom.value, str):
        return None
    if atom.value.endswith(".py"):
        return of_program(m, atom.value, place, name)
    tree = read_tree(m, os.path.dirname(place.path), atom.value) if atom.value.endswith(READ) else None
    return section(m, tree, name, atom.value, place) if tree is not None else None


def of_program(m: Machine, path: str, place: Place, name: str) -> Object | None:
    """The settings that a program holds as its variables (`Config.fromfile("configs/net.py")`), and those of `_base_` before."""
    found = near(os.path.dirname(place.path), path)
    key = os.path.normpath(found) if found is not None else ""
    if key not in m.project.files:
        return None
    frame = m.enter_module(Module(key, key))
    made = namespace(m, ("file", key, name), "omegaconf.DictConfig", place, name, rest=True)
    for base in bases_of(m, m.read(frame.id, "_base_")):
        other = of_program(m, os.path.join(os.path.dirname(path), base), place, name)
        for inherited in (entries_of(m, other) or Entries()).entries if other is not None and other.id != made.id else ():
            put(m, made, str(inherited[0]), inherited[1])
    held = {str(n): v for n, v in m.store.slots.of(frame.id) if not str(n).startswith(("_", "#", "*"))}
    plain = tuple((n, v) for n, v in held.items() if all(type(a) in (Constant, Object, Items, Unknown) for a in atoms(v)))
    return filled(m, made, Entries(plain, Unknown(f"{name}[]{IDENTITY}{key}")))


def bases_of(m: Machine, value: Value | None) -> list[str]:
    """The paths that `_base_` names."""
    given = [value] if type(value) is Constant else items_of(m, value, 0) if value is not None else None
    return [a.value for a in given or () if type(a) is Constant and isinstance(a.value, str)]


# files that nobody names


class Offered(NamedTuple):
    """What several files say for one setting."""

    values: tuple[Hashable, ...]


def offered(m: Machine, place: Place, name: str) -> Object | None:
    """What the files of the nearest folder of configurations say, together: for each setting what one of them gives."""
    folder = os.path.dirname(place.path)
    key = ("configurations", folder)
    if key not in m.project.kept:
        found = heard_of(m, Configurations(folder))
        trees = [tree for path in found if (tree := read_tree(m, os.path.dirname(path), os.path.basename(path))) is not None]
        m.project.kept[key] = together(trees) if trees else None
    known = m.project.kept[key]
    return section(m, known, name, f"offered:{folder}", place) if isinstance(known, dict) else None


def offered_by_hydra(m: Machine, folder: str, place: Place) -> Object | None:
    """What hydra composes where its user names the configuration: what the files of its folder say together, each with its defaults."""
    key = ("hydra", os.path.dirname(place.path), folder)
    if key not in m.project.kept:
        home = os.path.dirname(place.path)
        top = os.path.normpath(os.path.join(home, folder))
        trees = [
            tree
            for path in heard_of(m, Configurations(top, nearest=False))
            if (tree := read_by_hydra(m, home, folder, os.path.relpath(path, top))) is not None
        ]
        m.project.kept[key] = together(trees) if trees else None
    known = m.project.kept[key]
    return section(m, known, "", f"hydra:{folder}", place) if isinstance(known, dict) else None


@dataclass(frozen=True, slots=True)
class Configurations:
    """The configuration files below a folder, or below the `nearest` one beside or around it that is called so; the question is which."""

    folder: str
    nearest: bool = True

    def answers(self, questions: Iterable[Hashable]) -> dict[Hashable, Hashable]:
        """The files that there are now."""
        return {question: tuple(self.places()) for question in questions}

    def places(self) -> list[str]:
        """The files that there are now, as far as there are not too many of them."""
        found = [top for top in self._tops() if os.path.isdir(top)]
        return files_in(found[-1]) if found else []

    def folders(self) -> list[str]:
        """The folders in which another one would be found, whether they are there or not."""
        found = list(self._tops())
        return [*found, *(home for home, _, _ in os.walk(found[-1]))] if found else []

    def _tops(self) -> Iterator[str]:
        """The folders that are looked for, up to the first one that is there."""
        around = [self.folder]
        while self.nearest and around[-1] and len(around) < FOLDERS_UP:
            around.append(os.path.dirname(around[-1]))
        for top in (os.path.join(folder, called) for folder in around for called in FOLDERS) if self.nearest else around:
            yield top
            if os.path.isdir(top):
                return


def heard_of(m: Machine, topic: Configurations) -> list[str]:
    """The files of a topic, of which it is kept that they are all."""
    found = topic.places()
    m.project.looked_up.update(found)
    m.project.asked[topic] = {"files": tuple(found)}
    return found


def files_in(top: str) -> list[str]:
    """The YAML files under a folder; none where there are too many."""
    found = [os.path.join(home, file) for home, _, files in os.walk(top) for file in files if file.endswith((".yaml", ".yml"))]
    return sorted(found) if len(found) <= MOST_FILES else []


def together(trees: Sequence[Mapping[str, object]], depth: int = 0) -> dict[str, object]:
    """What trees say together: sections with all that they hold, and for each value those that it has in one of them."""
    found: dict[str, object] = {}
    for key in dict.fromkeys(key for tree in trees for key in tree):
        held = [tree[key] for tree in trees if key in tree]
        inner = [part for part in held if isinstance(part, dict)]
        values = [part.constant for part in held if isinstance(part, Given)]
        if inner and depth < MAX_DEPTH:
            found[key] = together(inner, depth + 1)
        elif values:
            texts = [v for v in dict.fromkeys(values) if isinstance(v, str) and v != "???" and "${" not in v]
            found[key] = Offered(tuple(texts[:MOST_VALUES]))
        elif held and isinstance(held[0], Listed):
            found[key] = held[0]
    return found


def read_tree(m: Machine, folder: str, path: str) -> Tree | None:
    """What a YAML or JSON file says, found from a program's folder."""
    key = ("file", folder, path)
    if key not in m.project.kept:
        m.project.kept[key] = parsed(m, folder, path)
        m.project.looked_up.add(near(folder, path) or os.path.join(folder, path))
    return m.project.kept[key]  # type: ignore[return-value]


def parsed(m: Machine, folder: str, path: str) -> Tree | None:
    """A file's mapping, or None where there is no such file or it holds something else."""
    if path.endswith(".toml"):
        return of_toml(m, near(folder, path))
    if not path.endswith(".json"):
        reader = Reader(folder)
        found = reader.loaded(path)
        m.project.looked_up.update(reader.paths)
        return found.tree if found is not None else None
    place = near(folder, path)
    m.project.looked_up.update([place] if place is not None else [])
    text = text_of(place) if place is not None else None
    if text is None or place is None:
        return None
    from mplint.configs.json_text import parse_json
    from mplint.python.document import InputError

    tree: Tree = {}
    try:
        merge(tree, parse_json(text), place)
    except InputError:
        return None
    return tree


def of_toml(m: Machine, place: str | None) -> Tree | None:
    """The mapping of a TOML file."""
    m.project.looked_up.update([place] if place is not None else [])
    text = text_of(place) if place is not None else None
    try:
        return tree_of(tomllib.loads(text), place) if text is not None and place is not None else None
    except tomllib.TOMLDecodeError:
        return None


def tree_of(held: Mapping[str, object], path: str) -> Tree:
    """A mapping as configuration files hold them."""
    found: Tree = {}
    for key, value in held.items():
        if isinstance(value, dict):
            found[key] = tree_of(value, path)
        elif isinstance(value, (bool, int, float, str)):
            found[key] = Given(value, path)
    return found


SETTINGS = frozenset(
    ["cfg", "cfgs", "conf", "config", "configs", "configuration", "hparams", "hyperparameters", "opt", "options", "settings"]
)


@vocabulary.call(
    "yaml.safe_load",
    "yaml.load",
    "yaml.full_load",
    "yaml.unsafe_load",
    "omegaconf.OmegaConf.load",
    "json.load",
    "json.loads",
    "toml.load",
    "tomllib.load",
    "tomli.load",
    "mmcv.Config.fromfile",
    "mmengine.Config.fromfile",
    "mmengine.config.Config.fromfile",
    "ruamel.yaml.safe_load",
    "hjson.load",
    "commentjson.load",
)
def load_file(m: Machine, name: str, args: Args, place: Place) -> Value:
    known = load(m, args.get(0), place)
    if known is not None:
        return known
    if name.endswith("yaml_load_all") or (name.startswith("json.") and not is_called_settings(m, args.get(0))):
        return Unknown(f"json{IDENTITY}{place.path}:{place.position}")
    return root(m, "cfg", f"{place.path}:{place.position}", place)


def is_called_settings(m: Machine, path: Value | None) -> bool:
    """Whether the name of a file, or of what names it, says that it holds settings: JSON holds data as often."""
    atom = next(iter(atoms(path))) if path is not None else None
    if type(atom) is Object and atom.kind == "file":
        return is_called_settings(m, m.read(atom.id, "#path"))
    text = atom.value if type(atom) is Constant else atom.symbol.partition(IDENTITY)[0] if type(atom) is Unknown else ""
    return isinstance(text, str) and not SETTINGS.isdisjoint(words_of(text))


@vocabulary.call("builtins.open", "io.open", "codecs.open", "gzip.open")
def open_file(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object(("file", m.identity(place)), "file", "builtins.open", place)
    path = args.get(0, "file")
    m.write(made.id, "#path", path if path is not None else NONE)
    return made


@vocabulary.method(PATH, "open", "read_text", "read_bytes")
def open_path(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    return open_file(m, name, Args((receiver,)), place)


@vocabulary.method("file")
def of_file(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    """The methods of a file, and of the text that stands for it."""
    if name in ("read", "readlines", "__enter__"):
        return receiver
    if name in ("write", "writelines", "close", "flush", "seek", "truncate", "__exit__"):
        return NONE
    return Unknown(f"{name}(){IDENTITY}{place.path}:{place.position}")


# hydra


@vocabulary.call("hydra.main")
def hydra_main(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object(("hydra main", place), "hydra main", "hydra.main", place)
    m.write(made.id, "#path", args.get(0, "config_path") or NONE)
    m.write(made.id, "#name", args.get(1, "config_name") or NONE)
    return made


def with_configuration(m: Machine, value: Value, decorator: Atom, place: Place) -> Value | None:
    """`@hydra.main(…)` over a function: it gets the composed configuration."""
    if type(decorator) is not Object or decorator.kind != "hydra main" or type(value) not in (Function, Wrapped, Partial):
        return None
    found = composed(m, m.read(decorator.id, "#path"), m.read(decorator.id, "#name"), place)
    return Partial(value, (found,), ())


vocabulary.decorators.append(with_configuration)


def composed(m: Machine, folder: Value | None, name: Value | None, place: Place) -> Object:
    """What hydra composes: the project's files, a class that the program has registered, or settings that nobody knows."""
    home = os.path.dirname(place.path)
    below = spelled(folder, home)
    if type(name) is Constant and isinstance(name.value, str):
        if below is not None:
            tree = read_by_hydra(m, home, below, name.value)
            if tree is not None:
                return section(m, tree, "", f"{below}/{name.value}", place)
        registered = m.read(STORE, name.value.removesuffix(".yaml"))
        if type(registered) is Class:
            return open_instance(m, registered, place)
    elif name in (None, NONE) and below is not None:
        offering = offered_by_hydra(m, below, place)
        if offering is not None:
            return offering
    return root(m, "cfg", f"{place.path}:{place.position}", place)


def read_by_hydra(m: Machine, home: str, folder: str, name: str) -> Tree | None:
    """What hydra composes of one file for the programs in a folder, or None where it is not there."""
    key = ("hydra", home, folder, name)
    if key not in m.project.kept:
        reader = Reader(home)
        found = reader.composed(folder, name)
        m.project.looked_up.update(reader.paths)
        m.project.kept[key] = found.tree if found is not None else None
    return m.project.kept[key]  # type: ignore[return-value]


@vocabulary.call("hydra.compose", "hydra.experimental.compose")
def compose(m: Machine, name: str, args: Args, place: Place) -> Value:
    return composed(m, m.read(STORE, "#path"), args.get(0, "config_name"), place)


@vocabulary.call("hydra.initialize", "hydra.experimental.initialize")
def initialize(m: Machine, name: str, args: Args, place: Place) -> Value:
    m.write(STORE, "#path", args.get(0, "config_path") or NONE)
    return NONE


@vocabulary.call("hydra.core.config_store.ConfigStore.instance")
def config_store(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Object(STORE, "config store", "hydra.core.config_store.ConfigStore", place)


@vocabulary.method("config store")
def of_store(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    key, node = args.get(-1, "name") or args.get(0), args.get(-1, "node") or args.get(1)
    if name != "store":
        return Unknown(f"store.{name}(){IDENTITY}{place.path}:{place.position}")
    atom = next(iter(atoms(node))) if node is not None else None
    if type(atom) is Object and type(atom.type) is Class:
        atom = atom.type
    if type(key) is Constant and isinstance(key.value, str) and type(atom) is Class:
        m.write(STORE, key.value, atom)
    return NONE


__all__ = ["KIND", "vocabulary"]
