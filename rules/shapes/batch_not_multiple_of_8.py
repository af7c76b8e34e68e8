"""MP402: training batches that Tensor Cores cannot tile."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Confidence, Finding, Severity
from mplint.program.lower import span_of
from mplint.program.machine import Args, Event
from mplint.program.trace import Trace, possible, shown_symbol
from mplint.program.values import Place, Step, Unknown
from mplint.python.document import is_test_path
from mplint.rule import Consequence, Option, Rule

from .sizes import CONVOLUTIONS, RECURRENT, Size, layers, multiple, size

STEP = 8
# With these a matrix product sees batch x sequence rows.
SEQUENCE = frozenset({"Embedding", "MultiHeadAttention", "MultiheadAttention", "TimeDistributed"})
DENSE = frozenset({"Dense", "Linear"})
STEPWISE = frozenset({*RECURRENT, "LSTM", "GRU", "RNN"})


class BatchNotMultipleOf8(Rule):
    """Training batches that Tensor Cores cannot tile

    ## What it does
    Finds training batch sizes above 8 that are no multiple of 8, in programs whose Dense, Linear or recurrent layers compute in half
    precision: `fit(batch_size=…)`, `.batch(…)` and generators that reach `fit`, a `DataLoader` that the training loop iterates. Says
    nothing about validation data, nor where a sequence dimension multiplies the batch (embeddings, attention) and nothing is recurrent.

    ## Why is this bad?
    The batch is a dimension of all three matrix products of a dense layer: forward, input gradient, weight gradient. NVIDIA asks for a
    multiple of 8 in float16: with another size, kernels leave the Tensor Cores or pad, so that a batch of 50 costs what one of 56 does.

    ## Example
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(1, dtype="float32")])
    model.compile(optimizer="adam", loss="mse")
    model.fit(images, labels, batch_size=50)
    ```

    ## Use instead
    ```python
    from tensorflow import keras

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(1, dtype="float32")])
    model.compile(optimizer="adam", loss="mse")
    model.fit(images, labels, batch_size=56)
    ```

    ## Evidence
    Shows only on a GPU with Tensor Cores: time, not results. The advice is NVIDIA's, in the guide below.

    ## References
    - <https://docs.nvidia.com/deeplearning/performance/dl-performance-fully-connected/index.html#batch-size>
    """

    code = "MP402"
    name = "batch-not-multiple-of-8"
    severity = Severity.INFO
    frameworks = ("keras", "torch")
    tokens = ("batch",)
    program = True
    adoption = Consequence(speed=True)
    options = (Option("least-batch", 8, 1, "the batch up to which nothing is said"),)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield each number once, where it is written."""
        seen: set[Place] = set()
        for found, use in batches(trace):
            place = found.literal or found.place
            if found.number % STEP == 0 or place in seen or is_test_path(place.path):
                continue
            if found.number <= self.option("least-batch", trace.targets(place.path)):
                continue
            seen.add(place)
            yield self.at(
                trace,
                place,
                f"the training batch size of {found.number} is no multiple of {STEP}",
                why="The batch is a dimension of every product of a dense layer, and Tensor Cores multiply half-precision tiles of 8.",
                help=f"Use {multiple(found.number, STEP) - STEP} or {multiple(found.number, STEP)}.",
                confidence=Confidence.MEDIUM,
                steps=(Step(use, "training takes its batches here"),),
            )


def batches(trace: Trace) -> Iterator[tuple[Size, Place]]:
    """The batch sizes with which dense or recurrent layers are trained in half, and where."""
    made = [event for _, event in trace.of("loader made", "data batched")]
    for entry in trace.entries:
        for event in entry.of("model fit"):
            if wants_batches(trace, event, "layer made"):
                yield from of_fit(trace, event, made)
        trained = {(place.path, span_of(place.position).line) for backward in entry.of("backward") for place, _ in backward.loops}
        for taken in entry.of("batches taken"):
            if (taken.place.path, span_of(taken.place.position).line) in trained and wants_batches(trace, taken, "sized layer made"):
                for loader in made:
                    if loader.kind == "loader made" and f"{loader.place.path}:{loader.place.position}" in str(taken.data["source"]):
                        found = size(trace, loader, 1, "batch_size")
                        if found is not None:
                            yield found, taken.place


def of_fit(trace: Trace, event: Event, made: list[Event]) -> Iterator[tuple[Size, Place]]:
    """The sizes that `fit` is given, itself or by its data."""
    found = size(trace, event, 2, "batch_size")
    if found is not None:
        yield found, event.place
    args = event.data["args"]
    assert isinstance(args, Args)
    data = args.get(0, "x")
    for _, atom in possible(data, event.path) if data is not None else ():
        text = shown_symbol(atom.symbol) if type(atom) is Unknown else ""
        for batched in made:
            given = size(trace, batched, 0, "batch_size") if batched.kind == "data batched" else None
            if given is not None and f"batch({given.number})" in text:
                yield given, event.place


def wants_batches(trace: Trace, event: Event, kind: str) -> bool:
    """Whether what is trained in half in the file is made of layers whose products have the batch as a dimension."""
    group = [one for one in layers(trace) if one.half and one.event.kind == kind and one.event.place.path == event.place.path]
    kinds = {one.kind for one in group}
    if kinds & set(CONVOLUTIONS) or not kinds & (DENSE | STEPWISE):
        return False
    return not kinds & SEQUENCE or bool(kinds & STEPWISE)
