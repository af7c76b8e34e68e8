"""Notebooks: cells become one program, and what is not Python goes without moving what is."""

from __future__ import annotations

import ast
import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mplint.findings import Span
from mplint.python.document import Cell, Document, InputError
from mplint.python.load import load
from mplint.python.magics import neutralize
from mplint.python.parse import parse


def notebook(*cells: str | list[str], **metadata: object) -> bytes:
    """A notebook of nbformat 4 with these code cells, a text cell before the second."""
    values: list[object] = [{"cell_type": "code", "source": source, "outputs": [], "metadata": {}} for source in cells]
    values.insert(1, {"cell_type": "markdown", "source": ["%matplotlib is text here"]})
    return json.dumps({"cells": values, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1).encode()


def read(*cells: str | list[str], **metadata: object) -> Document:
    """The document of a notebook that has no problems, parsed once to be sure."""
    document = load("n.ipynb", notebook(*cells, **metadata))
    assert document.problems == ()
    parse(document)
    return document


def test_code_cells_are_one_program_and_places_lead_back() -> None:
    document = read("import torch\nx = 1", ["y = x\n", "z = y"])
    assert document.text == "import torch\nx = 1\n\ny = x\nz = y"
    assert document.cells == (Cell(0, 1), Cell(2, 4))
    place = document.location(Span(5, 4, 5, 5))
    assert (place.cell, place.line, place.column) == (2, 2, 5)


def test_nbformat_3_counts_cells_over_worksheets() -> None:
    cells = [
        [{"cell_type": "heading", "source": "x"}, {"cell_type": "code", "input": ["a = 1"], "language": "python"}],
        [{"cell_type": "code", "input": "b = 2"}],
    ]
    data = json.dumps({"worksheets": [{"cells": sheet} for sheet in cells], "nbformat": 3}).encode()
    document = load("n.ipynb", data)
    assert document.text == "a = 1\n\nb = 2"
    assert [cell.index for cell in document.cells] == [1, 2]


@pytest.mark.parametrize(
    ("cell", "program"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!pip install torch\nx = 1", "pass\nx = 1"),
        ("!!ls", "pass"),
        ("if a:\n    !ls\nelse:\n\t%cd x", "if a:\n    pass\nelse:\n\tpass"),
        ("!pip install \\\n    torch \\\n    keras\nx = 1", "pass\n\n\nx = 1"),
        ("x = !ls -la 'don", "x = None"),
        ("a, b=%sql select 1", "a, b=None"),
        ("x = %time f(1)", "x =       f(1)"),
        ("%time x = f(1)", "0;    x = f(1)"),
        ("%time model.fit(\n  x)", "0;    model.fit(\n  x)"),
        ("%timeit -n 10 -r3 f(x)", "0;                f(x)"),
        ("%time for i in x: f(i)", "pass"),
        ("%time !ls", "pass"),
        ("%time", "pass"),
        ("%prun -s cumulative f()", "0;                  f()"),
        ("?model", "pass"),
        ("model.fit?", "pass"),
        ("if a:\n    model.fit??  # help", "if a:\n    pass"),
        ("get_ipython().system('ls')", "get_ipython().system('ls')"),
        ("x = '''\n%matplotlib\n!ls\nwhat?\n'''\n%cd", "x = '''\n%matplotlib\n!ls\nwhat?\n'''\npass"),
        ("x = ('a'\n% b)", "x = ('a'\n% b)"),
        ("x = a \\\n% b", "x = a \\\n% b"),
        ("x = 5 % 3 != 2  # why?", "x = 5 % 3 != 2  # why?"),
        ("x %= 3", "x %= 3"),
        ("s = 'a ? b'\nt = \"it's %s\" % s", "s = 'a ? b'\nt = \"it's %s\" % s"),
        ("%%time\nx = 1", "\nx = 1"),
        ("# a title\n\n%%capture out\n%%time\n!ls\nx = 1", "\n\n\n\npass\nx = 1"),
        ("%%bash\nfor f in *; do\ndone", "\n\n"),
        ("%%writefile a.py\nimport torch", "\n"),
        ("%%html\n<b>", "\n"),
        ("x = 1\n%%time\ny = 2", "x = 1\npass\ny = 2"),
        ("x = ...\n...", "x = ...\n..."),
    ],
)
def test_what_is_not_python_is_replaced_in_place(cell: str, program: str) -> None:
    assert neutralize(cell) == program
    ast.parse(program)


def test_the_lines_of_the_user_are_kept_for_the_reports() -> None:
    document = read("!ls\nx = 1", "y = %time f()")
    assert document.source == "!ls\nx = 1\n\ny = %time f()"
    assert document.text != document.source
    assert read("x = 1").raw == ""


def test_commands_without_a_percent_sign_are_magics_where_they_are_no_python() -> None:
    document = read("pip install torch\ncd data\nx = 1", "ls = 3\ntime = ls - 1")
    assert document.text == "pass\npass\nx = 1\n\nls = 3\ntime = ls - 1"


def test_a_language_behind_one_percent_sign_takes_the_whole_cell_where_it_is_no_python() -> None:
    document = read("%bash\nMODEL=$(ls $PWD | tail -1)\n", "# the table\n%sql\nselect 1", "%sql select 1\nx = 1")
    assert [line for line in document.text.split("\n") if line] == ["pass", "x = 1"]
    assert document.problems == ()


def test_an_indented_cell_is_legal_as_in_ipython() -> None:
    document = read("x = 1", "  y = x\n  z = y")
    assert document.text == "x = 1\nif True:\n  y = x\n  z = y"
    assert document.location(Span(3, 2, 3, 3)).line == 1


def test_the_prompts_of_a_pasted_session_are_taken_off_as_in_ipython() -> None:
    document = read("x = 1", "# a session\n>>> for i in x:\n...     f(i)\n...\n>>> g(x)", "In [3]: !ls\n   ...: h()")
    assert document.text.split("\n") == [
        *("x = 1", "if True:", "# a session", "    for i in x:", "        f(i)", "   ", "    g(x)"),
        *("if True:", "        pass", "        h()"),
    ]
    assert document.problems == ()
    assert document.location(Span(7, 4, 7, 8)).line == 5


def test_an_indented_first_cell_is_legal_too() -> None:
    assert read(">>> x = 1", "y = x").problems == ()


def test_top_level_await_and_return_are_left_alone() -> None:
    read("await f()", "async with a: pass", "return 1")


def test_a_broken_cell_is_a_problem_and_the_others_stay() -> None:
    document = load("n.ipynb", notebook("x = 1", "y = (\nz = 3 3", "print 'x'", "w = 4"))
    assert document.text == "x = 1\n\n\n\n\n\n\nw = 4"
    assert [(error.cell, error.line) for error in document.problems] == [(2, 1), (3, 1)]
    assert "Python 2" in document.problems[1].message
    assert document.location(Span(8, 0, 8, 1)).cell == 4


def test_a_cell_with_a_nul_or_a_lone_surrogate_is_a_problem() -> None:
    document = load("n.ipynb", notebook("x = 1", "y = '\0'", "z = '\ud800'"))
    assert [error.cell for error in document.problems] == [2, 3]
    document.source.encode()


def test_an_unclosed_bracket_does_not_reach_into_the_next_cell() -> None:
    document = load("n.ipynb", notebook("x = 1", "y = '''", "z = 1"))
    assert [error.cell for error in document.problems] == [2]
    assert document.text.endswith("z = 1")


@pytest.mark.parametrize(
    "metadata",
    [
        {"kernelspec": {"language": "R", "name": "ir"}},
        {"language_info": {"name": "julia"}},
        {"kernelspec": {"name": "julia-1.6"}},
        {"kernelspec": {"name": "ir", "display_name": "R"}},
    ],
)
def test_a_notebook_in_another_language_is_an_empty_program(metadata: dict[str, object]) -> None:
    document = load("n.ipynb", notebook("x <- 1", "y <- 2", **metadata))
    assert (document.text, document.cells, document.problems) == ("", (), ())


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_file_is_an_empty_program(data: bytes) -> None:
    document = load("n.ipynb", data)
    assert (document.text, document.cells, document.problems) == ("", (), ())


@pytest.mark.parametrize("metadata", [{"kernelspec": {"name": "iron-env"}}, {"language_info": {"name": "ipython"}}, {"kernelspec": 3}])
def test_any_other_kernel_is_python(metadata: dict[str, object]) -> None:
    assert read("x = 1", **metadata).text == "x = 1"


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b'{"cells": [\n  {"a": 1,}\n]}', 2, 11),
        (b"{'cells': []}", 1, 2),
        (b"[" * 100_000, 1, 1),
        (b"[1]", 1, 1),
        (b'{"a": 1}', 1, 1),
    ],
)
def test_a_broken_notebook_is_an_error_at_its_place(data: bytes, line: int, column: int) -> None:
    with pytest.raises(InputError) as caught:
        load("n.ipynb", data)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_large_pictures_do_not_hide_an_error_or_a_cell() -> None:
    picture = "iVBOR" * 300_000
    value = json.loads(notebook("x = 1"))
    value["cells"][0]["outputs"] = [{"data": {"image/png": picture}}]
    data = json.dumps(value)
    assert load("n.ipynb", data.encode()).text == "x = 1"
    with pytest.raises(InputError) as caught:
        load("n.ipynb", data[:-1].encode())
    assert caught.value.column == len(data)


