"""Expressions of R as expressions of the program; what R evaluates inside of an expression, and Python can't, goes before its statement."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from mplint.python.r.functions import MODULES
from mplint.python.r.nodes import arguments_of, at, body_of, constant, field, named, number, parts, string, text_of, tuple_of, word

if TYPE_CHECKING:
    from tree_sitter import Node

Sink = Callable[[ast.expr, "Node"], ast.stmt]  # what becomes of a value

ASSIGNS = frozenset({"<-", "=", "<<-", ":=", "%<-%", "%<>%"})
ASSIGNS_RIGHT = frozenset({"->", "->>", "%->%"})
PIPES = frozenset({"%>%", "|>", "%T>%", "%!>%"})
ARITHMETIC: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "^": ast.Pow, "**": ast.Pow, "%%": ast.Mod, "%/%": ast.FloorDiv,
    "%*%": ast.MatMult,
}  # fmt: skip
COMPARED: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "%in%": ast.In,
}  # fmt: skip
CONSTANTS = {"true": True, "false": False, "null": None, "na": None, "inf": float("inf"), "nan": float("nan")}
LOGICAL = {"T": True, "F": False}
BLOCKS = frozenset({"braced_expression", "for_statement", "while_statement", "repeat_statement", "next", "break"})
PLACEHOLDERS = frozenset({".", "_"})


class Expressions:
    """Translates expressions; `pending` are statements that go before the one that is being translated."""

    def __init__(self) -> None:
        self.pending: list[ast.stmt] = []

    def into(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        """The statements of an R expression, whose value goes into `sink`."""
        raise NotImplementedError

    def call(self, node: Node, piped: Node | None, whole: Node) -> ast.expr:
        """A call; `piped` is what stands before it in a pipe, which `whole` is."""
        raise NotImplementedError

    def function(self, node: Node) -> ast.expr:
        """A function without a name."""
        raise NotImplementedError

    def expr(self, node: Node) -> ast.expr:
        """One expression."""
        kind = node.type
        if kind in CONSTANTS:
            return constant(CONSTANTS[kind], node)
        method = getattr(self, "e_" + kind, None)
        if method is not None:
            return method(node)  # type: ignore[no-any-return]
        return self.hoisted(node) if hasattr(self, "s_" + kind) else constant(None, node)

    def hoisted(self, node: Node) -> ast.expr:
        """The value of what is no expression in Python, computed before."""
        name = f"value at {node.start_point[0] + 1}:{node.start_point[1]}"
        self.pending += self.into(node, lambda value, place: at(ast.Assign([named(name, place, store=True)], value), place))
        found = named(name, node)
        found.spelled = text_of(node)  # type: ignore[attr-defined]
        return found

    def e_identifier(self, node: Node) -> ast.expr:
        text = word(node)
        return constant(LOGICAL[text], node) if text in LOGICAL else named(text, node)

    def e_dots(self, node: Node) -> ast.expr:
        return at(ast.Starred(named("...", node), ast.Load()), node)

    def e_dot_dot_i(self, node: Node) -> ast.expr:
        return named("...", node)

    def e_integer(self, node: Node) -> ast.expr:
        return constant(number(text_of(node)), node)

    e_float = e_complex = e_integer

    def e_string(self, node: Node) -> ast.expr:
        return constant(string(node), node)

    def e_parenthesized_expression(self, node: Node) -> ast.expr:
        inner = parts(node.children)
        return self.expr(inner[0]) if inner else constant(None, node)

    def e_call(self, node: Node) -> ast.expr:
        return self.call(node, None, node)

    def e_function_definition(self, node: Node) -> ast.expr:
        return self.function(node)

    def e_braced_expression(self, node: Node) -> ast.expr:
        inner = body_of(node)
        return self.expr(inner[0]) if len(inner) == 1 and inner[0].type not in BLOCKS else self.hoisted(node)

    def e_if_statement(self, node: Node) -> ast.expr:
        first, other = field(node, "consequence"), node.child_by_field_name("alternative")
        if any(len(body_of(arm)) > 1 for arm in (first, other) if arm is not None):
            return self.hoisted(node)
        orelse = self.expr(other) if other is not None else constant(None, node)
        return at(ast.IfExp(self.expr(field(node, "condition")), self.expr(first), orelse), node)

    def e_extract_operator(self, node: Node) -> ast.expr:
        """`x$name`, `x@name`."""
        owner, member = field(node, "lhs"), node.child_by_field_name("rhs")
        if member is None:
            return self.expr(owner)
        name = string(member) if member.type == "string" else word(member)
        if owner.type == "identifier" and text_of(owner) == "super":
            value: ast.expr = at(ast.Call(named("super", owner), [], []), owner)
            name = "__init__" if name == "initialize" else name
        else:
            value = self.expr(owner)
        return at(ast.Attribute(value, name, ast.Load()), node)

    def e_namespace_operator(self, node: Node) -> ast.expr:
        """`package::name`."""
        package, name = node.child_by_field_name("lhs"), node.child_by_field_name("rhs")
        if package is None or name is None:
            return constant(None, node)
        if MODULES.get(word(package)) == word(name):
            return named(word(name), node)
        return at(ast.Attribute(named(word(package), package), word(name), ast.Load()), node)

    def e_subset2(self, node: Node) -> ast.expr:
        """`x[["name"]]`, `x[[1]]`: R counts from 1."""
        given = [self.index(argument) for argument in arguments_of(node)]
        inside = field(node, "arguments").children
        if len(inside) > 2 and inside[-2].type == "comma":  # `x[i, ]`
            given.append(at(ast.Slice(), inside[-2]))
        index = given[0] if len(given) == 1 else tuple_of(given, node)
        return at(ast.Subscript(self.expr(field(node, "function")), index, ast.Load()), node)

    e_subset = e_subset2

    def index(self, argument: Node) -> ast.expr:
        """An index, counted from 0."""
        value = argument.child_by_field_name("value")
        if value is None:
            return at(ast.Slice(), argument)
        found = self.expr(value)
        if isinstance(found, ast.Constant) and isinstance(found.value, int) and found.value > 0 and found.value is not True:
            return constant(found.value - 1, value)
        return found

    def e_unary_operator(self, node: Node) -> ast.expr:
        op, operand = text_of(node.child_by_field_name("operator")), field(node, "rhs")
        if op == "~":  # purrr's short functions
            return at(ast.Lambda(no_arguments(".x", ".y"), self.inside(operand)), node)
        value = self.expr(operand)
        if op == "!":
            return at(ast.UnaryOp(ast.Not(), value), node)
        return at(ast.UnaryOp(ast.USub() if op == "-" else ast.UAdd(), value), node)

    def inside(self, node: Node) -> ast.expr:
        """An expression of an inner scope; what would have to go before it is lost."""
        kept, self.pending = self.pending, []
        try:
            return self.expr(node)
        finally:
            self.pending = kept

    def e_binary_operator(self, node: Node) -> ast.expr:
        op, left, right = text_of(node.child_by_field_name("operator")), field(node, "lhs"), field(node, "rhs")
        if op in PIPES:
            return self.pipe(node, left, right)
        if op in ASSIGNS or op in ASSIGNS_RIGHT:
            target, value = (left, right) if op in ASSIGNS else (right, left)
            if target.type == "identifier" and value.type not in BLOCKS and op not in ("%<>%", "<<-", "->>"):
                return at(ast.NamedExpr(named(word(target), target, store=True), self.expr(value)), node)
            self.pending += self.into(node, None)
            return self.expr(target)
        if op in COMPARED:
            return at(ast.Compare(self.expr(left), [COMPARED[op]()], [self.expr(right)]), node)
        if op in ("&", "&&", "|", "||", "%||%"):
            return at(ast.BoolOp(ast.And() if op[0] == "&" else ast.Or(), [self.expr(left), self.expr(right)]), node)
        if op == ":":
            return self.counted(node, self.expr(left), self.expr(right))
        if op in ARITHMETIC:
            return at(ast.BinOp(self.expr(left), ARITHMETIC[op](), self.expr(right)), node)
        return at(ast.Call(named(op, node), [self.expr(left), self.expr(right)], []), node)

    def counted(self, node: Node, first: ast.expr, last: ast.expr) -> ast.expr:
        """`1:n`."""
        if isinstance(last, ast.Constant) and isinstance(last.value, int):
            end: ast.expr = ast.copy_location(ast.Constant(last.value + 1), last)
        else:
            end = ast.copy_location(ast.BinOp(last, ast.Add(), constant(1, node)), last)
        return at(ast.Call(named("range", node), [first, end], []), node)

    def pipe(self, node: Node, left: Node, right: Node) -> ast.expr:
        """`x %>% f(y)`: f(x, y)."""
        while right.type == "parenthesized_expression" and len(inner := parts(right.children)) == 1:
            right = inner[0]
        if right.type == "call":
            return self.call(right, left, node)
        if right.type == "braced_expression":
            self.pending.append(at(ast.Assign([named(".", left, store=True)], self.expr(left)), left))
            return self.expr(right)
        return self.apply(right, left, node)

    def apply(self, right: Node, left: Node, whole: Node) -> ast.expr:
        """`x %>% f`."""
        return at(ast.Call(self.expr(right), [self.expr(left)], []), right)


def no_arguments(*names: str) -> ast.arguments:
    """The parameters of a function, each of which may be left out."""
    made = [ast.arg(name, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0) for name in names]
    nothing: list[ast.expr] = [ast.Constant(None, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0) for _ in names]
    return ast.arguments(posonlyargs=[], args=made, vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=nothing)
