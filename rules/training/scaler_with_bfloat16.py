"""MP306: a loss scaler is enabled although the computation is in bfloat16."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.program.conditions import Condition, Path, allowed_values, extend
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, shown_symbol
from mplint.program.values import BFLOAT, HALF, Constant, Object, Place, Step, Tensor, Test, Unknown, Value, options
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, argument
from mplint.rule import Rule
from mplint.source.file import SourceFile
from mplint.source.keras.evidence import chooses_precision
from mplint.source.keras.loss_scale import makes_loss_scale_optimizer
from mplint.source.keras.policy import KerasPolicy
from mplint.source.torch.autocast import Autocast, Autocasts
from mplint.source.torch.scaler import Scaler, Scalers, words_of

WHY = "bfloat16 has the range of float32 (1e-38 to 3e38): nothing needs a scale, and each step checks all gradients for it"


class ScalerWithBfloat16(Rule):
    """A loss scaler in bfloat16 training

    ## What it does
    Finds an enabled loss scaler in a program that computes in bfloat16: a GradScaler beside autocast, a LossScaleOptimizer under
    the mixed_bfloat16 policy of Keras. Also a GradScaler that a flag named for bfloat16 switches on.

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
    Safe: the fix adds `enabled=False`, or `enabled=dtype == torch.float16` where a variable decides; a scaler that is switched off passes
    everything through. In Keras the optimizer itself takes the wrapper's place where nothing calls the wrapper's own methods.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp306.py, for Keras by tests/witness/test_mp306_keras.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling>
    - <https://keras.io/api/mixed_precision/loss_scale_optimizer/>
    """

    code = "MP306"
    name = "scaler-with-bfloat16"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("torch", "keras")
    tokens = ("Scaler(", "LossScaleOptimizer")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each scaler that is made for bfloat16, or that scales what a bfloat16 region has computed."""
        for entry in trace.entries:
            made = entry.of("scaler made")
            for event in made:
                yield from self._made_for_bfloat16(trace, entry, event)
            if made:
                yield from self._scales_bfloat16(trace, entry, made)

    def _made_for_bfloat16(self, trace: Trace, entry: Entry, event: Event) -> Iterator[Finding]:
        """A scaler that is on where an option says bfloat16."""
        for literals in ways_on(event.data["enabled"]):  # type: ignore[arg-type]
            path = extend(event.path, literals)
            if path is None:
                continue
            for symbol, only in named_bfloat16(path, literals):
                verdict = trace.verdict(entry, path - event.path if only else path)
                yield self.at(
                    trace,
                    event.place,
                    f"`{name_of(event)}` is enabled where `{symbol}` asks for bfloat16{'' if only else ' too'}",
                    why=WHY,
                    help="leave the scaler out, or enable it for float16 only",
                    confidence=Confidence.HIGH if entry.script and verdict.proven else Confidence.MEDIUM,
                )
                return
            flag = either_half(path)
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

    def _scales_bfloat16(self, trace: Trace, entry: Entry, made: list[Event]) -> Iterator[Finding]:
        """A scaler that scales the loss of a bfloat16 forward pass."""
        by_scaler = {event.data["scaler"]: event for event in made}
        seen: set[int] = set()
        for scaling in entry.of("loss scaled"):
            scaler = scaling.data["scaler"]
            origin = by_scaler.get(scaler) if type(scaler) is Object else None
            if origin is None or id(origin) in seen:
                continue
            path = path_in_bfloat16(trace, scaling, origin) or path_of_a_choice(trace, entry, scaling, origin)
            if path is None:
                continue
            regions = [e for e in entry.of("autocast entered") if getattr(e.data["autocast"], "dtype", None) == BFLOAT]
            region = next((e for e in regions if e.data["autocast"].device != "cpu" and extend(path, e.path) is not None), None)  # type: ignore[attr-defined]
            if regions and region is None:
                continue  # what runs on the CPU has bfloat16 by default
            seen.add(id(origin))
            verdict = trace.verdict(entry, path)
            where = place_of(origin, region)
            steps = [Step(region.data["autocast"].chain[0].place, "autocast runs in bfloat16 here")] if region is not None else []  # type: ignore[attr-defined]
            yield self.at(
                trace,
                where,
                f"`{name_of(origin)}` scales the loss of a bfloat16 forward pass{verdict.condition()}",
                why=WHY,
                help="leave the scaler out, or enable it for float16 only",
                confidence=Confidence.HIGH if entry.script and verdict.proven else Confidence.MEDIUM,
                steps=(*steps, Step(scaling.place, "the loss is scaled here")),
            )

    def check_source(self, file: SourceFile) -> Iterator[Finding]:
        """Report each scaler that nothing switches off while the program computes in bfloat16."""
        found = list(self._torch(file)) if "bfloat16" in file.document.text else []
        yield from found or self._by_flag(file)
        if "bfloat16" in file.document.text and "LossScaleOptimizer" in file.document.text:
            yield from in_keras(self, file)

    def _torch(self, file: SourceFile) -> Iterator[Finding]:
        constructions = [a for a in file.fact(Autocasts).constructions if a.devices != {"cpu"}]
        yield from self._by_name(file, [a for a in constructions if not a.dtypes.isdisjoint(("bfloat16", "?"))])
        autocasts = [a for a in constructions if a.half]
        if not autocasts or not all(a.may_run_in("bfloat16") for a in autocasts):
            return
        certain = all(a.dtypes == {"bfloat16"} for a in autocasts)
        setting = next((a.setting for a in autocasts if a.default == "bfloat16"), "")
        for scaler in file.fact(Scalers).live:
            if file.fact(Scalers).follows_dtype(scaler) or (not certain and is_for_float16(file, scaler)):
                continue
            flags = [file.values.constant_or(d) for d in file.values.definitions(scaler.condition) if isinstance(d, ast.expr)]
            if not certain and True in flags and False in flags:
                continue  # the flag is chosen with the dtype, or apart from it: the interpreter follows both
            yield self.finding(
                file,
                scaler.node,
                f"`{file.text(scaler.node.func)}` is enabled although autocast runs in bfloat16"
                + ("" if certain else f" with the default `{setting}`" if setting else " where the dtype says so"),
                why=WHY,
                help="leave the scaler out, or enable it for float16 only",
                confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
                related=((autocasts[0].node, "autocast runs in bfloat16 here"),),
                fix=switch_off(file, scaler, autocasts[0], certain),
            )

    def _by_flag(self, file: SourceFile) -> Iterator[Finding]:
        """The scalers that a flag for bfloat16 switches on, wherever autocast is entered."""
        for scaler in file.fact(Scalers).live:
            flag = next((test for test in switches(file, scaler) if is_for_bfloat16(file, test)), None)
            if flag is not None:
                yield self.finding(
                    file,
                    scaler.node,
                    f"`{file.text(scaler.node.func)}` is enabled where `{file.text(flag)}` asks for bfloat16",
                    why=WHY,
                    help="leave the scaler out, or enable it for float16 only",
                    confidence=Confidence.MEDIUM,
                    related=((flag, "this switches it on"),),
                )

    def _by_name(self, file: SourceFile, autocasts: list[Autocast]) -> Iterator[Finding]:
        """The scalers whose own condition names bfloat16 as one of the dtypes to scale."""
        for scaler in file.fact(Scalers).live if autocasts else ():
            comparison = naming_bfloat16(file, scaler.condition)
            if comparison is not None:
                yield self.finding(
                    file,
                    scaler.node,
                    f"`{file.text(scaler.node.func)}` is enabled for bfloat16 too",
                    why=WHY,
                    help="enable it for float16 only",
                    confidence=Confidence.MEDIUM,
                    related=((autocasts[0].node, "autocast runs in the chosen dtype here"),),
                    fix=only_float16(file, comparison),
                )


