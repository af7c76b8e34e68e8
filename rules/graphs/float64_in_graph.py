"""MP601: float64 on the path of a model."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.findings import Finding, Severity
from mplint.graph.facts import GraphFacts
from mplint.graph.model import Node, OpKind
from mplint.rule import Rule

ON_CPU = ("ai.onnx.ml",)  # trees and tables of classical models, which no GPU computes


class Float64InGraph(Rule):
    """float64 where a model trains or serves

    ## What it does
    Finds the nodes at which a model begins to compute in float64: a float64 constant or input meets the data, or a cast asks for it.
    Trees and tables of classical models (ai.onnx.ml) run on the CPU and are left out.

    ## Why is this bad?
    GeForce, T4, L4 and A10 GPUs compute float64 at 1/32 to 1/64 of their float32 rate, Tensor Cores below A100 not at all, and TPUs
    emulate it. A float64 operand, often a numpy constant, turns everything behind it into float64, so that one number takes a layer
    out of mixed precision; TensorRT casts it down or refuses it.

    ## Example
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float[N, 64] x, float[64, 64] w) => (double[N, 64] y)
    <double scale = {0.125}>
    {
        a = MatMul(x, w)
        b = Cast<to=11>(a)
        y = Mul(b, scale)
    }
    ```

    ## Use instead
    ```onnx
    <ir_version: 8, opset_import: ["" : 17]>
    example (float[N, 64] x, float[64, 64] w) => (float[N, 64] y)
    <float scale = {0.125}>
    {
        a = MatMul(x, w)
        y = Mul(a, scale)
    }
    ```

    ## Evidence
    Shown on the CPU by tests/witness/test_mp601.py: one float64 scalar makes the result float64. The speed shows only on a GPU.

    ## References
    - <https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#arithmetic-instructions>
    - <https://numpy.org/doc/stable/reference/arrays.promotion.html>
    """

    code = "MP601"
    name = "float64-in-graph"
    severity = Severity.WARNING
    frameworks = ("onnx", "keras", "torch")
    graphs = True

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the first float64 node of each float64 region."""
        working = [node for node in graph.working if node.kind is not OpKind.LOSS and node.domain not in ON_CPU]
        doubles = [node for node in working if node.compute_dtype == "float64"]
        inside = {id(node) for node in doubles}
        for node in doubles:
            if not any(id(maker) in inside for maker in makers(node)):
                operand = next((t for t in node.inputs if t is not None and t.dtype == "float64"), None)
                named = f" because of {operand.name} ({operand.described})" if operand is not None else ""
                reached = len(doubles)
                yield self.graph_finding(
                    graph,
                    node,
                    f"{node.described} computes in float64{named}; {reached} {'node does' if reached == 1 else 'nodes do'} in this model",
                    why="float64 runs at 1/32 to 1/64 of the float32 rate on T4, L4, A10 and GeForce GPUs, and takes twice the memory.",
                    help="Make the constant, the input or the cast float32 where the model is built.",
                )


def makers(node: Node) -> Iterator[Node]:
    """The nodes that compute the operands of `node`, behind those that only move or cast, inside of calls and outside of them."""
    stack = [t for t in node.inputs if t is not None]
    seen: set[int] = set()
    while stack:
        tensor = stack.pop()
        maker = tensor.producer
        if tensor.inside or (maker is None and tensor.given):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                stack += tensor.inside or tensor.given
            continue
        if maker is None or id(maker) in seen or tensor.dtype != "float64":
            continue
        seen.add(id(maker))
        if maker.kind in (OpKind.MOVE, OpKind.CAST):
            stack += [t for t in maker.inputs if t is not None]
        else:
            yield maker
