"""MP205: an epsilon that half precision loses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mplint.configs.trainers.duties import casts_weights
from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity
from mplint.frameworks.epsilons import ENDS, INFINITE
from mplint.frameworks.keras.evidence import excluded, programs, untold
from mplint.frameworks.keras.tensors import is_tensor
from mplint.frameworks.torch import half
from mplint.frameworks.torch.tensors import number_of
from mplint.limits import FLOAT16_MAX, FLOAT16_ZERO
from mplint.program.lower import span_of
from mplint.program.machine import Args, Event
from mplint.program.trace import CALLERS, Trace
from mplint.program.values import COMPUTE, FALSE, NONE, Constant, Place, Step, Tensor
from mplint.python.arguments import set_keyword
from mplint.python.syntax import argument, last_name
from mplint.rule import Consequence, Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.graph.numerics import Epsilon
    from mplint.python.file import SourceFile

# What becomes of what an epsilon of a model guards, by what becomes of the epsilon.
FATES = {
    "zero": "float16 rounds everything up to 2^-25 (2.98e-8) to 0, and then nothing keeps {guarded} from a zero.",
    "infinite": "The smallest normal float16 is 6.1e-5 and the largest 65504: below 1.53e-5 the reciprocal of a number is infinite.",
    "subnormal": "Below 6.1e-5 float16 goes on in steps of 6e-8, and NVIDIA GPUs keep them; devices that flush subnormal numbers take them "
    "for 0, and then nothing keeps {guarded} from a zero.",
}
HALFWAY = 0.5  # epsilons lie below, bounds of nearly 1 above
ROUNDED = "float16 rounds everything up to 2.98e-8 to 0."
LOST_ABOVE = "the largest float16 below 1 is 0.9995: a bound beyond 0.99976 rounds to 1, and log(1 - 1) is -inf."
LOST_AT_END = "the largest float16 below 1 is 0.9995: a bound beyond 0.99976 rounds to 1, where {} is infinite."
GRADIENT = "'s gradient"
MAX_SHOWN = 4
SQUASHING = frozenset({"sigmoid", "softmax", "tanh"})
# The optimizers of torch that divide by a root plus an epsilon, and its default.
EPSILONS = {"Adam": 1e-8, "AdamW": 1e-8, "NAdam": 1e-8, "Adamax": 1e-8, "RMSprop": 1e-8, "Adagrad": 1e-10}


class EpsilonUnderflows(Rule):
    """Epsilon that float16 rounds to zero

    ## What it does
    Finds epsilons that guard a division, a logarithm or a square root of a float16 tensor and that float16 cannot hold:
    `x / (norm + 1e-8)`, `(p + 1e-8).log()`, `torch.log(p.clamp(min=1e-8))`. Autocast runs `log` in float32, and the sum before it in half.
    A number that the function has given a name is reported there, with the places that it fails to guard.
    So are upper bounds that float16 rounds to 1, where the logarithm of what is left to 1 is taken: `torch.log(1 - p.clamp(max=1 - 1e-6))`,
    or a function that is infinite at 1, or has such a gradient: `torch.acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))`.
    In Keras the same in layers under a mixed policy, where every operation keeps the dtype of its inputs: `x / (tf.norm(x) + 1e-8)`,
    `tf.math.log(tf.maximum(p, 1e-12))`.
    Also optimizers such as Adam over float16 parameters, whose epsilon is added to float16 state.
    Modules that a distribution (setup.py, pyproject.toml) offers, and whose own code or tests speak of float16, are read as a caller runs
    them: under float16 autocast, with a first input that may be half; such findings say so and have low confidence, since nobody there has
    met float16.
    In model graphs: small constants that are added, or that bound from below, before a division, a logarithm or a root in float16; in
    float32 graphs those that float16 would lose: advice, or with `--policy mixed_float16` warnings about the conversion. What float16
    keeps as a subnormal number is advice, for devices that take those for 0, and a warning before a logarithm where the numbers next to
    it are more than 6 % larger.

    ## Why is this bad?
    float16 rounds everything up to 2^-25 (2.98e-8) to 0: `x + 1e-8` is `x`, `clamp(min=1e-8)` is `clamp(min=0)`, and the guard that was
    to prevent a division by zero or log(0) is not there. The smallest normal float16 is 6.1e-5; below it precision
    fades (1e-7 becomes 1.19e-7), and the reciprocal of anything below 1.53e-5 overflows to inf.

    ## Example
    ```python
    import torch

    def normalize(features):
        x = features.half()
        norm = x.abs().mean(dim=-1, keepdim=True)
        return x / (norm + 1e-8)
    ```

    ## Use instead
    ```python
    import torch

    def normalize(features):
        x = features.half()
        norm = x.abs().mean(dim=-1, keepdim=True)
        return x / (norm + 1e-4)
    ```

    ## Fix safety
    Unsafe. In an autocast region the guarded step is computed in float32, which costs memory; what comes of it is float32 until an
    operation of the region casts it again. Where a sigmoid, softmax or tanh made what is guarded in half, the cast is put before that:
    one behind it would mend the loss and not the gradients. Elsewhere the epsilon becomes 1e-4, the same guard in float16, where the old
    one was 0 or close to it; there is no fix where the code also runs in float32, in which the old one guards well.
    In ONNX models and `.keras` archives, 1e-4 is written.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp205.py, for Keras by tests/witness/test_mp205_keras.py.

    ## References
    - PyTorch: `torch.finfo`, https://pytorch.org/docs/stable/type_info.html
    """

    code = "MP205"
    name = "epsilon-underflows"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch", "keras")
    graphs = True
    tokens = ("float16", "half()", "autocast", "mixed_", "e-8", "e-08", "e-9", "e-09", "e-1")
    program = True
    consequence_of = ("MP105", "MP210")
    adoption = Consequence("the epsilon no longer vanishes in float16", mends=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each epsilon that a float16 tensor of the program has lost where it was to guard a division or logarithm."""
        numbers = half.Numbers(trace)
        places: dict[Place, list[half.Found]] = {}
        for item in half.found(trace, "epsilon lost"):
            value = item.event.data["value"]
            if not may_happen(trace, item):
                continue
            if isinstance(value, float) and (item.event.data["zero"] or overflows(value, item.event)):
                places.setdefault(numbers.place(item.event.place, value), []).append(item)
        for place, items in places.items():
            yield self.guard(trace, place, items)
        yield from self.optimizers(trace)

    def guard(self, trace: Trace, place: Place, items: Sequence[half.Found]) -> Finding:
        """The finding at an epsilon, or at the definition of a name for it, for everything that it fails to guard."""
        first = max(items, key=lambda item: item.confidence.rank)
        tensor, value = first.event.data["tensor"], first.event.data["value"]
        assert isinstance(tensor, Tensor) and isinstance(value, float)
        text = half.number_shown(trace.text(place), value)
        wide = "`tf.cast(x, tf.float32)`" if is_tensor(tensor) else "`.float()`"
        named = place != first.event.place and place.path == first.event.place.path and line(place) != line(first.event.place)
        dtype = "float16, in which this computes wherever the model runs in half" if tensor.dtypes == {COMPUTE} else "float16"
        fate = f"is {'1' if value > HALFWAY else '0'}" if first.event.data["zero"] else "is subnormal"
        saturated = saturating(trace, items)
        guards = f"so nothing guards {'the' if named else 'this'} {first.event.data['guard']}{' below' if named else ''}"
        return self.at(
            trace,
            place,
            f"`{text}` {fate} in {dtype}, {guards if first.event.data['zero'] else 'and dividing by it overflows'}{first.condition}",
            why=why(text, value, first.event.data["zero"] is True, str(first.event.data["guard"])),
            help=f"{'' if value > HALFWAY else 'use 1e-4 or more here, or '}"
            + (f"give `{saturated}` float32 ({wide} behind it comes too late)" if saturated else f"compute this step in float32 ({wide})"),
            confidence=sureness(trace, items, first),
            steps=(
                *programs(trace).told(place.path, tensor),
                *first.chain(tensor),
                *(Step(at, f"the {guard} that it was to guard") for at, guard in guarded_places(items)),
            ),
            fix=in_float32(trace, place, items) or (larger(trace, place) if value < HALFWAY and surely_half(items) else None),
        )

    def optimizers(self, trace: Trace) -> Iterator[Finding]:
        """Report optimizers that step float16 parameters, and add their epsilon to float16 state; fused ones compute in float32."""
        told: set[Place] = set()
        for entry in trace.entries:
            made = {e.data["optimizer"]: e for e in entry.of("optimizer made")}
            for event in entry.of("half parameters"):
                maker = made.get(event.data["optimizer"])
                lost = epsilon_of(maker) if maker is not None and event.data["how"] in ("optimizer step", "scaler step") else None
                if maker is None or lost is None or maker.place in told:
                    continue
                told.add(maker.place)
                name, value, place = lost
                verdict = self.verdict(trace, entry, event.path, place)
                yield self.at(
                    trace,
                    place,
                    f"`{name}` adds eps={value:g} to float16 state, where it is 0{verdict.condition()}",
                    why=f"A gradient of 0 gives 0 / 0: one step of {name} makes the weight NaN. {ROUNDED}",
                    help="train float32 parameters under autocast, or give the optimizer eps=1e-4",
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    steps=event.data["chain"],  # type: ignore[arg-type]
                    fix=larger_default(trace, maker.place) if verdict.proven else None,
                    cause=event.data["chain"][-1].place,  # type: ignore[index]
                )

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the epsilons of a model that float16 loses, once a value and pair of operations."""
        from mplint.graph.mends import larger_epsilon
        from mplint.graph.numerics import vanishing

        groups: dict[tuple[float, str, str], list[Epsilon]] = {}
        for found in vanishing(graph):
            groups.setdefault((found.value, found.node.op_type, found.guarded.op_type), []).append(found)
        for members in groups.values():
            first = members[0]
            yield self.graph_finding(
                graph,
                graph.first_of(self.code, [member.node for member in members]),
                epsilon_message(graph, members),
                why=FATES[first.fate].format(guarded=first.guarded.op_type),
                help="Use an epsilon of at least 1e-4 in float16, or keep these nodes in float32.",
                severity=graph.severity_of(self.severity) if first.fate != "subnormal" or first.shows else Severity.INFO,
                confidence=Confidence.HIGH if first.fate == "zero" else Confidence.MEDIUM,
                related=((first.guarded, "this is what it guards"),),
                fix=larger_epsilon(graph, members),
            )


def epsilon_message(graph: GraphFacts, members: Sequence[Epsilon]) -> str:
    """What float16 makes of an epsilon of a model, and what that guards."""
    first = members[0]
    more = f" ({len(members)} such places)" if len(members) > 1 else ""
    guards = f"guards {first.guarded.described}{more}"
    if first.value == 0:
        return f"{first.node.described} {guards} by a float16 0: an epsilon that was rounded away"
    would = "would round" if graph.is_float else "rounds"
    fate = f"float16 {would} it to 0"
    if first.fate == "infinite":
        fate = f"its reciprocal overflows float16: 1/{first.value:.3g} is {1 / first.value:.3g}"
    elif first.fate == "subnormal":
        would = "would be" if graph.is_float else "is"
        fate = f"{would} subnormal in float16, {first.kept:.3g}"
        if first.lowest is not None:
            fate += f", whose {first.guarded.op_type} is {first.lowest:.4g}"
    return f"the epsilon {first.value:.3g} at {first.node.described} {guards}, and {fate}"


def in_float32(trace: Trace, place: Place, items: Sequence[half.Found]) -> Fix | None:
    """The guarded steps in float32, where a region casts what it needs in half again; None where one of them is not in sight."""
    changes = []
    for item in items:
        tensor = item.event.data["tensor"]
        began = tensor.half[0].place if isinstance(tensor, Tensor) and tensor.half else None
        by_region = any(event.place == began for event in item.entry.of("autocast entered")) or by_trainer(trace, began)
        file, step = trace.node(item.event.place) or (None, None)
        if file is None or not by_region or item.event.place.path != place.path:
            return None
        while step is not None and (isinstance(step, ast.Name | ast.Attribute | ast.keyword) or is_number(step)):
            step = file.syntax.parents.get(step)  # the number, where that is what is known of the step
        operand = guarded_by(step)
        squashed = squashing(trace, item)
        if operand is not None and squashed is not None:
            operand = given_to(squashed[1]) if squashed[0] is file else None
        if operand is None:
            return None
        text = file.text(operand)
        plain = isinstance(operand, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        change = Replace(file.span(operand), f"{text}.float()" if plain else f"({text}).float()")
        if change not in changes:
            changes.append(change)
    return Fix("compute this step in float32", Applicability.UNSAFE, tuple(changes))


def saturating(trace: Trace, items: Sequence[half.Found]) -> str | None:
    """The name of the function that squashed in half what an epsilon guards, where one did."""
    found = next(filter(None, (squashing(trace, item) for item in items)), None)
    return last_name(found[1].func) if found is not None else None


def squashing(trace: Trace, item: half.Found) -> tuple[SourceFile, ast.Call] | None:
    """The call on the way to a guard that rounds to 0 or 1 in half what float32 keeps apart.

    A cast behind it mends the loss alone: the gradient of the guarded step is beyond float16 on its way back through the cast.
    """
    tensor = item.event.data["tensor"]
    for step in reversed(tensor.half) if isinstance(tensor, Tensor) else ():
        file, node = trace.node(step.place) or (None, None)
        around = (node, *file.syntax.ancestors(node)) if file is not None and node is not None else ()
        for part in around[:2]:
            if file is not None and isinstance(part, ast.Call) and last_name(part.func) in SQUASHING:
                return file, part
    return None


def given_to(call: ast.Call) -> ast.expr | None:
    """What a function of one tensor is given, as its argument or as the owner of the method."""
    if isinstance(call.func, ast.Attribute) and not call.args:
        return call.func.value
    return argument(call, "input", 0)


def surely_half(items: Sequence[half.Found]) -> bool:
    """Whether everything that an epsilon guards is float16 whenever the code runs: a larger one changes what float32 computes."""
    return all(item.verdict.proven and not item.entry.context for item in items)


def by_trainer(trace: Trace, began: Place | None) -> bool:
    """Whether a trainer that runs models under autocast computes in half since a place; others cast the weights themselves."""
    made = (event for _, event in trace.of("trainer precision") if event.place == began)
    return any(not casts_weights(str(event.data["title"])) for event in made)


def guarded_by(step: ast.AST | None) -> ast.expr | None:
    """The tensor in a step that an epsilon is added to, or that it bounds from below."""
    match step:
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.expr() as number) if is_epsilon(number):
            return left
        case ast.BinOp(op=ast.Add(), left=ast.expr() as number, right=right) if is_epsilon(number):
            return right
        case ast.Call(func=ast.Attribute(value=owner, attr="clamp" | "clip" | "clamp_min" | "clamp_max")):
            return argument(step, "input", 0) if ast.unparse(owner) == "torch" else owner
    return None


def is_number(node: ast.AST | None) -> bool:
    """Whether an expression is a number, or computed of numbers alone: `1 - 1e-6`, `1 - self.eps`."""
    match node:
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.expr():
            return is_epsilon(node)
    return False


def is_epsilon(node: ast.expr) -> bool:
    """Whether an expression is a number, or a name of the kind that epsilons have."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return isinstance(node, ast.Constant) or "eps" in name.lower()


