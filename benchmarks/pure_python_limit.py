"""The least that a checker in pure Python has to do: read each file, parse it, look at every node once.

    python pure_python_limit.py < PATHS

PATHS holds one path a line. Prints the number of files, of files that do not parse, and of nodes.
"""

import ast
import sys
from collections.abc import Iterable


def read_parse_walk(paths: Iterable[str]) -> tuple[int, int, int]:
    """Return (files, files that do not parse, nodes)."""
    files = broken = nodes = 0
    for path in paths:
        files += 1
        with open(path, "rb") as stream:
            source = stream.read()
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            broken += 1
            continue
        nodes += walk(tree)
    return files, broken, nodes


def walk(tree: ast.AST) -> int:
    """Visit every node below `tree` with an explicit stack; return how many there are."""
    count = 0
    stack = [tree]
    pop, push, node_type = stack.pop, stack.append, ast.AST
    while stack:
        node = pop()
        count += 1
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, node_type):
                        push(item)
            elif isinstance(value, node_type):
                push(value)
    return count


if __name__ == "__main__":
    print(*read_parse_walk(sys.stdin.read().splitlines()))
