"""Which classes a float16 region runs, by the names that the syntax of a project tells: a guess that is on the careful side."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mistakes.project import Project
from mistakes.sources import (
    Facts,
    Kind,
    Mutant,
    Program,
    calls_of,
    class_of,
    dotted,
    first_line,
    function_of,
    last_name,
    runs,
    scaler_calls,
)

MODULES = ("Module", "LightningModule", "ModuleList", "Sequential")
REGIONS = ("autocast", "amp.autocast", "torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "cuda.amp.autocast")
POLICY = re.compile(r"""set_(global_)?(dtype_)?policy\(.{0,80}['"]mixed_float16|Policy\(['"]mixed_float16""", re.S)
SETTERS = ("set_global_policy", "set_dtype_policy", "set_policy")
AMP = re.compile(r"^\s*(from [\w.]+ import .*\bamp\b|import .*\bas amp\b)", re.M)
FLOAT16 = frozenset(("fp16", "float16", "16", "16-mixed", "half", "true", "16-true"))
BRANCHED = ("bfloat16", "float32", "cpu", "False")


def facts_of(programs: Iterable[Program], pins: str, project: Project) -> Facts:
    """What makers of mistakes may take for granted in these files, by the project around them and by what it says of versions."""
    first = Facts(project=project)
    sources = [replace(p, facts=first) for p in programs]
    text = "\n".join(p.text for p in sources)
    return Facts(
        half=frozenset(half_classes(sources)) if "GradScaler(" in text else frozenset(),
        scaled="GradScaler(" in text and "autocast" in text,
        regions=frozenset(program.path for program in sources if program.calls.get("autocast")),
        stepped=any(scaler_calls(program, "step") for program in sources),
        keras_half=frozenset(under_policies(sources)) if POLICY.search(text) else frozenset(),
        wrapped=any(calls_of(program, "LossScaleOptimizer") for program in sources),
        unscaled=any(scaler_calls(program, "unscale_") for program in sources),
        old_torch=re.search(r"\btorch\W{0,3}[=~<]=?\W?\s*(1\.|2\.[0-3]\b)", pins) is not None,
        accelerated=any(in_float16(p, c) for p in sources for c in calls_of(p, "Accelerator", "Fabric")),
        project=project,
        scaling=frozenset(p.path for p in sources if any(can_be_on(p, c) and is_wrapped(sources, p, c) for c in calls_of(p, "GradScaler"))),
        casting=frozenset(p.path for p in sources if any(can_be_on(p, c) for c in calls_of(p, "autocast"))),
        policed=any(runs(p, c) for p in sources for c in calls_of(p, *SETTERS) if mixed(p, c)),
        saved=any(runs(p, c) for p in sources for c in scaler_calls(p, "state_dict") if not passes_on(p, c)),
        restored=any(runs(p, c) for p in sources for c in scaler_calls(p, "load_state_dict") if not passes_on(p, c)),
    )


def in_float16(program: Program, call: ast.Call) -> bool:
    """Whether an accelerator may compute in float16, by what it is given."""
    given = [k.value for k in call.keywords if k.arg in ("mixed_precision", "precision")]
    return bool(given) and program.facts.project.may_be_any(given[0], FLOAT16)


def passes_on(program: Program, call: ast.Call) -> bool:
    """Whether a call stands in a method of its own name, which does nothing where nobody calls that."""
    around = function_of(program, call)
    return isinstance(around, ast.FunctionDef) and around.name == last_name(call.func)


def is_wrapped(programs: list[Program], program: Program, call: ast.Call) -> bool:
    """Whether a class that makes a scaler for itself is made where something runs; so is one of which no call is in sight."""
    around = class_of(program, call)
    if around is None:
        return True
    names = {around.name} | {
        alias.asname
        for p in programs
        for n in p.nodes
        if isinstance(n, ast.ImportFrom)
        for alias in n.names
        if alias.name == around.name and alias.asname
    }
    made = [(p, c) for p in programs for name in names for c in p.calls.get(name, ())]
    return not made or any(runs(p, c) for p, c in made)


def can_be_on(program: Program, call: ast.Call) -> bool:
    """Whether something reaches the call of a scaler or a region, and what says that it is enabled may be true."""
    given = [*(k.value for k in call.keywords if k.arg == "enabled"), *(call.args if last_name(call.func) == "autocast" else ())]
    return runs(program, call) and all(program.facts.project.possible(v, True, function_of(program, call)) for v in given)


def mixed(program: Program, call: ast.Call) -> bool:
    """Whether a call that sets a policy may set a mixed one."""
    words = ast.unparse(call)
    return "mixed" in words or not any(isinstance(a, ast.Constant) for a in call.args)


def is_on(program: Program, kind: Kind) -> bool:
    """Whether what a kind of mistake needs can be switched on: a scaler and a region, or a policy; for states, one that is restored."""
    facts = program.facts
    if kind.needs == "state":
        return bool(facts.scaling) and facts.saved and facts.restored
    if kind.needs == "policy":
        return facts.policed
    made = [program.path] if calls_of(program, "GradScaler") else facts.scaling
    entered = [program.path] if calls_of(program, "autocast") else facts.casting
    return kind.needs != "scaler" or (any(p in facts.scaling for p in made) and any(p in facts.casting for p in entered))


def is_run(program: Program, mutant: Mutant) -> bool:
    """Whether what a mutant changes may run: something reaches the functions around it, and the tests around it may come out so."""
    both = zip(program.lines, mutant.text.split("\n"), strict=False)
    changed = next((n for n, (one, other) in enumerate(both, 1) if one != other), 0)
    around = [n for n in program.nodes if isinstance(n, ast.stmt) and changed in range(first_line(n), (n.end_lineno or n.lineno) + 1)]
    return not around or runs(program, min(around, key=lambda n: ((n.end_lineno or n.lineno) - first_line(n), -n.col_offset)))


def under_policies(programs: list[Program]) -> set[tuple[str, str]]:
    """What runs under a mixed policy, by file and name of the definition; "" is the body of the file.

    Where a body sets it: that body, what it calls, and all of the package whose `__init__` it is. Where a function does: that function,
    those that call it, and what they call.
    """
    defined: dict[str, list[tuple[Program, ast.AST]]] = defaultdict(list)
    for program in programs:
        for node in definitions_in(program):
            defined[node.name].append((program, node))
    setters = {node.name for program in programs for node in definitions_in(program) if sets_policy(node)}
    waiting: list[tuple[Program, str, list[ast.AST]]] = []
    for program in programs:
        body = [s for s in program.tree.body if not isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
        if sets_policy(ast.Module(body, [])) or any(names_in(s) & setters for s in body):
            waiting.append((program, "", list(body)))
        waiting += [(program, n.name, [n]) for n in definitions_in(program) if n.name in setters or names_in(n) & setters]
        folder = os.path.dirname(program.path)
        if program.path.endswith("__init__.py") and sets_policy(ast.Module(body, [])):
            waiting += [(p, "", [p.tree]) for p in programs if p.path.startswith(folder + os.sep)]
    reached = set()
    while waiting:
        program, name, nodes = waiting.pop()
        if (program.path, name) in reached:
            continue
        reached.add((program.path, name))
        called = set().union(*(names_in(part) for node in nodes for part in behind(node, setters))) - setters
        for other in called & defined.keys():
            waiting += [(home, other, [node]) for home, node in defined[other] if len(defined[other]) == 1 or home is program]
    return reached


def behind(node: ast.AST, setters: set[str]) -> list[ast.stmt] | list[ast.AST]:
    """What of a function comes after the statement of its body that sets a policy, itself or by a call; all of what sets none."""
    body = node.body if isinstance(node, ast.FunctionDef) else []
    for number, statement in enumerate(body):
        if sets_policy(statement) or names_in(statement) & setters:
            return body[number:]
    return [node]


def definitions_in(program: Program) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The functions and classes of a file."""
    return (node for node in program.tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))


def sets_policy(node: ast.AST) -> bool:
    """Whether a node sets a mixed policy in float16."""
    text = ast.unparse(node)
    return POLICY.search(text) is not None and re.search(r"set_(global_)?(dtype_)?policy\(", text) is not None


def half_classes(programs: list[Program]) -> set[str]:
    """The modules of a project whose forward runs under autocast in float16, by name."""
    definitions = definitions_of(programs)
    roots = {
        name
        for region in programs
        if (called := set(called_in_regions(region)))
        for program in programs
        if program is region or uses(program, region)
        for target, value in assignments(program)
        if target in called
        for name in names_in(value)
    }
    reached = set()
    waiting = [name for name in roots if name in definitions]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += [other for node in definitions[name] for other in names_in(node) if other in definitions]
    return {name for name in reached if any(isinstance(node, ast.ClassDef) for node in definitions[name])}


def uses(program: Program, other: Program) -> bool:
    """Whether a file imports another and names what is defined there."""
    stem = os.path.basename(os.path.dirname(other.path) if other.path.endswith("__init__.py") else other.path).removesuffix(".py")
    defined = {node.name for node in other.tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return re.search(rf"^\s*(from|import)\b.*\b{re.escape(stem)}\b", program.text, re.M) is not None and not defined.isdisjoint(
        program.calls
    )


def definitions_of(programs: Iterable[Program]) -> dict[str, list[ast.AST]]:
    """The classes and functions of a project, by name; names that mean several things are left out."""
    found: dict[str, list[ast.AST]] = defaultdict(list)
    for program in programs:
        for node in program.tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found[node.name].append(node)
    return {name: nodes for name, nodes in found.items() if len(nodes) == 1}


def called_in_regions(program: Program) -> Iterator[str]:
    """The names of what is called as a function in the regions of a file that compute in float16."""
    for node in program.nodes:
        if isinstance(node, ast.With) and any(is_half_region(program, item.context_expr) for item in node.items):
            for call in (n for statement in node.body for n in ast.walk(statement) if isinstance(n, ast.Call)):
                if last_name(call.func):
                    yield last_name(call.func)


def is_half_region(program: Program, node: ast.AST) -> bool:
    """Whether an expression enters autocast, in float16 as far as the call says."""
    if not isinstance(node, ast.Call) or dotted(node.func) not in REGIONS:
        return False
    if dotted(node.func) == "amp.autocast" and not AMP.search(program.text):
        return False
    words = ast.unparse(node)
    return not any(word in words for word in BRANCHED) and not any(k.arg == "dtype" and "float16" not in words for k in node.keywords)


def assignments(program: Program) -> Iterator[tuple[str, ast.expr]]:
    """The targets of assignments, by their last names."""
    for node in program.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and last_name(node.targets[0]) and calls_in(node.value):
            yield last_name(node.targets[0]), node.value


def calls_in(node: ast.AST) -> bool:
    """Whether something is called."""
    return any(isinstance(n, ast.Call) for n in ast.walk(node))


def names_in(node: ast.AST) -> set[str]:
    """The names that are read in a node."""
    return {last_name(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def forward_of(node: ast.ClassDef, name: str = "forward") -> ast.FunctionDef | None:
    """The method that computes, where it says nothing of dtypes by itself."""
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == name:
            words = ast.unparse(member)
            return None if re.search(r"float\(|float32|autocast|no_grad|checkpoint|dtype|inference|\.half\(", words) else member
    return None


def computed(node: ast.ClassDef, forward: ast.FunctionDef, layers: frozenset[str]) -> Iterator[tuple[ast.Assign, str]]:
    """The statements of a forward, not under conditions, that give a name what a layer of matrix work computes."""
    made = {
        last_name(n.targets[0])
        for n in ast.walk(node)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and last_name(n.value.func) in layers
    }
    other = {
        last_name(n.targets[0])
        for n in ast.walk(node)
        if isinstance(n, ast.Assign) and not (isinstance(n.value, ast.Call) and last_name(n.value.func) in layers)
    }
    for statement in forward.body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
            continue
        value = statement.value
        if isinstance(value, ast.Call) and last_name(value.func) in ("relu", "gelu", "leaky_relu") and value.args:
            value = value.args[0]
        of_self = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and last_name(value.func.value) == "self"
        if of_self and last_name(value.func) in made - other:  # type: ignore[attr-defined]
            yield statement, statement.targets[0].id


def reached_alone(program: Program) -> bool:
    """Whether the file that holds a class also holds the region that runs it."""
    return bool(list(called_in_regions(program))) and bool(calls_of(program, "GradScaler"))
