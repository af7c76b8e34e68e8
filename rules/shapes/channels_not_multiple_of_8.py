"""MP401: hidden widths that Tensor Cores cannot tile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Confidence, Finding, Fix, Severity
from mplint.program.trace import Trace
from mplint.program.values import Constant
from mplint.python.document import is_test_path
from mplint.python.r.functions import COMPOSED
from mplint.rule import Consequence, Option, Rule

from .sizes import Layer, Size, given, layers, multiple, replaced

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.graph.sizes import Width
    from mplint.python.file import SourceFile

STEP = 8
POSITIONS = 8 * 8  # at which a convolution is taken, of whatever kernel
SHARE = 50  # times the work of a layer, from which on it makes no difference
RELEVANT = 0.05  # of the work of a model: below, no width of it matters
# Words that say that a size counts something of the task: classes, coordinates, channels of the data.
TASK = re.compile(r"class|label|tag|categor|logit|pred|score|output|out_|_out|head|final|target|vocab|word|box|coord|anchor|action", re.I)
GATES = ("softmax", "sigmoid", "log_softmax", "log_sigmoid", "hard_sigmoid")
WHY = "Tensor Cores multiply half-precision tiles of 8: with another size the kernels pad every product or leave the Tensor Cores."


class ChannelsNotMultipleOf8(Rule):
    """Units or filters that are no multiple of 8

    ## What it does
    Finds hidden layers whose units or filters are no multiple of 8, in programs that compute in half precision. Of severity info below a
    width of 64, and for a head that runs once a picture behind convolutions which do all the work.
    In model graphs: the widths between one product and the next. In files of weights: the sizes that one stored matrix makes and another
    takes, by names, shapes and biases. Products with less than 5 % of the work make it advice. Sizes that a formula gives (Fourier and
    cosine bases, filterbanks, buffers) or a picture (its patches) are left alone.

    ## Why is this bad?
    Half precision is fast because Tensor Cores multiply tiles, and cuBLAS and cuDNN fill them best where every
    dimension is a multiple of 8 (16 bytes of float16). NVIDIA measures matrix products with unaligned sizes at a half to
    a quarter of the aligned speed on V100; newer libraries pad, which costs memory traffic. Widths below 64 are reported as advice.

    ## Example
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([
        keras.layers.Dense(1001, activation="relu"),
        keras.layers.Dense(10),
        keras.layers.Activation("softmax", dtype="float32"),
    ])
    ```

    ## Use instead
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([
        keras.layers.Dense(1008, activation="relu"),
        keras.layers.Dense(10),
        keras.layers.Activation("softmax", dtype="float32"),
    ])
    ```

    ## Fix safety
    Unsafe: the model gets wider, so that checkpoints of the old one no longer fit. Offered where the number is used for this width only.

    ## Evidence
    Shows only on a GPU with Tensor Cores: time, not results. The numbers are NVIDIA's, in the guide below.

    ## References
    - <https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html#requirements-tc>
    - <https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html#tensor-op-math>
    """

    code = "MP401"
    name = "channels-not-multiple-of-8"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("keras", "torch")
    graphs = True
    weights = True
    program = True
    tokens = ("Dense", "Conv", "LSTM", "GRU", "Linear")
    adoption = Consequence(speed=True)
    options = (Option("least-width", 64, 8, "the width in a program below which a finding is advice, of severity info"),)

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the unaligned widths between the products of a model that run in half, each once."""
        from mplint.graph.sizes import hidden_widths, result, title

        for found in hidden_widths(graph):
            first, new = found.makers[0], multiple(found.number, STEP)
            kind = "weights" if found.stored else "nodes"
            more = f" ({len(found.makers)} such {kind})" if len(found.makers) > 1 else ""
            yield self.graph_finding(
                graph,
                first,
                f"{title(first)} is {found.number} wide{result(first)}, which is no multiple of {STEP}{more}{weight_of(found)}",
                why=WHY if not found.stored else f"{WHY} The file holds no operations: it counts where they compute in the stored dtype.",
                help=f"Use {new} in the model's source, and leave the sizes that the data or the classes fix as they are.",
                severity=Severity.INFO if found.share is not None and found.share < RELEVANT else None,
                confidence=Confidence.MEDIUM if found.stored else Confidence.HIGH,
                related=((found.reader, "reads it"),) if found.reader is not None else (),
            )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the hidden layers of unaligned width that run, or may run, in half."""
        groups: dict[object, list[Layer]] = {}
        for layer in layers(trace):
            groups.setdefault(layer.group, []).append(layer)
        for group in groups.values():
            for layer in group:
                size = layer.after
                if size is None or not layer.half or is_aligned(size.number):
                    continue
                if layer.event.kind == "layer made":
                    if not layer.head and layer.sure and is_hidden(trace, layer, size):
                        yield self._finding(trace, layer, size, [size], self.is_small(trace, size))
                elif given(layer.event, "groups") is None and consumers(group, layer):
                    little = self.is_small(trace, size) or has_small_share(group, layer)
                    yield self._finding(trace, layer, size, shared_widths(group, size.number), little)

    def is_small(self, trace: Trace, size: Size) -> bool:
        """Whether a width is so small that it is worth no more than advice."""
        return size.number < self.option("least-width", trace.targets(size.place.path))

    def _finding(self, trace: Trace, layer: Layer, size: Size, same: Sequence[Size], little: bool) -> Finding:
        new = multiple(size.number, STEP)
        changes = replaced(trace, same, new)
        test = is_test_path(size.place.path)
        return self.at(
            trace,
            size.place,
            f"`{layer.kind}` has a width of {size.number}, which is no multiple of {STEP}",
            why=WHY,
            help=f"Use {new}, and leave the sizes that the data or the classes fix as they are.",
            severity=Severity.INFO if little else Severity.WARNING,
            confidence=Confidence.LOW if test else Confidence.HIGH if layer.sure else Confidence.MEDIUM,
            steps=layer.steps,
            fix=Fix(f"widen it to {new}", Applicability.UNSAFE, changes) if changes else None,
        )


def has_small_share(group: list[Layer], layer: Layer) -> bool:
    """Whether a layer that runs once a picture does next to nothing beside the convolutions of its model, or they are of unknown size."""
    convolutions = [work(other) for other in group if "Conv" in other.kind]
    if layer.kind != "Linear" or not convolutions:
        return False
    own, others = work(layer), [number for number in convolutions if number is not None]
    return len(others) < len(convolutions) or (own is not None and sum(others) > SHARE * own)


def work(layer: Layer) -> int | None:
    """The products that a layer takes for one input, convolutions at the least; None where a size is not known."""
    if layer.before is None or layer.after is None:
        return None
    return layer.before.number * layer.after.number * (POSITIONS if "Conv" in layer.kind else 1)


def weight_of(found: Width) -> str:
    """The share of the model that products of this width have, where it is known."""
    if found.share is None:
        return ""
    if found.share == 0:
        return "; it weighs pooled values, once an input"
    share = f"{100 * found.share:.2g} %" if found.share < 0.995 else "all"
    holds = f"hold {share} of the products' parameters" if found.stored else f"do {share} of the work"
    return f"; products of this width {holds}"


def is_aligned(number: int) -> bool:
    """Whether nothing is to be won: a multiple of 8, or so small that it counts something."""
    return number <= STEP or number % STEP == 0


def is_hidden(trace: Trace, layer: Layer, size: Size) -> bool:
    """Whether a layer of Keras is neither a gate nor, by its names, a head."""
    label, activation = given(layer.event, "name"), given(layer.event, "activation", 1 if layer.kind == "Dense" else -1)
    names = [str(label.value) if type(label) is Constant else "", trace.text(size.place)]
    found = trace.node(layer.event.place)
    statement = found[0].syntax.statement(found[1]) if found is not None else None
    if found is not None and isinstance(statement, ast.Assign) and not is_taken_in(*found):
        names += [found[0].text(target) for target in statement.targets]
    gate = str(activation.value).lower() if type(activation) is Constant else getattr(activation, "name", "").rpartition(".")[2]
    return gate not in GATES and not any(TASK.search(name) for name in names)


def is_taken_in(file: SourceFile, node: ast.AST) -> bool:
    """Whether another layer of the same expression takes a layer's output in, so that what is assigned is not that."""
    while isinstance(parent := file.syntax.parents[node], ast.Call):
        composes = isinstance(parent.func, ast.Call) or file.names.resolve(parent.func) == COMPOSED
        if composes and parent.args and parent.args[0] is node:
            return True
        node = parent
    return False


def consumers(group: list[Layer], layer: Layer) -> list[Layer]:
    """The layers made after one that take its width in: what makes it a hidden one."""
    number = layer.after.number if layer.after is not None else None
    later = group[group.index(layer) + 1 :]
    return [other for other in later if other.kind != "Embedding" and other.before is not None and other.before.number == number]


def shared_widths(group: list[Layer], number: int) -> list[Size]:
    """Every size that must change with a hidden width; none where the number is a class count or an input size as well."""
    makers = [one for one in group if one.after is not None and one.after.number == number]
    takers = [one for one in group if one.kind != "Embedding" and one.before is not None and one.before.number == number]
    if not all(consumers(group, one) for one in makers) or any(group.index(one) < group.index(makers[0]) for one in takers):
        return []
    return [s for one in group for s in (one.before, one.after) if s is not None and s.number == number]