def larger(trace: Trace, place: Place) -> Fix | None:
    """An epsilon that float16 can hold, where the number is written out."""
    try:
        float(trace.text(place))
    except ValueError:
        return None
    return Fix("use an epsilon that float16 can hold", Applicability.UNSAFE, (Replace(trace.span(place), "1e-4"),))


def may_happen(trace: Trace, item: half.Found) -> bool:
    """Whether the code meets float16: of a layer in a compute dtype that callers choose, if its program has that in mind."""
    tensor = item.event.data["tensor"]
    followed = isinstance(tensor, Tensor) and tensor.dtypes == {COMPUTE}
    return not excluded(item.event.path) and (not followed or programs(trace).in_mind(item.event.place.path, item.entry))


def why(text: str, value: float, zero: bool, guard: str) -> str:
    """What becomes of a number in float16 that is to guard something."""
    if value > HALFWAY and guard in ENDS.values():
        return LOST_AT_END.format(f"the {guard}{'' if any(ENDS[name] == guard for name in INFINITE) else GRADIENT}")
    if value > HALFWAY:
        return LOST_ABOVE
    if not zero:
        return f"The smallest normal float16 is 6.1e-5 and the largest 65504: 1 / {text} does not fit."
    return f"float16 rounds {text} to 0: everything up to 2.98e-8 is lost."


