"""Build a scaler, scale the losses, unscale before clipping, step, update and save through it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import AddImport, Applicability, Change, Fix, InsertStatements, Replace
from mplint.python.definitions import Definitions, own_statements
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function, argument, words_of
from mplint.recipes.scaler.checkpoint import file_beside, loaded_after, loaded_from, methods, renamed, saved_beside, store_of
from mplint.recipes.scaler.handing import handed_on
from mplint.recipes.scaler.home import ROUND, built_beside, path_to
from mplint.recipes.scaler.looks import before_its_loops, is_after_one_of, is_between, runs_with
from mplint.recipes.scaler.plan import NoFix, require
from mplint.recipes.scaler.steps import another_follows, end_of_round
from mplint.targets import Targets

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

LOOPS = (ast.For, ast.AsyncFor, ast.While)
COUNTER = ROUND | {"current", "cur", "this", "index", "idx", "number", "i"}  # the words of a caller's counter


class Place(NamedTuple):
    """Where the scaler is built: before or after a statement, under which name."""

    anchor: ast.stmt
    scaler: str
    after: bool


class Forward(NamedTuple):
    """A region that computes the losses: the call that makes it, the text of its device ("": none), and the texts that switch it.

    `flag`: it is on where that holds ("": always); `dtype`: it is in float16 where that is ("": always). None: they have no name.
    """

    call: ast.Call
    device: str
    flag: str | None = ""
    dtype: str | None = ""


class Training(NamedTuple):
    """What losses are trained by: the backward passes to scale, those beside them, and the steps that apply their gradients.

    `looks`: what may clip, measure or read gradients; `made`: what makes an optimizer, or hands it in; `repeated`: the functions that
    loops outside of them call.
    """

    backwards: Sequence[ast.Call]
    others: Sequence[ast.Call]
    steps: Sequence[ast.Call]
    looks: Sequence[ast.expr]
    made: Callable[[ast.expr], Sequence[ast.AST]]
    forwards: Sequence[Forward] = ()
    repeated: Collection[Function] = ()


def scale_the_losses(file: SourceFile, training: Training, targets: Targets) -> Fix | None:
    """Scale the losses; None where not all of it is in sight."""
    try:
        changes = tuple(Insertion(file, training, targets=targets).changes())
    except NoFix:
        return None
    return Fix("Scale the loss with a GradScaler", Applicability.UNSAFE, tuple(dict.fromkeys(changes)))


def grad_scaler(targets: Targets, device: str, options: Sequence[str], torch: str = "torch") -> str:
    """The call that builds a scaler in the spelling that the project's torch has; `device` and `options` are texts ("": none)."""
    old = targets.torch_lacks("2.3")
    given = ", ".join(text for text in (*(() if old else (device,)), *options) if text)
    return f"{torch}.{'cuda.' if old else ''}amp.GradScaler({given})"


