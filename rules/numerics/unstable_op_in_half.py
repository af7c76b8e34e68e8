"""MP202: an unstable operation that computes in half precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Confidence, Finding, Fix, MoveStatement, Replace, Severity, Span
from mplint.frameworks.keras.tensors import PROBABILITIES
from mplint.frameworks.torch import half
from mplint.frameworks.torch.promotion import MODEL_IN_HALF
from mplint.frameworks.torch.tensors import LATE, LATE_ROUNDED, MODEL_OUTPUT, SURE, places_tagged
from mplint.program.conditions import extend
from mplint.program.lower import place_of
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, tensors_of
from mplint.program.values import BFLOAT, DTYPE_NAMES, HALF, SINGLE, TRUE, Autocast, By, Chain, Place, Step, Tensor
from mplint.python.arguments import quoted, set_keyword
from mplint.python.document import is_test_path
from mplint.python.syntax import FUNCTIONS, argument, last_name
from mplint.recipes.float32 import float32_tensor
from mplint.rule import Consequence, Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.graph.numerics import Unstable
    from mplint.python.file import SourceFile

UNSTABLE = frozenset({"softmax", "log_softmax", "exp", "expm1", "logsumexp", "pow", "norm"})
LOSSES = frozenset(
    {"cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "kl_div", "huber_loss", "binary_cross_entropy_with_logits"}
)
BOUNDED = frozenset({"softmax", "log_softmax", "logsumexp"})  # whose results float16 holds
PRODUCTS = frozenset({"matmul", "bmm", "mm", "einsum", "baddbmm", "addmm", "linear", "mv"})
DTYPE_ASKED = re.compile(r"\.dtype\b|\bdevice(?:_type)?\b.*\bmps\b")
LARGEST = {"float16": "65504", "bfloat16": "3.39e38"}
BREAKS = {
    "float16": "float16 has 11 bits and ends at 65504: exp(12) and 256 squared are inf, log(1e-8) is -inf, probabilities below 3e-8 are 0.",
    "bfloat16": "bfloat16 keeps 8 bits: a probability of 0.999 becomes 1.0, and log-probabilities are off by up to 0.4 %.",
}


class UnstableOpInHalf(Rule):
    """Softmax, exponential, power or loss in half precision

    ## What it does
    Finds losses that a training step takes after its autocast region has ended, on the half outputs that the region produced, and the sums,
    powers and logarithms of these that a loss is made of by hand; softmax, exp, pow, norm and losses on tensors that an explicit cast made
    float16 (or that `dtype=torch.float16` asks for); in Keras a softmax or sigmoid under a mixed policy whose result is cast to float32,
    instead of what it is computed from, and functional losses (`keras.losses.mse`) on predictions that a model gives in half precision.
    In programs that train, log-probabilities
    (`log_softmax`, `logsigmoid`) of what a model that was loaded or cast in half precision gives, and losses of what a model gives that was
    cast to float16 as a whole. Factorizations, inverses and quantiles (`torch.linalg.svd`, `torch.quantile`) of what autocast has computed
    in half precision, and Fourier transforms of it: CUDA has no kernel for these, or one for some sizes alone. Power spectra of sound that
    autocast multiplies by the filters of a mel scale, and products of matrices whose factors the program has cast to float32, in a region
    that casts them back.
    Silent where the form of an expression keeps it within range: roots, `exp` of a square or magnitude with a minus before it, and squares
    of which nothing learns, and a softmax or its logarithm behind a region that a float32 operand takes up, and does not divide by: that
    rounds it to 11 bits, and no more. Where a region is switched off around a softmax whose input is half still, confidence is low for the
    same reason, as it is of `stft` with frames of unknown length, which is mostly a power of two. Variances as differences, powers of
    spectra and casts that are taken back take for granted what the numbers are like: beside a guess about which model runs they have low
    confidence, and casts where nothing learns as well.
    In model graphs: softmax, log, exp, pow and losses whose type is half, unless the bounds of their inputs make them safe; and results
    that leave the range of the half dtype for inputs within their declared range. In float32 graphs these are advice, or with `--policy`
    warnings about the conversion.

    ## Why is this bad?
    Inside an autocast region PyTorch runs these operations in float32 by itself; outside it they keep the dtype that they get. In float16
    exp(12) is inf, log_softmax has 11 bits, and a loss in float16 times a loss scale of 65536 overflows as soon as the loss reaches
    1, so that steps are skipped until the scale has shrunk.

    ## Example
    ```python
    import torch

    def train_step(model, criterion, optimizer, scaler, images, labels):
        with torch.autocast("cuda"):
            outputs = model(images)
        loss = criterion(outputs, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    ```

    ## Use instead
    ```python
    import torch

    def train_step(model, criterion, optimizer, scaler, images, labels):
        with torch.autocast("cuda"):
            outputs = model(images)
            loss = criterion(outputs, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    ```

    ## Fix safety
    Unsafe: the numbers change (they become more precise), and a loss that autocast refuses, such as binary cross entropy on
    probabilities, raises inside the region. The loss moves into the region where it follows it at once, else its input is cast. What a
    product of matrices takes next is cast back to float16; where float16 may not hold it (`exp`, `pow`), the fix is only shown.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp202.py, for Keras by tests/witness/test_mp202_keras.py.

    ## References
    - PyTorch: operations that autocast to float32, https://pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32
    """

    code = "MP202"
    name = "unstable-op-in-half"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch", "keras")
    graphs = True
    tokens = ("autocast", "float16", "half()", "softmax", "sigmoid")
    program = True
    adoption = Consequence("this is computed in float32, since half precision loses it", mends=True, fatal=False)

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the operations that a model computes in half, one finding a kind, and those of a float32 model that float16 would break."""
        from mplint.graph.model import OpKind
        from mplint.graph.numerics import overflowing, unstable

        groups: dict[tuple[str, str], list[Unstable]] = {}
        for found in unstable(graph):
            groups.setdefault((found.node.op_type, found.dtype), []).append(found)
        for (name, dtype), members in groups.items():
            node = graph.first_of(self.code, [member.node for member in members])
            given = next((t.described for t in node.inputs if t is not None), "its input")
            more = len(members) - 1
            others = f"; so {'does' if more == 1 else 'do'} {more} more {name} {'node' if more == 1 else 'nodes'}" if more else ""
            yield self.graph_finding(
                graph,
                node,
                f"{node.described} computes in {dtype} on {given}{others}",
                why=BREAKS.get(dtype, BREAKS["float16"]),
                help=f"Keep {name} in float32: cast before it and back after it.",
                severity=Severity.INFO if dtype == "bfloat16" else None,
                confidence=Confidence.MEDIUM if node.kind is OpKind.SOFTMAX else Confidence.HIGH,
                related=tuple((m.node, f"{m.node.op_type} in {dtype} as well") for m in members[1:4]),
            )
        for found in overflowing(graph):
            if found.node.kind is not OpKind.REDUCTION:
                yield self._overflow(graph, found)

    def _overflow(self, graph: GraphFacts, found: Unstable) -> Finding:
        given = found.given
        return self.graph_finding(
            graph,
            found.node,
            f"{found.node.described} reaches {found.reached:.4g} from inputs between {given.low:.4g} and {given.high:.4g}: "
            f"inf in {found.dtype}",
            why=f"The largest finite {found.dtype} is {LARGEST[found.dtype]}{'; in float32 the model is right' if graph.is_float else ''}.",
            help=f"Keep this node in float32{' in a conversion' if graph.is_float else ''}, or scale its input down.",
            severity=graph.severity_of(Severity.WARNING),
            confidence=Confidence.MEDIUM,
        )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report losses on half outputs outside of their region, what is asked to compute in half, and casts that come too late."""
        yield from self.late_losses(trace)
        yield from self.half_model_losses(trace)
        yield from self.cancellations(trace)
        yield from self.log_probabilities(trace)
        yield from self.refused(trace)
        yield from self.powers(trace)
        yield from self.taken_back(trace)
        yield from self.asked(trace)
        yield from self.in_keras(trace)

    def late_losses(self, trace: Trace) -> Iterator[Finding]:
        """Losses of a training step on what its region gave, after it has ended."""
        told: set[Place] = set()
        numbers = half.Numbers(trace)
        parts = parts_of_losses(trace)
        taken_up = {event.data["at"] for _, event in trace.of("taken up")} - parts
        by_hand = half.found(trace, "late in half", lambda event: event.place in parts and not is_bounded(trace, event))
        for item in (*half.found(trace, "loss in half"), *by_hand):
            event = item.event
            tensor, whole = event.data["tensor"], event.kind == "loss in half"
            if not isinstance(tensor, Tensor) or event.get("trained") is False or not region_left(item):
                continue
            if event.place in taken_up:
                continue  # float32 takes up what is rounded to 11 bits and no more
            if whole and not trained(trace, item):
                continue
            if any(numbers.in_region(place) for place in (event.place, *event.calls)):
                continue  # conditions that were lost must not put a loss outside of its region
            steps = item.chain(tensor) if tensor.half else region_left(item)
            if steps[0].place in told:
                continue  # one region that ends too early is one mistake
            told.add(steps[0].place)
            beside = [place for place in event.calls if place.path == steps[0].place.path != event.place.path]
            yield self.at(
                trace,
                beside[-1] if beside else event.place,
                f"`{event.data['name']}` computes outside of the autocast region, in float16{item.condition}",
                why=f"Inside the region {'losses run' if whole else 'this runs'} in float32; outside, nothing casts: "
                "float16 has 11 bits and ends at 65504.",
                help="compute the loss inside the autocast region, or on `.float()` outputs",
                confidence=item.confidence if whole and event.get("certain") is not False else Confidence.MEDIUM,
                steps=(*steps, Step(event.place, "the loss is computed here")) if beside else steps,
                fix=enter(trace, item) if whole and not beside else None,
            )

    def half_model_losses(self, trace: Trace) -> Iterator[Finding]:
        """Losses that are trained with, in the float16 in which a model that was cast as a whole gives its outputs."""
        for item in half.found(trace, "loss in half", of_half_model):
            tensor = item.event.data["tensor"]
            if not isinstance(tensor, Tensor) or is_test_path(item.event.place.path) or not trained(trace, item):
                continue
            if item.entry.of(*WRAPS):
                continue  # which may cast the outputs of models back, or run them in a region
            scaled = ": a loss over 1 leaves its range as soon as it is scaled by 65536" if item.entry.of("scaler made") else ""
            yield self.at(
                trace,
                item.event.place,
                f"`{item.event.data['name']}` computes in float16, in which the model gives its outputs{item.condition}",
                why=f"float16 has 11 bits and ends at 65504{scaled}.",
                help="take the loss of `.float()` outputs",
                confidence=Confidence.MEDIUM,
                steps=item.chain(tensor),
                fix=on_float32(trace, item.event),
            )

    def log_probabilities(self, trace: Trace) -> Iterator[Finding]:
        """Log-probabilities that a program which trains takes of the half outputs of a model that was loaded or cast so."""
        told: set[Place] = set()
        for item in half.found(trace, "log-probabilities in half"):
            event = item.event
            tensor, name = event.data["tensor"], str(event.data["name"])
            learning = [item.entry] if item.entry.script else trace.entries
            if not isinstance(tensor, Tensor) or not tensor.half or is_test_path(event.place.path):
                continue
            if not any(entry.of(*LEARNS) for entry in learning):
                continue
            dtype = "bfloat16" if tensor.dtypes == {BFLOAT} else "float16"
            home = tensor.half[0].place.path
            beside = [place for place in event.calls if place.path == home != event.place.path]
            place = beside[-1] if beside and MODEL_OUTPUT in tensor.tags else event.place  # what a model computes itself stands in it
            if place in told:
                continue
            told.add(place)
            yield self.at(
                trace,
                place,
                f"`{name}` takes log-probabilities in {dtype}, in which the model gives its outputs{item.condition}",
                why=f"{OFF[dtype]} in their differences, and in the ratios that training makes of these, nothing else may be left.",
                help="take the log-probabilities of `.float()` outputs",
                confidence=Confidence.MEDIUM,
                steps=(
                    *item.chain(tensor),
                    *((Step(event.place, "the log-probabilities are taken here"),) if place != event.place else ()),
                ),
            )

    def refused(self, trace: Trace) -> Iterator[Finding]:
        """Operations that have no kernel for the half tensors which they get."""
        refused = [item for item in half.found(trace, "no half kernel") if is_refused(trace, item.event)]
        told = {id(item) for item in one_a_function(trace, [item for item in refused if is_sized(item.event)])}
        for item in refused:
            event = item.event
            tensor, name, what = event.data["tensor"], str(event.data["name"]), str(event.data["what"])
            sized = is_sized(event)
            if not isinstance(tensor, Tensor) or (sized and id(item) not in told):
                continue
            dtype = "bfloat16" if tensor.dtypes == {BFLOAT} else "float16"
            raises = " and raises on CUDA unless each size is a power of two" if sized else ", for which it has no kernel, and raises"
            yield self.at(
                trace,
                event.place,
                f"`{name}` {'factors products in' if what == 'factored' else 'gets'} {dtype}{raises}{item.condition}",
                why=KERNELS[what] + (FRAMES if sized and event.get("open") else ""),
                help=half.in_float32(tensor),
                severity=Severity.WARNING if sized else Severity.ERROR,
                confidence=(Confidence.LOW if event.get("open") else Confidence.MEDIUM) if sized else item.confidence,
                steps=item.chain(tensor),
                assumed="its sizes are no powers of two" if sized else "",
            )

    def powers(self, trace: Trace) -> Iterator[Finding]:
        """Power spectra that a region multiplies by filters in float16."""
        for item in half.found(trace, "power in half"):
            tensor, name = item.event.data["tensor"], str(item.event.data["name"])
            if not isinstance(tensor, Tensor):
                continue
            yield self.at(
                trace,
                item.event.place,
                f"`{name}` multiplies the powers of a spectrum in float16{item.condition}",
                why="A sine of amplitude 1 has the power 65536 in windows of 1024 samples, which is inf; powers under 6e-8 are 0, whose "
                "logarithm is -inf.",
                help=half.in_float32(tensor),
                confidence=Confidence.MEDIUM,
                steps=item.chain(tensor),
                assumed="the signal comes near an amplitude of 1",
            )

    def taken_back(self, trace: Trace) -> Iterator[Finding]:
        """Products of tensors that the program casts to float32, and a region back."""
        for item in half.found(trace, "cast taken back"):
            tensor, name = item.event.data["tensor"], str(item.event.data["name"])
            if not isinstance(tensor, Tensor) or is_test_path(item.event.place.path):
                continue
            dtype = "bfloat16" if tensor.dtypes == {BFLOAT} else "float16"
            yield self.at(
                trace,
                item.event.place,
                f"`{name}` computes in {dtype}: autocast takes back the casts of its factors to float32{item.condition}",
                why="Autocast casts what products of matrices get, whatever the program has cast it to before."
                + ("" if item.event.get("learns") else f" This assumes that {dtype} does not do where nothing learns."),
                help="leave autocast for it, `with torch.autocast(device, enabled=False)`",
                confidence=Confidence.MEDIUM if item.event.get("learns") else Confidence.LOW,
                steps=item.chain(tensor),
                assumed=f"{dtype} does not do for this product",
            )

    def cancellations(self, trace: Trace) -> Iterator[Finding]:
        """Variances as differences of means, of which half precision keeps no digit."""
        for item in half.found(trace, "cancellation in half"):
            event = item.event
            tensor, module = event.data["tensor"], event.data["module"]
            if not isinstance(tensor, Tensor):
                continue
            dtype = "bfloat16" if tensor.dtypes == {BFLOAT} else "float16"
            words = f"in {dtype} this difference of two means of squares keeps no digit"
            at_module, measure = isinstance(module, Place), event.get("name")
            if at_module:
                told = f"this forward pass takes variances as differences in {dtype}"
            elif measure is not None:
                told = f"`{measure}` takes variances as differences of means in {dtype}"
            else:
                told = f"this variance is a difference of two means of squares in {dtype}"
            yield self.at(
                trace,
                half.first_line(module) if isinstance(module, Place) else event.place,
                f"{told}{item.condition}",
                why=f"{dtype} has {8 if dtype == 'bfloat16' else 11} bits: the difference of two nearly equal means is noise.",
                help=half.in_float32(tensor),
                confidence=Confidence.MEDIUM,
                steps=(*item.chain(tensor), *((Step(event.place, words),) if at_module else ())),
                assumed="the variance is small beside the square of the mean",
            )

    def asked(self, trace: Trace) -> Iterator[Finding]:
        """Operations that a cast in the program, or their own `dtype`, puts in float16."""
        for item in half.found(trace, "unstable in half", is_harmful):
            event = item.event
            tensor, name, asked = event.data["tensor"], str(event.data["name"]), event.data["asked"]
            if not isinstance(tensor, Tensor) or name not in UNSTABLE | LOSSES or is_test_path(event.place.path):
                continue
            if is_bounded(trace, event):
                continue
            by_cast = len(tensor.half) == 1 and tensor.half[0].words.startswith("cast to") and not tensor.forward
            if switched_off(trace, event, tensor):
                yield self.left_on(trace, item, tensor, name)
                continue
            if not isinstance(asked, Place) and (not by_cast or is_chosen_by_dtype(trace, tensor.half[0].place)):
                continue
            asked = given_before(trace, event.place) if asked == event.place else asked
            limit = "the sum ends at 65504" if name in LOSSES or name == "norm" else "its results end at 65504 and have 11 bits"
            harm = "its results have 11 bits" if name in BOUNDED else f"{limit}; exp(12) is inf"
            place = outermost(trace, asked) if isinstance(asked, Place) else event.place
            yield self.at(
                trace,
                place,
                f"`{name}` computes in float16, which {'its `dtype`' if isinstance(asked, Place) else 'the cast'} asks for{item.condition}",
                why=f"In float16 {harm} and everything under 6e-8 is 0.",
                help="compute it in float32 (`.float()`) and cast the result back where that is needed",
                confidence=Confidence.MEDIUM,
                steps=() if isinstance(asked, Place) else tensor.half,
                fix=handed_on(trace, event, name, upcast(trace, event, name, asked)),
            )

    def left_on(self, trace: Trace, item: half.Found, tensor: Tensor, name: str) -> Finding:
        """The finding for an operation that a region would run in float32, on its half tensors where it is switched off."""
        return self.at(
            trace,
            item.event.place,
            f"`{name}` computes in float16: autocast, which would run it in float32, is off here{item.condition}",
            why="Switching autocast off casts nothing back: what the region outside computed is float16 still."
            + (" This assumes that 11 bits are too few for it." if name in BOUNDED else ""),
            help="cast what comes in with `.float()`, or leave autocast on",
            confidence=Confidence.LOW if name in BOUNDED else Confidence.MEDIUM,
            steps=item.chain(tensor),
            fix=handed_on(trace, item.event, name, upcast(trace, item.event, name, None)),
        )

    def in_keras(self, trace: Trace) -> Iterator[Finding]:
        """Losses and casts after what a mixed policy has rounded."""
        functional = list(half.found(trace, "loss taken", is_functional))
        for item in functional:
            yield self.keras_loss(trace, item, rounded(item.event, "predictions"))
        ends = {step.place for entry in trace.entries for step in emitted(entry)}
        yield from self.added_up(trace, ends | {item.event.place for item in functional})
        for item in half.found(trace, "cast", is_late):
            tensor = rounded(item.event, "tensor")
            if tensor.half[-1].place not in ends:
                yield self.late_cast(trace, item, tensor)

    def added_up(self, trace: Trace, told: set[Place]) -> Iterator[Finding]:
        """Losses whose gradients a tape takes, and which are means or sums of float16 values; `told`: what other findings speak of."""
        places: dict[tuple[object, tuple[Place, ...]], list[half.Found]] = {}
        for item in half.found(trace, "loss added up in half"):
            tensor = item.event.data["tensor"]
            if isinstance(tensor, Tensor) and item.event.place not in told and not told & {step.place for step in reduced(item)}:
                taken = item.event.data["taken"]
                places.setdefault((taken, item.event.calls[-1:]), []).append(item)  # of each loss that a helper takes gradients of
        for (taken, _), items in places.items():
            first = min(items, key=lambda item: (not item.verdict.proven, item.event.place))
            more = tuple(Step(item.event.place, "so is this") for item in items if item is not first)
            asked = (Step(taken, "its gradients are taken here"),) if isinstance(taken, Place) else ()
            yield self.at(
                trace,
                first.event.place,
                f"this part of the loss is added up in float16{first.condition}",
                why="float16 ends at 65504: so does a square over 255, and a loss of 2 that is multiplied by the loss scale of 32768.",
                help="cast what is added up to float32 before its squares or logarithms are taken",
                confidence=Confidence.MEDIUM,
                steps=(*reduced(first), *more[:3], *asked),
            )

    def keras_loss(self, trace: Trace, item: half.Found, tensor: Tensor) -> Finding:
        """The finding for a functional Keras loss on half predictions: only the classes of losses cast them."""
        dtype = DTYPE_NAMES[next(iter(tensor.dtypes))]
        return self.at(
            trace,
            item.event.place,
            f"`{trace.text(item.event.place).partition('(')[0]}` computes in {dtype}, the dtype of the predictions{item.condition}",
            why="Functional losses cast the targets to the predictions: a square over 255 is inf, and a probability over 0.9995 is 1.",
            help='give the last layer dtype="float32", or take the loss on a cast to float32',
            severity=Severity.INFO if is_test_path(item.event.place.path) or dtype == "bfloat16" else None,
            confidence=item.confidence,
            steps=tensor.half,
        )

    def late_cast(self, trace: Trace, item: half.Found, tensor: Tensor) -> Finding:
        """The finding for probabilities that are cast to float32 after they were computed in half."""
        made = tensor.half[-1].place
        layer = any(tag.startswith("layer:") for tag in tensor.tags)
        name = trace.text(made).partition("(")[0]
        words = f"`{name.rpartition('.')[2]}` with {activation_of(tensor)}" if layer else f"`{name}`"
        dtype = DTYPE_NAMES[next(iter(tensor.dtypes))]
        return self.at(
            trace,
            made,
            f"{words} computes in {dtype}, and the cast to float32 comes after it{item.condition}",
            why="The cast restores nothing: in float16 probabilities under 6e-8 are 0 already, and those over 0.9998 are 1.",
            help='give this layer dtype="float32"' if layer else "cast its argument to float32 instead",
            severity=Severity.INFO if is_test_path(made.path) or dtype == "bfloat16" else None,
            confidence=item.confidence if layer else Confidence.MEDIUM,
            steps=(*tensor.half[:-1], Step(item.event.place, "the cast to float32 stands here")),
            fix=in_float32(trace, made) if layer else cast_first(trace, made, item.event.place),
        )


KERNELS = {
    "": "Factorizations, inverses and quantiles exist for float32 and float64 alone; autocast on CUDA leaves them the dtype that they get.",
    "factored": "It multiplies matrices first, which autocast does in half precision; factorizations exist for float32 and float64 alone.",
    "transform": "cuFFT has no bfloat16, and in float16 only sizes that are powers of two; autocast on CUDA leaves its input as it is.",
}
OFF = {
    "bfloat16": "bfloat16 has 8 bits: log-probabilities are off by up to 0.4 %;",
    "float16": "float16 has 11 bits: log-probabilities are off by up to 0.05 %;",
}
LEARNS = ("backward", "trainer backward", "optimizer step", "trainer step", "scaler step", "optimizer made", "trainer precision")
WRAPS = ("autocast entered", "apex initialized", "trainer made", "trainer precision", "trainer backward", "trainer step")
TRAINS = ("optimizer step", "scaler step", "trainer step", "gradients zeroed", "loss scaled")


def is_chosen_by_dtype(trace: Trace, cast: Place) -> bool:
    """Whether a cast stands under a test of what it casts, or of its device: where another dtype is not to be had."""
    file, node = trace.node(cast) or (None, None)
    around = file.syntax.ancestors(node) if file is not None and node is not None else ()
    return any(isinstance(part, ast.If | ast.IfExp) and DTYPE_ASKED.search(ast.unparse(part.test)) is not None for part in around)


def is_refused(trace: Trace, event: Event) -> bool:
    """Whether an operation without a kernel is a mistake: none in a test, or that somebody catches or pads for."""
    if is_test_path(event.place.path) or is_attempted(trace, event.place):
        return False
    padded = is_sized(event) and any(makes_powers_of_two(trace, at) for at in (event.place, *event.calls))
    return not padded and not (is_sized(event) and prepares_half(trace, event.place))


FRAMES = " This assumes that the frames of the signal, whose length the settings give, have another size."


def is_sized(event: Event) -> bool:
    """Whether an operation is a transform in float16, which takes some sizes."""
    tensor = event.data["tensor"]
    return event.data["what"] == "transform" and isinstance(tensor, Tensor) and tensor.dtypes != {BFLOAT}


def one_a_function(trace: Trace, items: Sequence[half.Found]) -> list[half.Found]:
    """Of the transforms in each function, which are mended together, the first that asks least of a user; all that stand in none."""
    found: dict[object, half.Found] = {}
    for item in items:
        place = item.event.place
        key = (place.path, function_around(trace, place) or place)
        if key not in found or len(item.verdict.switches) < len(found[key].verdict.switches):
            found[key] = item
    return list(found.values())


def prepares_half(trace: Trace, place: Place) -> bool:
    """Whether the function around a place asks for the dtype of a tensor, as one does that pads to a size which half precision takes."""
    function = function_around(trace, place)
    tests = (part.test for part in ast.walk(function) if isinstance(part, ast.If | ast.IfExp)) if function is not None else ()
    return any(".dtype" in ast.unparse(test) for test in tests)


def makes_powers_of_two(trace: Trace, place: Place) -> bool:
    """Whether the function around a place computes a power of two by a logarithm, as one does that pads to the next one."""
    function = function_around(trace, place)
    parts = list(ast.walk(function)) if function is not None else []
    if not any(is_logarithm(part, ()) for part in parts):
        return False
    kept = [part for part in parts if isinstance(part, ast.Assign)]
    names: set[str] = set()
    while more := {name for part in kept if holds_logarithm(part.value, names) for name in assigned(part)} - names:
        names |= more
    exponents = (exponent for part in parts if (exponent := exponent_of_two(part)) is not None)
    return any(holds_logarithm(exponent, names) for exponent in exponents)


def holds_logarithm(node: ast.expr, names: Collection[str]) -> bool:
    """Whether an expression is worked out of a logarithm to the base of two, or of `names` for one."""
    return any(is_logarithm(part, names) for part in ast.walk(node))


def is_logarithm(node: ast.AST, names: Collection[str]) -> bool:
    """Whether an expression is a logarithm to the base of two, or one of `names`."""
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Call) and last_name(node.func) in LOGARITHMS_OF_TWO


def assigned(statement: ast.Assign) -> Iterator[str]:
    """The names that a statement gives a value by themselves."""
    yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def exponent_of_two(node: ast.AST) -> ast.expr | None:
    """What two is raised to, `2 ** n`, `pow(2, n)`, `1 << n`; None for anything else."""
    match node:
        case ast.BinOp(left=ast.Constant(value=2), op=ast.Pow(), right=right):
            return right
        case ast.BinOp(left=ast.Constant(value=1), op=ast.LShift(), right=right):
            return right
        case ast.Call(func=func, args=[ast.Constant(value=2), exponent]) if last_name(func) in ("pow", "power"):
            return exponent
    return None


def function_around(trace: Trace, place: Place) -> ast.AST | None:
    """The function around a place."""
    file, node = trace.node(place) or (None, None)
    return file.syntax.function(node) if file is not None and node is not None else None


LOGARITHMS_OF_TWO = frozenset({"log2", "bit_length"})


def switched_off(trace: Trace, event: Event, tensor: Tensor) -> bool:
    """Whether autocast is switched off around an operation on what another region, outside, has lowered by another switch."""
    region = event.data["autocast"]
    if not isinstance(region, Autocast) or region.dtype is not None or region.device == "" or not tensor.half:
        return False
    made = begun_at(region.identity)  # on or off: conditions that were lost must not make it both
    alike = made == tensor.half[0].place or (isinstance(made, Place) and have_one_switch(trace, made, tensor.half[0].place))
    return not alike and HALF in tensor.forward and SURE in tensor.tags


def begun_at(identity: object) -> object:
    """Where a region was made, or the trainer whose region it is."""
    while isinstance(identity, tuple) and not isinstance(identity, Place) and identity:
        identity = identity[1] if identity[0] == "trainer" and len(identity) > 1 else identity[0]
    return identity


def have_one_switch(trace: Trace, one: Place, other: Place) -> bool:
    """Whether two regions of a file are enabled by the same expression, which is no constant."""
    calls = [found[1] for place in (one, other) if (found := trace.node(place)) is not None]
    given = [argument(call, "enabled") for call in calls if isinstance(call, ast.Call)]
    switches = [ast.unparse(switch) for switch in given if switch is not None and not isinstance(switch, ast.Constant)]
    return one.path == other.path and len(switches) == 2 and switches[0] == switches[1]


def is_attempted(trace: Trace, place: Place) -> bool:
    """Whether the exceptions of what stands at a place are caught around it."""
    file, node = trace.node(place) or (None, None)
    inner: ast.AST | None = node
    for around in file.syntax.ancestors(node) if file is not None and node is not None else ():
        if isinstance(around, FUNCTIONS):
            return False
        if isinstance(around, ast.Try | ast.TryStar) and around.handlers and inner in around.body:
            return True
        inner = around
    return False


def is_harmful(event: Event) -> bool:
    """Whether float16 takes more than digits: kernels add up norms in float32, and where nothing learns no gradient is lost either."""
    return event.data["name"] != "norm" or event.get("learns") is not False


def is_bounded(trace: Trace, event: Event) -> bool:
    """Whether an operation brings nothing out of range: a root, `exp` of what is never positive, or a square of which nothing learns."""
    _, node = trace.node(event.place) or (None, None)
    match node:
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() | float() as power)):
            return 0 < power <= 1 or (power == 2 and event.get("learns") is False)
        case ast.Call(func=ast.Attribute(value=owner, attr="exp" | "exp_"), args=[]):
            return is_never_positive(owner)
        case ast.Call(func=ast.Attribute(attr="exp"), args=[given]):
            return is_never_positive(given)
    return False


def is_never_positive(node: ast.expr) -> bool:
    """Whether an expression is a square or a magnitude with a minus before it, whatever it is scaled by."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return is_never_negative(operand)
        case ast.BinOp(op=ast.Div() | ast.Mult(), left=left, right=right):
            one, other = is_never_positive(left), is_never_positive(right)
            return (one and is_never_negative(right)) or (other and is_never_negative(left))
    return False


