"""Operators, and what they make of the constants of a program."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

Constant = bool | int | float | str | bytes | complex | None

BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
UNARY = {ast.Not: "not", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
OPERATORS: dict[str, Callable[[Any, Any], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
NUMBERS = (int, float, bool, complex)


class NotConstant(Exception):
    """The expression has no value that the program text fixes."""


def fold(op: str, left: object, right: object) -> Constant:
    """The constant that two constants give; raises NotConstant where Python raises, or the result is large."""
    function = OPERATORS.get(op)
    if function is None:
        raise NotConstant
    if op == "**" and not (isinstance(left, NUMBERS) and isinstance(right, NUMBERS) and abs(right) <= 400 and abs(left) < 1e12):
        raise NotConstant
    if op == "*" and (isinstance(left, (str, bytes, tuple)) or isinstance(right, (str, bytes, tuple))):
        raise NotConstant
    if op == "<<" and not (isinstance(right, int) and right < 128):
        raise NotConstant
    try:
        value = function(left, right)
    except Exception:
        raise NotConstant from None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 256:
        raise NotConstant
    if not isinstance(value, (*NUMBERS, str)):
        raise NotConstant
    return value


def fold_unary(op: str, value: object) -> Constant:
    """The same of one constant."""
    if op == "not" and isinstance(value, bool):
        return not value
    if op == "~" and isinstance(value, int):
        return ~int(value)
    if op not in ("-", "+") or not isinstance(value, NUMBERS):
        raise NotConstant
    return -value if op == "-" else +value
