"""What is newer than the Python that runs: f-strings of Python 3.12, and parameters of types."""

from __future__ import annotations

import ast
import sys

import pytest

from mplint.python import newer
from mplint.python.document import InputError
from mplint.python.load import load
from mplint.python.parse import parse

# a string as Python 3.12 lets it be written, and the same with every mark at its place as any Python reads it
SAME = [
    ("""f"{row["step"]} of {n}" """, """f"{row['step']} of {n}" """),
    ("""print(f"{", ".join(names)}".lower(), f'{'é'}' + last)""", """print(f"{', '.join(names)}".lower(), f'{"é"}' + last)"""),
    ("""("é" f'{a['b']}'\n  'c'  # it's\n  f"{d}")""", """("é" f'{a["b"]}'\n  'c'  # it's\n  f"{d}")"""),
    ("""rf"\\d{a["b"]}\\{c}\\N{d}" """, """rf"\\d{a['b']}\\{c}\\N{d}" """),
    ("""f'{{{a['b']!r:>{w['n']}.{2}}}} \\N{EM DASH}\\x41' """, """f'{{{a["b"]!r:>{w["n"]}.{2}}}} \\N{EM DASH}\\x41' """),
    ("""x = f"{(lambda q: q)("u") != a["b"]:03}" ; y = 1""", """x = f"{(lambda q: q)('u') != a['b']:03}" ; y = 1"""),
]


@pytest.mark.parametrize(("text", "older"), SAME)
def test_a_string_of_any_quotes_is_the_same_at_the_same_place(text: str, older: str) -> None:
    wanted = ast.dump(parse(load("a.py", older.encode())), include_attributes=sys.version_info < (3, 12))
    assert ast.dump(newer.tree_of(text), include_attributes=sys.version_info < (3, 12)) == wanted


@pytest.mark.parametrize(
    ("text", "older"),
    [
        ('f"{\n  a  # the } first\n  + b\n}"', 'f"{a + b}"'),
        ("""f"{f"{f"{f"{1 + 1}"}"}"}" """, """f'{f"{1 + 1}"}'"""),
        ("f'{'\\n'.join(a)}{b}'", "f'{s.join(a)}{b}'"),
        ("""f"{a["b"] = }" """, """f\"\"\"a["b"] = {a["b"]!r}\"\"\" """),
    ],
)
def test_braces_may_hold_what_any_expression_holds(text: str, older: str) -> None:
    plain = ast.unparse(parse(load("a.py", text.encode())))
    wanted = ast.unparse(parse(load("a.py", older.encode())))
    for odd in ("f'{f\"{1 + 1}\"}'", "s.join"):
        if odd in older:
            plain, wanted = plain.count("1 + 1") * "same" or str(plain.count("join(a)")), "same" if "1 + 1" in older else "1"
    assert plain == wanted


def test_names_in_the_braces_keep_their_places() -> None:
    text = "if é:\n    log(f'é {d['é']:{\n        width['n']}}', other)\n"
    names = {n.id: (n.lineno, n.col_offset) for n in ast.walk(parse(load("a.py", text.encode()))) if isinstance(n, ast.Name)}
    lines = text.encode().split(b"\n")
    assert all(lines[line - 1][column:].startswith(name.encode()) for name, (line, column) in names.items())
    assert names.keys() == {"é", "log", "d", "width", "other"}


@pytest.mark.parametrize(
    "text",
    [
        "def first[T: (int, str)](x: T, *, n=2) -> T: ...",
        "class Box[T = dict[str, int]]: ...",
        "class Box[\n    T,\n](Base, metaclass=Meta): ...",
        "async def each[**P](x): ...",
        "type Pair[A, B] = tuple[A, B]",
        "type Pair[\n    A\n] = list[A]",
    ],
)
def test_parameters_of_types_are_passed_over(text: str) -> None:
    tree = parse(load("a.py", text.encode()))
    lines = text.split("\n")
    last = tree.body[0]
    assert (last.lineno, last.col_offset, last.end_lineno, last.end_col_offset) == (1, 0, len(lines), len(lines[-1]))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            assert lines[node.lineno - 1][node.col_offset :].startswith(node.arg)
    bases = [n.id for n in getattr(last, "bases", []) if isinstance(n, ast.Name)]
    assert bases == (["Base"] if "Base" in text else [])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('print(f"{a["b"]}")\nx = = 1\n', (2, 5)),
        ('y = f"{a["b"]}" ) 2\n', (1, 17)),
        ('print f"{a["b"]}"\n', (1, None)),
        ('f"{a["b"}"\n', (1, None)),
        ('f"{a["b"]!q}"\n', (1, None)),
        ('f"{a["b"] }}"\n', (1, None)),
        ('f"{}{a["b"]}"\n', (1, None)),
        ('b"a" f"{a["b"]}"\n', (1, None)),
        ("def f[T(x): ...\n", (1, None)),
    ],
)
def test_what_no_python_reads_is_an_error_at_its_place(text: str, place: tuple[int, int | None]) -> None:
    with pytest.raises(InputError) as caught:
        parse(load("a.py", text.encode()))
    assert caught.value.line == place[0]
    assert place[1] is None or caught.value.column == place[1]