class Insertion:
    """Collects the changes; raises NoFix at the first thing that can't be told.

    `name` is what the scaler is to be called; `spelled` gives the call that builds it at a statement (None: for the regions' device, as
    the torch of `targets` has it).
    """

    def __init__(
        self,
        file: SourceFile,
        training: Training,
        name: str = "scaler",
        spelled: Callable[[ast.stmt], str] | None = None,
        targets: Targets | None = None,
    ) -> None:
        self.name, self.spelled, self.targets = name, spelled, targets or Targets()
        self.file, self.training, self.syntax = file, training, file.syntax
        self.definitions = Definitions(file.syntax, file.names)
        self.backwards = training.backwards
        inside = {self.syntax.function(b) for b in self.backwards}
        require(all(self._is_twin(c) for c in training.others if self.syntax.function(c) in inside), "another loss is not scaled")
        self.steps = training.steps
        require(bool(self.steps), "the optimizer's step is not in sight")
        self.optimizers = {ast.unparse(s.func.value): s.func.value for s in self.steps if isinstance(s.func, ast.Attribute)}
        self.place = self._place()

    def changes(self) -> Iterator[Change]:
        """Everything that has to change."""
        place, scaler = self.place, self.place.scaler
        yield InsertStatements(self.file.span(place.anchor), (f"{scaler} = {self.construction()}",), after=place.after)
        for call in self.backwards:
            statement = self.syntax.statement(call)
            plain = isinstance(statement, ast.Expr) and statement.value is call
            require(plain and isinstance(call.func, ast.Attribute), "the backward pass is not a statement of its own")
            loss = call.func.value if isinstance(call.func, ast.Attribute) else call
            # a tensor of scores may be half, where the scale that its gradients are multiplied by is infinite
            single = ".float()" if argument(call, "gradient", 0) is not None and not self.file.text(loss).endswith(".float()") else ""
            yield Replace(self.file.span(loss), f"{scaler}.scale({self.file.text(loss)}{single})")
        for call in self.steps:
            statement = self.syntax.statement(call)
            require(isinstance(statement, ast.Expr) and statement.value is call, "the step is not a statement of its own")
            owner = self.file.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            yield Replace(self.file.span(call), f"{scaler}.step({owner})")
            if not another_follows(self.file, call, self.steps, self.backwards):
                last = round_of(self.file, call, self.backwards) or end_of_round(self.file, call, self.steps, self.backwards)
                yield InsertStatements(self.file.span(last), (f"{scaler}.update()",), after=True)
        looks = list(self._unscaled())
        yield from (change for _, change in looks)
        kept = list(self._checkpoints())
        yield from (change for _, change in kept)
        helped = [node for node, _ in kept if not self._reaches(node)]
        yield from handed_on(self.file, place.anchor, scaler, [*self.backwards, *self.steps, *(node for node, _ in looks), *helped])
        if not any(a.name == "torch" and a.asname is None for i in self.syntax.all(ast.Import) for a in i.names):
            yield AddImport("torch")

    def _is_twin(self, node: ast.AST) -> bool:
        """Whether a call runs only where no scaled backward pass does: the float32 arm of a condition."""
        return all(self.file.names.exclusive(node, b) for b in self.backwards)

    def _unscaled(self) -> Iterator[tuple[ast.AST, Change]]:
        placed: list[tuple[ast.stmt, str]] = []
        looks = [n for n in self.training.looks if is_between(self.file, n, self.backwards, self.steps)]
        for node in sorted(looks, key=position):
            look = self.syntax.statement(node)
            if self._is_twin(look):
                continue
            statement = before_its_loops(self.file, look, self.steps)
            optimizer = self._optimizer_of(statement)
            if is_after_one_of(self.file, statement, [s for s, of in placed if of == optimizer]):
                continue
            stepped = [round_of(self.file, step, self.backwards) or step for step in self.steps]
            require(any(runs_with(self.file, statement, step) for step in stepped), "gradients are clipped where no step follows")
            placed.append((statement, optimizer))
            yield node, InsertStatements(self.file.span(statement), self._unscaling(optimizer))

    def _unscaling(self, optimizer: str) -> tuple[str, ...]:
        """The statements that unscale the gradients of an optimizer, or of all that are stepped under its name in a loop."""
        line = f"{self.place.scaler}.unscale_({optimizer})"
        rounds = [round_of(self.file, s, self.backwards) for s in self.steps if ast.unparse(s.func).rpartition(".")[0] == optimizer]
        loop = next((r for r in rounds if r is not None), None)
        return (line,) if loop is None else (f"for {optimizer} in {self.file.text(loop.iter)}:", f"    {line}")

    def _optimizer_of(self, statement: ast.stmt) -> str:
        """The optimizer whose gradients a statement looks at, judged by whose parameters it names."""
        if len(self.optimizers) == 1:
            return next(iter(self.optimizers))
        text = ast.unparse(statement)
        named = {name for name in self.optimizers for n in ast.walk(statement) if isinstance(n, ast.expr) and ast.unparse(n) == name}
        if len(named) == 1:
            return named.pop()
        found = {name for name in self.optimizers if "." in name and f"{name.rpartition('.')[0]}.parameters()" in text}
        for name, node in self.optimizers.items():
            for made in self.training.made(node):
                if isinstance(made, ast.Call) and any(part in text for part in parameters_of(made)):
                    found.add(name)
        if len(found) != 1 and (following := self._step_behind(statement)) is not None:
            return following
        require(len(found) == 1, "it is not clear which optimizer's gradients are clipped or read")
        return found.pop()

    def _step_behind(self, statement: ast.stmt) -> str | None:
        """The optimizer that steps next in the block of a statement, with no other backward pass before it."""
        block = self.syntax.block(statement)
        behind = [step for step in self.steps if position(step) > position(statement)]
        step = min(behind, key=position, default=None)
        if step is None or not any(self.syntax.statement(step) is item for item in block) or not isinstance(step.func, ast.Attribute):
            return None
        between = any(position(statement) < position(backward) < position(step) for backward in self.backwards)
        return None if between else ast.unparse(step.func.value)

    def _place(self) -> Place:
        owners = {text.partition(".")[0] for text in self.optimizers}
        if owners == {"self"}:
            return self._beside_attributes()
        placed = self._before_the_loop() or self._before_the_rounds() or self._around_the_function() or self._on_their_keeper()
        if placed is not None:
            return placed
        try:
            return self._beside_the_optimizers()
        except NoFix:
            if (placed := self._before_the_module_trains()) is None:
                raise
            return placed

    def _beside_attributes(self) -> Place:
        """After the last of the statements that make the optimizers of an object."""
        made = []
        for node in self.optimizers.values():
            values = set_values(self.definitions.kept_as(keeper_of(node))) if isinstance(node, ast.Attribute) else []
            if not values and (held := self._beside_the_base() or self._for_its_heirs(node)) is not None:
                return held
            if len(values) > 1 and (held := self._behind_all_arms(values) or self._for_all_makers(values)) is not None:
                return held
            require(len(values) < 2, "the optimizer is made in several places")
            once = len(values) == 1 and isinstance(values[0], (ast.Call, ast.IfExp, ast.Name, ast.Subscript))
            require(once, "the optimizer is not made in one place")
            made.append(self.syntax.statement(values[0]))
        last = max(made, key=position)
        together = {self.syntax.function(s) for s in made} == {self.syntax.function(last)}
        require(together and isinstance(self.syntax.parents[last], FUNCTIONS), "the optimizer is made under a condition")
        return Place(last, f"self.{self.name}", after=True)

    def _behind_all_arms(self, values: Sequence[ast.expr]) -> Place | None:
        """At the end of the constructor in whose arms an optimizer is made."""
        homes = {self.syntax.function(value) for value in values}
        home = homes.pop() if len(homes) == 1 and all(isinstance(value, ast.Call) for value in values) else None
        if home is None or home.name != "__init__" or any(isinstance(s, ast.Return) for s in own_statements(home)):
            return None
        last = home.body[-1]
        named = [node for node in self.optimizers.values() if isinstance(node, ast.Attribute)]
        kept = [value for node in named for value in set_values(self.definitions.kept_as(node))]
        return self._in_time(home, last) if {self.syntax.function(v) for v in kept} == {home} else None

    def _for_all_makers(self, values: Sequence[ast.expr]) -> Place | None:
        """In the constructor of the class whose methods make an optimizer, each anew: one scaler serves them all."""
        method = self._owners[0] if len(self._owners) == 1 else None
        owner = self.syntax.enclosing_class(method) if method is not None else None
        together = owner is not None and all(self.syntax.enclosing_class(value) is owner for value in values)
        if method is None or not together or not all(isinstance(value, ast.Call) for value in values):
            return None
        place = self._in_constructor(method)
        asks = place is not None and self.spelled is not None and ".parameters()" in self.spelled(place.anchor)
        return None if asks else place  # the model may not be there yet

    def _beside_the_base(self) -> Place | None:
        """In the constructor of the one class that trains, where it has its base of another file keep the optimizers."""
        owners = {self.syntax.enclosing_class(n) for n in (*self.backwards, *self.steps)}
        owner = owners.pop() if len(owners) == 1 else None
        method = next((f for f in self._owners if f is not None and self.syntax.parents[f] is owner), None)
        made = self.file.names.method(owner, "__init__") if owner is not None else None
        calls = [c for c, of in methods(self.file, "__init__") if self.syntax.function(c) is made] if made is not None else []
        return self._in_constructor(method) if method is not None and calls else None

    def _for_its_heirs(self, optimizer: ast.expr) -> Place | None:
        """In the constructor of the class that trains with optimizers which classes of this file that are built on it make."""
        method = self._owners[0] if len(self._owners) == 1 else None
        owner = self.syntax.parents[method] if method is not None else None
        if method is None or not isinstance(owner, ast.ClassDef) or not isinstance(optimizer, ast.Attribute):
            return None
        name = keeper_of(optimizer).attr
        heirs = [c for c in self.syntax.all(ast.ClassDef) if any(self.file.names.local_function(base) is owner for base in c.bases)]
        return self._in_constructor(method) if any(self.definitions.attributes.get((heir, name)) for heir in heirs) else None

    @cached_property
    def _owners(self) -> list[Function | None]:
        return list(dict.fromkeys(self.syntax.function(n) for n in (*self.backwards, *self.steps)))

    def _before_the_loop(self) -> Place | None:
        """Before the outermost loop, in a function (or module) that holds all of it and runs once for its optimizers."""
        if len(self._owners) != 1:
            return None
        owner = self._owners[0]
        chains = [[p for p in self.syntax.ancestors(n) if isinstance(p, LOOPS)] for n in (*self.backwards, *self.steps)]
        outermost = {chain[-1] if chain else None for chain in chains}
        anchor = outermost.pop()
        if anchor is None or outermost or self.syntax.function(anchor) is not owner:
            return None
        loads = [
            c for c, of in methods(self.file, "load_state_dict") if ast.unparse(of) in self.optimizers and position(c) < position(anchor)
        ]
        if any(self.syntax.function(c) is owner for c in loads):
            return None  # the scaler's state is to be loaded there too
        for node in self.optimizers.values():
            for origin in self.training.made(node):
                if isinstance(origin, ast.Call):
                    if self.syntax.function(origin) is not owner or position(origin) > position(anchor):
                        return None
                elif owner is None or self.definitions.call_sites.get(owner) or self._is_one_round(owner):
                    return None
                elif (kept := self._in_constructor(owner)) is not None:
                    return kept
        return Place(anchor, self.name, after=False)

    def _is_one_round(self, function: Function) -> bool:
        """Whether a function runs once for each epoch or batch of the same training: what it builds, it builds anew."""
        if words_of(function.name) & ROUND or function in self.training.repeated:
            return True
        given = [a for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs) if not words_of(a.arg) - COUNTER]
        return any(words_of(a.arg) & ROUND and not self._is_counted_to(function, a.arg) for a in given)

    def _is_counted_to(self, function: Function, name: str) -> bool:
        """Whether a function counts to a number that it is given, or counts with it: then it is none of the caller's rounds."""
        loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.AsyncFor)]
        ends = [node for loop in loops for node in (*ast.walk(loop.iter), *ast.walk(loop.target))]
        return any(isinstance(n, ast.Name) and n.id == name and not self._is_told(n) for n in ends)

    def _is_told(self, name: ast.Name) -> bool:
        """Whether a name stands in the text that a progress bar shows."""
        return any(isinstance(parent, ast.JoinedStr | ast.keyword) for parent in self.syntax.ancestors(name))

    def _in_constructor(self, method: Function) -> Place | None:
        """On the object whose method trains what it is given: it may do so once for each epoch."""
        owner = self.syntax.parents[method]
        made = self.file.names.method(owner, "__init__") if isinstance(owner, ast.ClassDef) else None
        if made is None or self.syntax.parents[made] is not owner or made is method or isinstance(made.body[-1], (ast.Return, ast.Pass)):
            return None
        place = self._in_time(made, made.body[-1])
        try:
            if self.spelled is not None:
                self.spelled(place.anchor)
        except NoFix:
            return None
        return place

    def _in_time(self, made: Function, last: ast.stmt) -> Place:
        """Behind a statement of a constructor, or before what restores the optimizers' state there, and the scaler's with it."""
        owner = self.syntax.parents[made]
        loads = [self.syntax.function(c) for c, of in methods(self.file, "load_state_dict") if ast.unparse(of) in self.optimizers]
        restoring = {f for f in loads if f is not None and self.syntax.parents[f] is owner}
        calls = {f: own_calls(f) for f in owner.body if isinstance(f, FUNCTIONS)} if isinstance(owner, ast.ClassDef) else {}
        while more := {f for f, names in calls.items() if f not in restoring and names & {r.name for r in restoring}} - {made}:
            restoring |= more
        named = {f.name for f in restoring}
        first = next(
            (s for s in made.body if own_calls(s) & named or (made in restoring and any(self._loads(n) for n in ast.walk(s)))), None
        )
        early = first is not None and position(first) <= position(last)
        return Place(first if early and first is not None else last, f"self.{self.name}", after=not early)

    def _loads(self, node: ast.AST) -> bool:
        """Whether a call restores the state of one of the optimizers."""
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="load_state_dict")):
                return ast.unparse(owner) in self.optimizers
        return False

    def _before_the_rounds(self) -> Place | None:
        """Before the loop in which a function that nobody in this file calls has its optimizers, which it is given, stepped."""
        given = [origin for node in self.optimizers.values() for origin in self.training.made(node)]
        homes = {self.syntax.function(origin) for origin in given if isinstance(origin, ast.arg)}
        home = next(iter(homes), None)
        if home is None or len(homes) > 1 or not all(isinstance(origin, ast.arg) for origin in given):
            return None
        if home in self._owners or self.definitions.call_sites.get(home) or self._is_one_round(home):
            return None
        around = [[p for p in self.syntax.ancestors(use) if isinstance(p, LOOPS)] for use in self._uses(home)]
        outermost = {chain[-1] if chain else None for chain in around}
        anchor = outermost.pop() if len(outermost) == 1 else None
        return Place(anchor, self.name, after=False) if anchor is not None else None

    def _on_their_keeper(self) -> Place | None:
        """On the object that keeps, one in another, what holds the optimizers: `player = self.players[index]`, `player.optimizer`."""
        method = self._owners[0] if len(self._owners) == 1 else None
        if method is None or not all(isinstance(node, ast.Attribute) for node in self.optimizers.values()):
            return None
        for node in self.optimizers.values():
            root = next((n for n in ast.walk(node) if isinstance(n, ast.Name)), None)
            values = [binding.value for binding in self.file.names.reaching(root)] if root is not None else []
            kept = [value for value in values if value is not None and ast.unparse(value).startswith("self.")]
            if not kept or len(kept) != len(values) or any(isinstance(value, ast.Call) for value in kept):
                return None
        return self._in_constructor(method)

    def _around_the_function(self) -> Place | None:
        """Before a function that stands in another, which runs once and has the optimizers: both see what is built there."""
        owner = self._owners[0] if len(self._owners) == 1 else None
        home = self.syntax.function(owner) if owner is not None else None
        if home is None or owner not in home.body:
            return None
        shared = [node for node in self.optimizers.values() if isinstance(node, ast.Name)]
        if len(shared) != len(self.optimizers) or any(self.file.names.lookup(node)[0] is not home for node in shared):
            return None
        sites = self.definitions.call_sites.get(home, [])
        repeated = any(isinstance(parent, LOOPS) for site in sites for parent in self.syntax.ancestors(site))
        return Place(owner, self.name, after=False) if len(sites) <= 1 and not repeated else None

    def _beside_the_optimizers(self) -> Place:
        """Where the optimizers are made, on every way there, in one function (or module) that hands them on."""
        made = []
        for node in self.optimizers.values():
            origins = self.training.made(node)
            known = bool(origins) and all(isinstance(origin, ast.Call) for origin in origins)
            require(known, "the optimizer is not made in one place")
            made += [self.syntax.statement(origin) for origin in origins]
        home = self.syntax.function(made[0])
        builds = home is not None and any(isinstance(s, ast.Return) and s.value is not None for s in own_statements(home))
        hands = home is None or not builds or home in self._owners or self._calls_owners(home)
        together = {self.syntax.function(s) for s in made} == {home}
        require(together and hands, "the optimizer is not made where it is handed on")
        anchor, after = built_beside(self.file, made, self._uses(home))
        return Place(anchor, self.name, after)

    def _before_the_module_trains(self) -> Place | None:
        """Before the first statement of the module that makes optimizers which functions share by a global name, or has them stepped."""
        shared = [node for node in self.optimizers.values() if isinstance(node, ast.Name)]
        if len(shared) != len(self.optimizers) or any(self.file.names.lookup(node)[0] is not self.syntax.tree for node in shared):
            return None
        bound = self.file.names.bindings.get(self.syntax.tree, {})
        if not all(bound.get(node.id) for node in shared):
            return None
        nodes = [binding.node for node in shared for binding in bound[node.id]] + self._uses(None)
        tops = [path_to(self.file, node)[0] for node in nodes if self.syntax.function(node) is None]
        return Place(min(tops, key=position), self.name, after=False) if tops else None

    def _uses(self, home: Function | None) -> list[ast.AST]:
        """Where a function (or the module) scales losses and steps, or calls what does."""
        found: list[ast.AST] = []
        waiting: list[ast.AST] = [*self.backwards, *self.steps]
        done: set[Function] = set()
        while waiting:
            node = waiting.pop()
            function = self.syntax.function(node)
            if function is home:
                found.append(node)
            elif function is not None and function not in done:
                done.add(function)
                waiting += self.definitions.call_sites.get(function, [])
        return found

    def _calls_owners(self, home: Function) -> bool:
        """Whether a function calls one of those that train."""
        sites = [site for owner in self._owners if owner for site in self.definitions.call_sites.get(owner, [])]
        return any(self.syntax.function(site) is home for site in sites)

    def construction(self) -> str:
        """The call that builds the scaler; for the regions' device, it is enabled where the regions are."""
        if self.spelled is not None:
            text = self.spelled(self.place.anchor)
            require(self.place.after or self._is_set_before(self.place.anchor, text), "the device is not known where the scaler is built")
            return text
        devices = {forward.device for forward in self.training.forwards}
        require(len(devices) == 1 and "" not in devices, "the device is not known")
        (device,) = devices
        known = all(self._is_known(forward.call, part) for forward in self.training.forwards for part in parts_of(device))
        require(known or device.endswith(".device.type"), "the device is not known where the scaler is built")
        device = device if known else '"cuda"'  # that of a batch or of weights: where there is no GPU, such a scaler switches itself off
        switch = self._switch()
        enabled = f"enabled={switch}" if switch else ""
        require(device == '"cuda"' or not self.targets.torch_lacks("2.3"), "this torch has a scaler for CUDA only")
        return grad_scaler(self.targets, device, [enabled])

    def _is_set_before(self, statement: ast.stmt, text: str) -> bool:
        """Whether a constructor has set what an expression reads of its object before a statement, be it in a method that it calls."""
        home, owner = self.syntax.function(statement), self.syntax.enclosing_class(statement)
        if home is None or owner is None or home.name != "__init__":
            return True
        called = set[str]().union(*(own_calls(s) for s in home.body if position(s) < position(statement)))
        for node in ast.walk(ast.parse(text)):
            stores = [a for a in self.syntax.all(ast.Attribute) if isinstance(a.ctx, ast.Store) and ast.unparse(a) == ast.unparse(node)]
            homes = [(self.syntax.function(a), a) for a in stores if self.syntax.enclosing_class(a) is owner]
            set_by = (f is not None and (f.name in called if f is not home else position(a) < position(statement)) for f, a in homes)
            if homes and not any(set_by):
                return False
        return True

    def _switch(self) -> str:
        """The condition under which the regions run in float16, "" where they always do."""
        switches = {(forward.flag, forward.dtype) for forward in self.training.forwards}
        require(len(switches) == 1, "the regions are enabled differently")
        ((flag, dtype),) = switches
        known = all(self._is_known(forward.call, text) for forward in self.training.forwards for text in (flag, dtype) if text)
        require(known and flag is not None and dtype is not None, "the condition is not known where the scaler is built")
        return " and ".join([*([flag] if flag else []), *([f"{dtype} == torch.float16"] if dtype else [])])

    def _is_known(self, node: ast.expr, flag: str) -> bool:
        """Whether a condition has its value since before the scaler is built."""
        if not flag.replace(".", "_").isidentifier():
            return False
        root, _, rest = flag.partition(".")
        everywhere = self.file.names.bindings.get(self.syntax.tree, {}).get(root)
        if everywhere and all(binding.target is not None for binding in everywhere):
            return True  # an import
        if root == "self":
            owner = self.syntax.enclosing_class(node)
            values = self.definitions.attributes.get((owner, rest.partition(".")[0]), []) if owner is not None else []
            home = self.syntax.function(self.place.anchor)
            early = [v for v in values if self.syntax.function(v) is home and position(v) < position(self.place.anchor)]
            return self.place.scaler.startswith("self.") and len(values) == len(early) == 1
        if self.place.scaler.startswith("self."):
            return False
        inside = (n for n in ast.walk(node) if isinstance(n, ast.Name))
        beside = (n for n in self.syntax.all(ast.Name) if self.syntax.function(n) is self.syntax.function(node))
        read = next((n for n in (*inside, *beside) if n.id == root and isinstance(n.ctx, ast.Load)), None)
        bindings = self.file.names.lookup(read)[1] if read is not None else []
        here, home = self.syntax.function(node), self.syntax.function(self.place.anchor)
        if here is not home:
            bound = self.file.names.bindings.get(home or self.syntax.tree, {}).get(root) or []
            passed = bool(bindings) and all(isinstance(b.node, ast.arg) for b in bindings)
            if not passed:
                bound = bound if home is None else []
            bindings = bound if here is not None else []
        return bool(bindings) and all(isinstance(b.node, ast.arg) or position(b.node) < position(self.place.anchor) for b in bindings)

    def _checkpoints(self) -> Iterator[tuple[ast.AST, Change]]:
        """Save and load the scaler's state beside the optimizer's, where the scaler is reached or can be handed."""
        stores: dict[object, tuple[ast.AST, Change]] = {}  # after the last of the optimizers that keep their state together
        files: dict[object, str | None] = {}  # the paths of those in files of their own, one a function
        for call, owner in methods(self.file, "state_dict"):
            store = store_of(self.file, call)
            change = (
                saved_beside(self.file, call, store, self.place.scaler) if store is not None and self._is_kept_at(call, owner) else None
            )
            if store is None or change is None:
                continue
            if isinstance(store, ast.Call) and store.args and store.args[0] is call:
                key = (self.syntax.function(call), "file")
                if key not in files:
                    files[key] = renamed(self.file, store.args[1])
                    stores[key] = call, change
            else:
                stores[kept_in(store)] = call, change
        yield from stores.values()
        loads: dict[object, tuple[ast.AST, Change]] = {}
        for call, owner in methods(self.file, "load_state_dict") if stores else ():
            if self._is_kept_at(call, owner):
                state = argument(call, "state_dict", 0)
                beside = file_beside(self.file, call)
                if beside is not None and beside[1] in files.values():
                    yield call, loaded_from(self.file, call, *beside, self.place.scaler)
                    yield call, AddImport("os")
                    continue
                change = loaded_after(self.file, call, state, self.place.scaler)
                if change is not None:  # after the last of those that load from one checkpoint together
                    held = ast.unparse(state.value) if isinstance(state, ast.Subscript) else ""
                    loads[id(self.file.syntax.block(self.syntax.statement(call))), held] = call, change
        yield from loads.values()

    def _is_kept_at(self, call: ast.Call, owner: ast.expr) -> bool:
        """Whether the state of one of the optimizers is saved or loaded at a call where the scaler is there, or can be handed to."""
        function = self.syntax.function(call)
        if self._reaches(call):
            return ast.unparse(owner) in self.optimizers
        if not isinstance(owner, ast.Name) or function is None or self.place.scaler.startswith("self."):
            return False
        names = [a.arg for a in function.args.args]
        sites = self.definitions.call_sites.get(function, [])
        given = [argument(site, owner.id, names.index(owner.id)) for site in sites] if owner.id in names else []
        if not given or any(value is None or ast.unparse(value) not in self.optimizers for value in given):
            return False
        try:
            list(handed_on(self.file, self.place.anchor, self.place.scaler, [call]))
        except NoFix:
            return False
        home = self.syntax.function(self.place.anchor)
        return home is not None or all(position(site) > position(self.place.anchor) for site in sites)

    def _reaches(self, node: ast.AST) -> bool:
        """Whether the scaler is there at a node under the name it is built with."""
        function, home = self.syntax.function(node), self.syntax.function(self.place.anchor)
        if self.place.scaler.startswith("self."):
            same = self.syntax.enclosing_class(self.place.anchor) in self.definitions.classes(node)
            return same and (function is not home or position(node) > position(self.place.anchor))
        if function is home:
            return position(node) > position(self.place.anchor)
        return function in self._owners or (home is not None and any(parent is home for parent in self.syntax.ancestors(node)))


