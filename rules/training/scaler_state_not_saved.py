"""MP307: a checkpoint for resuming holds the optimizer's state and not the loss scaler's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mplint.findings import Applicability, Change, Confidence, Finding, Fix, InsertStatements, Replace, Severity, Span, When
from mplint.rule import Rule
from mplint.source.file import SourceFile
from mplint.source.names import Binding, position
from mplint.source.syntax import FUNCTIONS, argument
from mplint.source.torch.checkpoints import Handed, Saved, methods

WHY = "a resumed run starts at the initial scale again, 65536 by default, and skips steps until it fits"


class ScalerStateNotSaved(Rule):
    """
    ## What it does
    Finds checkpoints that hold the state of an optimizer which a live GradScaler steps, and not the scaler's, in code that resumes
    training. Also an optimizer class that holds a scaler and inherits its `state_dict`.

    ## Why is this bad?
    After a resume the scaler starts at 65536 again instead of the scale that it had found. Where the model needed less, the first steps
    overflow and are skipped: about log2(65536 / scale) of them, 10 for a scale of 64. The run is not the one that was interrupted.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer, path):
        scaler = torch.amp.GradScaler("cuda")
        if path.exists():
            checkpoint = torch.load(path)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer, path):
        scaler = torch.amp.GradScaler("cuda")
        if path.exists():
            checkpoint = torch.load(path)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scaler.load_state_dict(checkpoint["scaler"])
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, path)
    ```

    ## Fix safety
    Unsafe: the fix adds the key `"scaler"` to the checkpoint and, where the optimizer's state is loaded in sight, loads the scaler's state
    where the checkpoint has it. Code that checks the keys of a checkpoint may object. There is no fix where the scaler may be missing.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp307.py

    ## References
    - <https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html#saving-resuming>
    """

    code = "MP307"
    name = "scaler-state-not-saved"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch",)
    tokens = ("GradScaler", "NativeScaler", ".unscale_(", ".scale(")

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Report each optimizer state that is saved without that of its scaler, and each wrapper that loses it."""
        text = file.document.text
        if file.is_test:
            return
        if ".state_dict()" in text:
            for saved in file.torch.checkpoints.without_scaler:
                yield self._saved(file, saved)
        if "load" in text:
            for handed in file.torch.checkpoints.handed_on:
                yield self._handed(file, handed)
        if "Optimizer)" in text and "GradScaler(" in text:
            for owner, scaler in file.torch.checkpoints.lost_by_wrappers:
                yield self.finding(
                    file,
                    scaler.node,
                    f"`{owner.name}` holds a loss scaler, and the `state_dict` that it inherits does not save the scaler's state",
                    why=WHY,
                    help="override `state_dict` and `load_state_dict` to include the scaler's",
                    confidence=Confidence.MEDIUM,
                    related=((owner.bases[0], "`state_dict` comes from here"),),
                )

    def _handed(self, file: SourceFile, handed: Handed) -> Finding:
        save, optimizer, scaler = (file.text(node) for node in (handed.call.func, handed.optimizer, handed.scaler))
        return self.finding(
            file,
            handed.call,
            f"`{save}` saves the state of `{optimizer}` and not that of its loss scaler `{scaler}`",
            why=WHY,
            help="hand it the scaler too, save the scaler's state, and load it on resume",
            related=((handed.scaler, "the scaler is used with this optimizer here"),),
            when=When("saves", f"{handed.name} {handed.key}"),
        )

    def _saved(self, file: SourceFile, saved: Saved) -> Finding:
        scaler = file.text(saved.scaler)
        return self.finding(
            file,
            saved.call,
            f"the checkpoint holds the state of `{file.text(saved.optimizer)}` and not that of its loss scaler `{scaler}`",
            why=WHY,
            help=f"save `{scaler}.state_dict()` too, and load it on resume",
            related=((saved.scaler, "the scaler is used with this optimizer here"),),
            fix=save_it(file, saved),
        )


def save_it(file: SourceFile, saved: Saved) -> Fix | None:
    """Add the scaler's state to the dict, and load it after the optimizer's where that is in sight."""
    scaler = name_at(file, saved.scaler, saved.call)
    added = addition(file, saved, scaler) if scaler is not None else None
    if scaler is None or added is None:
        return None
    loaded = loading(file, saved, scaler)
    rest = " and load it" if loaded else "; loading it, where training resumes, is left to you"
    return Fix(f"Save the scaler's state too{rest}", Applicability.UNSAFE, (added, *loaded))


def addition(file: SourceFile, saved: Saved, scaler: str) -> Change | None:
    """The change that puts the scaler's state beside the optimizer's."""
    match saved.store:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=held), slice=index)], value=value) if value is saved.call:
            quote = file.text(index)[:1]
            return InsertStatements(file.span(saved.store), (f"{held}[{quote}scaler{quote}] = {scaler}.state_dict()",), after=True)
        case ast.Dict(keys=keys, values=values) if saved.call in values:
            key = keys[values.index(saved.call)]
            if key is None or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                return None
            quote = file.text(key)[:1]
            return beside(file, key, saved.call, f"{quote}scaler{quote}: {scaler}.state_dict()")
        case ast.Call(keywords=keywords, func=ast.Name(id="dict")):
            keyword = next((k for k in keywords if k.value is saved.call), None)
            return beside(file, keyword, saved.call, f"scaler={scaler}.state_dict()") if keyword is not None else None
    return None


def beside(file: SourceFile, key: ast.expr | ast.keyword, value: ast.expr, text: str) -> Replace:
    """Insert an item after the one of `key` and `value`: on a line of its own where that stands on one."""
    span = file.span(key)
    end = file.span(value)
    before = file.lines[span.line - 1][: span.column]
    rest = file.lines[end.end_line - 1][end.end_column :]
    alone = re.fullmatch(r"\s*,\s*(#.*)?", rest) is not None and not before.strip()
    joint = f",\n{before}" if alone else ", "
    return Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column), joint + text)


def loading(file: SourceFile, saved: Saved, scaler: str) -> tuple[Change, ...]:
    """The statements that load the scaler's state after the optimizer's, where both are known there."""
    checkpoints = file.torch.checkpoints
    key = checkpoints.subjects.key(saved.optimizer)
    loads = [(call, owner) for call, owner in methods(file, "load_state_dict") if checkpoints.subjects.key(owner) == key]
    if len(loads) != 1:
        return ()
    (call, _), statement = loads[0], file.syntax.statement(loads[0][0])
    match argument(call, "state_dict", 0):
        case ast.Subscript(value=ast.Name(id=held), slice=ast.Constant(value=str()) as item):
            here = name_at(file, saved.scaler, call)
            if here is None or not isinstance(statement, ast.Expr) or statement.value is not call:
                return ()
            quote = file.text(item)[:1]
            state = f"{quote}scaler{quote}"
            lines = (f"if {held}.get({state}):", f"    {here}.load_state_dict({held}[{state}])")
            return (InsertStatements(file.span(statement), lines, after=True),)
    return ()


def name_at(file: SourceFile, scaler: ast.expr, node: ast.AST) -> str | None:
    """How the scaler is reached at `node`, where it certainly exists there; else None."""
    syntax, checkpoints = file.syntax, file.torch.checkpoints
    if checkpoints.scalers.is_wrapper(scaler):
        return None
    match scaler:
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            owner = syntax.enclosing_class(node)
            values = file.values.attributes.get((owner, attr), []) if owner is not None else []
            if len(values) != 1 or not isinstance(values[0], ast.Call) or owner is not syntax.enclosing_class(scaler):
                return None
            ready = syntax.function(values[0]) is not syntax.function(node) or position(values[0]) < position(node)
            return file.text(scaler) if ready and is_plain(file, syntax.statement(values[0])) else None
        case ast.Name(id=name):
            scope, bound = file.names.lookup(scaler)
            seen = [syntax.function(node) or syntax.tree, syntax.tree]
            if len(bound) == 1 and scope is next((s for s in seen if name in file.names.bindings.get(s, {})), None):
                return name if is_ready(file, bound[0], node, scope is syntax.tree) else None
    return None


def is_ready(file: SourceFile, binding: Binding, node: ast.AST, module_level: bool) -> bool:
    """Whether a name certainly holds the scaler at `node`."""
    if isinstance(binding.node, ast.arg):
        owner = file.syntax.function(binding.node)
        default = file.values.default(owner, binding.node.arg) if owner is not None else None
        return default is None
    if not isinstance(binding.value, ast.Call) or not is_plain(file, file.syntax.statement(binding.node)):
        return False
    return position(binding.node) < position(node) or (module_level and file.syntax.function(node) is not None)


def is_plain(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether a statement runs whenever its function (or module) does."""
    return isinstance(file.syntax.parents[statement], (*FUNCTIONS, ast.Module))
