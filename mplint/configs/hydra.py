"""The settings that a program reads from YAML files: what hydra composes, and what OmegaConf or a YAML library loads."""

from __future__ import annotations

import ast
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.suffixes import MAX_CONFIG

if TYPE_CHECKING:
    from mplint.configs.nodes import Constant, Entry, Mapping, Node, Scalar

SUFFIXES = (".yaml", ".yml")
MAX_FILES = 40  # of one composed configuration
MAX_DEPTH = 4
MAX_LISTED = 40  # items of a sequence
FOLDERS_UP = 4  # how far above a script the folder may lie that it is run in
PACKAGE = re.compile(r"\A(?:\s*#[^\n]*\n)*?\s*#\s*@package:?\s+(\S+)")


class Value(NamedTuple):
    """One value of a configuration, and the file that gives it."""

    constant: Constant
    path: str


Tree = dict[str, "Value | Tree | Listed"]


class Listed(NamedTuple):
    """A sequence of values and mappings."""

    items: tuple[Value | Tree, ...]


class Section(ast.Dict):
    """A mapping of configuration files, as the expression that a program's settings come from; `name` is its dotted name in them."""

    def __init__(self, tree: Tree, name: str = "") -> None:
        super().__init__(keys=[], values=[])
        self.tree = tree
        self.name = name
        self._known: dict[str, tuple[str, ast.expr] | None] = {}

    def entry(self, key: str) -> tuple[str, ast.expr] | None:
        """The name and the default of the setting under a key; None where the files have none, or leave it to their user."""
        if key not in self._known:
            self._known[key] = self._entry(key)
        return self._known[key]

    def _entry(self, key: str) -> tuple[str, ast.expr] | None:
        found = self.tree.get(key)
        name = f"{self.name}.{key}" if self.name else key
        if isinstance(found, dict):
            return name, Section(found, name)
        if not isinstance(found, Value) or (isinstance(found.constant, str) and (found.constant == "???" or "${" in found.constant)):
            return None
        return f"{os.path.basename(found.path)}: {name}", ast.Constant(
            found.constant, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0
        )


class Reader:
    """Reads configuration files for the program in `folder`; `paths` are those that it looked for, whether they are there or not."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.paths: list[str] = []

    def composed(self, config_path: str, name: str) -> Section | None:
        """What hydra composes of the file `name` in a folder beside the program, with the defaults that it lists."""
        if os.path.isabs(config_path) or "://" in config_path:
            return None
        tree: Tree = {}
        done = self._compose(os.path.normpath(os.path.join(self.folder, config_path)), name, tree, 0)
        return Section(tree) if done else None

    def loaded(self, path: str) -> Section | None:
        """What a YAML file says that the program names; its path counts from the folder that the program is run in, the nearest one."""
        place = near(self.folder, path) if path.endswith(SUFFIXES) else None
        root = self._root(place) if place is not None else None
        if root is None or place is None:
            return None
        tree: Tree = {}
        merge(tree, root, place)
        return Section(tree)

    def _compose(self, folder: str, name: str, tree: Tree, depth: int) -> bool:
        """Add what a file gives to `tree`, after (and before) what its list of defaults names."""
        path = os.path.join(folder, name if name.endswith(SUFFIXES) else f"{name}.yaml")
        root = self._root(path) if depth <= MAX_DEPTH and len(self.paths) < MAX_FILES else None
        if root is None:
            return False
        listed = next((e.value for e in entries(root) if e.key.value == "defaults"), None)
        own = False
        for item in getattr(listed, "items", ()):
            if getattr(item, "value", None) == "_self_":
                merge(tree, root, path)
                own = True
            else:
                self._default(folder, item, tree, depth)
        if not own:
            merge(tree, root, path)
        tree.pop("defaults", None)
        return True

    def _default(self, folder: str, item: Node, tree: Tree, depth: int) -> None:
        """Add what one entry of a list of defaults names: a file beside it, or the option of a group."""
        name = getattr(item, "value", None)
        if isinstance(name, str):
            self._compose(folder, name.lstrip("/"), tree, depth + 1)
            return
        for entry in entries(item):
            group, option = str(entry.key.value), getattr(entry.value, "value", None)
            if group.startswith("override ") or not isinstance(option, str):
                continue
            group = group.removeprefix("optional ").lstrip("/")
            home, _, package = group.partition("@")
            inner: Tree = {}
            place = os.path.join(folder, home)
            if not self._compose(place, option, inner, depth + 1):
                continue
            parts = (package or self._package(os.path.join(place, option)) or home).replace("/", ".").split(".")
            target = tree
            for part in parts if parts != ["_global_"] else []:
                held = target.setdefault(part, {})
                target = held if isinstance(held, dict) else target
            join(target, inner)

    def _package(self, path: str) -> str:
        """Where the header of a file says that its values go, "" where it does not say."""
        match = PACKAGE.match(text_of(path if path.endswith(SUFFIXES) else f"{path}.yaml") or "")
        return match[1].replace("_group_", "") if match else ""

    def _root(self, path: str) -> Node | None:
        """The first document of a file, or None."""
        self.paths.append(path)
        text = text_of(path)
        if text is None:
            return None
        from mplint.configs.yaml_text import parse_yaml
        from mplint.python.document import InputError

        try:
            return next(iter(parse_yaml(text)), None)
        except InputError:
            return None


def near(folder: str, path: str) -> str | None:
    """The one file that a relative path means which counts from `folder` or from a folder around it; None for none or several."""
    if os.path.isabs(path):
        return None
    folder = os.path.abspath(folder) if folder.startswith("..") else folder
    found = []
    for _ in range(FOLDERS_UP):
        place = os.path.normpath(os.path.join(folder, path))
        if os.path.isfile(place):
            found.append(place)
        if not folder:
            break
        folder = os.path.dirname(folder)
    return found[0] if len(found) == 1 else None


def text_of(path: str) -> str | None:
    """The text of a configuration file of sensible size; None for anything else."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_CONFIG:
            return None
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def entries(node: Node) -> tuple[Entry, ...]:
    """The entries of a mapping; none for anything else."""
    return getattr(node, "entries", ())


def merge(tree: Tree, node: Node, path: str) -> None:
    """Add the values of a mapping to `tree`, in place of those that are there."""
    from mplint.configs.nodes import Mapping, Scalar, Sequence

    for entry in entries(node):
        key = str(entry.key.value)
        if isinstance(entry.value, Mapping):
            held = tree.get(key)
            inner: Tree = held if isinstance(held, dict) else {}
            merge(inner, entry.value, path)
            tree[key] = inner
        elif isinstance(entry.value, Scalar):
            tree[key] = Value(entry.value.value, path)
        elif isinstance(entry.value, Sequence) and len(entry.value.items) <= MAX_LISTED:
            tree[key] = Listed(tuple(listed(item, path) for item in entry.value.items if isinstance(item, (Mapping, Scalar))))
        else:
            tree.pop(key, None)


def listed(item: Mapping | Scalar, path: str) -> Value | Tree:
    """An item of a sequence."""
    if not hasattr(item, "entries"):
        return Value(item.value, path)
    inner: Tree = {}
    merge(inner, item, path)
    return inner


def join(tree: Tree, other: Tree) -> None:
    """Add one tree to another, in place of what is there."""
    for key, value in other.items():
        held = tree.get(key)
        if isinstance(held, dict) and isinstance(value, dict):
            join(held, value)
        else:
            tree[key] = value
