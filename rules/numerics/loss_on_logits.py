"""Losses on probabilities, taken on the logits instead: the sigmoid goes into the loss.

The interpreter says which sigmoid gave the probabilities, which models end in it, where they are called and whether they leave the
program's hands; the syntax says where the results are read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.findings import AddImport, Applicability, Change, Fix, InsertStatements, Replace
from mplint.frameworks.torch.tensors import sigmoid_of
from mplint.program.lower import place_of, span_of
from mplint.program.machine import Event
from mplint.program.trace import Trace
from mplint.program.values import Class, Object, Place
from mplint.python.arguments import drop_argument
from mplint.python.names import Binding
from mplint.python.syntax import argument, has_star
from mplint.recipes.scaler.plan import NoFix, require

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

# Methods that keep the values of a tensor, and only change how it is laid out or typed.
SHAPES = {"squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "contiguous"}
NO_VALUES = ("shape", "device", "dtype", "size")


def take_logits(trace: Trace, loss: Place, made: object) -> Fix | None:
    """Join sigmoid and loss, taken at `loss` by the object that is `made` (None: a function); None where not all of it is in sight."""
    node = trace.node(loss)
    if node is None or not isinstance(node[1], ast.Call):
        return None
    try:
        changes = Joining(trace, node[0], loss.path).changes(loss, made if isinstance(made, Place) else None)
    except NoFix:
        return None
    return Fix("Take the loss on the logits", Applicability.UNSAFE, tuple(dict.fromkeys(changes)))


class Joining:
    """Collects the changes of one file; raises NoFix at the first thing that can't be told."""

    def __init__(self, trace: Trace, file: SourceFile, path: str) -> None:
        self.trace, self.file, self.syntax, self.path = trace, file, file.syntax, path
        self.found: list[Change] = []
        self.joined: set[ast.AST] = set()
        self.taken: set[ast.expr] = set()

    def changes(self, loss: Place, made: Place | None) -> list[Change]:
        """Everything that has to change."""
        losses = [e for e in self._events("loss of probabilities") if (e.place == loss if made is None else e.data["made"] == made)]
        calls = dict.fromkeys(self._call(event.place) for event in losses)
        self.taken = {given for call in calls if (given := argument(call, "input", 0)) is not None}
        self._rename(self._call(made or loss), "binary_cross_entropy_with_logits" if made is None else "BCEWithLogitsLoss")
        require(made is None or not self._is_handed_on(made), "the loss goes elsewhere")
        sigmoids = {sigmoid for event in losses if (sigmoid := sigmoid_of(event.data["tensor"])) is not None}
        require(all(sigmoid_of(event.data["tensor"]) in sigmoids for event in losses), "these may be no probabilities")
        for call in calls:
            given = argument(call, "input", 0)
            if given is None or has_star(call):
                raise NoFix("the loss gets its arguments by a star")
            self._join(given, sigmoids)
        for model in dict.fromkeys(model for call in self.joined if (model := self._model_of(call)) is not None):
            self._model(model)
        return self.found

    def _rename(self, call: ast.Call, last: str) -> None:
        """Call the loss on logits instead."""
        require(self.file.names.resolve(call.func) is not None, "the loss is called by another name")
        if isinstance(call.func, ast.Attribute):
            self.found.append(Replace(self.file.span(call.func), f"{self.file.text(call.func.value)}.{last}"))
        else:
            home = "torch.nn" if last[0].isupper() else "torch.nn.functional"
            self.found += [Replace(self.file.span(call.func), f"{home}.{last}"), AddImport("torch")]

    # what happened

    def _events(self, *kinds: str) -> Iterator[Event]:
        return (event for _, event in self.trace.of(*kinds))

    def _call(self, place: Place) -> ast.Call:
        """The call at a place of this file."""
        node = self.syntax.at(span_of(place.position)) if place.path == self.path else None
        if not isinstance(node, ast.Call):
            raise NoFix("something stands in another file")
        return node

    def _place(self, node: ast.expr) -> Place:
        return Place(self.path, place_of(node))

    def _is_handed_on(self, made: Place) -> bool:
        """Whether a module that was made at a place is given to something that nobody knows."""
        given = (event.data["module"] for event in self._events("module handed on"))
        return any(isinstance(module, Object) and module.made == made for module in given)

    def _model_of(self, call: ast.AST) -> Object | None:
        """The model that gives probabilities by a call; None where it is no call of a model."""
        if not isinstance(call, ast.Call):
            return None
        models = [e.data["model"] for e in self._events("probabilities given") if e.place == self._place(call)]
        made = {model.made for model in models if isinstance(model, Object)}
        require(len(made) < 2, "one of several models is called")
        return next((model for model in models if isinstance(model, Object)), None)

    # probabilities

    def _join(self, given: ast.expr, sigmoids: set[Place]) -> None:
        """Make `given`, the first argument of a loss, logits."""
        inner = unshaped(given)
        if self._model_of(inner) is not None:
            self.joined.add(inner)
        elif (logits := self._logits(inner, sigmoids)) is not None:
            self.found.append(Replace(self.file.span(inner), self.file.text(logits)))
        elif isinstance(inner, ast.Name):
            self._join_name(inner, sigmoids)
        else:
            raise NoFix("the probabilities come from elsewhere")

    def _logits(self, node: ast.expr, sigmoids: set[Place]) -> ast.expr | None:
        """What a sigmoid is taken of; None for anything but one of the sigmoids."""
        if not isinstance(node, ast.Call) or self._place(node) not in sigmoids or node.keywords:
            return None
        if len(node.args) == 1:
            return node.args[0]
        return node.func.value if isinstance(node.func, ast.Attribute) and not node.args else None

    def _join_name(self, name: ast.Name, sigmoids: set[Place]) -> None:
        bindings = self.file.names.reaching(name)
        value = bindings[0].value if len(bindings) == 1 and bindings[0].element is None else None
        if value is None:
            raise NoFix("the probabilities come from several places")
        source = unshaped(value)
        others = [n for n in self._reads(bindings[0], name.id) if not any(n is unshaped(given) for given in self.taken)]
        if self._model_of(source) is not None:
            self.joined.add(source)
            for other in others:
                self._sigmoid(other)
            return
        logits = self._logits(source, sigmoids)
        if logits is not None and not others:
            self.found.append(Replace(self.file.span(source), self.file.text(logits)))
        elif logits is not None and isinstance(logits, ast.Name) and self._still_is(logits, name) and source is value:
            self.found.append(Replace(self.file.span(name), logits.id))
        elif logits is not None and source is value:
            self._name_logits(name, value, logits)
        elif isinstance(source, ast.Name) and not others:
            self._join_name(source, sigmoids)
        else:
            raise NoFix("the probabilities come from elsewhere")

    def _still_is(self, logits: ast.Name, at: ast.Name) -> bool:
        """Whether the name of the logits means the same where the loss is taken."""
        scope, bindings = self.file.names.lookup(logits)
        return len(bindings) == 1 and scope is self.file.names.lookup(at)[0]

    def _name_logits(self, name: ast.Name, value: ast.expr, logits: ast.expr) -> None:
        """Give the logits a name of their own, and the probabilities theirs after it."""
        statement = self.syntax.statement(value)
        simple = isinstance(statement, ast.Assign) and statement.value is value and len(statement.targets) == 1
        require(simple and not any(n.id == "logits" for n in self.syntax.all(ast.Name)), "the logits have no name")
        text = self.file.text(value).replace(self.file.text(logits), "logits", 1)
        line = f"logits = {self.file.text(logits)}"
        require("\n" not in line + text, "the logits stand on several lines")
        self.found.append(InsertStatements(self.file.span(statement), (line,)))
        self.found.append(Replace(self.file.span(value), text))
        self.found.append(Replace(self.file.span(name), "logits"))

    def _reads(self, binding: Binding, name: str) -> list[ast.Name]:
        """The places where a binding of a name is read."""
        names = [n for n in self.syntax.all(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]
        return [n for n in names if any(b is binding or b.node is binding.node for b in self.file.names.reaching(n))]

    def _sigmoid(self, node: ast.expr) -> None:
        """Take the sigmoid of what is no longer probabilities."""
        parent = self.syntax.parents[node]
        if isinstance(parent, ast.Attribute) and parent.attr in NO_VALUES:
            return
        text = self.file.text(node)
        require("\n" not in text or isinstance(node, ast.Call), "the probabilities stand on several lines")
        self.found += [Replace(self.file.span(node), f"torch.sigmoid({text})"), AddImport("torch")]

    # models

    def _model(self, model: Object) -> None:
        """Let a model return logits, and take the sigmoid of it wherever it is not trained."""
        made = model.made
        if made is None or self._is_handed_on(made) or not self._is_only_here(model, made):
            raise NoFix("the model may be used elsewhere")
        given = [e for e in self._events("probabilities given") if getattr(e.data["model"], "made", None) == made]
        sigmoids = {event.data["sigmoid"] for event in given}
        if isinstance(model.type, Class):
            sigmoid = sigmoids.pop()
            if sigmoids or not isinstance(sigmoid, Place):
                raise NoFix("the model ends in several places")
            self._forward(model.type, sigmoid)
        else:
            self._last_layer(made)
        for call in dict.fromkeys(self._call(event.place) for event in given):
            if call not in self.joined:
                self._sigmoid(call)

    def _is_only_here(self, model: Object, made: Place) -> bool:
        """Whether nothing but what stands in this file can run a model: it is made in a function, or in a script that nobody imports."""
        call = self._call(made)
        importers = self.trace.project.importers(self.path) if self.trace.project is not None else ()
        script = any(entry.script and entry.path == self.path for entry in self.trace.entries) and not importers
        if not isinstance(model.type, Class):
            return script or self.syntax.function(call) is not None
        name = model.type.name
        uses = [n for n in self.syntax.all(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load) and n is not call.func]
        return script and model.type.path == self.path and all(is_super(self.file, n) for n in uses)

    def _forward(self, owner: Class, sigmoid: Place) -> None:
        """Drop the sigmoid that ends the forward pass of a class."""
        last = self._call(sigmoid)
        forward = self.syntax.function(last)
        home = self.syntax.enclosing_class(last)
        calls = [c for c in self.syntax.all(ast.Call) if isinstance(c.func, ast.Attribute) and c.func.attr == "forward"]
        ends = [r for r in self.syntax.all(ast.Return) if self.syntax.function(r) is forward]
        inside = forward is not None and forward.name == "forward" and home is not None and home.name == owner.name
        require(inside and len(ends) == 1 and ends[0].value is not None and not calls, "the forward pass ends in several places")
        value = ends[0].value
        if isinstance(value, ast.Name):
            bindings = self.file.names.reaching(value)
            bound = bindings[0].value if len(bindings) == 1 and bindings[0].element is None else None
            reads = self._reads(bindings[0], value.id) if bound is not None else []
            require(bound is not None and reads == [value], "the forward pass ends in several places")
            value = bound
        require(value is not None and unshaped(value) is last, "the model does not end in a sigmoid")
        layers = self._model_of(last)
        if layers is not None and layers.made is not None:
            given = {e.place for e in self._events("probabilities given") if getattr(e.data["model"], "made", None) == layers.made}
            require(given == {sigmoid} and not self._is_handed_on(layers.made), "the layers run in several places")
            self._last_layer(layers.made)
        elif (logits := self._logits(last, {sigmoid})) is not None:
            self.found.append(Replace(self.file.span(last), self.file.text(logits)))
        else:
            raise NoFix("the model does not end in a sigmoid")

    def _last_layer(self, made: Place) -> None:
        """Drop the sigmoid at the end of an `nn.Sequential`."""
        call = self._call(made)
        sequential = self.file.names.resolve(call.func) == "torch.nn.Sequential"
        last = call.args[-1] if call.args else None
        ends = isinstance(last, ast.Call) and self.file.names.resolve(last.func) == "torch.nn.Sigmoid"
        require(sequential and ends and len(call.args) > 1 and not has_star(call), "the model does not end in a sigmoid")
        if last is not None:
            self.found.append(drop_argument(self.file, call, last))


def is_super(file: SourceFile, name: ast.Name) -> bool:
    """Whether a class's name is only the argument of `super(Net, self)`."""
    parent = file.syntax.parents[name]
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "super"


def unshaped(node: ast.expr) -> ast.expr:
    """An expression without the methods around it that keep its values: `x.squeeze(1).float()` is x."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=inner)) if attr in SHAPES:
                node = inner
            case ast.Subscript(value=ast.Call() as inner):
                node = inner
            case _:
                return node
