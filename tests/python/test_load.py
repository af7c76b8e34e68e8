"""Reading a .py file: encodings, line ends, and every way in which it can be no program."""

from __future__ import annotations

import ast
import gc
import pickle
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mplint.findings import Location, Span
from mplint.python.document import Cell, Document, InputError
from mplint.python.load import MAX_PROGRAM, decode, load
from mplint.python.parse import parse


def failure(data: bytes) -> InputError:
    """The error that reading and parsing `data` gives."""
    with pytest.raises(InputError) as caught:
        parse(load("a.py", data))
    return caught.value


def test_plain_utf8_is_the_program_itself() -> None:
    assert load("a.py", "x = 'é'\n".encode()).text == "x = 'é'\n"


def test_a_byte_order_mark_is_no_part_of_the_program() -> None:
    assert load("a.py", b"\xef\xbb\xbfx = 1\n").text == "x = 1\n"
    assert decode(b"\xef\xbb\xbfx = 1\r\n") == ("x = 1\r\n", "utf-8", True)


@pytest.mark.parametrize("ends", [b"\r\n", b"\r", b"\n"])
def test_every_line_end_becomes_a_newline(ends: bytes) -> None:
    assert load("a.py", b"x = 1" + ends + b"y = 2" + ends).text == "x = 1\ny = 2\n"


@pytest.mark.parametrize("cookie", [b"# -*- coding: latin-1 -*-\n", b"#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\n"])
def test_the_declared_encoding_is_used(cookie: bytes) -> None:
    assert "é" in load("a.py", cookie + b"x = '\xe9'\n").text


def test_a_cookie_below_code_is_a_comment() -> None:
    error = failure(b"x = 1\n# coding: latin-1\ny = '\xe9'\n")
    assert (error.line, error.column) == (3, 6)


def test_an_undecodable_byte_is_shown_at_its_place() -> None:
    error = failure("a = 1\nb = 'é".encode() + b"\xff'\n")
    assert (error.line, error.column) == (2, 7)
    assert "0xff" in error.message and "utf-8" in error.message


def test_utf16_is_named() -> None:
    assert "UTF-16" in failure("x = 1\n".encode("utf-16")).message


@pytest.mark.parametrize("name", ["no-such-codec", "hex", "rot13"])
def test_an_unknown_encoding_is_shown_at_the_cookie(name: str) -> None:
    error = failure(f"#!x\n# coding: {name}\nx = 1\n".encode())
    assert (error.line, error.column) == (2, 11)
    assert name in error.message


def test_a_mark_that_contradicts_the_cookie_is_refused() -> None:
    assert "byte order mark" in failure(b"\xef\xbb\xbf# coding: latin-1\n").message


def test_nul_bytes_are_shown_at_their_place() -> None:
    error = failure(b"x = 1\r\ny = \0 2\n")
    assert (error.line, error.column) == (2, 5)


def test_a_file_of_absurd_size_is_not_read() -> None:
    assert "bytes" in failure(b"#" * (MAX_PROGRAM + 1)).message


def test_a_syntax_error_is_shown_in_characters() -> None:
    error = failure("é = 1 1\n".encode())
    assert (error.line, error.column) == (1, 5) or (error.line, error.column) == (1, 7)
    assert "syntax error" in error.message


def test_a_type_statement_is_read_by_every_python() -> None:
    text = b"type Mode = str\nif Mode:\n    type Table  =  dict[str, Mode]\n"
    tree = parse(load("a.py", text))
    assert [(n.lineno, n.col_offset) for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "str"] == [(1, 12), (3, 24)]
    error = failure(text + b"last = = 1\n")
    assert (error.line, error.column) == (4, 8)


def test_python_2_is_recognized() -> None:
    assert "Python 2" in failure(b"import os\nprint 'x'\n").message
    assert "Python 2" in failure(b"swap = lambda (a, b): (b, a)\n").message


@pytest.mark.parametrize("text", ["x = " + "(" * 5000 + ")" * 5000, "x = " + "-" * 100_000 + "1", "x = 1\nx = " + "+".join("a" * 50_000)])
def test_absurd_nesting_is_an_error_with_a_place(text: str) -> None:
    error = failure(text.encode())
    assert error.line is not None
    assert "nested" in error.message


def test_warnings_of_the_parser_are_silent_and_collection_is_restored() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse(load("a.py", b"x = '\\d'\ny = 1 is 1\n"))
    assert gc.isenabled()
    gc.disable()
    try:
        parse(load("a.py", b"x = 1\n"))
        assert not gc.isenabled()
    finally:
        gc.enable()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_program_or_an_input_error(data: bytes) -> None:
    for path in ("a.py", "a.ipynb"):
        try:
            assert isinstance(parse(load(path, data)), ast.Module)
        except InputError as error:
            assert error.line is None or error.line >= 1
            assert error.column is None or error.column >= 1


@given(st.text(max_size=60), st.sampled_from(["\n", "\r\n", "\r"]))
def test_decoding_keeps_every_character(text: str, end: str) -> None:
    program = text.replace("\ufeff", "") + end + "x = 1"
    assert decode(program.encode("utf-8", "replace"), cookie=False).text == program.encode("utf-8", "replace").decode()


def test_errors_and_documents_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(InputError("bad", 2, 3, 4)))
    assert (error.message, error.line, error.column, error.cell) == ("bad", 2, 3, 4)
    assert error.location("a.ipynb") == Location("a.ipynb", 2, 3, 2, 4, 4)
    document = Document("a.py", "x = 1\n")
    assert pickle.loads(pickle.dumps(document)) == document


def test_places_and_spans_are_inverse() -> None:
    document = Document("a.ipynb", "a\nb\n\nc\nd", (Cell(1, 1), Cell(4, 4)))
    for line in (1, 2, 4, 5):
        span = Span(line, 0, line, 1)
        assert document.span(document.location(span)) == span
    assert document.location(Span(5, 0, 5, 1)) == Location("a.ipynb", 2, 1, 2, 2, 4)
    assert document.span(Location("a.ipynb", 1, 1, 1, 2, 3)) is None
    assert document.span(Location("a.ipynb", None, None, None, None)) is None
