"""Clipping of gradients that are still multiplied by the loss scale (Keras 3), where only the threshold can be scaled too."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.conversion.source.keras.heads import Kept
from mplint.findings import Applicability, Fix, Replace
from mplint.source.file import SourceFile
from mplint.source.keras.clipping import CLIPS, last_name
from mplint.source.keras.modified_gradients import modified_gradients
from mplint.source.syntax import argument
from mplint.source.torch.modifications import THRESHOLD

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
