"""Calls of R: Keras' functions as what they make, generics as methods, datasets, and the values that R writes as calls."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mplint.python.r import functions
from mplint.python.r.expressions import PLACEHOLDERS, Expressions
from mplint.python.r.functions import COMPOSED, COUNTERPARTS, KERAS2, REST, Given, Known, known, matched
from mplint.python.r.nodes import arguments_of, at, constant, dotted, field, named, spelled, string, text_of, tuple_of, word

if TYPE_CHECKING:
    from tree_sitter import Node

Arguments = list[Given["Node"]]
LISTS = frozenset({"c", "list", "tuple", "shape", "reticulate::tuple", "keras_shape"})
SAME = frozenset({"invisible", "identity", "force", "r_to_py", "py_to_r", "autograph", "unlist", "suppressWarnings", "I", "as.array"})


class Calls(Expressions):
    """Translates calls; `package` is the R package of Keras that the program uses, `own` the functions that it defines itself."""

    package = KERAS2
    own: frozenset[str] = frozenset()
    composing: frozenset[str] = frozenset()  # names of classes of layers

    def call(self, node: Node, piped: Node | None, whole: Node) -> ast.expr:
        function = field(node, "function")
        given = self.given(node, piped)
        name = called(function)
        if name and name not in self.own:
            special = getattr(self, "c_" + name.replace(".", "_"), None)
            if special is not None and (found := special(node, given)) is not None:
                return found  # type: ignore[no-any-return]
            if name in SAME and given:
                return self.expr(given[0].value)
            if (about := self.known(name)) is not None:
                return self.of_keras(about, node, function, given, whole)
            if name in LISTS:
                return self.listed(name, node, given)
            if name in functions.METHODS and given and not given[0].name.startswith("x"):
                return self.method(functions.METHODS[name], node, function, given)
            if name.startswith(functions.DATASET) and given and name.removeprefix(functions.DATASET) not in functions.DATA:
                method = functions.DATASETS.get(name, name.removeprefix(functions.DATASET))
                return self.method(method, node, function, given)
            if name in COUNTERPARTS:
                return self.plain(dotted(COUNTERPARTS[name], function), node, given)
        elif name in self.composing:
            return self.composed(self.plain(self.expr(function), node, given[1:] if is_given(given) else given), given, whole)
        return self.plain(self.expr(function), node, given)

    def known(self, name: str) -> Known | None:
        """What is known of a function of Keras' R packages."""
        return known(name, self.package)

    def given(self, node: Node, piped: Node | None) -> Arguments:
        """The arguments of a call: what a pipe gives stands first, or where its placeholder does."""
        found = []
        for argument in arguments_of(node):
            value = argument.child_by_field_name("value")
            name = argument.child_by_field_name("name")
            if value is not None:
                label = "" if name is None else string(name) if name.type == "string" else word(name)
                found.append(Given(label, value))
        if piped is None:
            return found
        held = [n for n, (_, value) in enumerate(found) if value.type == "identifier" and text_of(value) in PLACEHOLDERS]
        for n in held:
            found[n] = Given(found[n].name, piped)
        return found if held else [Given("", piped), *found]

    def plain(self, function: ast.expr, node: Node, given: Sequence[Given[Node]]) -> ast.Call:
        """A call of something with some arguments."""
        args: list[ast.expr] = []
        keywords: list[ast.keyword] = []
        for name, value in given:
            if name and name not in (REST, "convert"):
                keywords.append(self.keyword(name, value))
            else:
                args.append(self.expr(value))
        return at(ast.Call(function, args, keywords), node)

    def keyword(self, name: str, value: Node) -> ast.keyword:
        """A named argument, at the place of its name and its value where it is written with it."""
        around = value.parent
        written = around is not None and around.type == "argument" and around.child_by_field_name("name") is not None
        return at(ast.keyword(name, self.expr(value)), around if written and around is not None else value)

    def of_keras(self, about: Known, node: Node, function: Node, given: Arguments, whole: Node) -> ast.expr:
        """A call of a function of Keras' R packages."""
        if about.formals[:1] == (functions.MERGED,):
            return self.merged(about, node, function, given)
        arguments = matched(about.formals, given)
        if about.composes:
            first = next((value for name, value in arguments if name == "object"), None)
            layer = self.plain(dotted(f"keras.{about.homes[0]}", function), node, [g for g in arguments if g.name != "object"])
            if first is None or first.type == "null":
                return layer
            return self.composed(layer, [Given("object", first)], whole)
        home = about.homes[-1] if any(name in ("y_true", "x") for name, _ in arguments) else about.homes[0]
        in_order = home.startswith(("backend.", "config."))  # whose arguments have other names in Python
        return self.plain(dotted(f"keras.{home}", function), node, given if in_order else arguments)

    def composed(self, layer: ast.Call, given: Sequence[Given[Node]], whole: Node) -> ast.expr:
        """A layer given to what stands before it: it is added to a sequential model, or called with tensors."""
        if not is_given(given):
            return layer
        compose = dotted(COMPOSED, whole)
        spelled(compose)
        self.composes = True
        return at(ast.Call(compose, [self.expr(given[0].value), layer], []), whole)

    composes = False  # whether anything does: then the function for it is imported

    def merged(self, about: Known, node: Node, function: Node, given: Arguments) -> ast.expr:
        """`layer_concatenate(list(a, b))`, `layer_concatenate(a, b)`."""
        inputs = [g.value for g in given if g.name in ("", functions.MERGED)]
        others = [g for g in given if g.name not in ("", functions.MERGED)]
        home = about.homes[0].rpartition(".")
        layer = self.plain(dotted(f"keras.{home[0]}.{home[2][:1].upper()}{home[2][1:]}", function), node, others)
        if not inputs:
            return layer
        alone = self.expr(inputs[0])
        taken = alone if len(inputs) == 1 else at(ast.List([alone, *map(self.expr, inputs[1:])], ast.Load()), node)
        return at(ast.Call(layer, [taken], []), node)

    def method(self, name: str, node: Node, function: Node, given: Arguments) -> ast.expr:
        """A generic, as the method of its first argument."""
        receiver, *rest = given
        made = at(ast.Attribute(self.expr(receiver.value), name, ast.Load()), function)
        made.written = text_of(function)  # type: ignore[attr-defined]
        return self.plain(made, node, rest)

    def listed(self, name: str, node: Node, given: Arguments) -> ast.expr:
        """`c(1, 2)`, `list(a = 1)`."""
        if given and all(g.name for g in given) and name in ("c", "list"):
            keys: list[ast.expr | None] = [constant(g.name, g.value) for g in given]
            return at(ast.Dict(keys, [self.expr(g.value) for g in given]), node)
        values = [self.expr(g.value) for g in given]
        if name == "list":
            return at(ast.List(values, ast.Load()), node)
        if name == "c" and len(values) == 1:
            return values[0]
        return tuple_of(values, node)

    # functions with a meaning of their own

    def c_dict(self, node: Node, given: Arguments) -> ast.expr:
        return at(ast.Dict([constant(g.name, g.value) for g in given], [self.expr(g.value) for g in given]), node)

    def c_is_null(self, node: Node, given: Arguments) -> ast.expr | None:
        return at(ast.Compare(self.expr(given[0].value), [ast.Is()], [constant(None, node)]), node) if given else None

    def c_seq_along(self, node: Node, given: Arguments) -> ast.expr | None:
        if not given:
            return None
        size = at(ast.Call(named("len", node), [self.expr(given[0].value)], []), node)
        return at(ast.Call(named("range", node), [size], []), node)

    def c_transpose(self, node: Node, given: Arguments) -> ast.expr | None:
        """`purrr::transpose(list(gradients, variables))`: pairs of them."""
        lists = self.expr(given[0].value) if len(given) == 1 else None
        if not isinstance(lists, ast.List):
            return None
        return at(ast.Call(named("zip", node), lists.elts, []), node)

    def c_import(self, node: Node, given: Arguments) -> ast.expr | None:
        """`import("tensorflow")`: the module, at the places of its name's parts."""
        module = given[0].value if given else None
        if module is None or module.type != "string" or not (path := string(module)):
            return None
        return path_in(module, path)

    c_import_module = c_import

    def c_keras_model(self, node: Node, given: Arguments) -> ast.expr:
        function = dotted("keras.Model", field(node, "function"))
        return self.plain(function, node, matched(("inputs", "outputs"), given))

    def c_keras_model_sequential(self, node: Node, given: Arguments) -> ast.expr:
        formals = ("layers", "name") if self.package == KERAS2 else ("input_shape", "name", REST)
        kept = [g for g in matched(formals, given) if g.name in ("layers", "name", "trainable")]
        return self.plain(dotted("keras.Sequential", field(node, "function")), node, kept)

    def c_use_condaenv(self, node: Node, given: Arguments) -> ast.expr:
        return constant(None, node)

    c_use_virtualenv = c_use_python = c_py_require = c_install_keras = c_install_tensorflow = c_use_condaenv


def called(function: Node) -> str:
    """The name of a called function, without its package; "" for everything else."""
    if function.type in ("identifier", "return"):
        return word(function)
    if function.type == "namespace_operator":
        name = function.child_by_field_name("rhs")
        return word(name) if name is not None else ""
    return ""


def is_given(given: Sequence[Given[Node]]) -> bool:
    """Whether the first argument is there, by position or as the object."""
    return bool(given) and given[0].name in ("", "object")


def path_in(module: Node, path: str) -> ast.expr:
    """The dotted name in a string, at the places of its parts."""
    line, column = module.start_point[0] + 1, module.start_point[1] + 1
    head, *rest = path.split(".")
    end = column + len(head)
    found: ast.expr = ast.Name(head, ast.Load(), lineno=line, col_offset=column, end_lineno=line, end_col_offset=end)
    for part in rest:
        end += 1 + len(part)
        found = ast.Attribute(found, part, ast.Load(), lineno=line, col_offset=column, end_lineno=line, end_col_offset=end)
    return found
