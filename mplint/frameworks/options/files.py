"""Configuration files of the project as values: hydra's composition, and YAML or JSON files that the program names."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mplint.configs.hydra import Reader, Tree, merge, near, text_of
from mplint.configs.hydra import Value as Given
from mplint.frameworks.options.classes import open_instance
from mplint.frameworks.options.namespaces import KIND, leaf, namespace, put
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.values import (
    NONE,
    Atom,
    Class,
    Constant,
    Function,
    Object,
    Partial,
    Place,
    Unknown,
    Value,
    Wrapped,
    atoms,
)
from mplint.python.suffixes import SUFFIXES

vocabulary = Vocabulary()
STORE = ("hydra", "config store")

# trees of files as values


def section(m: Machine, tree: Mapping[str, object], name: str, identity: str, place: Place) -> Object:
    """A namespace of what files say: each value a default that its user may replace."""
    made = namespace(m, ("file", identity, name), "omegaconf.DictConfig", place, name, rest=True)
    for key, held in tree.items():
        dotted = f"{name}.{key}" if name else key
        if isinstance(held, dict):
            put(m, made, key, section(m, held, dotted, identity, place))
        elif isinstance(held, Given):
            value = held.constant
            unset = isinstance(value, str) and (value == "???" or "${" in value)
            switch = Switch(dotted, None if unset else Constant(value), place, "setting")
            put(m, made, key, leaf(m, dotted, f"file:{identity}", switch))
    return made


def root(m: Machine, name: str, identity: str, place: Place) -> Object:
    """Settings of a file that nobody can read."""
    return namespace(m, ("file", identity), "omegaconf.DictConfig", place, name, rest=True)


def load(m: Machine, path: Value | None, place: Place, name: str = "") -> Object | None:
    """The settings of a file whose path the program spells out, or has as an option's default; None for any other."""
    atom = next(iter(atoms(path))) if path is not None else None
    if type(atom) is Object and atom.kind == "file":
        return load(m, m.read(atom.id, "#path"), place, name)
    if type(atom) is Unknown and (switch := m.switches.get(atom.symbol)) is not None:
        atom = switch.default if type(switch.default) is Constant else None
    if type(atom) is not Constant or not isinstance(atom.value, str) or not atom.value.endswith(SUFFIXES):
        return None
    tree = read_tree(m, os.path.dirname(place.path), atom.value)
    return section(m, tree, name, atom.value, place) if tree is not None else None


def read_tree(m: Machine, folder: str, path: str) -> Tree | None:
    """What a YAML or JSON file says, found from a program's folder."""
    key = ("file", folder, path)
    if key not in m.project.kept:
        m.project.kept[key] = parsed(m, folder, path)
        m.project.looked_up.add(near(folder, path) or os.path.join(folder, path))
    return m.project.kept[key]  # type: ignore[return-value]


def parsed(m: Machine, folder: str, path: str) -> Tree | None:
    """A file's mapping, or None where there is no such file or it holds something else."""
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
    if name.startswith("json.") or name.endswith("yaml_load_all"):
        return Unknown(f"json{IDENTITY}{place.path}:{place.position}")
    return root(m, "cfg", f"{place.path}:{place.position}", place)


@vocabulary.call("builtins.open", "io.open", "codecs.open", "gzip.open")
def open_file(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object(("file", m.identity(place)), "file", "builtins.open", place)
    path = args.get(0, "file")
    m.write(made.id, "#path", path if path is not None else NONE)
    return made


@vocabulary.method("file")
def of_file(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    if name in ("read", "readlines", "__enter__"):
        return receiver
    return NONE


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
    if type(name) is Constant and isinstance(name.value, str):
        if type(folder) is Constant and isinstance(folder.value, str):
            key = ("hydra", os.path.dirname(place.path), folder.value, name.value)
            if key not in m.project.kept:
                reader = Reader(os.path.dirname(place.path))
                read = reader.composed(folder.value, name.value)
                m.project.looked_up.update(reader.paths)
                m.project.kept[key] = read.tree if read is not None else None
            tree = m.project.kept[key]
            if isinstance(tree, dict):
                return section(m, tree, "", f"{folder.value}/{name.value}", place)
        registered = m.read(STORE, name.value.removesuffix(".yaml"))
        if type(registered) is Class:
            return open_instance(m, registered, place)
    return root(m, "cfg", f"{place.path}:{place.position}", place)


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
