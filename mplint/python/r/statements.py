"""Statements of R: assignments, functions and classes, loops, contexts, and what a function gives back."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mplint.python.r.calls import Calls, called
from mplint.python.r.expressions import ASSIGNS, ASSIGNS_RIGHT, PIPES, Sink
from mplint.python.r.functions import COMPOSED, KERAS3, PACKAGES, Given
from mplint.python.r.nodes import arguments_of, at, body_of, constant, dotted, field, named, parts, string, text_of, tuple_of, word
from mplint.python.suffixes import R_MODULE, R_SOURCES

if TYPE_CHECKING:
    from tree_sitter import Node

ATTACH = frozenset({"library", "require", "requireNamespace", "p_load"})
RUNS = frozenset({"suppressPackageStartupMessages", "suppressMessages", "suppressWarnings", "system.time", "local", "loop", "try",
                  "autograph", "invisible", "tic", "quietly"})  # fmt: skip
RUNS_FILE = frozenset({"source", "sys.source", "base::source"})
JOINED = frozenset({"file.path", "here", "here::here", "base::file.path"})
TESTED = frozenset({"tryCatch", "withCallingHandlers"})
MODEL_CLASSES = {"new_model_class": "keras.Model", "Model": "keras.Model"}
LAYER_CLASSES = {"new_layer_class": "keras.layers.Layer", "Layer": "keras.layers.Layer"}
CLASSES = MODEL_CLASSES | LAYER_CLASSES
ASKED = ("tensorflow", "keras", "numpy")  # packages that a name stands for without an import


class Statements(Calls):
    """Translates a program."""

    def __init__(self, root: Node) -> None:
        super().__init__()
        self.first: dict[str, Node] = {}  # where the program attaches or names each R package of PACKAGES
        own: set[str] = set()
        composing: set[str] = set()
        for node in nodes_of(root):
            if node.type == "namespace_operator":
                self.first.setdefault(word(field(node, "lhs")), node)
            elif node.type == "call" and called(field(node, "function")) in ATTACH:
                for package in attached(node):
                    self.first.setdefault(package, node)
            elif node.type == "binary_operator" and (pair := assigned(node)) is not None and pair[0].type == "identifier":
                target, value = pair
                if value.type == "function_definition":
                    own.add(word(target))
                elif value.type == "call" and called(field(value, "function")) in LAYER_CLASSES:
                    composing.add(word(target))
                    own.add(word(target))
        self.own, self.composing = frozenset(own), frozenset(composing)
        self.package = KERAS3 if KERAS3 in self.first else "keras"
        self.outer: list[set[str]] = []
        self.home = ""  # the name of the class whose methods are translated

    def module(self, root: Node) -> ast.Module:
        """The whole program."""
        body = [statement for node in body_of(root) for statement in self.into(node, None)]
        front: list[ast.stmt] = []
        for package, node in self.first.items():
            if package in PACKAGES and node.type == "namespace_operator":
                front.append(imported(package, node))
        if self.composes:
            front.append(at(ast.Import([at(ast.alias(COMPOSED.partition(".")[0]), root.children[0])]), root.children[0]))
            front[-1].end_lineno, front[-1].end_col_offset = front[-1].lineno, front[-1].col_offset
        return ast.Module(front + body, [])

    def into(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        method = getattr(self, "s_" + node.type, None)
        found = method(node, sink) if method is not None else None
        return found if found is not None else self.valued(node, sink)

    def valued(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        """A statement that is an expression."""
        kept, self.pending = self.pending, []
        value = self.expr(node)
        before, self.pending = self.pending, kept
        if sink is not None:
            return [*before, sink(value, node)]
        return before if isinstance(value, (ast.Name, ast.Constant)) else [*before, at(ast.Expr(value), node)]

    def evaluated(self, node: Node) -> tuple[list[ast.stmt], ast.expr]:
        """An expression, with what goes before it."""
        kept, self.pending = self.pending, []
        value = self.expr(node)
        before, self.pending = self.pending, kept
        return before, value

    def block(self, node: Node | None, sink: Sink | None = None) -> list[ast.stmt]:
        """The statements of a body; `sink` takes the value of the last."""
        inner = body_of(node) if node is not None else []
        found = [s for n, item in enumerate(inner, 1) for s in self.into(item, sink if n == len(inner) else None)]
        return found or ([at(ast.Pass(), node)] if node is not None else [])

    def s_braced_expression(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        inner = body_of(node)
        return [s for n, item in enumerate(inner, 1) for s in self.into(item, sink if n == len(inner) else None)]

    def s_parenthesized_expression(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        return [s for item in parts(node.children) for s in self.into(item, sink)]

    def s_if_statement(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        before, test = self.evaluated(field(node, "condition"))
        other = node.child_by_field_name("alternative")
        orelse = self.block(other, sink) if other is not None else []
        return [*before, at(ast.If(test, self.block(field(node, "consequence"), sink), orelse), node)]

    def s_for_statement(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        before, items = self.evaluated(field(node, "sequence"))
        variable = field(node, "variable")
        return [*before, at(ast.For(named(word(variable), variable, store=True), items, self.block(field(node, "body")), []), node)]

    def s_while_statement(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        before, test = self.evaluated(field(node, "condition"))
        return [*before, at(ast.While(test, self.block(field(node, "body")), []), node)]

    def s_repeat_statement(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        return [at(ast.While(constant(True, node), self.block(field(node, "body")), []), node)]

    def s_break(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        return [at(ast.Break(), node)]

    def s_next(self, node: Node, sink: Sink | None) -> list[ast.stmt]:
        return [at(ast.Continue(), node)]

    # assignments

    def s_binary_operator(self, node: Node, sink: Sink | None) -> list[ast.stmt] | None:
        pair = assigned(node)
        if pair is None:
            return self.context_after(node, sink)
        target, value = pair
        op = text_of(node.child_by_field_name("operator"))
        if op == "%<>%":
            before, piped = self.evaluated_pipe(target, value, node)
            found = [*before, at(ast.Assign([self.target(target)], piped), node)]
        else:
            if op in ("<<-", "->>") and target.type == "identifier" and self.outer:
                self.outer[-1].add(word(target))
            found = self.bound(target, value, node)
        if sink is not None:
            found.append(sink(self.expr(target), target))
        return found

    def evaluated_pipe(self, left: Node, right: Node, node: Node) -> tuple[list[ast.stmt], ast.expr]:
        """`left %>% right`, with what goes before it."""
        kept, self.pending = self.pending, []
        value = self.pipe(node, left, right)
        before, self.pending = self.pending, kept
        return before, value

    def bound(self, target: Node, value: Node, node: Node) -> list[ast.stmt]:
        """`target <- value`."""
        if target.type in ("identifier", "string"):
            name = string(target) if target.type == "string" else word(target)
            if value.type == "function_definition":
                return [self.defined(name, value, node)]
            word_of_call = called(field(value, "function")) if value.type == "call" else ""
            if word_of_call in CLASSES:
                return self.class_of(name, value, node, dotted(CLASSES[word_of_call], field(value, "function")))
            if word_of_call == "import" and (found := self.module_bound(name, value, node)) is not None:
                return [found]
        if target.type == "call":  # `names(x) <- value` changes x
            changed = arguments_of(target)
            inner = changed[0].child_by_field_name("value") if changed and called(field(target, "function")) != "c" else None
            if inner is not None:
                return self.into(value, None)
        return self.into(value, lambda found, place: at(ast.Assign([self.target(target)], found), node if place == value else place))

    def target(self, node: Node) -> ast.expr:
        """What is assigned to."""
        if node.type == "call":
            return tuple_of(
                [self.target(v) for a in arguments_of(node) if (v := a.child_by_field_name("value")) is not None], node, store=True
            )
        if node.type == "string":
            return named(string(node), node, store=True)
        found = self.expr(node)
        if isinstance(found, (ast.Name, ast.Attribute, ast.Subscript)):
            found.ctx = ast.Store()
            return found
        return named(text_of(node), node, store=True)

    def module_bound(self, name: str, value: Node, node: Node) -> ast.stmt | None:
        """`tf <- import("tensorflow")`."""
        found = self.expr(value)
        root = found
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in ASKED:
            return None
        return at(ast.Import([at(ast.alias(ast.unparse(found), name), value)]), node)

    # functions and classes

    def function(self, node: Node) -> ast.expr:
        inner = body_of(field(node, "body"))
        if (
            len(inner) == 1
            and inner[0].type in ("call", "identifier", "extract_operator")
            and called_of(inner[0]) not in ("return", "with")
        ):
            kept, self.pending = self.pending, []
            value = self.expr(inner[0])
            before, self.pending = self.pending, kept
            if not before:
                return at(ast.Lambda(self.parameters(node), value), node)
        name = f"function at {node.start_point[0] + 1}:{node.start_point[1]}"
        self.pending.append(self.defined(name, node, node))
        return named(name, node)

    def defined(self, name: str, node: Node, whole: Node, first: str = "", rest: Sequence[Node] | None = None) -> ast.FunctionDef:
        """A function; `first` is a parameter that it has in any case, `rest` its body where that is not all of it."""
        arguments = self.parameters(node, first)
        kept, self.pending = self.pending, []
        self.outer.append(set())
        if rest is None:
            body = self.block(field(node, "body"), returned)
        else:
            body = [s for item in rest for s in self.into(item, None)] or [at(ast.Pass(), node)]
        self.pending = kept
        if outer := self.outer.pop():
            body.insert(0, at(ast.Global(sorted(outer)), node))
        made = ast.FunctionDef(name, arguments, body, [], None, None)
        return at(made, whole)

    def parameters(self, node: Node, first: str = "") -> ast.arguments:
        """The parameters of a function."""
        found = ast.arguments(posonlyargs=[], args=[], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[])
        around = field(node, "parameters")
        for parameter in around.children:
            name, default = parameter.child_by_field_name("name"), parameter.child_by_field_name("default")
            if parameter.type != "parameter" or name is None:
                continue
            if name.type == "dots":
                found.vararg = at(ast.arg("..."), name)
                continue
            found.args.append(at(ast.arg(word(name)), name))
            if default is not None:
                found.defaults.append(self.inside(default))
            elif found.defaults:
                found.defaults.append(constant(None, name))
        if first and all(argument.arg != first for argument in found.args):
            found.args.insert(0, at(ast.arg(first), around))
        return found

    def class_of(self, name: str, call: Node, node: Node, base: ast.expr) -> list[ast.stmt]:
        """A class whose methods a call is given as arguments: `new_model_class("Net", initialize = function() …)`."""
        given = self.given(call, None)
        held = [
            *given,
            *(g for outer in given if outer.name == "public" for g in self.given(outer.value, None) if outer.value.type == "call"),
        ]
        inherited = next((g.value for g in held if g.name in ("inherit", "Inherit")), None)
        bases = [self.expr(inherited) if inherited is not None else base]
        body = [s for g in held for s in self.member(g)]
        return [at(ast.ClassDef(name, bases, [], body or [at(ast.Pass(), node)], []), node)]

    def member(self, given: Given[Node]) -> list[ast.stmt]:
        """A method or a value of a class."""
        name, value = given
        if value.type == "function_definition" and name:
            return [self.defined("__init__" if name == "initialize" else name, value, value, "self")]
        return []

    def c_keras_model_custom(self, node: Node, given: list[Given[Node]]) -> ast.expr | None:
        """`keras_model_custom(function(self) { self$layer <- …; function(inputs) … })`: a model by its layers and its call."""
        maker = next((g.value for g in given if g.value.type == "function_definition"), None)
        inner = body_of(field(maker, "body")) if maker is not None else []
        if maker is None or not inner or inner[-1].type != "function_definition":
            return None
        name = f"model at {node.start_point[0] + 1}:{node.start_point[1]}"
        begun = at(ast.Call(named("super", maker), [], []), maker)
        start = at(ast.Expr(at(ast.Call(at(ast.Attribute(begun, "__init__", ast.Load()), maker), [], []), maker)), maker)
        init = self.defined("__init__", maker, maker, "self", inner[:-1])
        init.body.insert(0, start)
        methods: list[ast.stmt] = [init, self.defined("call", inner[-1], inner[-1], "self")]
        base = dotted("keras.Model", field(node, "function"))
        self.pending.append(at(ast.ClassDef(name, [base], [], methods, []), node))
        return at(ast.Call(named(name, node), [], []), node)

    # calls that are statements

    def s_call(self, node: Node, sink: Sink | None) -> list[ast.stmt] | None:
        name = called(field(node, "function"))
        if name in self.own:
            return None
        given = self.given(node, None)
        if name == "return":
            return self.into(given[0].value, returned) if given else [at(ast.Return(None), node)]
        if name in ("stop", "rlang::abort", "abort"):
            before, value = self.evaluated(given[0].value) if given else ([], constant(None, node))
            return [*before, at(ast.Raise(at(ast.Call(named("RuntimeError", node), [value], []), node), None), node)]
        if name in RUNS_FILE and given and not self.outer and (module := sourced(given[0].value)) is not None:
            return [at(ast.ImportFrom(module[0], [at(ast.alias("*"), node)], module[1]), node)]
        if name in ATTACH:
            return [imported(package, node) for package in attached(node) if package in PACKAGES]
        if name == "with" and len(given) == 2:
            return self.context(given[0].value, given[1].value, node, sink)
        if name == "until_out_of_range" and given:
            return [at(ast.While(constant(True, node), self.block(given[0].value), []), node)]
        if name in TESTED and given:
            body = self.block(next((g.value for g in given if g.name in ("", "expr")), given[0].value), sink)
            handler = at(ast.ExceptHandler(None, None, [at(ast.Pass(), node)]), node)
            return [at(ast.Try(body, [handler], [], []), node)]
        if name in RUNS and given and given[0].value.type != "identifier":
            return self.into(given[0].value, sink)
        return None

    def context_after(self, node: Node, sink: Sink | None) -> list[ast.stmt] | None:
        """`tf$GradientTape() %as% tape %>% with({ … })`."""
        right = field(node, "rhs")
        if text_of(node.child_by_field_name("operator")) not in PIPES or right.type != "call" or called(field(right, "function")) != "with":
            return None
        given = self.given(right, None)
        return self.context(field(node, "lhs"), given[0].value, node, sink) if len(given) == 1 else None

    def context(self, entered: Node, body: Node, node: Node, sink: Sink | None) -> list[ast.stmt]:
        """`with(tf$GradientTape() %as% tape, { … })`: its variables are those of the function around it."""
        name = None
        if entered.type == "binary_operator" and text_of(entered.child_by_field_name("operator")) == "%as%":
            name, entered = field(entered, "rhs"), field(entered, "lhs")
        before, value = self.evaluated(entered)
        item = ast.withitem(value, self.target(name) if name is not None else None)
        return [*before, at(ast.With([item], self.block(body, sink)), node)]


def returned(value: ast.expr, place: Node) -> ast.stmt:
    """What a function gives back."""
    return at(ast.Return(value), place)


def assigned(node: Node) -> tuple[Node, Node] | None:
    """The target and the value of an assignment; None for other operators."""
    op = text_of(node.child_by_field_name("operator"))
    if op in ASSIGNS:
        return field(node, "lhs"), field(node, "rhs")
    return (field(node, "rhs"), field(node, "lhs")) if op in ASSIGNS_RIGHT else None


def called_of(node: Node) -> str:
    """The name of the function that a node calls, "" where it is no call."""
    return called(field(node, "function")) if node.type == "call" else ""


def attached(node: Node) -> list[str]:
    """The packages that `library(…)` attaches."""
    values = [v for a in arguments_of(node) if a.child_by_field_name("name") is None and (v := a.child_by_field_name("value")) is not None]
    return [string(v) if v.type == "string" else word(v) for v in values if v.type in ("string", "identifier")]


def imported(package: str, node: Node) -> ast.Import:
    """What attaching an R package is in Python."""
    module = PACKAGES[package]
    usual = {"tensorflow": "tf", "tf_keras": "keras"}.get(module)
    return at(ast.Import([at(ast.alias(module, usual), node)]), node)


def sourced(node: Node) -> tuple[str, int] | None:
    """The module that a file which is run stands for, and how many folders up it is looked for; None where the path is not written out."""
    if node.type == "call" and called(field(node, "function")) in JOINED:
        given = [argument.child_by_field_name("value") for argument in arguments_of(node)]
    else:
        given = [node]
    if not given or any(each is None or each.type != "string" for each in given):
        return None
    path = "/".join(string(each) for each in given if each is not None)
    steps = [step for step in path.split("/") if step != "."]
    up = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    names = [*steps[up:-1], steps[-1][:-2]] if steps[up:] else []
    if not path.endswith(R_SOURCES) or not all(names) or any("." in name for name in names):
        return None
    return ".".join(names) + R_MODULE, up + 1 if up else 0


def nodes_of(root: Node) -> Iterator[Node]:
    """Every node of a tree that is code."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += [child for child in reversed(node.children) if child.is_named]