def is_never_negative(node: ast.expr) -> bool:
    """Whether an expression is a positive number, a square, a magnitude, or a product or quotient of such."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value >= 0
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5 | 2 | 4)):
            return True
        case ast.BinOp(op=ast.Div() | ast.Mult() | ast.Add(), left=left, right=right):
            return is_never_negative(left) and is_never_negative(right)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in MAGNITUDES
    return False


MAGNITUDES = frozenset({"abs", "square", "cdist", "norm", "relu", "sigmoid"})


def of_half_model(event: Event) -> bool:
    """Whether a loss is taken, with gradients, of what a model gives that a cast of the whole has put in float16."""
    tensor = event.data["tensor"]
    first = tensor.half[0].by if isinstance(tensor, Tensor) and tensor.half else None
    given = isinstance(tensor, Tensor) and first is By.CAST and HALF in tensor.forward  # what such a model is given
    cast = first in MODEL_IN_HALF or given
    return cast and event.data["certain"] is True and event.data["trained"] is True


def parts_of_losses(trace: Trace) -> set[Place]:
    """What the losses that gradients are taken of were computed of in half precision, after its region had ended."""
    found: set[Place] = set()
    for _, event in trace.of("backward", "trainer backward"):
        for _, loss in tensors_of(event.data["loss"], event.path):  # type: ignore[arg-type]
            found |= places_tagged(loss, LATE) | places_tagged(loss, LATE_ROUNDED)
    return found


def trained(trace: Trace, item: half.Found) -> bool:
    """Whether gradients are computed behind a loss: by a backward, or by what the optimizer of the same function does."""
    events = item.entry.events
    if any(event.kind in ("backward", "trainer backward") for event in events[list(events).index(item.event) :]):
        return True
    if any(event.frame == item.event.frame for event in item.entry.of(*TRAINS)):
        return True
    file, node = trace.node(item.event.place) or (None, None)
    function = file.syntax.function(node) if file is not None and node is not None else None
    return function is not None and any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(function))


def region_left(item: half.Found) -> Chain:
    """The region that computed the outputs, where their own chain does not tell: the last that was entered around there before."""
    found: Chain = ()
    around = {item.event.place.path, *(place.path for place in item.event.calls)}
    for event in item.entry.events:
        if event is item.event:
            break
        region = event.data["autocast"] if event.kind == "autocast entered" else None
        if not isinstance(region, Autocast) or region.dtype != HALF or extend(event.path, item.event.path) is None:
            continue
        if not found or event.place.path in around:
            found = region.chain[:1]
    return found


def enter(trace: Trace, item: half.Found) -> Fix | None:
    """The loss moved to the end of the region that it follows, else a cast of its input."""
    file, call = trace.node(item.event.place) or (None, None)
    if file is None or call is None:
        return None
    statement = file.syntax.statement(call)
    block = file.syntax.block(statement)
    at = block.index(statement)
    before = block[at - 1] if at > 0 else None
    entered = {trace.span(e.place) for e in item.entry.of("autocast entered") if e.place.path == item.event.place.path}
    inside = before.body if isinstance(before, ast.With) and any(file.span(i.context_expr) in entered for i in before.items) else None
    if inside and isinstance(statement, ast.Assign) and "bce" not in file.text(call).lower():
        move = MoveStatement(file.span(statement), file.span(inside[-1]), after=True)
        return Fix("compute the loss inside the autocast region", Applicability.UNSAFE, (move,))
    return on_float32(trace, item.event)


ONE_TENSOR = re.compile(r"logit|pred|prob|score|recon|fake|real|hat|mask", re.I)  # in the name of what is no dict of tensors


def on_float32(trace: Trace, event: Event) -> Fix | None:
    """A loss on its input in float32, where that has a name, and is one tensor: what a model gives may be a dict of them."""
    given = event.data["given"]
    file, late = trace.node(given) or (None, None) if isinstance(given, Place) else (None, None)
    if file is None or not isinstance(late, ast.Name) or (event.get("certain") is False and ONE_TENSOR.search(late.id) is None):
        return None
    return Fix(f"compute the loss on `{late.id}.float()`", Applicability.UNSAFE, (float32_tensor(file, late),))


def upcast(trace: Trace, event: Event, name: str, asked: object) -> Fix | None:
    """The operation on a float32 tensor, or in the float32 that it asks for."""
    title = f"compute `{name}` in float32"
    given = event.data["given"]
    file, node = trace.node(asked if isinstance(asked, Place) else given) or (None, None)  # type: ignore[arg-type]
    if file is None or node is None:
        return None
    if isinstance(asked, Place):
        if not isinstance(node, ast.Attribute) or node.attr not in ("float16", "half"):
            return None
        return Fix(title, Applicability.UNSAFE, (Replace(file.span(node), f"{file.text(node.value)}.float32"),))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node == (trace.node(event.place) or (None, None))[1]:
        node = node.func.value  # a method: what it is called on
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "half":
        return Fix(title, Applicability.UNSAFE, (Replace(file.span(node), f"{file.text(node.func.value)}.float()"),))
    if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        return None
    return Fix(title, Applicability.UNSAFE, (float32_tensor(file, node),))


def handed_on(trace: Trace, event: Event, name: str, fix: Fix | None) -> Fix | None:
    """A fix that casts its result to half again where a product takes it: a float32 factor beside a half one raises.

    Of an operation whose results half precision may not hold the fix is only shown; a partial of one is left to those who call it.
    """
    file, called = trace.node(event.place) or (None, None)
    if fix is None or file is None or not isinstance(called, ast.Call):
        return fix
    if not isinstance(event.data["asked"], Place) and goes_into(file, called, is_given_to_layer):
        return like_before(file, called, name, fix)
    if not goes_into(file, called, is_factor):
        return fix
    if isinstance(event.data["asked"], Place) and given_before(trace, event.place) != event.place:
        return fix
    if name not in BOUNDED:
        return fix._replace(applicability=Applicability.DISPLAY)
    end = file.span(called)
    back = Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column), ".half()")
    return fix._replace(changes=(*fix.changes, back))


def like_before(file: SourceFile, called: ast.Call, name: str, fix: Fix) -> Fix:
    """A fix that casts its result to the dtype which the layer behind has had: its weights are in that, whichever the model is run in."""
    given = next(iter(called.args), None)
    if isinstance(called.func, ast.Attribute) and not (file.names.resolve(called.func) or "").startswith("torch"):
        given = called.func.value  # a method: what it is called on
    if name not in BOUNDED or not isinstance(given, ast.Name):
        return fix._replace(applicability=Applicability.DISPLAY)
    end = file.span(called)
    back = Replace(Span(end.end_line, end.end_column, end.end_line, end.end_column), f".to({given.id}.dtype)")
    return fix._replace(changes=(*fix.changes, back))


def goes_into(file: SourceFile, called: ast.Call, takes: Callable[[SourceFile, ast.expr], bool]) -> bool:
    """Whether something takes what a call gives, at once or by the name that it is bound to."""
    around = file.syntax.parents.get(called)
    if not isinstance(around, ast.Assign) or len(around.targets) != 1 or not isinstance(around.targets[0], ast.Name):
        return takes(file, called)
    name = around.targets[0].id
    reads = (n for n in ast.walk(file.tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
    return any(takes(file, read) and any(b.value is called for b in file.names.reaching(read)) for read in reads)


def is_given_to_layer(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression is what a layer with weights gets that the object itself holds."""
    match file.syntax.parents.get(node):
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return any(is_weighted(value) for value in held_as(file, name))
    return False


