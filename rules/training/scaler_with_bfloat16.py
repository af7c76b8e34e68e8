"""MP306: a loss scaler is enabled although the computation is in bfloat16."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Hashable, Iterator, Sequence

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.frameworks.given import BFLOAT16, FLOAT16
from mplint.frameworks.torch import steps
from mplint.program.conditions import EMPTY, Condition, Path, allowed_values, extend, tells_arms_apart, unsettled
from mplint.program.machine import Event, Switch
from mplint.program.trace import Entry, Trace, possible, shown_symbol
from mplint.program.values import BFLOAT, HALF, Autocast, Constant, Object, Place, State, Step, Tensor, Test, Unknown, Value, options
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import argument, has_star, words_of
from mplint.rule import Rule

OF_WRAPPERS = {"get_scaled_loss", "get_unscaled_gradients", "inner_optimizer", "dynamic_scale", "loss_scale", "initial_scale"}
CHOSEN = ("option", "setting")  # switches that a user sets
POLICY = "mixed_bfloat16"
WHY = "bfloat16 has the range of float32 (1e-38 to 3e38): nothing needs a scale, and each step checks all gradients for it"


class ScalerWithBfloat16(Rule):
    """A loss scaler in bfloat16 training

    ## What it does
    Finds an enabled loss scaler in a program that computes in bfloat16: a GradScaler beside autocast, a LossScaleOptimizer under the
    mixed_bfloat16 policy of Keras, also where that is what an option offers beside float16. Also a GradScaler that a flag named for
    bfloat16 switches on.

    ## Why is this bad?
    bfloat16 has the exponent range of float32, 1e-38 to 3e38: gradients don't underflow, and there is nothing to scale. The scaler checks
    every gradient for infinities in every step for nothing, and where it finds one it skips the step.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for batch in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(batch)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```
    ```python
    import keras

    keras.config.set_dtype_policy("mixed_bfloat16")
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam())
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer):
        for batch in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(batch)
            loss.backward()
            optimizer.step()
    ```
    ```python
    import keras

    keras.config.set_dtype_policy("mixed_bfloat16")
    optimizer = keras.optimizers.Adam()
    ```

    ## Fix safety
    Unsafe: a scaler also skips the steps whose gradients are not finite, which nothing does afterwards. The fix adds `enabled=False`, or
    `enabled=dtype == torch.float16` where a variable decides; a scaler that is switched off passes everything through. In Keras the
    optimizer itself takes the wrapper's place where nothing calls the wrapper's own methods.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp306.py, for Keras by tests/witness/test_mp306_keras.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling>
    - <https://keras.io/api/mixed_precision/loss_scale_optimizer/>
    """

    code = "MP306"
    name = "scaler-with-bfloat16"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch", "keras")
    tokens = ("Scaler(", "LossScaleOptimizer")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each scaler that is made for bfloat16, or that scales what a bfloat16 region has computed."""
        for entry in trace.entries:
            made = entry.of("scaler made")
            for event in made:
                found = list(self._made_for_bfloat16(trace, entry, event))
                yield from found or self._compared_with_bfloat16(trace, event)
            if made:
                yield from self._scales_bfloat16(trace, entry, made)
                yield from self._refused(trace, entry, made)
            for event in entry.of("loss scale optimizer made"):
                yield from self._in_keras(trace, entry, event)

    def _made_for_bfloat16(self, trace: Trace, entry: Entry, event: Event) -> Iterator[Finding]:
        """A scaler that is on where an option says bfloat16."""
        if serves(entry, event.data["scaler"], HALF):  # type: ignore[arg-type]
            return  # whatever the option is called, its regions compute in float16
        for literals in ways_on(event.data["enabled"]):  # type: ignore[arg-type]
            path = extend(event.path, literals)
            if path is None:
                continue
            for symbol, only in named_bfloat16(path, literals):
                verdict = self.verdict(trace, entry, path - event.path if only else path, event.place)
                yield self.at(
                    trace,
                    event.place,
                    f"`{name_of(event)}` is enabled where `{symbol}` asks for bfloat16{'' if only else ' too'}",
                    why=WHY,
                    help="leave the scaler out, or enable it for float16 only",
                    confidence=Confidence.HIGH if entry.script and verdict.proven else Confidence.MEDIUM,
                    fix=compared(trace, event),
                )
                return
            flag = flag_for_bfloat16(path)
            if flag is not None:
                yield self.at(
                    trace,
                    event.place,
                    f"`{name_of(event)}` is enabled where `{flag}` asks for bfloat16",
                    why=WHY,
                    help="leave the scaler out, or enable it for float16 only",
                    confidence=Confidence.MEDIUM,
                )
                return
            flag = either_half(path) if not speaks_of_float16(trace, path) else None
            if flag is not None:
                yield self.at(
                    trace,
                    event.place,
                    f"`{name_of(event)}` is enabled where `{flag}` asks for bfloat16 too",
                    why=WHY,
                    help="leave the scaler out, or enable it for float16 only",
                    confidence=Confidence.MEDIUM,
                )
                return

    def _compared_with_bfloat16(self, trace: Trace, event: Event) -> Iterator[Finding]:
        """A scaler that is on for bfloat16 alone, whatever the program's settings say today."""
        match trace.node(event.place):
            case file, ast.Call() as call:
                given = argument(call, "enabled")
            case _:
                return
        match given:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[asked]) if names(asked, BFLOAT16):
                name = "torch.float16" if isinstance(asked, ast.Attribute) else '"float16"'
                change = Replace(file.span(asked), name)
                yield self.at(
                    trace,
                    event.place,
                    f"`{name_of(event)}` is enabled where `{file.text(left)}` asks for bfloat16",
                    why=WHY,
                    help=f"enable it for `{file.text(left)} == {name}` only: float16 is what needs the scale",
                    confidence=Confidence.HIGH,
                    fix=Fix(f"enable it for `{name}`", Applicability.UNSAFE, (change,)) if isinstance(asked, ast.Constant) else None,
                )

    def _scales_bfloat16(self, trace: Trace, entry: Entry, made: Sequence[Event]) -> Iterator[Finding]:
        """A scaler that scales the loss of a bfloat16 forward pass."""
        by_scaler = {event.data["scaler"]: event for event in made}
        seen: set[int] = set()
        for scaling in entry.of("loss scaled"):
            scaler = scaling.data["scaler"]
            origin = by_scaler.get(scaler) if type(scaler) is Object else None
            if origin is None or id(origin) in seen:
                continue
            path = path_in_bfloat16(trace, scaling, origin)
            if path is None:
                path = path_of_a_choice(trace, entry, scaling, origin)
            if path is None:
                continue
            regions = [e for e in entry.of("autocast entered") if getattr(e.data["autocast"], "dtype", None) == BFLOAT]
            regions.sort(key=lambda e: made_by(e) != origin.calls[-2:])  # first those that the same call has made
            region = next((e for e in regions if e.data["autocast"].device != "cpu" and extend(path, e.path) is not None), None)  # type: ignore[attr-defined]
            if regions and region is None:
                continue  # what runs on the CPU has bfloat16 by default
            if any(e.path <= path | scaling.path and steps.replicas_in_float16(e) for e in entry.of("replicas run")):
                continue  # the replicas compute in float16, and need the scale
            seen.add(id(origin))
            where = place_of(trace, entry, origin, region)
            verdict = self.verdict(trace, entry, path, where, origin, scaling, region)
            if "card" in verdict.kinds:
                continue  # on cards without bfloat16, for which it is not written
            chain = [Step(region.data["autocast"].chain[0].place, "autocast runs in bfloat16 here")] if region is not None else []  # type: ignore[attr-defined]
            chain += [Step(origin.place, "the scaler is made here")] if origin.place != where else []
            yield self.at(
                trace,
                where,
                f"`{name_of(origin)}` scales the loss of a bfloat16 forward pass{verdict.condition()}",
                why=WHY,
                help="leave the scaler out, or enable it for float16 only",
                confidence=Confidence.HIGH if verdict.proven and is_settled(trace, entry, path - scaling.path) else Confidence.MEDIUM,
                steps=(*chain, Step(scaling.place, "the loss is scaled here")),
                fix=switched_off(trace, origin, region, is_always(origin, scaling, path)),
            )

    def _refused(self, trace: Trace, entry: Entry, made: Sequence[Event]) -> Iterator[Finding]:
        """A scaler that is made whatever the precision, and that the program itself refuses for bfloat16."""
        by_scaler = {event.data["scaler"]: event for event in made}
        for event in entry.of("scaler refused"):
            asked = next((symbol for symbol, only in named_bfloat16(event.path, event.path) if only), None)
            held = event.data["scalers"] if asked is not None and isinstance(event.data["scalers"], tuple) else ()
            for name, value in held:
                for path, scaler in possible(value, event.path):
                    origin = by_scaler.pop(scaler, None) if is_asked_about(trace, event.place, name) else None
                    if origin is None or not is_made_by_default(origin, name, path):
                        continue
                    yield self.at(
                        trace,
                        origin.place,
                        f"`{name_of(origin)}` is made where `{asked}` asks for bfloat16 too, and the program raises then",
                        severity=Severity.ERROR,
                        why=f"{WHY}; here bfloat16 cannot be chosen at all",
                        help="make the scaler for float16 only",
                        confidence=Confidence.MEDIUM,
                        steps=(Step(event.place, f"a scaler is refused here where `{asked}` asks for bfloat16"),),
                    )

    def _in_keras(self, trace: Trace, entry: Entry, event: Event) -> Iterator[Finding]:
        """A LossScaleOptimizer that is made where layers compute in bfloat16."""
        ways = [(path, a) for path, a in possible(event.data["policy"], event.path) if type(a) is State and isinstance(a.data, tuple)]  # type: ignore[arg-type]
        bfloat = [path for path, a in ways if a.data[0] == POLICY]  # type: ignore[index]
        always = len(bfloat) == len(ways)
        if not bfloat or not (always or is_offered(trace, event, bfloat[0])):
            return
        verdict = self.verdict(trace, entry, bfloat[0], event.place)
        found = trace.node(event.place)
        yield self.at(
            trace,
            event.place,
            f"a LossScaleOptimizer under mixed_bfloat16 has nothing to do{'' if always else verdict.condition()}",
            severity=Severity.WARNING,
            confidence=Confidence.HIGH if always else Confidence.MEDIUM,
            why="bfloat16 reaches down to 1.2e-38 like float32, so gradients don't underflow; the wrapper checks each of them for nothing",
            help="use the optimizer itself" if always else "wrap the optimizer for mixed_float16 only",
            fix=unwrapped(*found) if found is not None and always else None,
        )


def is_offered(trace: Trace, made: Event, path: Path) -> bool:
    """Whether an option of the program offers a policy, and the optimizer is wrapped whatever other options say."""
    asked = [(key[1], key[2]) for key, sense in path - made.path if key[0] == "in" and sense and not key[2].isdisjoint(BFLOAT16)]
    offered = [symbol for symbol, named in asked if names_bfloat16(trace.switch(symbol), named)]
    others = [key for key, _ in made.path if key[0] in ("true", "in") and trace.switch(key[1]) is not None]
    return bool(offered) and not others


def names_bfloat16(switch: Switch | None, named: frozenset[Hashable]) -> bool:
    """Whether bfloat16 is among the choices of an option, or the program compares it with that: any policy may stand in another one."""
    if switch is None or switch.kind not in CHOSEN:
        return False
    choices = frozenset(switch.choices)
    return not (choices or named - {POLICY}).isdisjoint(BFLOAT16)


def is_asked_about(trace: Trace, raised: Place, name: str) -> bool:
    """Whether the condition under which something is raised reads a variable."""
    found = trace.node(raised)
    if found is None:
        return False
    file, node = found
    function = file.syntax.function(node)
    around = [n for n in file.syntax.ancestors(node) if isinstance(n, ast.If) and file.syntax.function(n) is function]
    return any(isinstance(n, ast.Name) and n.id == name for test in around for n in ast.walk(test.test))


def is_made_by_default(made: Event, name: str, path: Path) -> bool:
    """Whether a scaler is made wherever no other is given and the machine has what it takes: no setting asks for it."""
    shown = [shown_symbol(key[1]) for key, _ in made.path if not tells_arms_apart(key)]
    return made.path <= path and all(text == name or "(" in text for text in shown)


def ways_on(value: Value) -> Iterator[Path]:
    """The conditions under which a flag is on."""
    for guards, atom in options(value):
        if type(atom) is Constant and atom.value:
            yield guards
        elif type(atom) is Test:
            yield guards | {(atom.key, atom.sense)}
        elif type(atom) is Unknown:
            yield guards | {(("true", atom.symbol), True)}


def named_bfloat16(path: Path, own: Path) -> Iterator[tuple[str, bool]]:
    """The options that say bfloat16 on a path, and whether they say nothing else; what they may also say has to be of the flag's `own`."""
    for symbol in sorted({key[1] for key, sense in path if key[0] == "in" and sense}):
        allowed = allowed_values(path, symbol)
        if not allowed:
            continue
        halves = allowed & BFLOAT16
        if halves and not allowed - BFLOAT16:
            yield shown_symbol(symbol), True
        elif halves and allowed & FLOAT16 and not allowed - BFLOAT16 - FLOAT16:
            flags = allowed_values(own, symbol)
            if flags is not None and flags & BFLOAT16:
                yield shown_symbol(symbol), False


def either_half(path: Path) -> str | None:
    """The flag for bfloat16 that suffices for a path as well as one for float16 does: `fp16 or bf16`, and nothing asks which."""
    for key, sense in path:
        if key[0] != "all" or sense or any((inner, not off) in path for inner, off in key[1]):
            continue
        flags = sorted(shown_symbol(k[1]) for k, off in key[1] if k[0] == "true" and not off and len(k) == 2)
        kinds = {flag: words_of(flag.rpartition(".")[2].replace("_", " ")) for flag in flags}
        wanted = [flag for flag, words in kinds.items() if words & {"bf16", "bfloat16"} and not words & NOT_A_FLAG]
        if wanted and any(words & {"fp16", "float16", "half"} for words in kinds.values()) and len(flags) == len(key[1]):
            return wanted[0]
    return None


def speaks_of_float16(trace: Trace, path: Path) -> bool:
    """Whether a test on a path that can't be named speaks of float16: `self.amp_dtype == torch.float16`."""
    unnamed = [key[1] for key, _ in path if key[0] == "place" and type(key[1]) is Place]
    return any(words_of(trace.text(place)) & {"fp16", "float16", "half"} for place in unnamed)


def flag_for_bfloat16(path: Path) -> str | None:
    """The flag on a path that is named for bfloat16 alone."""
    for symbol in sorted(str(key[1]) for key, sense in path if key[0] == "true" and sense and len(key) == 2):
        flag = shown_symbol(symbol)
        words = words_of(flag.rpartition(".")[2].replace("_", " "))
        if re.fullmatch(r"[\w.]+", flag) and words & {"bf16", "bfloat16"} and not words & (NOT_A_FLAG | {"fp16", "float16", "half", "or"}):
            return flag
    return None


NOT_A_FLAG = {"supported", "available", "not", "no", "without", "is"}


def path_in_bfloat16(trace: Trace, scaling: Event, origin: Event) -> Path | None:
    """The path on which an enabled scaler gets a loss that was computed in bfloat16 only, or None."""
    losses = list(options(scaling.data["loss"]))  # type: ignore[arg-type]
    if len(losses) > 1 and all(type(atom) is Tensor and atom.forward == {BFLOAT} for _, atom in losses):
        losses = [(frozenset(), losses[0][1])]  # whatever tells them apart
    for literals in ways_on(origin.data["enabled"]):  # type: ignore[arg-type]
        on = extend(scaling.path, origin.path | literals)
        left = possible(scaling.data["loss"], on) if on is not None else []  # type: ignore[arg-type]
        if left and all(type(atom) is Tensor and atom.forward == {BFLOAT} for _, atom in left) and not asks_for_float16(on):  # type: ignore[arg-type]
            return on  # whatever else tells them apart
    halves = [guards for guards, atom in losses if type(atom) is Tensor and atom.forward & {HALF, BFLOAT}]
    shared = frozenset.intersection(*halves) if len(halves) > 1 else EMPTY  # where there is half precision at all
    for guards, atom in losses:
        if type(atom) is not Tensor or atom.forward != {BFLOAT}:
            continue
        path = extend(scaling.path, guards)
        if flag_for_bfloat16(guards) is not None and asks_for_float16(scaling.path | origin.path):
            continue  # two flags that nobody gives together
        for literals in ways_on(origin.data["enabled"]) if path is not None else ():  # type: ignore[arg-type]
            on = origin.path | literals
            alone = on - guards - scaling.path  # what the region hangs on as well asks for no other dtype
            named = can_be_named(trace, unsettled(guards - shared, on))
            told = named and not asks_for_float16(alone) and not is_for_float16(trace, origin)
            both = extend(path, on) if told else None  # type: ignore[arg-type]
            if both is not None:
                return both
    return None


def serves_bfloat16(entry: Entry, scaler: Value) -> bool:
    """Whether all that a scaler scales, wherever it is on, was computed in bfloat16: what is wrong is then the scaler itself."""
    return serves(entry, scaler, BFLOAT)


def serves(entry: Entry, scaler: Value, dtype: str) -> bool:
    """Whether all that a scaler scales, wherever it is on, was computed in one dtype."""
    made = [event for event in entry.of("scaler made") if event.data["scaler"] == scaler]
    on = [event.path | literals for event in made for literals in ways_on(event.data["enabled"])]  # type: ignore[arg-type]
    losses = [
        atom
        for event in entry.of("loss scaled")
        if event.data["scaler"] == scaler
        for path, atom in possible(event.data["loss"], event.path)  # type: ignore[arg-type]
        if any(extend(path, way) is not None for way in on)
    ]
    return bool(losses) and all(type(loss) is Tensor and loss.forward == {dtype} for loss in losses)


def is_settled(trace: Trace, entry: Entry, literals: Path) -> bool:
    """Whether there are no conditions, or a script's own defaults decide them all: what comes from outside may be chosen either way."""
    return not literals or (entry.script and all(key[0] in ("true", "in") and key[1] in trace.switches for key, _ in literals))


def is_always(origin: Event, scaling: Event, path: Path) -> bool:
    """Whether a scaler has nothing else to scale, wherever it is on."""
    return any(path <= scaling.path | origin.path | literals for literals in ways_on(origin.data["enabled"]))  # type: ignore[arg-type]


def serves_others(trace: Trace, origin: Event) -> bool:
    """Whether what makes a scaler makes one for a loss of float16 too, elsewhere in the project."""
    for entry in trace.entries:
        made = {id_of(event.data["scaler"]) for event in entry.of("scaler made") if event.place == origin.place}
        for event in entry.of("loss scaled") if made else ():
            losses = [atom for _, atom in possible(event.data["loss"], event.path)]  # type: ignore[arg-type]
            if id_of(event.data["scaler"]) in made and any(type(loss) is Tensor and loss.forward == {HALF} for loss in losses):
                return True
    return False


def id_of(scaler: object) -> object:
    """What identifies a scaler."""
    return scaler.id if type(scaler) is Object else scaler


def path_of_a_choice(trace: Trace, entry: Entry, scaling: Event, origin: Event) -> Path | None:
    """The path on which the regions of a loss, which runs in either half precision, run in bfloat16 while the scaler is on; or None."""
    if not any(type(a) is Tensor and a.forward >= {BFLOAT, HALF} for _, a in options(scaling.data["loss"])):  # type: ignore[arg-type]
        return None
    for region in entry.of("autocast entered"):
        if getattr(region.data["autocast"], "dtype", None) != BFLOAT:
            continue
        choice = frozenset(literal for literal in region.path - scaling.path if chooses_dtype(literal))
        if not choice or extend(scaling.path, region.path) is None or not can_be_named(trace, choice):
            continue
        path = extend(scaling.path, choice)
        for literals in ways_on(origin.data["enabled"]) if path is not None else ():  # type: ignore[arg-type]
            both = extend(path, origin.path | literals) if not asks_for_float16(origin.path | literals) else None  # type: ignore[arg-type]
            if both is not None:
                return both
    return None


def chooses_dtype(literal: Condition) -> bool:
    """Whether a condition is on an option that names dtypes, or on whether there is bfloat16."""
    key, _ = literal
    if key[0] == "in":
        return bool(key[2] & (BFLOAT16 | FLOAT16)) or bool(set(words_of(shown_symbol(key[1]).replace("_", " "))) & {"dtype", "precision"})
    return key[0] == "true" and bool(words_of(shown_symbol(key[1]).replace("_", " ").replace(".", " ")) & {"bf16", "bfloat16"})


def can_be_named(trace: Trace, guards: Path) -> bool:
    """Whether conditions are on what a user sets or the program asks for, not on bare arguments or on what can't be said."""
    told = [key for key, _ in guards if not tells_arms_apart(key)]
    if guards and not told:
        return False
    for key in told:
        if key[0] not in ("true", "in"):
            return False
        if key[1] not in trace.switches and not set("._([ ") & set(shown_symbol(key[1])):
            return False
    return True


def asks_for_float16(literals: Path) -> bool:
    """Whether conditions ask for float16: an option that is compared with it, or one that is named for it alone."""
    for key, sense in literals:
        if key[0] == "in" and sense and key[2] <= FLOAT16:
            return True
        if key[0] == "true" and sense and words_of(shown_symbol(key[1]).rpartition(".")[2].replace("_", " ")) & {"fp16", "float16", "half"}:
            return True
    return False


def is_for_float16(trace: Trace, made: Event) -> bool:
    """Whether a scaler is made only where the program has compared its dtype with float16."""
    found = trace.node(made.place)
    if found is None:
        return False
    file, inner = found
    function = file.syntax.function(inner)
    for around in file.syntax.ancestors(inner):
        if around is function:
            return False
        if isinstance(around, ast.If | ast.IfExp) and inner is not around.test:
            first = [around.body] if isinstance(around, ast.IfExp) else around.body
            if any(inner is part for part in first) and any(map(compares_with_float16, (around.test, *flag_of(file, around.test)))):
                return True
        inner = around
    return False


def flag_of(file: SourceFile, test: ast.expr) -> list[ast.expr]:
    """What a flag of an object is set to, where one line of the file alone sets it."""
    if not isinstance(test, ast.Attribute):
        return []
    shown = file.text(test)
    given = [(node.value, target) for node in file.syntax.all(ast.Assign) for target in node.targets]
    values = [value for value, target in given if isinstance(target, ast.Attribute) and file.text(target) == shown]
    return values if len(values) == 1 else []


def compares_with_float16(test: ast.expr) -> bool:
    """Whether a test holds only for a dtype, or for its name, that equals float16."""
    match test:
        case ast.Compare(ops=[ast.Eq() | ast.Is()], left=left, comparators=[right]):
            return any(names(side, FLOAT16) for side in (left, right))
        case ast.BoolOp(op=ast.And(), values=parts):
            return any(map(compares_with_float16, parts))
    return False


def name_of(made: Event) -> str:
    """What makes a scaler, as a program writes it."""
    return str(made.data["name"]).rpartition(".")[2]


def place_of(trace: Trace, entry: Entry, made: Event, region: Event | None) -> Place:
    """Where a scaler is chosen: in the file that chooses the region's dtype, where a wrapper elsewhere makes it."""
    if region is None:
        return made.place
    autocast = region.data["autocast"]
    identity = autocast.identity if isinstance(autocast, Autocast) else None
    chosen = next((e for e in entry.of("autocast made") if (e.place, e.calls[-2:]) == identity), region)
    if made.place.path == chosen.place.path:
        helpers = made.calls and chosen.calls and made.calls != chosen.calls and made.function != "__init__"
        shared = helpers and made.calls[-1].path == chosen.calls[-1].path != made.place.path
        return made.calls[-1] if shared else made.place
    if is_chosen_where_made(trace, made):
        return made.place
    return next((place for place in reversed(made.calls) if place.path == chosen.place.path), made.place)


def is_chosen_where_made(trace: Trace, made: Event) -> bool:
    """Whether a scaler's own line decides when it is on, or a base class makes it for the object whose step it serves."""
    match trace.node(made.place):
        case file, ast.Call() as call:
            enabled = argument(call, "enabled")
            function = file.syntax.function(call)
            tests = [n for n in file.syntax.ancestors(call) if isinstance(n, ast.If | ast.IfExp) and file.syntax.function(n) is function]
            if tests or (enabled is not None and not isinstance(enabled, ast.Constant)):
                return True
    match trace.node(made.calls[-1]) if made.calls else None:
        case _, ast.Call(func=ast.Attribute(attr="__init__")):
            return True
    return False


def made_by(region: Event) -> object:
    """The calls that have made what a region enters."""
    identity = getattr(region.data["autocast"], "identity", None)
    return identity[1] if isinstance(identity, tuple) else None


def unwrapped(file: SourceFile, call: ast.AST) -> Fix | None:
    """The optimizer by itself, where the program asks nothing of the wrapper."""
    if not isinstance(call, ast.Call):
        return None
    inner = argument(call, "inner_optimizer", 0) or argument(call, "optimizer") or argument(call, "opt")
    if inner is None or OF_WRAPPERS & {node.attr for node in file.syntax.all(ast.Attribute)}:
        return None
    return Fix("Use the optimizer itself", Applicability.UNSAFE, (Replace(file.span(call), file.text(inner)),))


def compared(trace: Trace, made: Event) -> Fix | None:
    """Compare with the float16 of a list alone: `dtype in ("float16", "bfloat16")`."""
    found = trace.node(made.place)
    given = argument(found[1], "enabled") if found is not None and isinstance(found[1], ast.Call) else None
    match given:
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.List(elts=listed) | ast.Tuple(elts=listed) | ast.Set(elts=listed)]):
            half = [name for name in listed if names(name, FLOAT16)]
            if found is not None and len(half) == 1:
                text = f"{found[0].text(left)} == {found[0].text(half[0])}"
                return Fix(f"enable it for `{text}` only", Applicability.UNSAFE, (Replace(found[0].span(given), text),))
    return None


def names(node: ast.expr, dtypes: Container[object]) -> bool:
    """Whether an expression names one of some dtypes."""
    match node:
        case ast.Constant(value=str(name)) | ast.Attribute(attr=name):
            return name in dtypes
    return False


def switched_off(trace: Trace, made: Event, region: Event | None, always: bool) -> Fix | None:
    """Pass `enabled=False`, or the dtype's comparison with float16 where its variable is at hand."""
    match trace.node(made.place):
        case file, ast.Call() as call if "GradScaler" in file.text(call.func):
            pass
        case _:
            return None
    if always and serves_others(trace, made):
        return None
    text = "False" if always else float16_only(trace, file, call, region)
    if text is None or has_star(call):
        return None
    given = argument(call, "enabled")
    if given is not None:
        shown = file.text(given) if isinstance(given, ast.Name | ast.Attribute | ast.Call) else f"({file.text(given)})"
        whole = text if always else f"{shown} and {text}"
        return Fix(f"Pass `enabled={whole}`", Applicability.UNSAFE, (Replace(file.span(given), whole),))
    arguments = [*call.args, *(k.value for k in call.keywords)]
    end = file.span(max(arguments, key=position)) if arguments else file.span(call)
    column = end.end_column if arguments else end.end_column - 1
    place = Span(end.end_line, column, end.end_line, column)
    return Fix(f"Pass `enabled={text}`", Applicability.UNSAFE, (Replace(place, f"{', ' if arguments else ''}enabled={text}"),))


def float16_only(trace: Trace, file: SourceFile, call: ast.Call, region: Event | None) -> str | None:
    """The comparison of a region's dtype variable with float16, where that variable has its value at the scaler."""
    autocast = region.data["autocast"] if region is not None else None
    found = trace.node(autocast.chain[0].place) if isinstance(autocast, Autocast) and autocast.chain else None
    given = argument(found[1], "dtype") if found is not None and found[0] is file and isinstance(found[1], ast.Call) else None
    imported = any(a.name == "torch" and a.asname is None for i in file.syntax.all(ast.Import) for a in i.names)
    if not isinstance(given, ast.Name) or not imported:
        return None
    scope, bindings = file.names.lookup(given)
    sees = scope is not None and (scope is file.syntax.scope(call) or any(p is scope for p in file.syntax.ancestors(call)))
    if not sees or scope is not file.syntax.scope(given) or any(position(b.node) > position(call) for b in bindings):
        return None
    return f"{given.id} == torch.float16"