def own_calls(node: ast.AST) -> set[str]:
    """The methods of its own object that a function or statement calls."""
    called = (n.func for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return {func.attr for func in called if isinstance(func.value, ast.Name) and func.value.id == "self"}


def keeper_of(optimizer: ast.Attribute) -> ast.Attribute:
    """The attribute of an object in which an optimizer is kept: itself, or a model that has it (`self.model.optimizer`)."""
    node = optimizer
    while isinstance(node.value, ast.Attribute):
        node = node.value
    return node


def set_values(values: Sequence[ast.expr]) -> list[ast.expr]:
    """What is assigned to an attribute, without the None that only announces it."""
    return [value for value in values if not (isinstance(value, ast.Constant) and value.value is None)]


def round_of(file: SourceFile, step: ast.Call, backwards: Sequence[ast.AST]) -> ast.For | None:
    """The loop over several optimizers in which each of them is stepped."""
    for parent in file.syntax.ancestors(step):
        if isinstance(parent, FUNCTIONS):
            break
        if isinstance(parent, ast.For) and isinstance(parent.target, ast.Name) and isinstance(step.func, ast.Attribute):
            around = any(parent in file.syntax.ancestors(backward) for backward in backwards)
            return parent if ast.unparse(step.func.value) == parent.target.id and not around else None
    return None


def kept_in(store: ast.AST) -> object:
    """What tells one checkpoint from another: two optimizers may keep their states in the same."""
    match store:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=held))]):
            return held
    return store


def parts_of(text: str) -> list[str]:
    """The names, with their attributes, that an expression is made of."""
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(text, mode="eval").body] if text else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).replace(".", "_").isidentifier():
            found.append(ast.unparse(node))
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def parameters_of(made: ast.Call) -> list[str]:
    """The texts of what an optimizer is given to train, in whole and model by model."""
    given = made.args[0] if made.args else argument(made, "params")
    if given is None:
        return []
    models = [n for n in ast.walk(given) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "parameters"]
    return [ast.unparse(given), *map(ast.unparse, models)]
