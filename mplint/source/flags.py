"""Command-line flags and other settings of a script that its user may change."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from mplint.source.syntax import argument

if TYPE_CHECKING:
    from mplint.source.file import SourceFile


class Flag(NamedTuple):
    """One setting: its name ("dtype" for `--dtype`), where it is declared, and the strings it is known to take (default and choices).

    `switch`: it is on or off, a bool.
    """

    name: str
    node: ast.AST
    values: frozenset[str]
    switch: bool = False


def flags(file: SourceFile) -> list[Flag]:
    """The settings of a script: argparse and click options, and module-level strings where a configuration file is executed."""
    found = []
    for call in file.syntax.all(ast.Call):
        tail = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if tail in ("add_argument", "option"):
            names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.startswith("--")]
            taken = {text for k in ("default", "choices") for text in strings_in(argument(call, k))}
            action = strings_in(argument(call, "action")) + [k.arg for k in call.keywords if k.arg == "is_flag"]
            switch = any(word in ("store_true", "store_false", "is_flag") for word in action)
            found += [Flag(name.lstrip("-").replace("-", "_"), call, frozenset(taken), switch) for name in names[:1]]
    if any(isinstance(c.func, ast.Name) and c.func.id == "exec" and c.args for c in file.syntax.all(ast.Call)):
        for statement in file.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                    found.append(Flag(name, statement, frozenset([text])))
    return found


def strings_in(node: ast.expr | None) -> list[str]:
    """The string constants in an expression."""
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)] if node is not None else []
