"""Where the comments, the lines with code and the statements of an R program are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mplint.python.r.grammar import MissingGrammar, tree_of
from mplint.python.r.nodes import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

SIMPLE = frozenset({"call", "binary_operator", "extract_operator", "identifier", "namespace_operator", "string", "float", "integer"})
Comment = tuple[str, int, int]


def layout_of(text: str) -> tuple[list[Comment], list[int], list[tuple[int, int]]]:
    """Comments as (text, line, column), the lines with code, and the first and last lines of what is one line by its meaning.

    A statement over several lines is one: a pipe too, but not what has a block in it, of which the head alone counts.
    """
    try:
        root = tree_of(text).root_node
    except MissingGrammar:
        return [], [], []
    lines = text.split("\n")
    comments: list[Comment] = []
    code: set[int] = set()
    logical: dict[int, int] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "comment":
            line, column = node.start_point
            comments.append((text_of(node), line + 1, len(lines[line].encode()[:column].decode("utf-8", "ignore"))))
            continue
        if not node.children or node.type == "string":
            code.update(range(node.start_point[0] + 1, node.end_point[0] + 2))
        if node.parent is not None and node.parent.type in ("program", "braced_expression") and node.is_named:
            first, last = node.start_point[0] + 1, end_of(node)
            logical.setdefault(first, max(last, logical.get(first, 0)))
        stack += node.children
    code.discard(0)
    return (
        sorted(comments, key=lambda c: c[1:]),
        sorted(n for n in code if lines[n - 1].strip()),
        sorted(logical.items(), key=lambda pair: pair[1]),
    )


def end_of(node: Node) -> int:
    """The last line of a statement, or that of its head where it holds a block."""
    stack = [node]
    ends = [node.end_point[0] + 1]
    while stack:
        inner = stack.pop()
        if inner.type == "braced_expression":
            ends.append(inner.start_point[0] + 1)
        else:
            stack += inner.children
    return min(ends)
