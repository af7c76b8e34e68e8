"""Programs of newer Pythons than the one that runs: what its parser cannot read gets words of the same width that it can.

Python 3.12 gave f-strings a grammar (PEP 701: any quotes, backslashes, comments and line ends within the braces) and names of types their
own syntax (PEP 695: `type Mode = str`, `def first[T](...)`, `class Box[T]`). An older parser is shown a parenthesized number in the place
of such a string, and no parameters of types. Every line and column stays; the strings are parsed on their own and put back into the tree.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ALIAS = re.compile(r"(\s*)type (\w+)(?=\s*=)")
_GENERIC = re.compile(r"\s*(?:(?:async\s+)?def\s+\w+|class\s+\w+|type\s+(?P<alias>\w+))\s*(?P<open>\[)")
_NEWER = re.compile(r"(?<!\w)(?:[fF][rR]?|[rR][fF])[\"']")
_STRING = re.compile(r"(?<!\w)(?P<prefix>[rRbBuUfF]{0,2})(?P<quote>\"\"\"|'''|\"|')")
_TOKEN = re.compile(r"\s+|\\\n|#[^\n]*|\w+|.", re.DOTALL)
_ENDS = {'"': r"\n", "'": r"\n", '"""': "", "'''": ""}  # what no string of these quotes holds
_REST = {quote: re.compile(rf"(?:\\.|(?!{quote})[^\\{end}])*{quote}", re.DOTALL) for quote, end in _ENDS.items()}
_LITERAL = re.compile(r"\\N\{[^}\n]*\}|\\(?![{}])(?:.|\n)|[^\\{}\"'\n]+|.|\n")
_SELF = re.compile(r"=\s*(?=[!:}])")
_CLOSING = {")": "(", "]": "[", "}": "{"}


class NotReadable(Exception):
    """A string that no Python reads."""


@dataclass(frozen=True, slots=True)
class Field:
    """What stands in braces of an f-string: where its expression is, its text where it shows itself (`{x=}`), and how it is shown."""

    start: int
    end: int
    shown: str
    conversion: int
    spec: tuple[str | Field, ...] | None


@dataclass(frozen=True, slots=True)
class String:
    """A string of a program: its place, and what an f-string is made of (None: no f-string)."""

    start: int
    end: int
    parts: tuple[str | Field, ...] | None = None


def tree_of(text: str) -> ast.Module:
    """The tree of a program that an older parser refuses; raises the SyntaxError of what is not new but wrong."""
    plain, strings = _without_strings(text)
    while True:
        try:
            tree = ast.parse(plain)
        except SyntaxError as error:
            lines = plain.split("\n")
            number = error.lineno or 0
            tried = _without_types(lines, number - 1) if 0 < number <= len(lines) else None
            if tried is None:
                raise
            plain = tried
        else:
            break
    if strings:
        _put_back(tree, strings)
    return tree


def _without_types(lines: list[str], at: int) -> str | None:
    """A program in which a line defines without parameters of types, or assigns to the name of a type; None where it does neither."""
    found = _ALIAS.match(lines[at])
    if found is not None:
        return "\n".join([*lines[:at], f"{found[1]}{found[2]}     {lines[at][found.end(2) :]}", *lines[at + 1 :]])
    text = "\n".join(lines)
    start = sum(len(line) + 1 for line in lines[:at])
    generic = _GENERIC.match(text, start)
    if generic is None:
        return None
    opened = generic.start("open")
    try:
        closed = _closing(text, opened)
    except NotReadable:
        return None
    inside = _blank(text[opened + 1 : closed])
    if generic["alias"]:
        word = text.index("type", start)
        return f"{text[:word]}(   {text[word + 4 : opened]} {inside}){text[closed + 1 :]}"
    after = re.compile(r"\s*\(").match(text, closed + 1)
    if after is None:
        return f"{text[:opened]}({inside}){text[closed + 1 :]}"
    return f"{text[:opened]}({inside}{_blank(text[closed : after.end()])}{text[after.end() :]}"


def _closing(text: str, at: int) -> int:
    """Where the bracket closes that stands at a place."""
    depth = 0
    for start, _ in _tokens(text, at):
        depth += (text[start] in "([{") - (text[start] in ")]}")
        if depth == 0:
            return start
    raise NotReadable


def _tokens(text: str, at: int) -> Iterator[tuple[int, String | None]]:
    """The words of a program from a place on, each with where it begins, strings as such; no white space and no comments."""
    while at < len(text):
        if _STRING.match(text, at):
            string = _string(text, at)
            yield at, string
            at = string.end
            continue
        found = _TOKEN.match(text, at)
        assert found is not None
        if text[at] not in "#\\" and not text[at].isspace():
            yield at, None
        at = found.end()


