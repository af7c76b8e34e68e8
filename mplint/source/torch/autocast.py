"""Autocast regions: every autocast a program builds, where it is entered, and what is in force at a node."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from mplint.python.syntax import FUNCTIONS, Function, argument
from mplint.source.torch.autocast_calls import DEFAULT_DTYPES as DEFAULT_DTYPES
from mplint.source.torch.autocast_calls import NEW_HOMES as NEW_HOMES
from mplint.source.torch.autocast_calls import Autocast as Autocast
from mplint.source.torch.autocast_calls import bare_decorator, construction, devices_of
from mplint.source.values import UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

TOGGLE = "torch.set_autocast_enabled"


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
        found = [construction(self.file, call) for call in self.file.syntax.all(ast.Call)]
        found += [bare_decorator(self.file, d) for function in self._functions() for d in function.decorator_list]
        return tuple(sorted((a for a in found if a is not None), key=lambda a: (a.node.lineno, a.node.col_offset)))

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
        found, owner = self._entered_around(node)
        if owner is None:
            return found
        found += reversed([r for r in (*self._opened, *self._toggles) if self._reaches(r, node, owner)])
        return found + [r for r in reversed(self._decorated) if r.node is owner]

    def _entered_around(self, node: ast.AST) -> tuple[list[Region], ast.AST | None]:
        """The `with` regions around a node, innermost first, and the function or module that they stand in (None in a lambda)."""
        found: list[Region] = []
        child: ast.AST = node
        for parent in self.file.syntax.ancestors(node):
            if isinstance(parent, (ast.With, ast.AsyncWith)):
                before = parent.items[: parent.items.index(child)] if isinstance(child, ast.withitem) else parent.items
                found += [r for item in reversed(before) for r in self._region("with", parent, item.context_expr)]
            elif isinstance(parent, ast.Lambda):
                return found, None
            elif isinstance(parent, FUNCTIONS) and isinstance(child, ast.stmt):
                return found, parent
            child = parent
        return found, self.file.tree

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
            inner = self._known(definition)
            if inner is not None:
                found.update((id(a), a) for a in inner.autocasts)
                foreign, other = foreign or inner.foreign, other or inner.other
            elif looks_foreign(definition):
                foreign = True
            else:
                other = True
        return Meaning(tuple(found.values()), foreign, other)

    def unknown(self, expression: ast.expr) -> list[ast.expr]:
        """What a context manager expression may stand for that this file does not tell."""
        return [d for d in self._expanded(expression) if isinstance(d, ast.expr) and self._known(d) is None]

    def _known(self, definition: ast.expr | ast.arg) -> Meaning | None:
        """What an autocast, or a call of this file's functions and classes, stands for."""
        made = self._by_node.get(definition)
        if made is not None and not made.partial:
            return Meaning((made,))
        return self._of_call(definition) if isinstance(definition, ast.Call) else None

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
            return merged([self.regions_around(y) for y in self.file.syntax.all(ast.Yield) if self.file.syntax.function(y) is callee])
        if isinstance(callee, ast.ClassDef):
            return self._of_class(callee)
        if callee is not None or self.file.names.candidates(call.func):
            return None
        made = [self._by_node.get(d) if isinstance(d, ast.expr) else None for d in self._expanded(call.func)]
        partials = [a for a in made if a is not None and a.partial]
        return Meaning(tuple(partials), other=len(partials) < len(made)) if partials else None

    def _of_class(self, owner: ast.ClassDef) -> Meaning | None:
        """What entering an instance of a class of this file enters: what its `__enter__` opens, or what a base of it is."""
        enter = self.file.names.method(owner, "__enter__")
        if enter is None:
            return Meaning(foreign=True) if any("autocast" in name for name in self.file.names.base_names(owner)) else None
        opened = [r for call in ast.walk(enter) if isinstance(call, ast.Call) for r in self._opened_by(call)]
        opened += [region for region in self._toggles if self.file.syntax.function(region.node) is enter]
        return merged([opened])

    def _of_decorator(self, decorator: ast.expr) -> Meaning | None:
        """What a decorator of this file puts in force around the function that it wraps."""
        maker = self.file.names.local_function(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if not isinstance(maker, FUNCTIONS):
            return None
        wrapped = {f.args.args[0] for f in ast.walk(maker) if isinstance(f, FUNCTIONS) and f.args.args}
        calls = [(c, c.func) for c in ast.walk(maker) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]
        runs = [call for call, func in calls if any(b.node in wrapped for b in self.file.names.reaching(func))]
        return merged([self._entered_around(call)[0] for call in runs])

    @cached_property
    def _by_node(self) -> dict[ast.AST, Autocast]:
        return {a.node: a for a in self.constructions}

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
                elif (meaning := self._of_decorator(decorator)) is not None:
                    found.append(Region("decorator", function, decorator, meaning.autocasts, meaning.foreign, not meaning.other))
                else:
                    found += self._region("decorator", function, decorator)
        return found

    @cached_property
    def _opened(self) -> list[Region]:
        return [r for call in self.file.syntax.all(ast.Call) for r in self._opened_by(call)]

    def _opened_by(self, call: ast.Call) -> list[Region]:
        match call.func:
            case ast.Attribute(value=manager, attr="__enter__"):
                return self._region("opened", call, manager)
            case ast.Attribute(attr="enter_context" | "enter_async_context") if call.args:
                return self._region("opened", call, call.args[0])
        return []

    @cached_property
    def _toggles(self) -> list[Region]:
        found: list[Region] = []
        for call in self.file.syntax.all(ast.Call):
            if last_name(call.func) == "set_autocast_enabled" and call.args and self.file.names.resolve(call.func) == TOGGLE:
                device = devices_of(self.file, call.args[0]) if len(call.args) > 1 else frozenset(["cuda"])
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


def merged(around: list[list[Region]]) -> Meaning | None:
    """What the regions around several places put in force together; None where there are none."""
    found = [regions[0] for regions in around if regions]
    if not found:
        return None
    autocasts = {id(a): a for region in found for a in region.autocasts}
    sure = len(found) == len(around) and all(region.always for region in found)
    return Meaning(tuple(autocasts.values()), any(region.foreign for region in found), not sure)


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
