"""MP407: models that are too small to run faster in half."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Finding, Severity
from mplint.graph.facts import GraphFacts
from mplint.graph.work import BATCH, LAUNCH, Busiest, busiest
from mplint.rule import Option, Rule


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
    options = (Option("batch", BATCH, 1, "the batch that stands for a symbolic one"),)

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield a half model in which no node does enough."""
        most = self._busiest(graph) if graph.is_half else None
        if most is not None and most.flops < LAUNCH:
            count = len(graph.heavy)
            yield self.graph_finding(
                graph,
                most.node,
                f"the largest of {count} heavy nodes, {most.node.described}, does {most.flops / 1e6:.3g} million operations{most.batch}",
                why="Below 40 million a kernel's launch takes longer than its work, even in float32 on a T4: half precision gains nothing.",
                help="Ship the float32 model, or serve larger batches.",
            )

    def _busiest(self, graph: GraphFacts) -> Busiest | None:
        return busiest(graph.heavy, graph.model.graph.inputs, self.option("batch", graph.targets))
