"""MP405: casts that undo each other, or that surround work which needs none."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Applicability, Finding, Severity
from mplint.graph.casts import Island, islands, lossy_pairs
from mplint.graph.facts import GraphFacts
from mplint.graph.mends import without_casts, without_rounding
from mplint.rule import Rule


class CastPingPong(Rule):
    """Casts to float32 and back for nothing

    ## What it does
    Finds casts from half to float32 that are cast back at once, or with only such nodes in between as give the same bits in half
    (reshapes, Relu, Clip, Max, MaxPool, or one Add, Sub or Mul of half operands), and casts to half that are cast back at once.

    ## Why is this bad?
    A cast reads and writes every element: from float16 to float32 and back moves 12 bytes an element, six times the tensor's own
    size, and computes nothing. On a GPU such a pair costs as much as the elementwise work beside it.

    ## Example
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float[N, 64] x, float16[64, 64] w1, float16[64, 64] w2) => (float[N, 64] y)
    {
        a = Cast<to=10>(x)
        b = MatMul(a, w1)
        up = Cast<to=1>(b)
        c = Relu(up)
        down = Cast<to=10>(c)
        d = MatMul(down, w2)
        y = Cast<to=1>(d)
    }
    ```

    ## Use instead
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float[N, 64] x, float16[64, 64] w1, float16[64, 64] w2) => (float[N, 64] y)
    {
        a = Cast<to=10>(x)
        b = MatMul(a, w1)
        c = Relu(b)
        d = MatMul(c, w2)
        y = Cast<to=1>(d)
    }
    ```

    ## Fix safety
    Safe where the model gives the same bits without the casts. Unsafe where float32 is rounded to half and cast back: the numbers keep the
    digits that they lost there, which may have been the point. `mplint fix` mends ONNX models and `.keras` archives, and
    writes only what it has proven.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp405.py: the same bits without the casts. The time shows only on a GPU.

    ## References
    - <https://onnxruntime.ai/docs/performance/model-optimizations/float16.html>
    - <https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html>
    """

    code = "MP405"
    name = "cast-ping-pong"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("onnx", "keras", "torch")
    graphs = True

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield each group of casts that a model could do without."""
        for island in islands(graph):
            if island.is_idle or island.is_exact:
                yield self._island(graph, island)
        for down, up in lossy_pairs(graph):
            yield self.graph_finding(
                graph,
                down,
                f"{down.described} rounds a tensor to half, and {up.name} casts it back at once",
                why="It costs two passes over the tensor and 13 or more bits, and nothing runs in half in between.",
                help="Remove both casts, unless they are to round.",
                related=((up, "casts it back"),),
                fix=without_rounding(graph, down),
            )

    def _island(self, graph: GraphFacts, island: Island) -> Finding:
        first, last = island.up[0], island.down[0]
        moved = f", which moves {island.moved}" if island.moved else ""
        if island.is_idle:
            message = (
                f"{first.described} casts {island.dtype} to float32, and {last.name} casts it back, with nothing computed in between{moved}"
            )
        else:
            names = ", ".join(dict.fromkeys(node.op_type for node in island.work))
            message = f"{first.described} and {last.name} cast to float32 and back around {names}{moved}"
        fix = without_casts(graph, island)
        why = "The result has the same bits in half; a cast reads and writes every element."
        return self.graph_finding(graph, first, message, why=why, help="Remove the casts.", related=((last, "casts it back"),), fix=fix)
