"""Why a program can't adopt a policy as a whole: code that a Keras policy doesn't reach, or in which it would not train."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from mplint.adopt.keras.builders import Builders
from mplint.adopt.keras.layer_dtypes import LayerDtypes
from mplint.frameworks.names import keras_path
from mplint.python.names import position
from mplint.python.syntax import argument
from mplint.source.file import SourceFile
from mplint.source.keras.loop import KerasLoop
from mplint.source.keras.models import KerasModels
from mplint.source.keras.policy import KerasPolicy
from mplint.source.precision import PrecisionFacts

GRAPHS = frozenset(
    {"Session", "InteractiveSession", "disable_v2_behavior", "disable_eager_execution", "placeholder", "global_variables_initializer"}
    | {"model_to_estimator", "Estimator", "TPUEstimator", "EstimatorSpec", "train_and_evaluate", "MonitoredTrainingSession"}
)
JAX_LOOPS = ("jax.value_and_grad", "jax.grad", "nnx.value_and_grad")
# Ops of TensorFlow without a kernel for half tensors.
NO_KERNEL = ("tensorflow.signal.", "tensorflow.linalg.", "tensorflow.raw_ops.")
HALF_KERNEL = frozenset(
    {"matmul", "einsum", "norm", "l2_normalize", "matvec", "band_part", "diag", "diag_part", "eye", "trace", "tensordot", "set_diag",
     "matrix_transpose", "normalize", "global_norm", "cross", "frame", "overlap_and_add", "hann_window", "hamming_window"}
)  # fmt: skip
TPU_CLASSES = ("TPUStrategy", "TPUStrategyV2", "TPUClusterResolver", "initialize_tpu_system")
TPU_HOMES = ("tensorflow.", "torch_xla.tpu.")



class Refusal(NamedTuple):
    """A place of the program, and why the policy can't be adopted there."""

    node: ast.AST
    text: str


def refusals(file: SourceFile, policy: str, builders: Builders) -> Iterator[Refusal]:
    """Each reason once, at the first place that shows it."""
    for found in (
        graph_code(file),
        other_float(file),
        loaded_only(file, builders),
        built_elsewhere(file),
        no_kernel(file),
        lambda_layer(file),
    ):
        if found is not None:
            yield found
    if policy == "mixed_float16":
        for found in (tpu(file), own_loop(file), unseen_update(file), assigned_by_hand(file)):
            if found is not None:
                yield found


def first(nodes: list[ast.Call]) -> ast.Call | None:
    """The first of some calls in the program."""
    return min(nodes, key=position, default=None)


def graph_code(file: SourceFile) -> Refusal | None:
    """Sessions, placeholders and estimators of TensorFlow 1."""
    found = first([c for c in file.names.calls_of(*GRAPHS) if any(n.startswith("tensorflow.") for n in file.names.candidates(c.func))])
    if found is None:
        return None
    return Refusal(
        found, f"`{name(file, found)}` is TensorFlow 1: a Keras policy does not reach graphs and estimators; move to Keras first"
    )


def other_float(file: SourceFile) -> Refusal | None:
    """A program that asks for another dtype of all its layers."""
    for call, setter in file.fact(KerasPolicy).setters.items():
        if setter.kind == "floatx" and setter.names != {"float32"}:
            asked = ", ".join(sorted(setter.names))
            return Refusal(call, f"`{name(file, call)}` makes every layer {asked}, weights included: take this line out first")
    return None


def loaded_only(file: SourceFile, builders: Builders) -> Refusal | None:
    """A model that is loaded, and no layer built: it keeps the dtypes that it was saved with."""
    if any(builders.builds(call) and call not in builders.makers for call in file.syntax.all(ast.Call)):
        return None
    paths = ("load_model", "clone_model", "model_from_json", "from_config")
    found = first([c for c in file.names.calls_of(*paths) if any(keras_path(n) is not None for n in file.names.candidates(c.func))])
    if found is None:
        return None
    return Refusal(
        found,
        f"`{name(file, found)}` gives layers the dtypes that they were saved with, whatever the policy: build the model anew under the "
        "policy and load its weights, or convert the file (`mplint convert model.keras`)",
    )


def built_elsewhere(file: SourceFile) -> Refusal | None:
    """A model that another file builds while it is imported."""
    for node in file.syntax.all(ast.Attribute):
        if node.attr not in ("fit", "compile", "trainable_variables") or not isinstance(node.value, ast.Name):
            continue
        bindings = file.names.reaching(node.value)
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.ImportFrom) or keras_path(bindings[0].target) is not None:
            continue
        home = ("." * bindings[0].node.level) + (bindings[0].node.module or "")
        if not home.startswith(("re", "sklearn", "torch")) and not node.value.id[:1].isupper():
            return Refusal(
                bindings[0].node,
                f"`{node.value.id}` is built when `{home}` is imported: a policy set here comes too late; build it in a function of "
                f"`{home}`, and call that",
            )
    return None


