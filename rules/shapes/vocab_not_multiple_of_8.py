"""MP403: vocabularies whose rows Tensor Cores cannot tile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Fix, Severity
from mplint.program.trace import Trace
from mplint.program.values import Place, Step
from mplint.python.document import is_test_path
from mplint.rule import Consequence, Option, Rule

from .sizes import Layer, Size, given, layers, multiple, replaced

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts

STEP = 8
POSITIONS = re.compile(r"pos|block|length|seq|max_len|ctx|context|time|step|user|item", re.I)
FIXED = ("_weight", "weights", "embeddings_initializer")  # arguments that bring rows of their own


class Rows(NamedTuple):
    """The rows of an embedding, or of a head that gives a score for each."""

    layer: Layer
    size: Size
    head: bool


class VocabNotMultipleOf8(Rule):
    """Vocabulary whose size is no multiple of 8

    ## What it does
    Finds embeddings with language-model heads of 1000 rows or more whose number is no multiple of 8, in programs that
    compute in half precision; rows that are only looked up cost nothing.
    In model graphs and files of weights: heads of 1000 rows or more that have a table as wide, or that by their output's shape or their
    name score a vocabulary.

    ## Why is this bad?
    The head's matrix product is the largest of a language model, and it runs over the vocabulary. Tensor Cores need
    dimensions that are multiples of 8 (64 is best on A100 and later): padding GPT-2's 50257 tokens to 50304 made nanoGPT about 25 % faster.

    ## Example
    ```python
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(50257, 768)
            self.head = nn.Linear(768, 50257, bias=False)

        def forward(self, tokens):
            return self.head(self.tokens(tokens))

    model = Model()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(batch)
    ```

    ## Use instead
    ```python
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(50304, 768)
            self.head = nn.Linear(768, 50304, bias=False)

        def forward(self, tokens):
            return self.head(self.tokens(tokens))

    model = Model()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(batch)
    ```

    ## Fix safety
    Unsafe: the padded rows are never looked up, but checkpoints of the old size no longer fit, and sampling must ignore the padding.

    ## Evidence
    Shows only on a GPU with Tensor Cores: time, not results. See the measurement and the guide below.

    ## References
    - <https://github.com/karpathy/nanoGPT/commit/b3396b48361045f527b50bf9ff0e139270f97601>
    - <https://docs.nvidia.com/deeplearning/performance/dl-performance-fully-connected/index.html#batch-size>
    """

    code = "MP403"
    name = "vocab-not-multiple-of-8"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("keras", "torch")
    graphs = True
    weights = True
    program = True
    tokens = ("Embedding",)
    adoption = Consequence(speed=True)
    options = (
        Option("least-rows", 1000, 8, "the rows from which on an embedding or a head is a vocabulary"),
        Option("pad-to", 64, 8, "the number to a multiple of which the fix pads"),
    )

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the vocabularies of a model that runs in half, each once."""
        from mplint.graph.sizes import title, vocabularies

        pad = self.option("pad-to", graph.targets)
        for found in vocabularies(graph, self.option("least-rows", graph.targets)):
            first, head = found.makers[0], found.reader
            tied = ""
            if head is None:
                said = f"{title(first)} has {found.number} rows"
                tied = "; a language model that stores no other head has the table for its head"
            elif head is first:
                said = f"the head {title(head)} scores {found.number} rows"
            else:
                said = f"{title(first)} has {found.number} rows, as has the head {title(head)}"
            yield self.graph_finding(
                graph,
                first,
                f"{said}, which is no multiple of {STEP}{tied}",
                why=f"Tensor Cores tile the head's product by 8 (64 is best on A100 and later); {found.number} leaves every row unaligned.",
                help=f"Pad the vocabulary to {multiple(found.number, pad)} in the model's source.",
                confidence=Confidence.MEDIUM if found.stored or head in (None, first) else Confidence.HIGH,
            )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the number of rows once, where it is written."""
        rows = [row for layer in layers(trace) if layer.half and (row := rows_of(layer)) is not None and self.is_vocabulary(trace, row)]
        heads = {row.size.number for row in rows if row.head}
        seen: set[Place] = set()
        for row in rows:
            place = row.size.literal or row.size.place
            if row.head or place in seen or row.size.number not in heads:  # looking rows up multiplies nothing
                continue
            same = [r for r in rows if r.size.number == row.size.number and r.layer.group == row.layer.group]
            seen |= {r.size.literal or r.size.place for r in same}
            yield self._finding(trace, row, same, place)

    def is_vocabulary(self, trace: Trace, row: Rows) -> bool:
        """Whether the rows are many, unaligned, and neither positions nor fixed by a pretrained checkpoint."""
        size = row.size
        least = self.option("least-rows", trace.targets(size.place.path))
        if size.number < least or size.number % STEP == 0 or POSITIONS.search(trace.text(size.place)):
            return False
        places = [place for place in (size.literal, row.layer.event.place, *row.layer.event.calls) if place is not None]
        return not any("pretrained" in function_at(trace, place).lower() for place in places)

    def _finding(self, trace: Trace, row: Rows, same: Sequence[Rows], place: Place) -> Finding:
        number = row.size.number
        pad = self.option("pad-to", trace.targets(place.path))
        new = multiple(number, pad)
        changes = replaced(trace, [r.size for r in same], new)
        uses = tuple(Step(r.layer.event.place, f"`{r.layer.kind}` has as many rows") for r in same if r.size.place != place)
        confidence = Confidence.HIGH if row.layer.sure and len(same) > 1 else Confidence.MEDIUM
        return self.at(
            trace,
            place,
            f"a vocabulary of {number} rows is no multiple of {STEP}",
            why="Tensor Cores multiply half-precision tiles of 8, and the product over the vocabulary is the model's largest.",
            help=f"Pad it to {new} (a multiple of {pad}); the added rows are never looked up.",
            confidence=Confidence.LOW if is_test_path(place.path) else confidence,
            steps=(*uses, *row.layer.steps),
            fix=Fix(f"pad the vocabulary to {new}", Applicability.UNSAFE, changes) if changes else None,
        )


def rows_of(layer: Layer) -> Rows | None:
    """The rows of a layer that may be a vocabulary's."""
    if any(given(layer.event, name) is not None for name in FIXED):
        return None
    if layer.kind == "Embedding":
        return Rows(layer, layer.before, False) if layer.before is not None else None
    return Rows(layer, layer.after, True) if layer.kind in ("Linear", "Dense") and layer.after is not None else None


def function_at(trace: Trace, place: Place) -> str:
    """The name of the function around a place."""
    found = trace.node(place)
    function = found[0].syntax.function(found[1]) if found is not None else None
    return function.name if isinstance(function, ast.FunctionDef) else ""