PYTHON = [
    "x = 1",
    "if x:\n    y = f(x)",
    "s = '''\n%not magic\n!no\nwhy?\n'''",
    "z = (1,\n  2 % 3)",
    "# what?",
    "",
    "def f(a):\n\treturn a % 2",
    "t = 'é' \\\n  + x",
]
MAGIC = ["%matplotlib inline", "!ls 'a", "!pip install \\\n   x", "x?", "?x", "out = !ls (", "%cd ..", "%load_ext a"]


@given(st.lists(st.one_of(st.sampled_from(PYTHON).map(lambda s: (s, True)), st.sampled_from(MAGIC).map(lambda s: (s, False))), max_size=8))
@example([("x = 1", True), ("!ls", False)])
def test_neutralizing_keeps_every_line_and_column_of_the_python(parts: list[tuple[str, bool]]) -> None:
    source = "\n".join(text for text, _ in parts)
    program = neutralize(source)
    ast.parse(program)
    assert program.count("\n") == source.count("\n")
    lines = program.split("\n")
    at = 0
    for text, python in parts:
        height = text.count("\n") + 1
        if python:
            assert "\n".join(lines[at : at + height]) == text
        at += height


@given(st.text(alphabet="x=%!?'\"()#\\\n \t1;", max_size=40))
def test_neutralizing_any_text_keeps_its_lines_and_ends(source: str) -> None:
    assert neutralize(source).count("\n") == source.count("\n")


KEYS = st.sampled_from(["cells", "source", "cell_type", "metadata", "worksheets"])
JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda value: st.lists(value, max_size=3) | st.dictionaries(KEYS, value | st.just("code"), max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_document_or_an_input_error(value: object) -> None:
    with contextlib.suppress(InputError):
        parse(load("n.ipynb", json.dumps(value).encode()))
