"""MP407: models that are too small to run faster in half."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Finding, Severity
from mplint.graph.facts import GraphFacts
from mplint.graph.work import is_free, work
from mplint.rule import Rule

BATCH = 256  # stands for a symbolic batch
LAUNCH = 4e7  # FLOPs that a T4 does in float32 (8 TFLOPS) while one kernel is launched (5 microseconds)


class ModelTooSmall(Rule):
    """Too little work a node for half precision to show

    ## What it does
    Adds up the work of the products and convolutions of a model, with 256 for a symbolic batch, and reports a model whose nodes do
    less than 40 million floating-point operations each.

    ## Why is this bad?
    A GPU needs about 5 microseconds to launch a kernel. In that time a Tesla T4 does 40 million operations in float32, so that below
    this the time is the launch, whatever the dtype; the casts of mixed precision only add launches.

    ## Example
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float16[N, 16] x, float16[16, 16] w) => (float16[N, 16] y)
    {
        y = MatMul(x, w)
    }
    ```

    ## Use instead
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float[N, 16] x, float[16, 16] w) => (float[N, 16] y)
    {
        y = MatMul(x, w)
    }
    ```

    ## Evidence
    Shows only on a GPU: time, not results. The launch time and the guide to sizes below are NVIDIA's.

    ## References
    - <https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html>
    """

    code = "MP407"
    name = "model-too-small"
    severity = Severity.INFO
    frameworks = ("onnx", "keras", "torch")
    graphs = True

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield a half model in which no node does enough."""
        found = [(node, size.flops) for node in graph.heavy if (size := work(node)) is not None]
        if not graph.is_half or not found or len(found) < len(graph.heavy) or any(is_free(node) for node, _ in found):
            return
        symbolic = any(not isinstance(dim, int) for t in graph.model.graph.inputs for dim in t.shape or ())
        factor = BATCH if symbolic else 1
        node, largest = max(found, key=lambda item: item[1])
        if largest * factor < LAUNCH:
            batch = f" for a batch of {BATCH}" if symbolic else ""
            yield self.graph_finding(
                graph,
                node,
                f"the largest of {len(found)} heavy nodes, {node.described}, does {largest * factor / 1e6:.3g} million operations{batch}",
                why="Below 40 million a kernel's launch takes longer than its work, even in float32 on a T4: half precision gains nothing.",
                help="Ship the float32 model, or serve larger batches.",
            )