def overflows(value: float, event: Event) -> bool:
    """Whether a number of the program, divided by this epsilon alone, is beyond float16."""
    above = event.data["above"]
    known = number_of(above) if isinstance(above, (Constant, Tensor)) else None
    return event.data["guard"] == "division" and known is not None and abs(known) > FLOAT16_MAX * value


def epsilon_of(made: Event) -> tuple[str, float, Place] | None:
    """The name of an optimizer, its epsilon where float16 rounds that to 0, and where it stands; None where it does not matter."""
    args = made.data["args"]
    name = str(made.data["name"])
    short = name.rpartition(".")[2]
    known = short in EPSILONS and name.startswith("torch.optim.")
    if not known or not isinstance(args, Args) or args.opaque or len(args.positional) > 3:
        return None
    given, fused = args.named.get("eps"), args.named.get("fused")
    value = EPSILONS[short] if given is None else number_of(given) if isinstance(given, Constant) else None
    if value is None or not 0 < value <= FLOAT16_ZERO or fused not in (None, FALSE, NONE):
        return None
    return short, value, Place(made.place.path, args.named_places["eps"]) if given is not None else made.place


def larger_default(trace: Trace, place: Place) -> Fix | None:
    """The optimizer with an epsilon that float16 can hold."""
    file, call = trace.node(place) or (None, None)
    if file is None or not isinstance(call, ast.Call):
        return None
    return Fix("use an epsilon that float16 can hold", Applicability.UNSAFE, (set_keyword(file, call, "eps", "1e-4"),))


def sureness(trace: Trace, items: Sequence[half.Found], first: half.Found) -> Confidence:
    """How sure a finding is: of what only callers of a library may meet nothing in its project shows that they do."""
    if all(item.entry.context == CALLERS for item in items):
        return Confidence.LOW
    tensor = first.event.data["tensor"]
    followed = isinstance(tensor, Tensor) and tensor.dtypes == {COMPUTE}
    if followed:
        return programs(trace).sureness(first.event.place.path, first.entry)
    return first.confidence.at_most(Confidence.MEDIUM) if untold(trace, first.event.path) else first.confidence


def line(place: Place) -> int:
    """The first line of a place."""
    return span_of(place.position).line


def guarded_places(items: Sequence[half.Found]) -> list[tuple[Place, str]]:
    """What one epsilon was to guard, a few of them."""
    found = [(item.event.data["guarded"], str(item.event.data["guard"])) for item in items]
    return [(place, guard) for place, guard in found if isinstance(place, Place)][:MAX_SHOWN]