BFLOAT_WORDS = frozenset({"bf16", "bfloat16", "bf16-mixed", "amp_bf16", "amp_bfloat16", "torch.bfloat16", "dtype:b", "mixed_bfloat16"})
FLOAT_WORDS = frozenset({"fp16", "float16", "half", "16", "16-mixed", "amp_fp16", "torch.float16", "dtype:h", "mixed_float16", 16})


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
        halves = allowed & BFLOAT_WORDS
        if halves and not allowed - BFLOAT_WORDS:
            yield shown_symbol(symbol), True
        elif halves and allowed & FLOAT_WORDS and not allowed - BFLOAT_WORDS - FLOAT_WORDS:
            flags = allowed_values(own, symbol)
            if flags is not None and flags & BFLOAT_WORDS:
                yield shown_symbol(symbol), False


def either_half(path: Path) -> str | None:
    """The flag for bfloat16 that suffices for a path as well as one for float16 does: `fp16 or bf16`."""
    for key, sense in path:
        if key[0] != "all" or sense:
            continue
        flags = sorted(shown_symbol(k[1]) for k, off in key[1] if k[0] == "true" and not off and len(k) == 2)
        kinds = {flag: words_of(flag.rpartition(".")[2].replace("_", " ")) for flag in flags}
        wanted = [flag for flag, words in kinds.items() if words & {"bf16", "bfloat16"} and not words & NOT_A_FLAG]
        if wanted and any(words & {"fp16", "float16", "half"} for words in kinds.values()) and len(flags) == len(key[1]):
            return wanted[0]
    return None