def _string(text: str, at: int) -> String:
    """The string that begins at a place."""
    opened = _STRING.match(text, at)
    if opened is None:
        raise NotReadable
    prefix, quote = opened["prefix"].lower(), opened["quote"]
    if "f" not in prefix:
        rest = _REST[quote].match(text, opened.end())
        if rest is None:
            raise NotReadable
        return String(at, rest.end())
    parts, end = _parts(text, opened.end(), quote, raw="r" in prefix)
    return String(at, end + len(quote), parts)


def _parts(text: str, at: int, quote: str, *, raw: bool, spec: bool = False) -> tuple[tuple[str | Field, ...], int]:
    """What an f-string, or how a field of it is shown, is made of, and where that ends."""
    parts: list[str | Field] = []
    literal: list[str] = []

    def flush() -> None:
        if literal:
            parts.append("".join(literal) if raw else _decoded(literal))
            literal.clear()

    while not text.startswith("}" if spec else quote, at):
        found = _LITERAL.match(text, at)
        if found is None or (found[0] == "\n" and len(quote) == 1) or (spec and text.startswith(quote, at)):
            raise NotReadable
        if found[0] in "{}" and text.startswith(found[0], at + 1) and not spec:
            literal.append(found[0])
            at += 2
        elif found[0] == "{":
            flush()
            field, at = _field(text, at + 1, quote, raw=raw)
            parts.append(field)
        elif found[0] == "}":
            raise NotReadable
        elif raw and found[0].startswith("\\N{"):  # a raw string has no names of characters: these braces are a field
            literal.append("\\N")
            at += 2
        else:
            literal.append(found[0])
            at = found.end()
    flush()
    return tuple(parts), at


def _decoded(pieces: list[str]) -> str:
    """The characters that some text of a string that is not raw stands for."""
    quoted = {'"': '\\"', "\n": "\\n", "\\": "\\\\"}
    try:
        return str(ast.literal_eval(f'"{"".join(quoted.get(piece, piece) for piece in pieces)}"'))
    except (SyntaxError, ValueError):
        raise NotReadable from None


def _field(text: str, at: int, quote: str, *, raw: bool) -> tuple[Field, int]:
    """The field whose expression begins at a place, and where it ends."""
    start = end = at
    brackets: list[str] = []
    for end, string in _tokens(text, at):  # `end`: where the expression ends
        mark = text[end]
        if string is not None:
            continue
        if not brackets and (mark in "}:" or (mark == "!" and text[end + 1 : end + 2] != "=")):
            break
        if not brackets and mark == "=" and text[end - 1] not in "=!<>" and _SELF.match(text, end):
            break
        if mark in "([{":
            brackets.append(mark)
        elif mark in _CLOSING and (not brackets or brackets.pop() != _CLOSING[mark]):
            raise NotReadable
    stop, shown, conversion, spec = end, "", -1, None
    if text.startswith("=", end):
        itself = _SELF.match(text, end)
        end = itself.end() if itself is not None else end
        shown = text[start:end]
    if text.startswith("!", end):
        named = re.compile(r"!\s*([rsa])\s*").match(text, end)
        if named is None:
            raise NotReadable
        conversion, end = ord(named[1]), named.end()
    if text.startswith(":", end):
        spec, end = _parts(text, end + 1, quote, raw=raw, spec=True)
    if not text.startswith("}", end):
        raise NotReadable
    if shown and conversion < 0 and spec is None:
        conversion = ord("r")
    return Field(start, stop, shown, conversion, spec), end + 1


def _without_strings(text: str) -> tuple[str, dict[tuple[int, int], ast.JoinedStr]]:
    """A program with a number in the place of every string that the parser cannot read, and these strings by where the numbers are."""
    found: dict[tuple[int, int], ast.JoinedStr] = {}
    if _NEWER.search(text) is None:
        return text, found
    pieces: list[str] = []
    done = 0
    try:
        for run in _runs(text):
            start, end = run[0].start, run[-1].end
            if all(string.parts is None for string in run) or _is_readable(text[start:end]):
                continue
            node = _joined(text, run)
            found[node.lineno, node.col_offset + 1] = node
            pieces += [text[done:start], "(0", _blank(text[start + 2 : end - 1]), ")"]
            done = end
    except (NotReadable, SyntaxError):
        return text, {}
    return "".join([*pieces, text[done:]]), found


