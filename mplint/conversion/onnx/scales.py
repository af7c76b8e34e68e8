"""What the outputs of an ONNX model are measured by: how large they usually are, and what float32 itself is not sure of."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from mplint.conversion.distance import ruler, sizes_of
from mplint.conversion.onnx.run import INLINE_BYTES, Session, weight_bytes
from mplint.conversion.onnx.samples import Samples
from mplint.conversion.policy import Policy

FOLDED = 1 << 24  # bytes of weights that optimizations may copy
RUNS = 2  # samples on which float32 is compared with itself
PASSING = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Identity", "Slice", "Gather", "ReduceMean", "Cast"))
BOUNDED = frozenset(("Sigmoid", "Softmax", "HardSigmoid", "Tanh"))  # their results are of one size, whatever goes in


def measure_by(known: Samples, model: ir.Model, policy: Policy, *, given: bool) -> None:
    """Give samples the sizes of the outputs, and the ruler; `given`, they are the user's, and so of one kind."""
    names = [value.name or "" for value in model.graph.outputs]
    usual = sizes_of(known.references)
    of_one_kind = [given or _is_bounded(value) for value in model.graph.outputs]
    known.sizes = tuple(size if same else 0.0 for size, same in zip(usual, of_one_kind, strict=False))
    small = weight_bytes(model) < INLINE_BYTES
    known.ruler = ruler(policy, names, _noise(known, model) if small and known.feeds else ())


def _is_bounded(value: ir.Value) -> bool:
    """Whether an output is one of an operator with bounded results, be it handed on."""
    node = value.producer()
    while node is not None and node.op_type in PASSING and node.inputs and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type in BOUNDED


def _noise(known: Samples, model: ir.Model) -> tuple[float, ...]:
    """How far each output is from itself in float32: with the graph optimized, where that runs, and on the first sample run once more."""
    session = Session(model, optimize=weight_bytes(model) < FOLDED)
    try:
        return _apart_in(session, known)
    except Exception:  # the runtime breaks some weights that it is given as it moves transposes
        session.close()
        session = Session(model)
        return _apart_in(session, known)
    finally:
        session.close()


def _apart_in(session: Session, known: Samples) -> tuple[float, ...]:
    """How far each output of a session is from what is known, and from itself."""
    found: list[float] = []
    for at, (feed, reference) in enumerate(zip(known.feeds[:RUNS], known.references, strict=False)):
        once = session.run(feed)
        again = session.run(feed) if not at else once
        apart = [max(_apart(expected, one), _apart(one, other)) for expected, one, other in zip(reference, once, again, strict=True)]
        found = [max(pair) for pair in zip(found, apart, strict=True)] if found else apart
    return tuple(found)


def _apart(one: object, other: object) -> float:
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype.kind != "f" or first.shape != second.shape:
        return 0.0
    far = np.abs(first.astype(np.float64) - second)
    return float(np.max(far, initial=0.0, where=np.isfinite(far)))
