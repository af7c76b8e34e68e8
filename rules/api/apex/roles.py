"""Which expressions stand for the models and optimizers of a migration in the functions of a file."""

from __future__ import annotations

import ast

from mplint.python.definitions import Definitions, own_statements
from mplint.python.definitions import passed as given
from mplint.python.file import SourceFile
from mplint.python.syntax import FUNCTIONS, Function

from .setup import Setup

KEEPS_HOUSE = {
    "train", "eval", "to", "cuda", "cpu", "parameters", "named_parameters", "state_dict", "load_state_dict", "zero_grad", "modules", "half",
    "float", "parse_batch", "no_sync", "children", "named_modules", "buffers", "requires_grad_", "apply", "save_pretrained",
}  # fmt: skip

ASKS = {"hasattr", "getattr", "isinstance", "id", "type", "print", "len", "repr", "str"}


class Roles:
    """The texts that mean a model or an optimizer, function by function: the names of the setup, parameters that get them, wrappers."""

    def __init__(self, file: SourceFile, setup: Setup, definitions: Definitions) -> None:
        self.file, self.setup, self.definitions = file, setup, definitions
        self._known: dict[Function | None, tuple[frozenset[str], frozenset[str]]] = {}

    def models(self, node: ast.AST) -> frozenset[str]:
        """The texts that mean a model where `node` stands."""
        return self._of(self.file.syntax.function(node))[0]

    def optimizers(self, node: ast.AST) -> frozenset[str]:
        """The texts that mean an optimizer where `node` stands."""
        return self._of(self.file.syntax.function(node))[1]

    def _of(self, function: Function | None) -> tuple[frozenset[str], frozenset[str]]:
        if function not in self._known:
            base = frozenset(self.setup.models), frozenset(self.setup.optimizers)
            self._known[function] = base  # a function that calls itself
            self._known[function] = base if function is None else self._inside(function)
        return self._known[function]

    def _inside(self, function: Function) -> tuple[frozenset[str], frozenset[str]]:
        """The texts of the surroundings, less the parameters that hide them, and the parameters that get one."""
        outer = self.file.syntax.function(function)
        owner = self.file.syntax.function(self.setup.call)
        named = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        inside = owner is None or function is owner or any(p is owner for p in self.file.syntax.ancestors(function))
        models, optimizers = ({t for t in texts if inside or "." in t or t in named} for texts in self._of(outer))
        sites = self.definitions.call_sites.get(function, [])
        for parameter in sorted(named) if function is not owner else ():
            passed = [given(site, function, parameter) for site in sites]
            for texts, known in ((models, self.models), (optimizers, self.optimizers)):
                texts -= {parameter} if sites else set()
                if passed and all(p is not None and ast.unparse(p) in known(s) for p, s in zip(passed, sites, strict=True)):
                    texts.add(parameter)
        for statement in own_statements(function):
            match statement:
                case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=ast.Call(func=func, args=[wrapped, *_])):
                    if "Parallel" in ast.unparse(func) and ast.unparse(wrapped) in models:
                        models.add(ast.unparse(target))
        return frozenset(models), frozenset(optimizers)

    def runs_model(self, statement: ast.AST, depth: int = 0) -> bool:
        """Whether a statement calls a model, hands it to what computes with it, or calls a function of the file that does."""
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) and not depth:
            return False
        models = self.models(statement) if not isinstance(statement, FUNCTIONS) else self._of(statement)[0]
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id in ASKS:
                continue
            taken = [node.func, *node.args, *(k.value for k in node.keywords)]
            if any(isinstance(a, (ast.Name, ast.Attribute)) and ast.unparse(a) in models for a in taken):
                return True
            match node.func:
                case ast.Attribute(attr=attr, value=owner) if attr not in KEEPS_HOUSE and ast.unparse(owner) in models:
                    return True
            callee = self.definitions.callee(node)
            if callee is not None and depth < 2 and self.runs_model(callee, depth + 1):
                return True
        return False

    def model_of(self, optimizer: str) -> str | None:
        """The one model whose parameters an optimizer steps; None where that can't be told."""
        if len(self.setup.models) == 1:
            return self.setup.models[0]
        found = set()
        for statement in self.file.syntax.all(ast.Assign):
            if any(ast.unparse(target) == optimizer for target in statement.targets):
                found |= {m for m in self.setup.models if f"{m}.parameters()" in ast.unparse(statement.value)}
        return found.pop() if len(found) == 1 else None

    def optimizer_of(self, node: ast.AST) -> str | None:
        """The one optimizer whose gradients an expression looks at, judged by the model that it names; None where that can't be told."""
        optimizers = self.optimizers(node)
        if len(self.setup.optimizers) == 1:
            return min(optimizers, default=None)
        text = ast.unparse(node)
        found = [o for o in optimizers if (model := self.model_of(o)) is not None and f"{model}." in text]
        return found[0] if len(found) == 1 else None