def no_kernel(file: SourceFile) -> Refusal | None:
    """A layer that runs ops of TensorFlow for which there is no half kernel on what it is given."""
    for call in file.syntax.all(ast.Call):
        if not isinstance(call.func, ast.Attribute):
            continue
        dotted = file.names.resolve(call.func) or ""
        if not dotted.startswith(NO_KERNEL) or call.func.attr in HALF_KERNEL or call.func.attr.endswith("_window"):
            continue
        method, owner = file.syntax.function(call), file.syntax.enclosing_class(call)
        if method is None or owner is None or method.name != "call" or not file.fact(KerasModels).is_network_class(owner):
            continue
        given = file.fact(PrecisionFacts).of(call.args[0]).dtypes if call.args else frozenset()
        if given != {"float32"}:
            return Refusal(
                call,
                f"`{name(file, call)}` has no kernel for half tensors, and `{owner.name}` runs it on its inputs: cast them to float32 "
                "there, and the result to `self.compute_dtype`",
            )
    return None


def lambda_layer(file: SourceFile) -> Refusal | None:
    """A Lambda layer that makes a float32 tensor and combines it with what it is given."""
    kinds = LayerDtypes(file)
    for call in file.names.calls_of("Lambda"):
        function = argument(call, "function", 0)
        if not isinstance(function, ast.Lambda) or argument(call, "dtype") is not None:
            continue
        for node in ast.walk(function.body):
            if isinstance(node, ast.BinOp) and any(kinds.kind(side).name == "float32" for side in (node.left, node.right)):
                return Refusal(
                    node,
                    "this Lambda layer combines its input with a float32 tensor, which TensorFlow does not do with half: use a plain "
                    "number, or make the tensor in the dtype of the input",
                )
    return None


def tpu(file: SourceFile) -> Refusal | None:
    """A program for TPUs, which compute in bfloat16."""
    found = first(tpu_calls(file))
    if found is None:
        return None
    return Refusal(found, f"`{name(file, found)}`: TPUs compute in bfloat16, and Keras refuses to scale losses there: use mixed_bfloat16")


def tpu_calls(file: SourceFile) -> list[ast.Call]:
    """The calls that connect to a TPU or distribute over one, in source order."""
    found = []
    for call in file.syntax.all(ast.Call):
        for name in file.names.candidates(call.func):
            parts = name.split(".")
            if name.startswith(TPU_HOMES) and any(part in TPU_CLASSES for part in parts[-2:]):
                found.append(call)
                break
    return found


def own_loop(file: SourceFile) -> Refusal | None:
    """A training loop of JAX's or PyTorch's own around Keras layers."""
    for call in file.syntax.all(ast.Call):
        if (file.names.resolve(call.func) or "").endswith(JAX_LOOPS):
            return Refusal(
                call,
                f"`{name(file, call)}` differentiates a loss that nothing scales, and the loop keeps the optimizer's state itself: "
                "use mixed_bfloat16, which needs no scaling",
            )
    if "torch" not in file.document.text:
        return None
    taken = {gradient for update in file.fact(KerasLoop).updates for gradient in update.gradients}
    for call in file.names.calls_of("backward"):
        if call not in taken and not call.args and isinstance(call.func, ast.Attribute):
            return Refusal(
                call,
                f"`{name(file, call)}` leaves gradients to an optimizer of PyTorch, which Keras does not scale for: scale the loss with "
                "torch.amp.GradScaler by hand, or use mixed_bfloat16, which needs no scaling",
            )
    return None


def unseen_update(file: SourceFile) -> Refusal | None:
    """Gradients that reach an optimizer in a way that can't be followed."""
    known = {update.node for update in file.fact(KerasLoop).updates}
    taken = {gradient for update in file.fact(KerasLoop).updates for gradient in update.gradients}
    for call in sorted(file.names.calls_of("apply_gradients", "minimize"), key=position):
        if call in known or not isinstance(call.func, ast.Attribute) or is_own(file, call):
            continue
        if call.func.attr == "minimize" and not file.fact(KerasLoop).events.is_optimizer(call.func.value):
            continue
        if argument(call, "grads_and_vars", 0) is not None or call.func.attr == "minimize":
            where = "and nothing shows where they come from" if not taken else "from a place that can't be followed"
            return Refusal(call, f"`{name(file, call)}` applies gradients {where}: scale their loss, or use mixed_bfloat16")
    return None


def is_own(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call runs a function of this file, or passes on what a method of the same name was given."""
    method = file.syntax.function(call)
    return file.names.local_function(call.func) is not None or (
        method is not None and isinstance(call.func, ast.Attribute) and method.name == call.func.attr
    )


def assigned_by_hand(file: SourceFile) -> Refusal | None:
    """Weights that gradients change without an optimizer."""
    taken = {
        target.id
        for statement in file.syntax.all(ast.Assign)
        if any(isinstance(c.func, ast.Attribute) and c.func.attr == "gradient" for c in ast.walk(statement) if isinstance(c, ast.Call))
        for node in statement.targets
        for target in ast.walk(node)
        if isinstance(target, ast.Name)
    }
    for call in file.names.calls_of("assign_sub"):
        if any(isinstance(n, ast.Name) and n.id in taken for n in ast.walk(call)):
            return Refusal(
                call,
                "this step updates weights without an optimizer, so no loss scale would be taken out of it: use a Keras optimizer, "
                "or mixed_bfloat16",
            )
    return None


def name(file: SourceFile, call: ast.Call) -> str:
    """What is called, as the program writes it, on one line."""
    return " ".join(file.text(call.func).split())
