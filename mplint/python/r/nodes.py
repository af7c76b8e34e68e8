"""Making syntax nodes at the places of R text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tree_sitter import Node

N = TypeVar("N", bound=ast.AST)


def at(made: N, first: Node, last: Node | None = None) -> N:
    """A node with the place from `first` to `last`, columns in bytes."""
    last = last or first
    made.lineno, made.col_offset = first.start_point[0] + 1, first.start_point[1]  # type: ignore[attr-defined]
    made.end_lineno, made.end_col_offset = last.end_point[0] + 1, last.end_point[1]  # type: ignore[attr-defined]
    return made


def named(text: str, node: Node, *, store: bool = False) -> ast.Name:
    """A name at a place."""
    return at(ast.Name(text, ast.Store() if store else ast.Load()), node)


def dotted(path: str, node: Node) -> ast.expr:
    """A dotted name that one word of R stands for; its parts are spelled nowhere in the text."""
    head, *rest = path.split(".")
    found: ast.expr = named(head, node)
    for part in rest:
        spelled(found)
        found = at(ast.Attribute(found, part, ast.Load()), node)
    return found


def spelled(node: ast.expr) -> None:
    """Mark a node that no text stands for: it takes up no room at its place."""
    node.spelled = ast.unparse(node)  # type: ignore[attr-defined]
    node.end_lineno, node.end_col_offset = node.lineno, node.col_offset


def constant(value: object, node: Node) -> ast.Constant:
    """A constant at a place."""
    return at(ast.Constant(value), node)  # type: ignore[arg-type]


def text_of(node: Node | None) -> str:
    """The text of a node."""
    return (node.text or b"").decode("utf-8", "surrogatepass") if node is not None else ""


def word(node: Node) -> str:
    """An identifier, without the quotes that it may be written in."""
    return text_of(node).strip("`")


def field(node: Node, name: str) -> Node:
    """A part of a node that its kind always has."""
    found = node.child_by_field_name(name)
    return found if found is not None else node


def parts(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that are code: no brackets, separators or comments."""
    return [node for node in nodes if node.is_named and node.type not in ("comment", "comma")]


def body_of(node: Node) -> list[Node]:
    """The expressions in braces, or the one that stands without them."""
    return parts(node.children) if node.type in ("braced_expression", "program") else [node]


def arguments_of(node: Node) -> list[Node]:
    """The arguments of a call or of brackets."""
    return [child for child in field(node, "arguments").children if child.type == "argument"]


def string(node: Node) -> str:
    """The value of a string."""
    text = text_of(node)
    if text[:1] in "rR":
        inner = text[2:-1].strip("-")
        return inner[1:-1]
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    try:
        found = ast.literal_eval('"""' + inner.replace('"', '\\"') + '"""')
        return found if isinstance(found, str) else inner
    except (SyntaxError, ValueError):
        return inner


def number(text: str) -> complex:
    """The value of a number; whole ones written without a point are integers, as Keras takes them."""
    if text.endswith("i"):
        return complex(0, float(text[:-1]))
    text = text.rstrip("L")
    if text[:2].lower() == "0x":
        return int(text, 16) if "." not in text and "p" not in text.lower() else float.fromhex(text)
    value = float(text)
    return int(text) if text.isdigit() else value


def tuple_of(values: Sequence[ast.expr], node: Node, *, store: bool = False) -> ast.Tuple:
    """Several values."""
    return at(ast.Tuple(list(values), ast.Store() if store else ast.Load()), node)
