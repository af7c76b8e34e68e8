"""Importing a module gives the same the second time as the first, whatever was kept of it."""

from __future__ import annotations

import ast

import pytest

from mplint.frameworks.known import frameworks
from mplint.program.interpreter import interpreter
from mplint.program.lower import lower
from mplint.program.machine import Machine
from mplint.program.modules import ImportGraph
from mplint.program.project import Project
from mplint.program.values import Constant, Entries, Object, Value, atoms

FILES = {
    "pkg/__init__.py": "",
    "pkg/table.py": "MODELS = {}\ndef register(name):\n    def add(f):\n        MODELS[name] = f\n        return f\n    return add\n",
    "pkg/one.py": "from pkg.table import register\n@register('one')\ndef one(): return 1\n",
    "pkg/two.py": "from pkg.table import register\n@register('two')\ndef two(): return 2\n",
    "pkg/flag.py": "VALUE = 1\n",
    "pkg/reader.py": "import pkg.flag\nSEEN = pkg.flag.VALUE\n",
    "pkg/ring.py": "A = 1\nfrom pkg.gnir import B\nC = B\n",
    "pkg/gnir.py": "from pkg.ring import A\nB = A + 1\nif B: pass\n",
}


def machine() -> Machine:
    names = {path: ("pkg.table", "pkg.flag", "pkg.gnir", "pkg.ring") for path in FILES}
    project = Project(FILES, lambda path: lower(ast.parse(FILES[path])), graph=ImportGraph(names))
    return interpreter(project, frameworks(), 10_000)


def imported(m: Machine, *paths: str) -> Machine:
    m.run(lambda: [m.import_path(path) for path in paths] and None)
    return m


def keys(m: Machine) -> set[object]:
    table = m.read("pkg/table.py", "MODELS")
    assert isinstance(table, Object)
    held = m.read(table.id, "#entries")
    return {key for atom in atoms(held) if type(atom) is Entries for key, _ in atom.entries} if held is not None else set()


def value(m: Machine, path: str, name: str) -> Value | None:
    return m.read(path, name)


def test_second_import_leaves_what_the_first_left() -> None:
    m = imported(machine(), "pkg/one.py")
    first = dict(m.store.slots)
    imported(m, "pkg/one.py")
    assert dict(m.store.slots) == first
    fresh = imported(machine(), "pkg/one.py")
    assert set(fresh.store.slots) == set(first)


def test_import_whose_room_its_own_imports_take_leaves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mplint.program.imported.MAX_SLOTS", 1)
    m = imported(machine(), "pkg/one.py")
    assert keys(m) == {"one"}
    assert keys(imported(m, "pkg/one.py")) == {"one"}


def test_modules_add_to_a_table_in_any_order() -> None:
    m = imported(machine(), "pkg/one.py", "pkg/two.py")
    assert keys(m) == {"one", "two"}
    assert keys(imported(m, "pkg/two.py")) == {"two"}
    assert keys(imported(m, "pkg/two.py", "pkg/one.py")) == {"one", "two"}


def test_module_runs_again_where_what_it_reads_has_changed() -> None:
    m = imported(machine(), "pkg/reader.py")
    assert value(m, "pkg/reader.py", "SEEN") == Constant(1)

    def changed() -> None:
        m.import_path("pkg/flag.py")
        m.write("pkg/flag.py", "VALUE", Constant(2))
        m.import_path("pkg/reader.py")

    m.run(changed)
    assert value(m, "pkg/reader.py", "SEEN") == Constant(2)


def test_circular_imports_give_what_they_give_alone() -> None:
    for order in (("pkg/ring.py", "pkg/gnir.py"), ("pkg/gnir.py", "pkg/ring.py")):
        m = machine()
        imported(m, *order)
        first = dict(m.store.slots)
        imported(m, "pkg/one.py")
        assert dict(imported(m, *order).store.slots) == first
