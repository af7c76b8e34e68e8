"""What the rules leave to do in loops that scale the loss: thresholds of clipping (Keras 3), and updates that nothing scales."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.keras.heads import Kept
from mplint.adopt.keras.modified_gradients import modified_gradients
from mplint.findings import Applicability, Fix, Replace
from mplint.python.syntax import argument
from mplint.recipes.clip_in_optimizer import CLIPS, last_name
from mplint.source.file import SourceFile
from mplint.source.keras.loop import KerasLoop
from mplint.source.keras.policy import KerasPolicy
from mplint.source.torch.modifications import THRESHOLD
from mplint.source.values import UNKNOWN

LIMITS = {"clip_by_value": (("clip_value_min", 1), ("clip_value_max", 2))}
WHY = "clips at a threshold that is scaled as the loss is, since the gradients are unscaled only when they are applied"


def scaled_clips(file: SourceFile) -> Iterator[Kept]:
    """Each clipping of scaled gradients in the function that scales the loss by `optimizer.scale_loss`."""
    for found in modified_gradients(file):
        match found.scaled:
            case ast.Call(func=ast.Attribute(value=optimizer, attr="scale_loss")) if found.kind == THRESHOLD:
                pass
            case _:
                continue
        if not isinstance(found.node, ast.Call) or file.syntax.function(found.node) is not file.syntax.function(optimizer):
            continue
        kind = last_name(found.node.func)
        limits = [argument(found.node, name, at) for name, at in LIMITS.get(kind, (("clip_norm", 1),))] if kind in CLIPS else []
        given = [limit for limit in limits if limit is not None]
        if given and len(given) == len(limits):
            scale = f"{file.text(optimizer)}.scale_loss"
            changes = tuple(Replace(file.span(limit), f"{scale}({file.text(limit)})") for limit in given)
            yield Kept(found.node, WHY, Fix("scale the threshold", Applicability.UNSAFE, changes))


def unscaled_updates(file: SourceFile) -> Iterator[tuple[ast.AST, str]]:
    """The updates whose gradients are float16 and whose loss nothing scales, each with what to do."""
    for update in file.fact(KerasLoop).updates:
        certain = update.optimizer.wrapped or update.optimizer.model
        if update.scaled or (update.scales_itself and certain) or not may_be_float16(file, update.node):
            continue
        receiver = " ".join(file.text(update.receiver).split())
        yield (
            update.node,
            f"`{receiver}` would get float16 gradients of a loss that nothing scales, and it is not plain here how to: make it a "
            f"LossScaleOptimizer where it is built, and take the gradients of `{receiver}.scale_loss(loss)`; or use mixed_bfloat16, which "
            "needs no scaling",
        )


def may_be_float16(file: SourceFile, node: ast.AST) -> bool:
    """Whether layers may compute in float16 where `node` runs."""
    state = file.fact(KerasPolicy).policy_at(node)
    if state.certain:
        return state.names == {"mixed_float16"}
    return UNKNOWN not in state.names and ("mixed_float16" in state.names or not state.setters)
