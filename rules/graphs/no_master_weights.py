"""MP604: checkpoints in training whose weights are half."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mplint.findings import Finding, Severity
from mplint.graph.facts import GraphFacts
from mplint.graph.model import FLOATS, HALF, Tensor
from mplint.rule import Rule

MASTER = re.compile(r"master|fp32|float32", re.I)
MOMENTS = 2  # Adam keeps two tensors a weight; a third one is a copy of it


class NoMasterWeights(Rule):
    """A checkpoint with optimizer state and half weights

    ## What it does
    Finds checkpoints that hold the state of an optimizer and whose weights are float16 or bfloat16, with no float32 copy of them.

    ## Why is this bad?
    An update smaller than half a unit in the last place is lost: a bfloat16 weight of 1.0 ignores everything below 0.002, a
    float16 one everything below 0.00024, and a learning rate of 1e-4 never moves it. Mixed precision keeps float32 master weights for
    that reason. Training resumed from this file goes on like that, and what the weights lost cannot be had back.

    ## Example
    ```python
    model = Model().half()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
    ```

    ## Use instead
    ```python
    model = Model()  # float32; torch.autocast computes in half
    optimizer = torch.optim.AdamW(model.parameters())
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
    ```

    ## Evidence
    Shown on the CPU by tests/witness/test_mp604.py: a half weight that no step moves.

    ## References
    - <https://arxiv.org/abs/1710.03740>
    - <https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html#mptrain>
    """

    code = "MP604"
    name = "no-master-weights"
    severity = Severity.WARNING
    frameworks = ("keras", "torch")
    graphs = True
    weights = True

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield a checkpoint that trains half weights."""
        optimizer = graph.model.optimizer
        state = {id(tensor) for tensor in optimizer.tensors} if optimizer is not None else set()
        weights = [t for t in graph.model.constants() if t.dtype in FLOATS and id(t) not in state and len(t.shape or ()) > 0]
        half = [tensor for tensor in weights if tensor.dtype in HALF]
        if optimizer is None or not optimizer.tensors or 2 * len(half) <= len(weights) or has_masters(optimizer.tensors, half):
            return
        dtype = half[0].dtype
        bits = 8 if dtype == "bfloat16" else 11
        yield self.graph_finding(
            graph,
            half[0],
            f"{len(half)} of {len(weights)} weights are {dtype} beside the state of {optimizer.name or 'an optimizer'}; the first is "
            f"{half[0].name} ({half[0].described})",
            why=f"With {bits} bits an update below 2^-{bits} of the weight is lost, and there is no float32 copy that keeps it.",
            help="Train float32 weights under autocast or a mixed policy; cast to half when the model is shipped.",
        )


def has_masters(state: tuple[Tensor, ...], weights: list[Tensor]) -> bool:
    """Whether the optimizer's state holds float32 copies of the weights, by their names or their number."""
    if any(MASTER.search(tensor.name) for tensor in state):
        return True
    largest = max(weights, key=lambda t: t.size or 0)
    alike = sum(1 for w in weights if w.shape == largest.shape)
    copies = sum(1 for t in state if t.dtype == "float32" and t.shape == largest.shape)
    return copies > MOMENTS * alike