def _runs(text: str) -> Iterator[list[String]]:
    """The strings of a program, those together that one expression joins; none that follows what no string can follow."""
    run: list[String] = []
    depth, last, done, follows = 0, "", 0, False
    for at, string in _tokens(text, 0):
        if run and (string is None or (depth == 0 and _ends_line(text, run[-1].end, at))):
            if not follows:
                yield run
            run, last = [], ""
        if string is not None:
            if not run:
                follows = _is_operand(last) and not (depth == 0 and _ends_line(text, done, at))
            run.append(string)
            continue
        word = _TOKEN.match(text, at)
        last, done = (word[0], word.end()) if word is not None else ("", at)
        depth += (last in ("(", "[", "{")) - (last in (")", "]", "}"))
    if run and not follows:
        yield run


def _is_operand(word: str) -> bool:
    """Whether a word is, or ends, what an operator may follow and a string may not."""
    return word in (")", "]", "}") or (word.isidentifier() and not keyword.iskeyword(word) and word not in keyword.softkwlist)


def _ends_line(text: str, start: int, end: int) -> bool:
    """Whether the statement ends between two places outside brackets."""
    return "\n" in re.sub(r"\\\n", "", text[start:end])


def _is_readable(string: str) -> bool:
    """Whether the parser takes a string as it stands."""
    try:
        ast.parse(f"({string})")
    except (SyntaxError, ValueError):
        return False
    return True


def _joined(text: str, run: list[String]) -> ast.JoinedStr:
    """The node of some strings that stand one after the other."""
    values: list[str | Field] = []
    for string in run:
        plain = ast.literal_eval(text[string.start : string.end]) if string.parts is None else ""
        if not isinstance(plain, str):
            raise NotReadable
        values += [plain] if string.parts is None else string.parts
    return _node(text, values, (*_place(text, run[0].start), *_place(text, run[-1].end)))


def _node(text: str, values: Iterable[str | Field], place: tuple[int, int, int, int]) -> ast.JoinedStr:
    """The node of an f-string at a place, as this Python makes them: what is in it stands where it stands."""
    nodes: list[ast.expr] = []
    for value in values:
        shown = value.shown if isinstance(value, Field) else value
        if shown and nodes and isinstance(before := nodes[-1], ast.Constant):
            before.value = f"{before.value!s}{shown}"
        elif shown:
            nodes.append(ast.Constant(shown))
        if isinstance(value, Field):
            spec = None if value.spec is None else _node(text, value.spec, place)
            nodes.append(ast.FormattedValue(_expression(text, value.start, value.end), value.conversion, spec))
    made = ast.JoinedStr(nodes)
    for node in (made, *nodes):
        node.lineno, node.col_offset, node.end_lineno, node.end_col_offset = place
    return made


def _expression(text: str, start: int, end: int) -> ast.expr:
    """The tree of an expression in a program, in its place."""
    line, column = _place(text, start)
    match tree_of(f"({text[start:end]}\n)").body:
        case [ast.Expr(node)]:
            pass
        case _:
            raise NotReadable
    if isinstance(node, ast.Tuple) and node.col_offset == 0:  # the parentheses are not its own
        if not node.elts:
            raise NotReadable
        node.lineno, node.col_offset = node.elts[0].lineno, node.elts[0].col_offset
        node.end_lineno, node.end_col_offset = node.elts[-1].end_lineno, node.elts[-1].end_col_offset
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr | ast.keyword | ast.arg):
            inner.col_offset += column - 1 if inner.lineno == 1 else 0
            inner.end_col_offset = (inner.end_col_offset or 0) + (column - 1 if inner.end_lineno == 1 else 0)
            inner.lineno += line - 1
            inner.end_lineno = (inner.end_lineno or 1) + line - 1
    return node


def _put_back(tree: ast.Module, strings: dict[tuple[int, int], ast.JoinedStr]) -> None:
    """Put strings into a tree, in the place of the numbers that stand for them."""
    for parent in list(ast.walk(tree)):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, list):
                value[:] = [_meant(item, strings) for item in value]
            elif isinstance(value, ast.Constant):
                setattr(parent, name, _meant(value, strings))


def _meant(node: object, strings: dict[tuple[int, int], ast.JoinedStr]) -> object:
    """The string that a number stands for, or what else a node is."""
    return strings.get((node.lineno, node.col_offset), node) if isinstance(node, ast.Constant) else node


def _blank(text: str) -> str:
    """Spaces that take as many bytes in every line."""
    return "\n".join(" " * len(line.encode()) for line in text.split("\n"))


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line (from 1) and column (from 0, in bytes) of a character."""
    return text.count("\n", 0, offset) + 1, len(text[text.rfind("\n", 0, offset) + 1 : offset].encode())
