"""Lowering: a module's syntax tree to nested tuples that marshal, with no names resolved.

An expression or statement is `(kind, place, …)`; `place` packs the source range into one integer (`span_of` unpacks it).
A function is `("function", place, name, parameters, body, locals, decorators, flags, words)`, a class
`("class", place, name, bases, keywords, decorators, body, words)`. `words` holds the identifiers that it uses, so that
code which can't concern a question is passed over, `name(keyword=` for each keyword that a call gives, and `.name=` for each attribute
that something else than `self` is given, and each global variable. What has no lowering becomes "unknown" with its parts, never nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from mplint.findings import Span
from mplint.python.folding import BINARY, UNARY

IR: TypeAlias = tuple[Any, ...]

GENERATOR = 1
ASYNC = 2
NESTS = 4  # functions or classes inside, which may read its variables
CASTING = frozenset({"half", "bfloat16", "to"})  # methods that cast what they are called on
SAME_OBJECT = frozenset({"cuda", "cpu", "to", "eval", "train", "requires_grad_"})  # methods of a model that give it back
SECTION_WORDS = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "steps_per_print", "torch_autocast"})  # as keys
DTYPE_WORDS = frozenset({"float16", "bfloat16", "mixed_float16", "mixed_bfloat16"})  # strings that are words of the code

COMPARE = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def lower(tree: ast.Module) -> IR:
    """The module as one tuple `("module", body, words)`."""
    lowering = Lowering()
    body = lowering.block(tree.body)
    return ("module", body, frozenset(lowering.words))


def cast_words(function: ast.expr, args: Sequence[ast.expr]) -> Iterator[str]:
    """What is cast to another dtype, as a word of its own: "model.to(dtype)", "Encoder().half(dtype)" of an object that is made there."""
    if isinstance(function, ast.Attribute) and (name := cast_name(function.value)):
        of_dtype = any("dtype" in part or "float16" in part for arg in args for part in names_within(arg))
        if function.attr != "to" or of_dtype:
            yield f"{name}.{function.attr}(dtype)"


def cast_name(node: ast.expr) -> str:
    """What something that is cast is called: a variable, an attribute, or what is called for it; "" for anything else."""
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case ast.Call(ast.Attribute(value, method)) if method in SAME_OBJECT:
            return cast_name(value)
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name)):
            return f"{name}()"
    return ""


def names_within(node: ast.expr) -> Iterator[str]:
    """The identifiers and texts in an expression."""
    for part in ast.walk(node):
        match part:
            case ast.Name(name) | ast.Attribute(attr=name) | ast.Constant(str(name)):
                yield name


PASSED_ON = "="  # what stands in a word for the value of an argument `x=x` or `x=self.x`


def filling(name: str) -> str:
    """The word of code that may give a module's variable a value, from outside of the module's body."""
    return f".{name}="


def shown_argument(keyword: ast.keyword) -> str:
    """What a word of an argument tells of its value: a flag, None or a number, `PASSED_ON`, or that it is something else."""
    match keyword.value:
        case ast.Constant(value) if value is None or isinstance(value, (bool, int, float)):
            return repr(value)
        case ast.Name(name) | ast.Attribute(ast.Name("self"), name) if name == keyword.arg:
            return PASSED_ON
    return "?"


def place_of(node: Any) -> int:
    """The range of a node, at most 1,024 lines of it, in one integer: lines from 1, columns in UTF-8 bytes."""
    line: int = node.lineno
    lines, start, end = node.end_lineno - line, node.col_offset, node.end_col_offset
    if lines > 0x3FF or start > 0xFFFF or end > 0xFFFF:
        lines, start, end = min(lines, 0x3FF), min(start, 0xFFFF), min(end, 0xFFFF)
    return line | start << 20 | lines << 52 | end << 36  # type: ignore[no-any-return]


def line_of(place: int) -> int:
    """The first line of a packed range."""
    return place & 0xFFFFF


def span_of(place: int) -> Span:
    """The packed range, columns in UTF-8 bytes."""
    line = place & 0xFFFFF
    return Span(line, place >> 20 & 0xFFFF, line + (place >> 52 & 0x3FF), place >> 36 & 0xFFFF)


class Lowering:
    """Lowers one scope; nested functions get a lowering of their own."""

    def __init__(self) -> None:
        self.words: set[str] = set()
        self.bound: set[str] = set()
        self.outer: set[str] = set()
        self.flags = 0

    def block(self, statements: Sequence[ast.stmt]) -> tuple[IR, ...]:
        """A block without docstrings and other statements that do nothing."""
        found = []
        for node in statements:
            lowered = self.statement(node)
            if lowered is not None:
                found.append(lowered)
        return tuple(found)

    # statements

    def statement(self, node: ast.stmt) -> IR | None:
        """One statement, or None where it does nothing."""
        method = getattr(self, "s_" + type(node).__name__, None)
        if method is not None:
            return method(node)  # type: ignore[no-any-return]
        parts = tuple(self.expression(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        return ("unknown statement", place_of(node), parts)

    def s_Expr(self, node: ast.Expr) -> IR | None:
        if isinstance(node.value, ast.Constant):
            return None
        return ("expression", place_of(node), self.expression(node.value))

    def s_Pass(self, node: ast.Pass) -> None:
        return None

    def s_Assign(self, node: ast.Assign) -> IR:
        value = self.expression(node.value)
        return ("assign", place_of(node), tuple(self.target(t) for t in node.targets), value)

    def s_AnnAssign(self, node: ast.AnnAssign) -> IR | None:
        target = self.target(node.target)
        value = self.expression(node.value) if node.value is not None else None
        return ("annotated", place_of(node), target, self.quiet(node.annotation), value)

    def s_AugAssign(self, node: ast.AugAssign) -> IR:
        value = self.expression(node.value)
        read = self.expression(ast.copy_location(as_load(node.target), node.target))
        place, target, op = place_of(node), self.target(node.target), BINARY[type(node.op)]
        if value[0] == "conditional" and asks_for_dtype(value[2]):
            both = [(("augmented", place, target, op, read, way),) for way in value[3:]]
            return ("if", place, value[2], *both)
        return ("augmented", place, target, op, read, value)

    def s_Return(self, node: ast.Return) -> IR:
        return ("return", place_of(node), self.expression(node.value) if node.value is not None else None)

    def s_Raise(self, node: ast.Raise) -> IR:
        return ("raise", place_of(node), self.expression(node.exc) if node.exc is not None else None)

    def s_Break(self, node: ast.Break) -> IR:
        return ("break", place_of(node))

    def s_Continue(self, node: ast.Continue) -> IR:
        return ("continue", place_of(node))

    def s_Delete(self, node: ast.Delete) -> IR:
        return ("delete", place_of(node), tuple(self.target(t) for t in node.targets))

    def s_Assert(self, node: ast.Assert) -> IR:
        return ("assert", place_of(node), self.expression(node.test))

    def s_If(self, node: ast.If) -> IR:
        return ("if", place_of(node), self.expression(node.test), self.block(node.body), self.block(node.orelse))

    def s_While(self, node: ast.While) -> IR:
        return ("while", place_of(node), self.expression(node.test), self.block(node.body), self.block(node.orelse))

    def s_For(self, node: ast.For | ast.AsyncFor) -> IR:
        items = self.expression(node.iter)
        target = self.target(node.target)
        return ("for", place_of(node), target, items, self.block(node.body), self.block(node.orelse))

    s_AsyncFor = s_For

    def s_With(self, node: ast.With | ast.AsyncWith) -> IR:
        items = tuple(
            (self.expression(item.context_expr), self.target(item.optional_vars) if item.optional_vars is not None else None)
            for item in node.items
        )
        return ("with", place_of(node), items, self.block(node.body))

    s_AsyncWith = s_With

    def s_Try(self, node: Any) -> IR:
        body = self.block(node.body)
        handlers = []
        for handler in node.handlers:
            if handler.name:
                self.bound.add(handler.name)
            kind = self.expression(handler.type) if handler.type is not None else None
            handlers.append((place_of(handler), kind, handler.name, self.block(handler.body)))
        return ("try", place_of(node), body, tuple(handlers), self.block(node.orelse), self.block(node.finalbody))

    s_TryStar = s_Try

    def s_Match(self, node: ast.Match) -> IR:
        subject = self.expression(node.subject)
        cases = []
        for case in node.cases:
            test = self.pattern(case.pattern)
            guard = self.expression(case.guard) if case.guard is not None else None
            cases.append((place_of(case.pattern), test, guard, self.block(case.body)))
        return ("match", place_of(node), subject, tuple(cases))

    def pattern(self, node: ast.pattern) -> IR:
        """A pattern as ("values", expressions), ("any", bound names) or ("opaque", bound names)."""
        match node:
            case ast.MatchValue(value):
                return ("values", (self.expression(value),))
            case ast.MatchSingleton(value):
                return ("values", (("constant", place_of(node), value),))
            case ast.MatchOr(patterns):
                parts = [self.pattern(p) for p in patterns]
                if all(kind == "values" for kind, _ in parts):
                    return ("values", tuple(e for _, es in parts for e in es))
            case ast.MatchAs(None, name):
                if name is not None:
                    self.bound.add(name)
                return ("any", (name,) if name is not None else ())
        names = tuple(n.name for n in ast.walk(node) if isinstance(n, (ast.MatchAs, ast.MatchStar)) and n.name is not None)
        self.bound.update(names)
        return ("opaque", names)

    def s_Import(self, node: ast.Import) -> IR:
        names = []
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.bound.add(bound)
            self.words.update(alias.name.split("."))
            names.append((alias.name, alias.asname))
        return ("import", place_of(node), tuple(names))

    def s_ImportFrom(self, node: ast.ImportFrom) -> IR:
        self.words.update((node.module or "").split("."))
        names = []
        for alias in node.names:
            self.bound.add(alias.asname or alias.name)
            self.words.add(alias.name)
            names.append((alias.name, alias.asname))
        return ("from", place_of(node), node.module or "", node.level, tuple(names))

    def s_Global(self, node: ast.Global) -> IR:
        self.outer.update(node.names)
        self.words.update(filling(name) for name in node.names)
        return ("global", place_of(node), tuple(node.names))

    def s_Nonlocal(self, node: ast.Nonlocal) -> IR:
        self.outer.update(node.names)
        return ("nonlocal", place_of(node), tuple(node.names))

    def s_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> IR:
        self.bound.add(node.name)
        words, self.words = self.words, set()
        decorators = tuple(self.expression(d) for d in node.decorator_list)
        decorating, self.words = self.words, words | self.words
        flags = ASYNC if isinstance(node, ast.AsyncFunctionDef) else 0
        return ("define", place_of(node), self.function(node, node.name, node.args, node.body, flags, decorators, decorating))

    s_AsyncFunctionDef = s_FunctionDef

    def s_ClassDef(self, node: ast.ClassDef) -> IR:
        self.bound.add(node.name)
        self.flags |= NESTS
        inner = Lowering()
        body = inner.block(node.body)
        bases = tuple(self.expression(b) for b in node.bases)
        keywords = tuple((k.arg, self.expression(k.value)) for k in node.keywords)
        decorators = tuple(self.expression(d) for d in node.decorator_list)
        self.words |= inner.words
        for base in node.bases:
            for part in ast.walk(base):
                if isinstance(part, (ast.Attribute, ast.Name)):
                    inner.words.add(part.attr if isinstance(part, ast.Attribute) else part.id)
        inner.words |= {s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}  # its fields
        return ("class", place_of(node), node.name, bases, keywords, decorators, body, frozenset(inner.words))

    def function(
        self,
        node: Any,
        name: str,
        args: ast.arguments,
        body: Sequence[ast.stmt] | ast.expr,
        flags: int,
        decorators: tuple[IR, ...],
        decorating: Collection[str] = (),
    ) -> IR:
        """A function or lambda; defaults belong to the scope around it."""
        self.flags |= NESTS
        inner = Lowering()
        positional = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        parameters = [self.parameter(a, "positional", d) for a, d in zip(positional, defaults, strict=True)]
        if args.vararg is not None:
            parameters.append(self.parameter(args.vararg, "*", None))
        parameters += [self.parameter(a, "keyword", d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        if args.kwarg is not None:
            parameters.append(self.parameter(args.kwarg, "**", None))
        if isinstance(body, ast.expr):
            lowered: tuple[IR, ...] = (("return", place_of(body), inner.expression(body)),)
        else:
            lowered = inner.block(body)
        names = frozenset({p[0] for p in parameters} | inner.bound - inner.outer)
        words = frozenset(inner.words | {p[0] for p in parameters}).union(decorating)
        self.words |= words
        return ("function", place_of(node), name, tuple(parameters), lowered, names, decorators, flags | inner.flags, words)

    def parameter(self, node: ast.arg, kind: str, default: ast.expr | None) -> IR:
        """`(name, kind, default, annotation)`."""
        lowered = self.expression(default) if default is not None else None
        annotation = self.quiet(node.annotation) if node.annotation is not None else None
        return (node.arg, kind, lowered, annotation)

    def quiet(self, node: ast.expr) -> IR:
        """An annotation: its names are no words of the code."""
        words = self.words
        self.words = set()
        try:
            return self.expression(node)
        finally:
            self.words = words

    # targets

    def target(self, node: ast.expr) -> IR:
        """What is assigned to."""
        match node:
            case ast.Name(id):
                self.bound.add(id)
                return ("name", place_of(node), id)
            case ast.Attribute(value, attr):
                self.words.add(attr)
                if not (isinstance(value, ast.Name) and value.id == "self"):
                    self.words.add(filling(attr))
                return ("attribute", place_of(node), self.expression(value), attr)
            case ast.Subscript(value, index):
                return ("subscript", place_of(node), self.expression(value), self.expression(index))
            case ast.Tuple(elts) | ast.List(elts):
                return ("tuple", place_of(node), tuple(self.target(e) for e in elts))
            case ast.Starred(value):
                return ("star", place_of(node), self.target(value))
        return ("unknown", place_of(node), ())

    # expressions

    def expression(self, node: ast.expr) -> IR:
        """One expression."""
        common = COMMON.get(type(node))
        return common(self, node) if common is not None else self.operation(node)

    def name(self, node: ast.Name) -> IR:
        self.words.add(node.id)
        return ("name", place_of(node), node.id)

    def attribute(self, node: ast.Attribute) -> IR:
        self.words.add(node.attr)
        return ("attribute", place_of(node), self.expression(node.value), node.attr)

    def constant(self, node: ast.Constant) -> IR:
        value = node.value
        if isinstance(value, str) and value in DTYPE_WORDS:
            self.words.add(value)
        return ("constant", place_of(node), value)

    def call(self, node: ast.Call) -> IR:
        func, args, keywords = node.func, node.args, node.keywords
        positional = self.all(args)
        named = tuple([(k.arg, self.expression(k.value)) for k in keywords])
        last = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
        if last == "getattr" and args and isinstance(args[0], ast.Name):
            self.words.add(f"getattr({args[0].id},")  # a dtype by its name, as a rule
        for k in keywords:
            if k.arg is None:
                self.words.add(f"{last}(**")
            else:
                self.words.add(f"{last}({k.arg}=")
                self.words.add(f"{last}({k.arg}={shown_argument(k)}")
        if last in CASTING:
            self.words.update(cast_words(func, [*args, *(k.value for k in keywords)]))
        return ("call", place_of(node), self.expression(func), positional, named)

    def operation(self, node: ast.expr) -> IR:
        """What makes a value of others by an operator."""
        match node:
            case ast.UnaryOp(op, operand):
                match op, operand:
                    case ast.USub(), ast.Constant(value) if isinstance(value, (int, float)) and not isinstance(value, bool):
                        return ("constant", place_of(node), -value)
                return ("unary", place_of(node), UNARY[type(op)], self.expression(operand))
            case ast.Compare(left, ops, comparators):
                kinds = tuple(COMPARE[type(o)] for o in ops)
                return ("compare", place_of(node), self.expression(left), kinds, tuple(self.expression(c) for c in comparators))
            case ast.BoolOp(op, values):
                kind = "and" if isinstance(op, ast.And) else "or"
                return (kind, place_of(node), tuple(self.expression(v) for v in values))
            case ast.IfExp(test, body, orelse):
                return ("conditional", place_of(node), self.expression(test), self.expression(body), self.expression(orelse))
            case ast.Subscript(value, index):
                return ("subscript", place_of(node), self.expression(value), self.expression(index))
            case ast.Slice(lower, upper, step):
                parts = tuple(self.expression(p) if p is not None else None for p in (lower, upper, step))
                return ("slice", place_of(node), *parts)
        return self.display(node)

    def display(self, node: ast.expr) -> IR:
        """Values that are written out of others: collections, comprehensions and formatted text."""
        match node:
            case ast.Tuple(elts):
                return ("tuple", place_of(node), self.all(elts))
            case ast.List(elts):
                return ("list", place_of(node), self.all(elts))
            case ast.Set(elts):
                return ("set", place_of(node), self.all(elts))
            case ast.Dict(keys, values):
                self.words.update(k.value for k in keys if isinstance(k, ast.Constant) and k.value in SECTION_WORDS)
                entries = tuple(
                    (self.expression(k) if k is not None else None, self.expression(v)) for k, v in zip(keys, values, strict=True)
                )
                return ("dict", place_of(node), entries)
            case ast.ListComp(elt, generators) | ast.SetComp(elt, generators) | ast.GeneratorExp(elt, generators):
                parts = self.generators(generators)
                return ("comprehension", place_of(node), "list", parts, (self.expression(elt),))
            case ast.DictComp(key, value, generators):
                parts = self.generators(generators)
                return ("comprehension", place_of(node), "dict", parts, (self.expression(key), self.expression(value)))
            case ast.JoinedStr(values):
                return ("format", place_of(node), tuple(self.expression(v) for v in values))
            case ast.FormattedValue(value):
                return self.expression(value)
        return self.rare(node)

    def rare(self, node: ast.expr) -> IR:
        """Expressions that run other code or bind names, and what no one knows."""
        match node:
            case ast.Starred(value):
                return ("star", place_of(node), self.expression(value))
            case ast.Lambda(args, body):
                return ("lambda", place_of(node), self.function(node, "<lambda>", args, body, 0, ()))
            case ast.Await(value):
                return self.expression(value)
            case ast.Yield(value):
                self.flags |= GENERATOR
                return ("yield", place_of(node), self.expression(value) if value is not None else None)
            case ast.YieldFrom(value):
                self.flags |= GENERATOR
                return ("yield from", place_of(node), self.expression(value))
            case ast.NamedExpr(target, value):
                lowered = self.expression(value)
                return ("walrus", place_of(node), self.target(target), lowered)
        parts = tuple(self.expression(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        return ("unknown", place_of(node), parts)

    def binary(self, node: ast.BinOp) -> IR:
        """A chain of binary operations; long ones (sums of many strings) without recursion."""
        chain: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        found = self.expression(left)
        for part in reversed(chain):
            place, op, right = place_of(part), BINARY[type(part.op)], self.expression(part.right)
            if right[0] == "conditional" and asks_for_dtype(right[2]):
                found = ("conditional", place, right[2], *(("binary", place, op, found, way) for way in right[3:]))
            else:
                found = ("binary", place, op, found, right)
        return found

    def all(self, nodes: Iterable[ast.expr]) -> tuple[IR, ...]:
        """Several expressions."""
        return tuple([self.expression(n) for n in nodes])

    def generators(self, nodes: Iterable[ast.comprehension]) -> tuple[IR, ...]:
        """The `for … in … if …` parts of a comprehension; their names belong to the function around."""
        found = []
        for node in nodes:
            items = self.expression(node.iter)
            found.append((self.target(node.target), items, tuple(self.expression(c) for c in node.ifs)))
        return tuple(found)


COMMON: dict[type[ast.expr], Callable[[Lowering, Any], IR]] = {
    ast.Name: Lowering.name,
    ast.Attribute: Lowering.attribute,
    ast.Constant: Lowering.constant,
    ast.Call: Lowering.call,
    ast.BinOp: Lowering.binary,
}


def asks_for_dtype(test: IR) -> bool:
    """Whether a test compares the dtype of a variable: what is chosen by it goes with that variable only where it comes out so."""
    return test[0] == "compare" and any(side[0] == "attribute" and side[3] == "dtype" for side in (test[2], *test[4]))


def as_load(node: Any) -> Any:
    """A target as the expression that reads it."""
    match node:
        case ast.Name(id):
            return ast.Name(id, ast.Load())
        case ast.Attribute(value, attr):
            return ast.Attribute(value, attr, ast.Load())
        case ast.Subscript(value, index):
            return ast.Subscript(value, index, ast.Load())
    return node
