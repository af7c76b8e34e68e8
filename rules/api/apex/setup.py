"""What a file's call of `apex.amp.initialize` says about the scaler and the autocast that take its place."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from mplint.python.file import SourceFile
from mplint.python.syntax import argument
from mplint.recipes.scaler.insertion import grad_scaler
from mplint.recipes.scaler.plan import NoFix, require

from .uses import Apex, probes_for_apex

READ = {"models", "optimizers", "opt_level", "loss_scale", "enabled"}
DROPPED = {"keep_batchnorm_fp32", "verbosity", "cast_model_type", "patch_torch_functions", "master_weights", "num_losses"}
MAIN = "__name__ == '__main__'"


class Setup(NamedTuple):
    """The call of `initialize`, the texts of models and optimizers, and how scaler and autocast are built.

    `branch` is the `if` around the call that decides about mixed precision, `alone` whether it holds nothing else. `rebound` assigns
    what got a new name in the call, "" where nothing did. `enabled` is the text of the condition under which mixed precision is on, ""
    where it always is. `aliases` are the attributes of `self` that hold a name of that condition.
    """

    call: ast.Call
    branch: ast.If | None
    alone: bool
    models: tuple[str, ...]
    optimizers: tuple[str, ...]
    rebound: str
    scaler: str
    construction: str
    autocast: str
    enabled: str
    aliases: tuple[tuple[str, str], ...]

    def canonical(self, text: str) -> str:
        """A condition in the words of the function that calls `initialize`: `self.args.fp16` is `args.fp16` there."""
        return in_names(text, self.aliases)


def in_names(text: str, aliases: tuple[tuple[str, str], ...]) -> str:
    """A condition with the names that attributes of `self` hold in their place."""
    for name, attribute in aliases:
        text = re.sub(rf"\b{re.escape(attribute)}\b", name, text)
    return text


def setup_of(file: SourceFile, apex: Apex, call: ast.Call, scaled: list[ast.Call]) -> Setup:
    """Read the call of `initialize`; `scaled` are the calls of `scale_loss`."""
    models, optimizers, rebound = names_of(file, call)
    unknown = {k.arg for k in call.keywords} - READ - DROPPED
    require(not unknown and len(call.args) <= 4, f"`{', '.join(sorted(map(str, unknown)))}` has no counterpart in GradScaler")
    enabled, branch = condition(file, apex, call, scaled)
    aliases = aliases_of(file, apex, call, enabled)
    enabled = in_names(enabled, aliases)
    scaler = "self.scaler" if any(text.startswith("self.") for text in (*models, *optimizers)) else "scaler"
    last = scaler.rpartition(".")[2]
    taken = any(n.id == last for n in file.syntax.all(ast.Name)) or any(a.arg == last for a in file.syntax.all(ast.arg))
    require(not taken and not any(a.attr == last for a in file.syntax.all(ast.Attribute)), f"the file has another `{last}`")
    shown = f", enabled={switch(file, enabled)}" if enabled else ""
    construction = grad_scaler(apex.targets, '"cuda"', [*scale_options(file, apex, call), shown[2:]])
    old = apex.targets.torch_lacks("1.10")
    autocast = f"torch.cuda.amp.autocast({shown[2:]})" if old else f'torch.autocast("cuda", dtype=torch.float16{shown})'
    alone = branch is not None and not branch.orelse and holds_only(file, branch, file.syntax.statement(call))
    return Setup(call, branch, alone, models, optimizers, rebound, scaler, construction, autocast, enabled, aliases)


def aliases_of(file: SourceFile, apex: Apex, call: ast.Call, enabled: str) -> tuple[tuple[str, str], ...]:
    """The names of a condition that the function around `call` also keeps as attributes of `self`."""
    owner, function = file.syntax.enclosing_class(call), file.syntax.function(call)
    names = {n.id for n in ast.walk(ast.parse(enabled or "None", mode="eval")) if isinstance(n, ast.Name)} - {"self"}
    found = []
    for (holder, attribute), values in apex.definitions.attributes.items():
        match values:
            case [ast.Name(id=name)] if holder is owner and name in names and file.syntax.function(values[0]) is function:
                found.append((name, f"self.{attribute}"))
    return tuple(found)


def names_of(file: SourceFile, call: ast.Call) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The texts of the models and the optimizers after the call, and the assignment of those that got a new name in it."""
    statement = file.syntax.statement(call)
    given = argument(call, "models", 0), argument(call, "optimizers", 1)
    match statement, given:
        case ast.Assign(targets=[ast.Tuple(elts=[models, optimizers])], value=value), (ast.expr(), ast.expr()) if value is call:
            pass
        case _:
            raise NoFix("`amp.initialize` is not the usual assignment of model and optimizer")
    pairs: list[tuple[ast.expr, ast.expr]] = []
    counts = []
    for target, passed in zip((models, optimizers), given, strict=True):
        found = list(zip(parts(target), parts(passed), strict=False)) if passed is not None else []
        require(len(parts(target)) == len(found) > 0, "what `amp.initialize` returns can't be told apart")
        pairs += found
        counts.append(len(found))
    texts = [ast.unparse(target) for target, _ in pairs]
    require(all(isinstance(t, (ast.Name, ast.Attribute)) for t, _ in pairs), "what `amp.initialize` returns can't be told apart")
    renamed = [(text, file.text(passed)) for text, (_, passed) in zip(texts, pairs, strict=True) if text != ast.unparse(passed)]
    require(not any("\n" in passed for _, passed in renamed), "model or optimizer are built in the call of `amp.initialize`")
    rebound = f"{', '.join(t for t, _ in renamed)} = {', '.join(p for _, p in renamed)}" if renamed else ""
    return tuple(texts[: counts[0]]), tuple(texts[counts[0] :]), rebound