def held_as(file: SourceFile, name: str) -> Iterator[ast.expr]:
    """What a file binds to an attribute of `self`."""
    for node in file.syntax.all(ast.Assign):
        for target in node.targets:
            match target:
                case ast.Attribute(value=ast.Name(id="self"), attr=attr) if attr == name:
                    yield node.value


def is_weighted(made: ast.expr) -> bool:
    """Whether an expression makes a layer with weights, whatever is called on it at once."""
    match made:
        case ast.Call(func=ast.Name(id=name)) if WEIGHTED.fullmatch(name):
            return True
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            return WEIGHTED.fullmatch(name) is not None or is_weighted(value)
    return False


WEIGHTED = re.compile(r"(Lazy)?(Conv(Transpose)?[123]d|Linear|Bilinear)")


def is_factor(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression is a factor of a product of matrices."""
    match file.syntax.parents.get(node):
        case ast.BinOp(op=ast.MatMult()):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in PRODUCTS
        case ast.Attribute(attr=name):
            return name in PRODUCTS
    return False


def given_before(trace: Trace, called: Place) -> Place:
    """The `dtype` that the partial behind the name of what is called was given; else the call."""
    file, call = trace.node(called) or (None, None)
    if file is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return called
    made = [binding.value for binding in file.names.reaching(call.func)]
    dtypes = [dtype for value in made if isinstance(value, ast.Call) and (dtype := argument(value, "dtype")) is not None]
    return Place(called.path, place_of(dtypes[0])) if len(dtypes) == 1 else called


def outermost(trace: Trace, asked: Place) -> Place:
    """The call, of an operation or of a partial of one, in which a dtype is asked for."""
    file, node = trace.node(asked) or (None, None)
    around = file.syntax.ancestors(node) if file is not None and node is not None and not isinstance(node, ast.Call) else ()
    call = next((parent for parent in around if isinstance(parent, ast.Call)), None)
    return Place(asked.path, place_of(call)) if call is not None else asked


def rounded(event: Event, name: str) -> Tensor:
    """The tensor of an event, where a policy has rounded it; else one that nothing has."""
    given = event.data[name]
    tensor = given[0] if isinstance(given, tuple) and given else given
    in_half = isinstance(tensor, Tensor) and tensor.half and tensor.dtypes <= {HALF, BFLOAT}
    return tensor if in_half and isinstance(tensor, Tensor) else Tensor(frozenset())


def reduced(item: half.Found) -> Chain:
    """How what a reduction adds up came to be half: by the operation at its place, or else by the loss that it became a part of."""
    done = (event.data["operands"] for event in item.entry.of("operation") if event.place == item.event.place)
    tensor = item.event.data["tensor"]
    given = next((t for operands in done for t in operands if HALF in t.dtypes), tensor)  # type: ignore[attr-defined]
    return given.half if isinstance(given, Tensor) else ()


def is_functional(event: Event) -> bool:
    """Whether a function of Keras takes a loss of probabilities that a policy has rounded."""
    return event.data["function"] is True and event.data["logits"] != TRUE and bool(rounded(event, "predictions").half)


def is_late(event: Event) -> bool:
    """Whether a cast to float32 comes after the activation that a policy has put in half."""
    return event.data["letter"] == SINGLE and activation_of(rounded(event, "tensor")) != ""


def activation_of(tensor: Tensor) -> str:
    """The activation that gave probabilities; "" where none did."""
    names = (tag.partition(":")[2] for tag in sorted(tensor.tags) if tag.startswith("activation:"))
    return next((name for name in names if name in PROBABILITIES), "")


def emitted(entry: Entry) -> Iterator[Step]:
    """What computes the outputs of the models of an entry: their dtype is what the model emits."""
    for event in entry.of("model made"):
        for _, output in tensors_of(event.data["outputs"], event.path):  # type: ignore[arg-type]
            if output.half:
                yield output.half[-1]


def in_float32(trace: Trace, made: Place) -> Fix | None:
    """The layer in float32."""
    file, call = trace.node(made) or (None, None)
    if file is None or not isinstance(call, ast.Call):
        return None
    change = set_keyword(file, call, "dtype", quoted(file, "float32", call))
    return Fix('compute it in float32 with dtype="float32"', Applicability.UNSAFE, (change,))


def cast_first(trace: Trace, made: Place, cast: Place) -> Fix | None:
    """The cast moved to the argument of what it follows."""
    file, around = trace.node(cast) or (None, None)
    inner = (trace.node(made) or (None, None))[1]
    if file is None or not isinstance(around, ast.Call) or not isinstance(inner, ast.Call) or around.keywords or len(inner.args) != 1:
        return None
    if len(around.args) != 2 or around.args[0] is not inner or "\n" in file.text(inner):
        return None
    argument = f"{file.text(around.func)}({file.text(inner.args[0])}, {file.text(around.args[1])})"
    keywords = "".join(f", {k.arg}={file.text(k.value)}" for k in inner.keywords if k.arg is not None)
    whole = Replace(file.span(around), f"{file.text(inner.func)}({argument}{keywords})")
    return Fix("cast the argument to float32 first", Applicability.UNSAFE, (whole,))
