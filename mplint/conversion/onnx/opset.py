"""Raising the opset of a model where its own has no half form of the operators that matter, and only there."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.defs
import onnx_ir as ir
from onnx.helper import find_min_ir_version_for, make_opsetid

from mplint.conversion.onnx.program import HEAVY
from mplint.conversion.onnx.run import INLINE_BYTES, in_memory, weight_bytes
from mplint.conversion.onnx.schemas import only_widened
from mplint.conversion.onnx.types import tops

NEWEST = 22  # the first opset in which Conv, pooling and the recurrent operators take bfloat16


def wanted(model: ir.Model, half: str, among: Callable[[ir.Node], bool]) -> tuple[int, ...]:
    """The opsets that give the model's heavy operators `among` its nodes a half form, the newest and the oldest.

    () where its own does or none would.
    """
    version = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
    nodes = (node for body in tops(model) for node in body.all_nodes())
    heavy = {node.op_type for node in nodes if node.domain in ("", "ai.onnx") and node.op_type in HEAVY and among(node)}
    lacking = {op_type for op_type in heavy if not _takes(op_type, version, half) and _takes(op_type, NEWEST, half)}
    if version >= NEWEST or not lacking:
        return ()
    oldest = next(opset for opset in range(version + 1, NEWEST + 1) if all(_takes(op_type, opset, half) for op_type in lacking))
    return (NEWEST, oldest) if oldest < NEWEST else (NEWEST,)


def raised(model: ir.Model, version: int) -> ir.Model | None:
    """The model in a newer opset: in place where each operator only takes more types there, else by ONNX's version converter, else None."""
    old = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
    nodes = [node for body in tops(model) for node in body.all_nodes() if node.domain in ("", "ai.onnx")]
    if all(only_widened(op_type, old, version) for op_type in {node.op_type for node in nodes}):
        for opsets in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
            opsets["ai.onnx" if "ai.onnx" in opsets and "" not in opsets else ""] = version
        model.ir_version = max(model.ir_version, find_min_ir_version_for([make_opsetid("", version)]))
        return model
    if model.functions or weight_bytes(model) >= INLINE_BYTES:
        return None
    try:
        from onnx import version_converter

        before = in_memory(model)
        after = version_converter.convert_version(before, version)
        other = ir.from_proto(after)
    except Exception:  # the converter knows no way for some operator
        return None
    if list(before.graph.input) != list(after.graph.input) or list(before.graph.output) != list(after.graph.output):
        return None
    other.metadata_props.update(model.metadata_props)
    return other


def _takes(op_type: str, version: int, half: str) -> bool:
    try:
        schema = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    kind = schema.outputs[0].type_str
    return any(f"tensor({half})" in c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == kind)