NOT_A_FLAG = {"supported", "available", "not", "no"}


def path_in_bfloat16(trace: Trace, scaling: Event, origin: Event) -> Path | None:
    """The path on which an enabled scaler gets a loss that was computed in bfloat16 only, or None."""
    for guards, atom in options(scaling.data["loss"]):  # type: ignore[arg-type]
        if type(atom) is not Tensor or atom.forward != {BFLOAT} or not can_be_named(trace, guards):
            continue
        path = extend(scaling.path, guards)
        for literals in ways_on(origin.data["enabled"]) if path is not None else ():  # type: ignore[arg-type]
            both = extend(path, origin.path | literals) if not asks_for_float16(origin.path | literals) else None  # type: ignore[arg-type]
            if both is not None:
                return both
    return None


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
        return bool(key[2] & (BFLOAT_WORDS | FLOAT_WORDS)) or bool(
            set(words_of(shown_symbol(key[1]).replace("_", " "))) & {"dtype", "precision"}
        )
    return key[0] == "true" and bool(words_of(shown_symbol(key[1]).replace("_", " ").replace(".", " ")) & {"bf16", "bfloat16"})


def can_be_named(trace: Trace, guards: Path) -> bool:
    """Whether conditions are on what a user sets or the program asks for, not on bare arguments or on what can't be said."""
    for key, _ in guards:
        if key[0] not in ("true", "in"):
            return False
        if key[1] not in trace.switches and not set("._([ ") & set(shown_symbol(key[1])):
            return False
    return True


def asks_for_float16(literals: Path) -> bool:
    """Whether conditions ask for float16: an option that is compared with it, or one that is named for it alone."""
    for key, sense in literals:
        if key[0] == "in" and sense and key[2] <= FLOAT_WORDS:
            return True
        if key[0] == "true" and sense and words_of(shown_symbol(key[1]).rpartition(".")[2].replace("_", " ")) & {"fp16", "float16", "half"}:
            return True
    return False


def name_of(made: Event) -> str:
    """What makes a scaler, as a program writes it."""
    return str(made.data["name"]).rpartition(".")[2]


def place_of(made: Event, region: Event | None) -> Place:
    """Where a scaler is chosen: in the file of the region, where a wrapper elsewhere makes it."""
    if region is None or made.place.path == region.place.path:
        return made.place
    return next((place for place in reversed(made.calls) if place.path == region.place.path), made.place)


def switches(file: SourceFile, scaler: Scaler) -> Iterator[ast.expr]:
    """The conditions that switch a scaler on: its `enabled`, and those of the arm in which it is built."""
    if scaler.condition is not None:
        yield scaler.condition
    child: ast.AST = scaler.node
    for parent in file.syntax.ancestors(scaler.node):
        if (isinstance(parent, ast.IfExp) and child is parent.body) or (isinstance(parent, ast.If) and child in parent.body):
            yield parent.test
        elif isinstance(parent, FUNCTIONS):
            return
        child = parent


def is_for_bfloat16(file: SourceFile, test: ast.expr) -> bool:
    """Whether a condition asks for bfloat16 alone: a flag that is named so (`args.bf16`), or an option that is compared with it."""
    match test:
        case ast.BoolOp(op=ast.And(), values=parts):
            return any(is_for_bfloat16(file, part) for part in parts)
        case ast.Compare(ops=[ast.Eq()], comparators=[wanted]):
            return file.values.strings(wanted) <= BFLOAT_WORDS or file.values.dtypes(wanted) == {"bfloat16"}
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    words = words_of(name.replace("_", " "))
    return bool(words & {"bf16", "bfloat16"}) and not words & {"fp16", "float16", "half", "or", "not", "no", "without", "is", "supported"}


def is_for_float16(file: SourceFile, scaler: Scaler) -> bool:
    """Whether the scaler is built in another arm than the one in which its function chooses bfloat16."""
    own = file.syntax.function(scaler.node)
    named: list[ast.expr] = [a for a in file.syntax.all(ast.Attribute) if a.attr == "bfloat16"]
    named += [c for c in file.syntax.all(ast.Constant) if c.value in ("bfloat16", "bf16")]
    choices = [node for node in named if file.syntax.function(node) is own]
    return bool(choices) and all(file.names.exclusive(node, scaler.node) for node in choices)


