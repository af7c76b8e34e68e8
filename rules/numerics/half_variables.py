"""Variables and parameters that a program creates in float16 and trains."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.syntax import argument
from mplint.source.framework_names import keras_path
from mplint.source.precision import PrecisionFacts
from mplint.source.torch.trainers import Trainers

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

TRAINS_TENSORFLOW = ("GradientTape", ".minimize(", "apply_gradients", ".fit(")
# Words that say that only added float32 weights, or an optimizer with float32 copies, are trained.
ADAPTERS = ("peft", "lora", "load_in_8bit", "load_in_4bit", "bnb", "requires_grad_(", ".requires_grad =", "cast_training_params")

OPTIMIZERS = ("torch.optim.", "bitsandbytes.optim.", "timm.optim.", "transformers.optimization.", "transformers.Ada", "torch_optimizer.")
# Words that say that float32 master weights, or a framework that keeps them, are at work.
MASTERS = (
    "master",
    "fp16_optim",
    "fp16optim",
    "deepspeed",
    "fp32_param",
    "fp32param",
    "main_param",
    "mixedprecisionoptim",
    "network_to_half",
    "opt_level",
)


class HalfVariable(NamedTuple):
    """The creation of a trained float16 variable: `kind` names what makes it, `dtype` is the expression that asks for float16."""

    node: ast.Call
    kind: str
    dtype: ast.expr | None
    trained: ast.AST | None


def half_variables(file: SourceFile) -> Iterator[HalfVariable]:
    """Every trained float16 variable, in source order within each framework; empty where float32 copies may be at work."""
    if "keras" in file.document.text or "tensorflow" in file.document.text:
        yield from keras_weights(file)
        yield from tensorflow_variables(file)
    if "torch" in file.document.text and not keeps_masters(file):
        yield from torch_parameters(file)
        yield from optimized_tensors(file)
        yield from loaded_models(file)


def keras_weights(file: SourceFile) -> Iterator[HalfVariable]:
    """`self.add_weight(…, dtype="float16")` of a Keras layer."""
    for call in file.names.calls_of("add_weight", "add_variable"):
        owner = file.syntax.enclosing_class(call)
        dtype = argument(call, "dtype")
        precision = file.fact(PrecisionFacts)
        if owner is None or dtype is None or file.values.dtypes(dtype) != {"float16"} or not precision.is_keras_layer(owner):
            continue
        if trainable(file, call, "trainable") and not precision.dtype_guard(call):
            yield HalfVariable(call, "add_weight", dtype, None)


def tensorflow_variables(file: SourceFile) -> Iterator[HalfVariable]:
    """`tf.Variable(…, dtype=tf.float16)` in a layer or a program that takes gradients."""
    for call in file.names.calls_of("Variable"):
        path = file.names.resolve(call.func) or ""
        if path != "tensorflow.Variable" and keras_path(path) != "Variable":
            continue
        owner = file.syntax.enclosing_class(call)
        layer = owner is not None and file.fact(PrecisionFacts).is_keras_layer(owner)
        if not (layer or any(word in file.document.text for word in TRAINS_TENSORFLOW)) or not trainable(file, call, "trainable"):
            continue
        dtype = argument(call, "dtype")
        if dtype is not None and file.values.dtypes(dtype) == {"float16"} and not file.fact(PrecisionFacts).dtype_guard(call):
            yield HalfVariable(call, "Variable", dtype, None)


def torch_parameters(file: SourceFile) -> Iterator[HalfVariable]:
    """`nn.Parameter(torch.zeros(…, dtype=torch.float16))` in a file that trains."""
    if "backward" not in file.document.text and "optim" not in file.document.text:
        return
    for call in file.names.calls_of("Parameter"):
        if not (file.names.resolve(call.func) or "").startswith("torch.nn.") or not trainable(file, call, "requires_grad", 1):
            continue
        data = argument(call, "data", 0)
        found = file.fact(PrecisionFacts).of(data) if data is not None else None
        if found is not None and found.dtypes == {"float16"} and not file.fact(PrecisionFacts).dtype_guard(call):
            yield HalfVariable(call, "Parameter", dtype_of(file, found.because), None)


def optimized_tensors(file: SourceFile) -> Iterator[HalfVariable]:
    """Plain float16 tensors in the list of an optimizer: `Adam([x])`."""
    for call in optimizers(file):
        params = argument(call, "params", 0)
        for item in params.elts if isinstance(params, (ast.List, ast.Tuple)) else []:
            for made in file.values.definitions(item):
                asks = isinstance(made, ast.Call) and file.values.constant_or(argument(made, "requires_grad")) is True
                if isinstance(made, ast.Call) and asks and file.fact(PrecisionFacts).of(made).dtypes == {"float16"}:
                    yield HalfVariable(made, "tensor", dtype_of(file, made), call)


def loaded_models(file: SourceFile) -> Iterator[HalfVariable]:
    """Models loaded with `torch_dtype=torch.float16` that an optimizer or a Trainer with `fp16=True` then trains."""
    text = file.document.text
    if "from_pretrained" not in text or any(word in text.lower() for word in ADAPTERS):
        return
    trained = [(call, node.value) for call in optimizers(file) for node in parameters_of(file, call)] if "backward" in text else []
    built = [b for b in file.fact(Trainers).built if b.kind.key == "transformers" and "float16" in b.dtypes]
    trained += [(b.call, model) for b in built if (model := argument(b.call, "model", 0)) is not None]
    seen: set[ast.AST] = set()
    for trainer, model in trained:
        for made in file.values.definitions(model):
            if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute) or made.func.attr != "from_pretrained":
                continue
            dtype = argument(made, "torch_dtype") or argument(made, "dtype")
            if dtype is not None and file.values.dtypes(dtype) == {"float16"} and made not in seen:
                seen.add(made)
                yield HalfVariable(made, "from_pretrained", dtype, trainer)


def optimizers(file: SourceFile) -> list[ast.Call]:
    """The optimizers of PyTorch and its friends that the file builds."""
    calls = file.syntax.all(ast.Call) if "optim" in file.document.text else []
    return [c for c in calls if file.names.may_be_class(c.func) and (file.names.resolve(c.func) or "").startswith(OPTIMIZERS)]


def parameters_of(file: SourceFile, call: ast.Call) -> list[ast.Attribute]:
    """The `model.parameters` whose result the optimizer is given directly."""
    params = argument(call, "params", 0)
    found = [d.func for d in file.values.definitions(params) if isinstance(d, ast.Call)]
    return [f for f in found if isinstance(f, ast.Attribute) and f.attr == "parameters"]


def trainable(file: SourceFile, call: ast.Call, name: str, position: int | None = None) -> bool:
    """Whether a variable is trained as far as its creation says."""
    given = argument(call, name, position)
    return given is None or file.values.constant_or(given) is True


def dtype_of(file: SourceFile, node: ast.AST | None) -> ast.expr | None:
    """The `dtype=` of the call that makes a tensor, where it is written out."""
    return argument(node, "dtype") if isinstance(node, ast.Call) else None


def keeps_masters(file: SourceFile) -> bool:
    """Whether a word of the file says that float32 copies of the weights exist."""
    text = file.document.text.lower()
    return any(word in text for word in MASTERS)
