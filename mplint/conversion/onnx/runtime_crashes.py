"""Models on which ONNX Runtime's CPU provider crashes instead of refusing them, found in a process of their own.

Its NchwcTransformer dereferences a null pointer where a Transpose in half that moves the first axis back stands in front of a MatMul with
constant weights (microsoft/onnxruntime issue 28392). Kept in float32, the same Transpose does no harm.
"""

from __future__ import annotations

import subprocess
import sys

import onnx_ir as ir

from mplint.conversion.onnx.half_emulation import HALVES
from mplint.conversion.onnx.program import Program, is_constant
from mplint.conversion.onnx.run import in_memory
from mplint.conversion.onnx.types import tops

CRASHES = "ONNX Runtime crashes when it loads it"
PASSING = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
LOAD = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
onnxruntime.InferenceSession(sys.stdin.buffer.read(), options, providers=["CPUExecutionProvider"])
"""


def crashes(model: ir.Model) -> bool:
    """Whether loading a written model ends the process; models without the pattern are not tried."""
    suspects = [node for node in _suspects(model) if node.outputs[0].dtype in (*HALVES, None)]
    if not suspects:
        return False
    done = subprocess.run([sys.executable, "-c", LOAD], input=in_memory(model).SerializeToString(), capture_output=True, check=False)
    return done.returncode not in (0, 1)


def keep_from_crashing(program: Program) -> None:
    """Keep in float32 what makes ONNX Runtime crash in half."""
    for node in _suspects(program.model):
        if node in program.numbers:
            program.operations[program.numbers[node]].stays = "in half, ONNX Runtime crashes on it when it loads the model"


def _suspects(model: ir.Model) -> list[ir.Node]:
    found = []
    for body in tops(model):
        for node in body.all_nodes():
            order = node.attributes.get_ints("perm", ()) if node.op_type == "Transpose" else ()
            if len(order or ()) > 2 and order[0] == 1 and _reaches_weights(node.outputs[0], 4):
                found.append(node)
    return found


def _reaches_weights(value: ir.Value, steps: int) -> bool:
    for use in value.uses():
        if use.node.op_type == "MatMul":
            other = use.node.inputs[1 - use.idx]
            if other is not None and is_constant(other):
                return True
        elif use.node.op_type in PASSING and steps and _reaches_weights(use.node.outputs[0], steps - 1):
            return True
    return False