def naming_bfloat16(file: SourceFile, condition: ast.expr | None) -> ast.Compare | None:
    """The comparison in a condition that holds for bfloat16: `dtype in ("float16", "bfloat16")`, or None."""
    for definition in file.values.definitions(condition):
        match definition:
            case ast.BoolOp(values=parts):
                found = [part for part in parts if naming_bfloat16(file, part) is not None]
                if found:
                    return naming_bfloat16(file, found[0])
            case ast.Compare(ops=[ast.In()], comparators=[ast.List(elts=names) | ast.Tuple(elts=names) | ast.Set(elts=names)]):
                if any(file.values.dtypes(name) == {"bfloat16"} for name in names):
                    return definition
    return None


def only_float16(file: SourceFile, comparison: ast.Compare) -> Fix | None:
    """Compare with the float16 of the list alone."""
    names = [name for name in getattr(comparison.comparators[0], "elts", []) if file.values.dtypes(name) == {"float16"}]
    if len(names) != 1:
        return None
    text = f"{file.text(comparison.left)} == {file.text(names[0])}"
    return Fix(f"enable it for `{text}` only", Applicability.SAFE, (Replace(file.span(comparison), text),))


def switch_off(file: SourceFile, scaler: Scaler, autocast: Autocast, certain: bool) -> Fix | None:
    """Pass `enabled=False`, or the dtype's comparison with float16 where its variable is at hand."""
    if scaler.wrapper:
        return None
    text = "False" if certain else float16_only(file, scaler, autocast)
    if text is None:
        return None
    if scaler.condition is not None:
        given = file.text(scaler.condition)
        simple = isinstance(scaler.condition, (ast.Name, ast.Attribute, ast.Call))
        whole = text if certain else f"{given if simple else f'({given})'} and {text}"
        return Fix(f"Pass `enabled={whole}`", Applicability.SAFE, (Replace(file.span(scaler.condition), whole),))
    call = scaler.node
    arguments = [*call.args, *(k.value for k in call.keywords)]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    if arguments:
        end = file.span(max(arguments, key=position))
        place, lead = Span(end.end_line, end.end_column, end.end_line, end.end_column), ", "
    else:
        end = file.span(call)
        place, lead = Span(end.end_line, end.end_column - 1, end.end_line, end.end_column - 1), ""
    return Fix(f"Pass `enabled={text}`", Applicability.SAFE, (Replace(place, f"{lead}enabled={text}"),))


def float16_only(file: SourceFile, scaler: Scaler, autocast: Autocast) -> str | None:
    """The comparison of the autocast's dtype variable with float16, where that variable has its value at the scaler."""
    given = next((k.value for k in autocast.call.keywords if k.arg == "dtype"), None) if autocast.call is not None else None
    if not isinstance(given, ast.Name) or not any(
        a.name == "torch" and a.asname is None for i in file.syntax.all(ast.Import) for a in i.names
    ):
        return None
    scope, bindings = file.names.lookup(given)
    sees = scope is not None and (scope is file.syntax.scope(scaler.node) or any(p is scope for p in file.syntax.ancestors(scaler.node)))
    if not sees or scope is not file.syntax.scope(given) or any(position(b.node) > position(scaler.node) for b in bindings):
        return None
    return f"{given.id} == torch.float16"


def in_keras(rule: Rule, file: SourceFile) -> Iterator[Finding]:
    """The Keras part: a LossScaleOptimizer where layers compute in bfloat16."""
    for call in file.syntax.all(ast.Call):
        if not makes_loss_scale_optimizer(file, call):
            continue
        state = file.fact(KerasPolicy).policy_at(call)
        if not state.certain or state.names != {"mixed_bfloat16"} or chooses_precision(file, call):
            continue
        inner = argument(call, "inner_optimizer", 0) or argument(call, "optimizer") or argument(call, "opt")
        methods = {node.attr for node in file.syntax.all(ast.Attribute)}
        bound = methods & {"get_scaled_loss", "get_unscaled_gradients", "inner_optimizer", "dynamic_scale", "loss_scale", "initial_scale"}
        fix = (
            Fix("Use the optimizer itself", Applicability.SAFE, (Replace(file.span(call), file.text(inner)),))
            if inner and not bound
            else None
        )
        yield rule.finding(
            file,
            call,
            "a LossScaleOptimizer under mixed_bfloat16 has nothing to do",
            severity=Severity.WARNING,
            why="bfloat16 reaches down to 1.2e-38 like float32, so gradients don't underflow; the wrapper checks each of them for nothing",
            help="use the optimizer itself",
            related=tuple((setter, "layers compute in bfloat16 from here on") for setter in state.setters[:1]),
            fix=fix,
        )