def parts(node: ast.expr | None) -> list[ast.expr]:
    """The elements of a list or tuple, or the expression itself."""
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node] if node is not None else []


def condition(file: SourceFile, apex: Apex, call: ast.Call, scaled: list[ast.Call]) -> tuple[str, ast.If | None]:
    """The condition under which mixed precision is on, and the `if` that speaks of it."""
    enabled = ""
    parent = file.syntax.parents[file.syntax.statement(call)]
    branch = parent if isinstance(parent, ast.If) and ast.unparse(parent.test) != MAIN else None
    if branch is not None and all(any(p is branch for p in file.syntax.ancestors(s)) for s in scaled):
        branch = None  # everything that needs the scaler stands in the same branch
    if branch is not None:
        require(any(branch.body[i] is file.syntax.statement(call) for i in range(len(branch.body))), "`amp.initialize` is in an `else`")
        around = file.syntax.parents[branch]
        nested = isinstance(around, ast.If) and ast.unparse(around.test) != MAIN
        require(not nested, "the condition around `amp.initialize` stands in another one")
        enabled = without_availability(file, apex, branch.test)
    given = argument(call, "enabled", 2)
    if given is not None and not (is_written(file, given) and apex.definitions.constant_or(given) is True):
        require(not enabled, "mixed precision depends on two conditions")
        enabled = ast.unparse(given)
    level = argument(call, "opt_level", 3)
    levels = levels_of(file, apex, level)
    if levels == {"O0"}:
        return "False", branch
    if "O3" in levels:
        raise NoFix("level O3 has no counterpart")
    if not levels <= {"O0", "O1", "O2", None} or ((len(levels) > 1 or None in levels) and not isinstance(level, (ast.Name, ast.Attribute))):
        raise NoFix("the level is not known")
    if levels <= {"O1", "O2"} or level is None:
        return enabled, branch
    chosen = f"{ast.unparse(level)} != 'O0'"
    if not enabled:
        return chosen, branch
    whole = ast.parse(enabled, mode="eval").body
    either = isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.Or)
    return f"({enabled}) and {chosen}" if either else f"{enabled} and {chosen}", branch


def levels_of(file: SourceFile, apex: Apex, level: ast.expr | None) -> set[str | None]:
    """The levels that a program asks for, None where its user may choose."""
    if level is None:
        return {"O1"}
    return apex.definitions.strings(level) if is_written(file, level) else {None}


def is_written(file: SourceFile, node: ast.expr) -> bool:
    """Whether the value of an expression stands in the program, so that no option of the user's can be another than its default."""
    bound = [b.value for b in file.names.reaching(node)] if isinstance(node, ast.Name) else [node]
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return own or (bool(bound) and all(isinstance(v, ast.Constant) for v in bound))


def without_availability(file: SourceFile, apex: Apex, test: ast.expr) -> str:
    """The text of a condition without the parts that ask whether apex is installed, "" where nothing is left."""
    kept = [part for part in conjuncts(test) if not asks_for_apex(apex, part)]
    return " and ".join(f"({t})" if isinstance(p, ast.BoolOp) else t for p in kept for t in [ast.unparse(p)])


def conjuncts(test: ast.expr) -> list[ast.expr]:
    """The parts of a condition that must all hold."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def asks_for_apex(apex: Apex, part: ast.expr) -> bool:
    """Whether a condition is one of the flags that the import of apex sets, or asks if there is an `amp`."""
    match part:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return name in {i.name for i in apex.imports}
        case ast.Name(id=name):
            return name in apex.flags or any(i.name == name and apex.is_guarded(i.statement) for i in apex.imports)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=True)]):
            return name in apex.flags
    return probes_for_apex(part)


def holds_only(file: SourceFile, branch: ast.If, statement: ast.stmt) -> bool:
    """Whether a branch holds nothing but a statement and the imports that it needs."""
    others = [s for s in branch.body if s is not statement]
    return all(isinstance(s, (ast.Try, ast.ImportFrom, ast.Import)) and "apex" in file.text(s) for s in others)


def switch(file: SourceFile, enabled: str) -> str:
    """The condition as a bool, which autocast asks for."""
    parts = conjuncts(ast.parse(enabled, mode="eval").body)
    text = enabled.replace("'", '"')
    return text if all(is_bool(file, part) for part in parts) else f"bool({text})"


def is_bool(file: SourceFile, part: ast.expr) -> bool:
    """Whether an expression gives a bool: a comparison, a negation, or an option that is a flag."""
    if isinstance(part, ast.Compare | ast.Constant) or (isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)):
        return True
    name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
    for call in file.syntax.all(ast.Call) if name else ():
        match call:
            case ast.Call(func=ast.Attribute(attr="add_argument")):
                flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                action = argument(call, "action")
                stores = isinstance(action, ast.Constant) and action.value in ("store_true", "store_false")
                if stores and any(flag.lstrip("-").replace("-", "_") == name for flag in flags):
                    return True
    return False


def scale_options(file: SourceFile, apex: Apex, call: ast.Call) -> list[str]:
    """The options of the scaler for the `loss_scale` that was asked for."""
    given = argument(call, "loss_scale")
    value = "dynamic" if given is None else apex.definitions.constant_or(given, "?") if is_written(file, given) else "?"
    if value is None or value == "dynamic":
        return []
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
    except ValueError:
        number = 0.0
    if value == "?" and isinstance(given, (ast.Name, ast.Attribute)):
        text = ast.unparse(given)
        return [f'init_scale=65536.0 if {text} in (None, "dynamic") else float({text})']
    require(number > 1.0, "the loss scale is not known")
    return [f"init_scale={number}", "growth_interval=2**31 - 1"]
