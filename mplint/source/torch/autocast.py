"""Autocast regions: every autocast a program builds, where it is entered, and what is in force at a node."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from mplint.source.syntax import FUNCTIONS, Function, argument, has_star
from mplint.source.values import HALF, UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

NEW_HOMES = {"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"}
OLD_HOMES = {f"torch.{device}.amp.{path}autocast": device for device in ("cuda", "cpu") for path in ("", "autocast_mode.")}
WRAPPERS = {
    "accelerate.Accelerator": "mixed_precision",
    "lightning.fabric.Fabric": "precision",
    "lightning.Fabric": "precision",
    "lightning_fabric.Fabric": "precision",
}
WRAPPER_DTYPES = {
    "fp16": "float16",
    "16-mixed": "float16",
    "bf16": "bfloat16",
    "bf16-mixed": "bfloat16",
    "no": "float32",
    "32-true": "float32",
}
TOGGLE = "torch.set_autocast_enabled"
PARTIALS = {"functools.partial", "functools.partialmethod"}
PARAMETERS = {True: ("enabled", "dtype", "cache_enabled"), False: ("device_type", "dtype", "enabled", "cache_enabled")}
# torch.get_autocast_dtype by device; the tests compare it with data/autocast_ops.toml.
DEFAULT_DTYPES = {
    "cpu": "bfloat16", "cuda": "float16", "xpu": "float16", "mps": "float16", "hpu": "bfloat16", "xla": "bfloat16",
    "mtia": "float16", "maia": "bfloat16", "ipu": "float16", "privateuseone": "float16",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Autocast:
    """One place that builds an autocast.

    `node` is the construction (a call, `functools.partial(...)` included, or the name of a bare decorator), `call` the call or None.
    `old` tells the homes whose first parameter is `enabled`. `devices` holds device types ("cuda", …), "?" for one that can't be told.
    `dtypes` are the dtypes it may run in while enabled, "?" likewise. `enabled` is True, False or "maybe" (then `guard` is the text of
    the deciding expression, "" where there is none). `cache_enabled` is None where it is not given or open.
    """

    node: ast.expr
    call: ast.Call | None
    name: str
    old: bool
    devices: frozenset[str]
    dtypes: frozenset[str]
    enabled: bool | Literal["maybe"] = True
    guard: str = ""
    cache_enabled: bool | None = None
    partial: bool = False

    @property
    def half(self) -> frozenset[str]:
        """The half dtypes ("?": one that can't be told) that it may put in force; empty where it is off or float32."""
        return frozenset() if self.enabled is False else self.dtypes & (HALF | {UNKNOWN})


class Region(NamedTuple):
    """A stretch of the program in which an autocast may be in force.

    `node` is the With statement ("with"), the decorated function ("decorator"), or the call that turns it on ("opened" for `__enter__`
    and `enter_context`, "global" for `torch.set_autocast_enabled`). `expression` is the context manager, decorator or call.
    `autocasts` are the constructions that may stand behind it. `foreign`: something else that this file does not define and
    that may be an autocast can stand there too. `always`: on every run one of `autocasts` is entered (no `nullcontext` arm).
    """

    kind: Literal["with", "decorator", "opened", "global"]
    node: ast.AST
    expression: ast.expr
    autocasts: tuple[Autocast, ...]
    foreign: bool = False
    always: bool = True

    @property
    def sure(self) -> bool:
        """Whether an enabled autocast is entered on every run."""
        return self.always and not self.foreign and bool(self.autocasts) and all(a.enabled is True for a in self.autocasts)


class Meaning(NamedTuple):
    """What a context manager expression may stand for."""

    autocasts: tuple[Autocast, ...] = ()
    foreign: bool = False
    other: bool = False


class Autocasts:
    """The autocast facts of one file: `constructions`, `regions`, `regions_around(node)`, `half_at(node)`, `half_reaching(node)`."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._meanings: dict[ast.expr, Meaning] = {}

    @cached_property
    def constructions(self) -> tuple[Autocast, ...]:
        """Every autocast that the file builds, in source order."""
        if "autocast" not in self.file.document.text:
            return ()
        found = [made for call in self.file.syntax.all(ast.Call) if (made := self._construction(call)) is not None]
        for function in self._functions():
            for decorator in function.decorator_list:
                if (name := self._home(decorator)) is not None:
                    found.append(Autocast(decorator, None, name, name in OLD_HOMES, *self._defaults(name)))
        return tuple(sorted(found, key=lambda a: (a.node.lineno, a.node.col_offset)))

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Every region of the file; the ones that `regions_around` and the event flow speak of."""
        return (*self._withs, *self._decorated, *self._opened, *self._toggles)

    def entered(self, autocast: Autocast) -> tuple[Region, ...]:
        """The regions in which this construction may be in force; empty where nothing in the file enters it."""
        return tuple(r for r in self.regions if any(a is autocast for a in r.autocasts))

    def escapes(self, autocast: Autocast) -> bool:
        """Whether the object leaves the place where it is built: stored, passed, returned, yielded or called.

        False where it is entered at once, decorates, or is dropped by an expression statement.
        """
        parent = self.file.syntax.parents.get(autocast.node)
        return not isinstance(parent, (ast.withitem, ast.Expr, *FUNCTIONS, ast.ClassDef))

    def is_probe(self, node: ast.AST) -> bool:
        """Whether the code at `node` runs to see whether it fails: in a short `try` body or under `pytest.raises` and its kin."""
        child = node
        for parent in self.file.syntax.ancestors(node):
            if isinstance(parent, ast.Try) and child is self.file.syntax.statement(node) and child in parent.body[:3]:
                return any(last_name(h.type) != "KeyboardInterrupt" for h in parent.handlers if h.type is not None)
            if isinstance(parent, (ast.With, ast.AsyncWith)) and isinstance(child, ast.stmt):
                managers = [i.context_expr.func for i in parent.items if isinstance(i.context_expr, ast.Call)]
                if any(last_name(m).startswith(("raises", "warns", "deprecated_call", "suppress", "assert")) for m in managers):
                    return True
            if isinstance(parent, FUNCTIONS):
                break
            child = parent
        return False

    def regions_around(self, node: ast.AST) -> list[Region]:
        """The regions lexically in force at `node` in its own function, innermost first (a nested function's body is not run there)."""
        found: list[Region] = []
        child: ast.AST = node
        owner: ast.AST = self.file.tree
        for parent in self.file.syntax.ancestors(node):
            if isinstance(parent, (ast.With, ast.AsyncWith)):
                before = parent.items[: parent.items.index(child)] if isinstance(child, ast.withitem) else parent.items
                found += [r for item in reversed(before) for r in self._by_expression.get(item.context_expr, ())]
            elif isinstance(parent, ast.Lambda):
                return found
            elif isinstance(parent, FUNCTIONS) and isinstance(child, ast.stmt):
                owner = parent
                break
            child = parent
        found += reversed([r for r in (*self._opened, *self._toggles) if self._reaches(r, node, owner)])
        return found + [r for r in reversed(self._decorated) if r.node is owner]

    def half_at(self, node: ast.AST) -> frozenset[str]:
        """The half dtypes that may be in force at `node` ("?": half, or not, by a wrapper or setting that can't be read); empty: none."""
        found: set[str] = set()
        decided: set[str] = set()
        for region in self.regions_around(node):
            if region.foreign:
                found.add(UNKNOWN)
            for autocast in region.autocasts:
                if UNKNOWN not in decided and not (autocast.devices <= decided):
                    found |= autocast.half
            if region.always and not region.foreign:
                decided |= {device for a in region.autocasts for device in a.devices}
                if UNKNOWN in decided:
                    break
        return frozenset(found)

    def half_reaching(self, node: ast.AST, depth: int = 4) -> frozenset[str]:
        """Like `half_at`, and where the function itself says nothing, what its callers in this file have in force."""
        if self.regions_around(node) or depth == 0:
            return self.half_at(node)
        function = self.file.syntax.function(node)
        calls = self.file.values.call_sites.get(function, []) if function is not None else []
        return frozenset().union(*(self.half_reaching(call, depth - 1) for call in calls))

    def sure_at(self, node: ast.AST) -> bool:
        """Whether an enabled autocast is in force at `node` on every run, whatever flags say."""
        around = self.regions_around(node)
        return bool(around) and around[0].sure

    def meaning(self, expression: ast.expr) -> Meaning:
        """What a context manager expression may stand for, through names, attributes, properties, partials and helpers."""
        known = self._meanings.get(expression)
        if known is None:
            self._meanings[expression] = Meaning()
            known = self._meanings[expression] = self._meaning(expression)
        return known

    def _meaning(self, expression: ast.expr) -> Meaning:
        found: dict[int, Autocast] = {}
        foreign = other = False
        for definition in self._expanded(expression):
            made = self._by_node.get(definition) if isinstance(definition, ast.expr) else None
            if made is not None and not made.partial:
                found[id(made)] = made
            elif isinstance(definition, ast.Call) and (inner := self._of_call(definition)) is not None:
                found.update((id(a), a) for a in inner.autocasts)
                foreign, other = foreign or inner.foreign, other or inner.other
            elif looks_foreign(definition):
                foreign = True
            else:
                other = True
        return Meaning(tuple(found.values()), foreign, other)

    def _expanded(self, expression: ast.expr) -> list[ast.expr | ast.arg]:
        found: list[ast.expr | ast.arg] = []
        for definition in self.file.values.definitions(expression):
            getter = self.file.names.local_function(definition) if isinstance(definition, ast.Attribute) else None
            if isinstance(getter, FUNCTIONS) and any("property" in self.file.text(d) for d in getter.decorator_list):
                for value in self.file.values.returns(getter):
                    found += self.file.values.definitions(value)
            else:
                found.append(definition)
        return found

    def _of_call(self, call: ast.Call) -> Meaning | None:
        """What calling a stored partial or a generator-based context manager of this file enters."""
        callee = self.file.names.local_function(call.func)
        if isinstance(callee, FUNCTIONS):
            inner = [r for y in self.file.syntax.all(ast.Yield) if self.file.syntax.function(y) is callee for r in self.regions_around(y)]
            return Meaning(tuple(a for r in inner for a in r.autocasts), any(r.foreign for r in inner), not inner) if inner else None
        if callee is not None or self.file.names.candidates(call.func):
            return None
        made = [self._by_node.get(d) if isinstance(d, ast.expr) else None for d in self._expanded(call.func)]
        partials = [a for a in made if a is not None and a.partial]
        return Meaning(tuple(partials), other=len(partials) < len(made)) if partials else None

    @cached_property
    def _by_node(self) -> dict[ast.AST, Autocast]:
        return {a.node: a for a in self.constructions}

    @cached_property
    def _by_expression(self) -> dict[ast.expr, list[Region]]:
        table: dict[ast.expr, list[Region]] = {}
        for region in self._withs:
            table.setdefault(region.expression, []).append(region)
        return table

    def _functions(self) -> list[Function]:
        return [*self.file.syntax.all(ast.FunctionDef), *self.file.syntax.all(ast.AsyncFunctionDef)]

    def _region(self, kind: Literal["with", "decorator", "opened"], node: ast.AST, expression: ast.expr) -> list[Region]:
        meaning = self.meaning(expression)
        return (
            [Region(kind, node, expression, meaning.autocasts, meaning.foreign, not meaning.other)]
            if meaning.autocasts or meaning.foreign
            else []
        )

    @cached_property
    def _withs(self) -> list[Region]:
        withs: list[ast.With | ast.AsyncWith] = [*self.file.syntax.all(ast.With), *self.file.syntax.all(ast.AsyncWith)]
        return [r for w in withs for item in w.items for r in self._region("with", w, item.context_expr)]

    @cached_property
    def _decorated(self) -> list[Region]:
        found: list[Region] = []
        for function in self._functions():
            for decorator in function.decorator_list:
                tail = last_name(decorator.func) if isinstance(decorator, ast.Call) else ""
                if isinstance(decorator, ast.Call) and (
                    tail == "force_fp32" or (tail == "custom_fwd" and argument(decorator, "cast_inputs"))
                ):
                    off = Autocast(decorator, decorator, tail, False, frozenset([UNKNOWN]), frozenset(["float32"]), False)
                    found.append(Region("decorator", function, decorator, (off,)))
                else:
                    found += self._region("decorator", function, decorator)
        return found

    @cached_property
    def _opened(self) -> list[Region]:
        found: list[Region] = []
        for call in self.file.syntax.all(ast.Call):
            match call.func:
                case ast.Attribute(value=manager, attr="__enter__"):
                    found += self._region("opened", call, manager)
                case ast.Attribute(attr="enter_context" | "enter_async_context") if call.args:
                    found += self._region("opened", call, call.args[0])
        return found

    @cached_property
    def _toggles(self) -> list[Region]:
        found: list[Region] = []
        for call in self.file.syntax.all(ast.Call):
            if last_name(call.func) == "set_autocast_enabled" and call.args and self.file.names.resolve(call.func) == TOGGLE:
                device = self._devices(call.args[0]) if len(call.args) > 1 else frozenset(["cuda"])
                state = self.file.values.constant_or(call.args[-1], UNKNOWN)
                on: bool | Literal["maybe"] = state if isinstance(state, bool) else "maybe"
                dtypes = frozenset(DEFAULT_DTYPES.get(d, UNKNOWN) for d in device)
                made = Autocast(call, call, TOGGLE, False, device, dtypes, on, "" if on != "maybe" else self.file.text(call.args[-1]))
                found.append(Region("global", call, call, (made,)))
        return found

    def _reaches(self, region: Region, node: ast.AST, owner: ast.AST) -> bool:
        """Whether a region opened by a call is still open at a later node of the same function."""
        syntax, start = self.file.syntax, place(region.node)
        if not start < place(node) or (syntax.function(region.node) or self.file.tree) is not owner:
            return False
        if self.file.names.exclusive(region.node, node):
            return False
        if region.kind == "global":
            return True
        call = region.node
        holder = last_name(call.func.value) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        for block in syntax.ancestors(call):
            items = block.items if isinstance(block, (ast.With, ast.AsyncWith)) else []
            if any(item.optional_vars is not None and last_name(item.optional_vars) == holder for item in items):
                return any(parent is block for parent in syntax.ancestors(node))
        return not any(start < place(other) <= place(node) and last_name(other.value) == holder for other in self._closers)

    @cached_property
    def _closers(self) -> list[ast.Attribute]:
        return [a for a in self.file.syntax.all(ast.Attribute) if a.attr in ("__exit__", "close", "pop_all")]

    def _home(self, node: ast.expr) -> str | None:
        return next((n for n in self.file.names.candidates(node) if n in NEW_HOMES or n in OLD_HOMES), None)

    def _construction(self, call: ast.Call) -> Autocast | None:
        name = self._home(call.func)
        if name is not None:
            return self._made(call, name, 0)
        if call.args and self.file.names.resolve(call.func) in PARTIALS and (name := self._home(call.args[0])) is not None:
            return self._made(call, name, 1)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "autocast":
            for made, name in self.file.values.made_by(call.func.value):
                if name in WRAPPERS:
                    return self._wrapped(call, made, name)
        return None

    def _made(self, call: ast.Call, name: str, shift: int) -> Autocast:
        old = name in OLD_HOMES
        given = {p: argument(call, p, i + shift) for i, p in enumerate(PARAMETERS[old])}
        devices, dtypes = self._defaults(name) if old else (self._devices(given["device_type"]), frozenset())
        if given["dtype"] is not None and self.file.values.constant_or(given["dtype"], UNKNOWN) is not None:
            dtypes = frozenset(self.file.values.dtypes(given["dtype"]))
        elif has_star(call):
            dtypes = frozenset([UNKNOWN])
        elif not old:
            dtypes = frozenset(DEFAULT_DTYPES.get(d, UNKNOWN) for d in devices)
        enabled, guard = self._enabled(given["enabled"], call)
        if shift == 0 and not all(n in NEW_HOMES or n in OLD_HOMES for n in self.file.names.candidates(call.func)):
            enabled = enabled and "maybe"
        cache = self.file.values.constant_or(given["cache_enabled"])
        return Autocast(call, call, name, old, devices, dtypes, enabled, guard, cache if isinstance(cache, bool) else None, shift > 0)

    def _wrapped(self, call: ast.Call, made: ast.Call, name: str) -> Autocast:
        modes = self.file.values.strings(argument(made, WRAPPERS[name])) or {None}
        dtypes = frozenset(WRAPPER_DTYPES.get(mode or "", UNKNOWN) for mode in modes)
        return Autocast(call, call, name, False, frozenset([UNKNOWN]), dtypes, True if UNKNOWN not in dtypes else "maybe")

    def _defaults(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        device = OLD_HOMES.get(name, UNKNOWN)
        return frozenset([device]), frozenset([DEFAULT_DTYPES.get(device, UNKNOWN)])

    def _devices(self, node: ast.expr | None) -> frozenset[str]:
        return frozenset(UNKNOWN if s is None else s.partition(":")[0] for s in self.file.values.strings(node)) or frozenset([UNKNOWN])

    def _enabled(self, node: ast.expr | None, call: ast.Call) -> tuple[bool | Literal["maybe"], str]:
        if node is None:
            return ("maybe" if has_star(call) else True), ""
        value = self.file.values.constant_or(node, UNKNOWN)
        return (bool(value), "") if isinstance(value, (bool, int)) else ("maybe", self.file.text(node))


def looks_foreign(node: ast.AST) -> bool:
    """Whether a context manager that the file does not define is named like an autocast or is handed in from outside."""
    name = node.arg if isinstance(node, ast.arg) else last_name(node.func if isinstance(node, ast.Call) else node)
    words = name.lower().strip("_").split("_")
    return "autocast" in name.lower() or any(w in ("amp", "ctx", "context", "precision", "fp16", "bf16") for w in words)


def last_name(node: ast.AST) -> str:
    """The last identifier of a dotted expression, "" for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def place(node: ast.AST) -> tuple[int, int]:
    """Line and column of a node that has them."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
