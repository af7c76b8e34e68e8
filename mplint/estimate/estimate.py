"""What training a model would take in float32 and in mixed precision, before anybody runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mplint.estimate.basis import RESERVED, TIGHT, Figure, figures
from mplint.estimate.memory import OPTIMIZERS, Memory, memory
from mplint.estimate.precision import FLOAT32, Precision, precision
from mplint.estimate.roofline import BOTH_WAYS, BOUNDS, Cost, Step, step
from mplint.estimate.sizes import Sized
from mplint.graph.model import HEAVY, OpKind
from mplint.graph.work import work
from mplint.hardware.figures import Figures
from mplint.hardware.values import Target

POLICIES = (FLOAT32, "mixed_float16", "mixed_bfloat16")
SHORTEST = 0.02  # a part of the time too small to be named
NAMED = 3


class Hold(NamedTuple):
    """Why a part of a mixed-precision step is no faster: the reason, its part of the step, and the layers that take most of it."""

    reason: str
    share: float
    layers: tuple[str, ...]


class Estimate(NamedTuple):
    """One policy. `speedup` is that of an ideal step over the ideal one in float32, `ceiling` what no run should exceed.

    `work` is the floating-point operations of the products of a step by the dtype that they compute in. `largest` and `safe` are
    batches: the largest whose tensors fit, and the largest that leaves the room that published runs needed. What needs figures of a
    device is None without them.
    """

    policy: str
    memory: Memory
    work: Mapping[str, float]
    step: Step | None
    speedup: float | None
    ceiling: float | None
    largest: int | None
    safe: int | None


class Report(NamedTuple):
    """The estimates of a model on a device; `doubts` say what makes them less sure, the gravest first.

    `figures` are all that the estimates rest on beside the model, each with its source; none without a device.
    """

    path: str
    batch: int
    optimizer: str
    target: Target | None
    device: Figures | None
    usable: float | None
    estimates: tuple[Estimate, ...]
    holds: tuple[Hold, ...]
    doubts: tuple[str, ...]
    figures: tuple[Figure, ...]


def estimate(sized: Sized, optimizer: str = "adam", target: Target | None = None, device: Figures | None = None) -> Report:
    """Estimate the training of a model whose sizes are known, for one of `OPTIMIZERS`, on a device where one is given."""
    kind = target.kind if target is not None else "cuda"
    usable = device.memory[0] - RESERVED if device is not None and device.memory else None
    found: list[Estimate] = []
    reference: Step | None = None
    for policy in POLICIES:
        followed = precision(sized.model, policy, kind)
        need = memory(sized, followed, OPTIMIZERS[optimizer])
        timed = step(sized, followed, device, OPTIMIZERS[optimizer]) if device is not None else None
        reference = reference or timed
        speedup = reference.seconds / timed.seconds if reference is not None and timed is not None else None
        ceiling = reference.usual_seconds / timed.seconds if reference is not None and timed is not None else None
        sizes = (None, None) if usable is None else tuple(need.largest_batch(sized.batch, part * usable) for part in (1.0, TIGHT))
        found.append(Estimate(policy, need, _work(sized, followed), timed, speedup, ceiling, *sizes))
    holds = tuple(_holds(best.step)) if (best := _best(found, target)).step is not None else ()
    rests_on = tuple(figures(device)) if device is not None else ()
    doubts = tuple(_doubts(sized, target, device))
    return Report(sized.model.path, sized.batch, optimizer, target, device, usable, tuple(found), holds, doubts, rests_on)


def _work(sized: Sized, policy: Precision) -> dict[str, float]:
    """The operations of the products of a step, the backward pass included, by dtype; the most first."""
    found: dict[str, float] = {}
    for node in sized.model.nodes():
        size = work(node) if node.kind in HEAVY else None
        if size is not None and size.flops:
            dtype = policy.computes.get(id(node), node.compute_dtype or "unknown")
            found[dtype] = found.get(dtype, 0.0) + BOTH_WAYS * size.flops * sized.scale
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def _best(estimates: list[Estimate], target: Target | None) -> Estimate:
    """The mixed policy that the device is made for: bfloat16 on a TPU, float16 elsewhere."""
    return estimates[2 if target is not None and target.kind == "tpu" else 1]


def _holds(timed: Step) -> Iterator[Hold]:
    groups: dict[str, list[Cost]] = {}
    for cost in timed.costs:
        reason = _reason(cost)
        if reason:
            groups.setdefault(reason, []).append(cost)
    whole = timed.seconds or 1.0
    found = [
        Hold(reason, sum(cost.seconds for cost in costs) / whole, tuple(_layers(costs)))
        for reason, costs in groups.items()
        if sum(cost.seconds for cost in costs) >= SHORTEST * whole
    ]
    if timed.updating >= SHORTEST * whole:
        found.append(Hold("the optimizer reads and writes float32 weights and state", timed.updating / whole, ()))
    yield from sorted(found, key=lambda hold: -hold.share)


def _reason(cost: Cost) -> str:
    if cost.bound == "launch":
        return "kernels so small that starting them takes longer"
    if cost.flops and cost.unit == FLOAT32:
        return "products that no matrix unit does"
    if cost.unaligned:
        return "sizes that matrix units pad"
    if cost.dtype == FLOAT32:
        return "stays float32"
    return "bound by bandwidth, which half the bytes help twice at most" if cost.bound == "bandwidth" else ""


def _layers(costs: list[Cost]) -> Iterator[str]:
    summed: dict[str, float] = {}
    for cost in costs:
        name = cost.node.layer or cost.node.name or cost.node.op_type
        summed[name] = summed.get(name, 0.0) + cost.seconds
    yield from sorted(summed, key=lambda name: (-summed[name], name))[:NAMED]


def _doubts(sized: Sized, target: Target | None, device: Figures | None) -> Iterator[str]:
    nodes = list(sized.model.nodes())
    if sized.unknown:
        yield f"{sized.unknown} of {len(nodes)} operations have results of unknown size and are left out"
    opaque = sorted({node.op_type for node in nodes if node.kind is OpKind.OPAQUE})
    if opaque:
        yield f"nothing is known of {', '.join(opaque[:4])}{' …' if len(opaque) > 4 else ''}"
    if any(node.kind is OpKind.RECURRENT for node in nodes):
        yield "what cuDNN keeps of recurrent layers is not published: their memory may be half or twice of what is said"
    if any(node.graphs for node in nodes):
        yield "the bodies of loops and branches count once"
    if target is not None and device is None:
        yield f"the table has no figures for {target.label}: give a device by its name to see what bounds its speed"


def as_json(report: Report) -> dict[str, object]:
    """The report as plain values: bytes, seconds and parts of one."""
    return {
        "model": report.path,
        "batch": report.batch,
        "optimizer": report.optimizer,
        "target": report.target.name if report.target is not None else None,
        "usable_bytes": report.usable,
        "policies": {each.policy: _policy(each) for each in report.estimates},
        "held_back_by": [{"reason": hold.reason, "share": round(hold.share, 4), "layers": list(hold.layers)} for hold in report.holds],
        "doubts": list(report.doubts),
        "figures": [figure._asdict() for figure in report.figures],
    }


def _policy(each: Estimate) -> Mapping[str, object]:
    found: dict[str, object] = {f"{key}_bytes": round(value) for key, value in each.memory._asdict().items()}
    found["flops"] = {dtype: round(flops) for dtype, flops in each.work.items()}
    found |= {"largest_batch": each.largest, "safe_batch": each.safe}
    if each.step is not None:
        found["bound_by"] = {bound: round(each.step.share(bound), 4) for bound in BOUNDS}
        found["flops_on_matrix_units"] = round(each.step.on_matrix_units, 4)
        found["ideal_speedup"] = None if each.speedup is None else round(each.speedup, 3)
        found["speedup_at_most"] = None if each.ceiling is None else round(each.ceiling, 3)
    return found
