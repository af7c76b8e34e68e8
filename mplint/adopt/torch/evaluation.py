"""Forward passes that no gradient is taken of: validation, tests and samples."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from mplint.adopt.execution import within
from mplint.adopt.torch.losses import casts, computed, is_fragile, is_spectral, names_in
from mplint.adopt.torch.models import RUNS, Models, is_model
from mplint.adopt.torch.passages import STEPS, Passage, Passages
from mplint.findings import Change, InsertStatements
from mplint.frameworks.torch.protocol import GRADIENTS_OFF
from mplint.program.values import Atom, Context, External
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function
from mplint.recipes.scaler.plan import NoFix

QUIET = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad")
MOST_BETWEEN = 4  # statements between a model and a loss of what it gives
SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


class Evaluations:
    """Finds the forward passes without gradients of one file."""

    def __init__(self, models: Models, passages: Passages) -> None:
        self.models, self.passages = models, passages
        self.file, self.execution = models.file, models.execution

    def all(self, skip: Sequence[Passage] = ()) -> list[Passage]:
        """Every passage without gradients, in source order, but what stands in `skip`."""
        taken = {s for passage in skip for top in self.passages.between(passage.first, passage.last) for s in ast.walk(top)}
        found: list[Passage] = []
        for block in self._quiet_blocks():
            if self._is_run_by(taken, block[0]):
                continue
            for passage in self._in_block(block, taken):
                taken |= {s for top in self.passages.between(passage.first, passage.last) for s in ast.walk(top)}
                found.append(passage)
        return sorted(found, key=lambda passage: position(passage.first))

    def _is_run_by(self, taken: set[ast.AST], statement: ast.stmt) -> bool:
        """Whether a statement stands in a function that only passages call: it runs under their autocast."""
        function = self.file.syntax.function(statement)
        if function is None or not taken:
            return False
        calls = [call for call in self.file.syntax.all(ast.Call) if function in self.execution.functions(call)]
        return bool(calls) and all(call in taken for call in calls)

    def _quiet_blocks(self) -> Iterator[list[ast.stmt]]:
        """The blocks in which gradients are off: under `no_grad`, or in a function that switches its model to evaluation."""
        for block in self.file.syntax.all(ast.With):
            if not self._is_inside_model(block) and any(self._is_quiet(item.context_expr) for item in block.items):
                yield block.body
        for function in self.file.syntax.all(ast.FunctionDef):
            if self._evaluates(function) and not self._is_inside_model(function.body[0]):
                yield function.body

    def _is_inside_model(self, statement: ast.stmt) -> bool:
        """Whether a statement is part of a forward pass that others run."""
        owner, function = self.file.syntax.enclosing_class(statement), self.file.syntax.function(statement)
        if owner is None or function is None or not self.models.is_module_class(owner):
            return False
        if function.name == "forward":
            return True
        return any(isinstance(n, ast.Call) and function in self.execution.functions(n) for n in ast.walk(owner))

    def _is_quiet(self, node: ast.expr) -> bool:
        """Whether a context manager or decorator turns gradients off."""
        found = self.execution.values(node)
        return bool(found) and all(turns_off(atom) for atom in found)

    def _evaluates(self, function: Function) -> bool:
        if any(self._is_quiet(d) for d in function.decorator_list):
            return True
        if function.name == "forward" or any(self.execution.leads_to(s, *STEPS, "gradients taken") for s in function.body):
            return False
        switches = trains = False
        for node in sorted((n for s in function.body for n in within(s) if isinstance(n, ast.Call)), key=position):
            match node:
                case ast.Call(func=ast.Attribute(attr="eval"), args=[]):
                    switches = True
                case ast.Call(func=ast.Attribute(attr="train"), args=[]):
                    trains = trains or not switches
        return switches and not trains

    def _in_block(self, block: list[ast.stmt], taken: set[ast.AST]) -> Iterator[Passage]:
        index = 0
        while index < len(block):
            statement = block[index]
            index += 1
            if statement in taken or isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or not self._computes(statement):
                continue
            if self.execution.leads_to(statement, "gradients taken") and not any(getattr(statement, name, None) for name in BLOCKS):
                continue  # what is differentiated without a loss scale
            if inner := [getattr(statement, name) for name in BLOCKS if getattr(statement, name, None)]:
                if self._header_runs(statement) and taken.isdisjoint(ast.walk(statement)):
                    yield Passage(statement, statement)
                    continue
                for body in inner:
                    for item in body if body and isinstance(body[0], (ast.ExceptHandler, ast.match_case)) else [None]:
                        yield from self._in_block(item.body if item is not None else body, taken)
                continue
            passage, index = self._passage(block, index - 1, taken)
            if passage is not None:
                yield passage

    def _computes(self, statement: ast.stmt) -> bool:
        """Whether a statement runs a model where autocast is not in force, and neither trains nor evaluates in a function of its own.

        The float32 arm of a condition that has an arm under autocast stays.
        """
        calls = [node for node in within(statement) if isinstance(node, (ast.Call, ast.BinOp)) and self._runs_here(node)]
        return any(not any(self.file.names.exclusive(call, region) for region in self._regions) for call in calls)

    def _runs_here(self, node: ast.AST) -> bool:
        work = self.execution.own_work(node)
        return any(item.kind in RUNS and item.owned and not item.covered for item in work) and not self._is_apart(node)

    @cached_property
    def _regions(self) -> list[ast.AST]:
        """The `with` statements that enter autocast."""
        found = {node for _, event in self.execution.events("autocast entered") if (node := self.execution.node(event.place)) is not None}
        return [self.file.syntax.statement(node) for node in found]

    def _is_apart(self, call: ast.AST) -> bool:
        """Whether a call runs a function, no model, of another file, or of this one that evaluates by itself or enters autocast."""
        if self.execution.leaves(call) and not any(is_model(atom) for atom, _ in self.execution.callees(call)):
            return True
        for callee in self.execution.functions(call):
            owner = self.file.syntax.enclosing_class(callee)
            if callee.name in ("forward", "__call__") or (owner is not None and self.models.is_module_class(owner)):
                continue
            blocks = [n for n in ast.walk(callee) if isinstance(n, ast.With)]
            if self._evaluates(callee) or any(region in blocks for region in self._regions):
                return True
            if any(self._is_quiet(i.context_expr) for n in blocks for i in n.items):
                return True
            if any(self.execution.leads_to(s, *STEPS) for s in callee.body):
                return True
        return False

    def _header_runs(self, statement: ast.stmt) -> bool:
        """Whether the head of a compound statement runs a model."""
        heads = [getattr(statement, name, None) for name in ("test", "iter", "subject")]
        return any(head is not None and any(self._runs_here(n) for n in within(head)) for head in heads)

    def _passage(self, block: list[ast.stmt], start: int, taken: set[ast.AST]) -> tuple[Passage | None, int]:
        """The passage that begins at a statement: with the losses that follow, up to one that has to be computed in float32."""
        last = start
        results = set(computed(self.models, block[start], set()))
        end = start + 1
        outside: list[ast.stmt] = []
        for index in range(start + 1, len(block)):
            statement = block[index]
            compound = any(getattr(statement, name, None) for name in BLOCKS)
            if compound and self._only_rearranges(statement):
                results |= set(computed(self.models, statement, results))
                continue
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or compound:
                break
            runs = self._computes(statement)
            reads = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} & results
            loss = bool(reads) and self.models.takes_loss(statement)
            if not runs and not loss:
                if reads and is_fragile(self.models, statement):
                    outside.append(statement)
                results |= set(computed(self.models, statement, results)) if reads and isinstance(statement, ast.Assign) else set()
                if index - last > MOST_BETWEEN:
                    break
                continue
            if not runs and is_fragile(self.models, statement):
                outside.append(statement)
                break
            last, end = index, index + 1
            results |= set(computed(self.models, statement, results))
        outside = [s for s in outside if position(s) > position(block[last])]
        outside += [s for s in self._spectra_after(block[last]) if s not in outside]
        outputs = {name for s in block[start : last + 1] for name in self._outputs(s)}
        outside += [s for s in block[last + 1 :] if s not in outside and self._hands_on(s, outputs)]
        outside += [s for s in self._losses_behind(block, results) if s not in taken]
        try:
            changes = tuple(casts(self.models, block[start : last + 1], outside))
        except NoFix:
            changes = ()
        if not self._evaluates_around(block[0]):
            changes += tuple(self._handed_behind(block, results, taken))
        return Passage(block[start], block[last], changes), end

    def _evaluates_around(self, statement: ast.stmt) -> bool:
        """Whether a statement stands in a function that evaluates as a whole."""
        home = self.file.syntax.function(statement)
        return isinstance(home, ast.FunctionDef) and self._evaluates(home)

    def _behind(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """The statements behind the `with` statement that turns gradients off for a whole block."""
        around = self.file.syntax.parents[block[0]]
        if not isinstance(around, ast.With) or around.body is not block:
            return []
        following = self.file.syntax.block(around)
        return following[next(i for i, s in enumerate(following) if s is around) + 1 :]

    def _losses_behind(self, block: list[ast.stmt], results: set[str]) -> Iterator[ast.stmt]:
        """The losses of results that are taken behind the block."""
        for statement in self._behind(block):
            if not isinstance(statement, (*SIMPLE, ast.If)) or self._computes(statement):
                return
            for item in [statement] if not isinstance(statement, ast.If) else [s for s in ast.walk(statement) if isinstance(s, SIMPLE)]:
                if self.models.takes_loss(item) and results & {n.id for n in ast.walk(item) if isinstance(n, ast.Name)}:
                    yield item

    def _handed_behind(self, block: list[ast.stmt], results: set[str], taken: set[ast.AST]) -> Iterator[Change]:
        """Casts of what models get behind the block that run in float32."""
        behind = self._behind(block)
        users = [s for s in behind if isinstance(s, ast.Assign) and s not in taken and self._computes(s)]
        for name in sorted(results & {n.id for s in users for n in names_in(s.value)}):
            first = next(s for s in behind if name in {n.id for n in ast.walk(s) if isinstance(n, ast.Name)})
            yield InsertStatements(self.file.span(first), (f"{name} = {name}.float()",))

    def _only_rearranges(self, statement: ast.stmt) -> bool:
        """Whether a condition neither runs a model nor leaves its block: what follows it always follows."""
        jumps = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.With, *FUNCTIONS)
        return (
            isinstance(statement, ast.If) and not self._computes(statement) and not any(isinstance(n, jumps) for n in ast.walk(statement))
        )

    def _outputs(self, statement: ast.stmt) -> set[str]:
        """The names that a statement gives to what a model, called by itself, gives."""
        value = statement.value if isinstance(statement, ast.Assign) else None
        called = [atom for atom, method in self.execution.callees(value) if not method] if isinstance(value, ast.Call) else []
        if not called or not all(is_model(atom) for atom in called) or not isinstance(statement, ast.Assign):
            return set()
        return {target.id for target in statement.targets if isinstance(target, ast.Name)}

    def _hands_on(self, statement: ast.stmt, results: set[str]) -> bool:
        """Whether a statement hands results to a function of another file, which may compute with them beside float32 tensors."""
        calls = [n for n in within(statement) if isinstance(n, ast.Call)] if isinstance(statement, (ast.Assign, ast.Expr)) else []
        handed = [c for c in calls if any(isinstance(value, ast.Name) and value.id in results for value in c.args)]
        return any(self.execution.leaves(c) and not any(is_model(atom) for atom, _ in self.execution.callees(c)) for c in handed)

    def _spectra_after(self, last: ast.stmt) -> list[ast.stmt]:
        """The statements of a function that compute spectra after a passage."""
        home = self.file.syntax.function(last)
        simple = [s for s in self.file.syntax.all(ast.Assign) if self.file.syntax.function(s) is home and position(s) > position(last)]
        return [s for s in sorted(simple, key=position) if is_spectral(self.models, s)]


def turns_off(atom: Atom) -> bool:
    """Whether a value is a context in which gradients are off."""
    return (type(atom) is Context and atom.kind == GRADIENTS_OFF) or (type(atom) is External and atom.name in QUIET)
