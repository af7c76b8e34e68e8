"""MP602: small float32 regions that split a half region."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Finding, Severity
from mplint.graph.casts import Island, heavy_in, islands
from mplint.graph.facts import GraphFacts
from mplint.rule import Rule


class Float32Island(Rule):
    """A float32 region within a half one

    ## What it does
    Finds small regions of a half model that compute in float32 although nothing in them needs it (Add, Mul, Tanh, a product), and
    names the bytes that the casts around them move. Regions with softmax, exp, log, roots, divisions, norms or reductions are
    there for safety and are left alone.

    ## Why is this bad?
    Every border of a region is a cast that reads and writes the whole tensor, and it keeps kernels from being fused across it. Within
    the region activations take twice the memory, and products run without the Tensor Cores' half units.

    ## Example
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float[N, 64] x, float16[64, 64] w1, float16[64, 64] w2) => (float[N, 64] y)
    <float[64] bias = {0}>
    {
        a = Cast<to=10>(x)
        b = MatMul(a, w1)
        up = Cast<to=1>(b)
        c = Add(up, bias)
        down = Cast<to=10>(c)
        d = MatMul(down, w2)
        y = Cast<to=1>(d)
    }
    ```

    ## Use instead
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float[N, 64] x, float16[64, 64] w1, float16[64, 64] w2) => (float[N, 64] y)
    <float16[64] bias = {0}>
    {
        a = Cast<to=10>(x)
        b = MatMul(a, w1)
        c = Add(b, bias)
        d = MatMul(c, w2)
        y = Cast<to=1>(d)
    }
    ```

    ## Evidence
    Shows only on a GPU: time and memory, not results. The arithmetic of the casts is in the finding.

    ## References
    - <https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html>
    """

    code = "MP602"
    name = "float32-island"
    severity = Severity.INFO
    frameworks = ("onnx", "torch")
    graphs = True

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the float32 regions that nothing asks for."""
        for island in islands(graph):
            if not (island.is_idle or island.is_exact or island.is_needed):
                yield self._finding(graph, island)

    def _finding(self, graph: GraphFacts, island: Island) -> Finding:
        names = ", ".join(dict.fromkeys(node.op_type for node in island.work))
        count = len(island.up) + len(island.down)
        moved = island.moved or "their tensors"
        heavy = heavy_in(island)
        return self.graph_finding(
            graph,
            island.work[0],
            f"{island.work[0].described} is in a float32 region ({names}) within {island.dtype}; its {count} casts move {moved}",
            why="Casts read and write every element, and keep kernels from being fused." if not heavy else "Products run faster in half.",
            help="Let the region run in half, unless it was measured to need float32.",
            related=((island.up[0], "casts to float32"), (island.down[0], "casts back")),
        )
