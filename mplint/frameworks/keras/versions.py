"""Which Keras a file is written for, as far as its targets or its own text say."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mplint.frameworks.names import keras_path

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.targets import Targets

# Homes that only Keras 3 has.
KERAS3_ONLY = (
    "ops",
    "distribution",
    "dtype_policies",
    "config.set_dtype_policy",
    "config.dtype_policy",
    "config.set_backend",
    "random.SeedGenerator",
    "tree",
    "quantizers",
    "DTypePolicy",
    "mixed_precision.set_dtype_policy",
    "mixed_precision.dtype_policy",
)
# Homes that only Keras 2 has.
KERAS2_ONLY = (
    *("experimental", "layers.experimental", "mixed_precision.experimental", "optimizers.legacy"),
    *("backend.placeholder", "backend.function", "backend.learning_phase", "backend.get_session", "backend.set_session"),
)
# What says in a training loop which Keras it is for.
KERAS2_MODULES = ("tensorflow_addons", "tf_keras", "tensorflow.contrib", "tensorflow.compat.v1")
KERAS2_METHODS = ("get_scaled_loss", "get_unscaled_gradients", "fit_generator", "predict_generator", "get_updates", "predict_classes")
KERAS2_BACKEND = frozenset({
    "abs", "argmax", "batch_dot", "batch_flatten", "binary_crossentropy", "cast", "categorical_crossentropy", "clip", "concatenate",
    "constant", "cumsum", "dot", "dropout", "equal", "exp", "expand_dims", "flatten", "gather", "gradients", "greater", "int_shape",
    "log", "map_fn", "max", "maximum", "mean", "min", "minimum", "mod", "not_equal", "ones_like", "one_hot", "permute_dimensions",
    "pow", "prod", "random_normal", "random_uniform", "repeat_elements", "reshape", "resize_images", "shape", "sigmoid", "softmax",
    "sparse_categorical_crossentropy", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient", "sum", "switch", "tanh", "tile",
    "transpose", "update", "variable", "zeros", "zeros_like"
})  # fmt: skip
KERAS3_METHODS = ("scale_loss",)
# What the package `keras` has had no more since 2.4, the first with policies: homes, and arguments of training.
BEFORE_POLICIES = (
    *("keras.engine.topology", "keras.engine.Layer", "keras.engine.InputSpec", "keras.engine.Input", "keras.engine.Model"),
    *("keras.layers.normalization.BatchNormalization", "keras.backend.tensorflow_backend", "keras.backend.common"),
    *("keras.backend.get_session", "keras.backend.set_session", "keras.backend.image_dim_ordering", "keras.utils.multi_gpu_model"),
    *("keras.backend.set_image_dim_ordering", "keras.utils.visualize_util", "keras.utils.training_utils", "keras.objectives"),
    *("keras.legacy", "keras.layers.CuDNNGRU", "keras.layers.CuDNNLSTM"),
)
# What TensorFlow has had under these names only before 2.0, where Keras had no policies.
TENSORFLOW1 = (
    *("contrib", "app", "flags", "Summary", "ConfigProto", "GPUOptions", "get_variable", "variable_scope", "get_default_graph"),
    *("summary.FileWriter", "summary.merge_all", "summary.merge", "train.Saver", "logging", "gfile", "to_float", "set_random_seed"),
    *(
        "train.AdamOptimizer",
        "train.GradientDescentOptimizer",
        "train.MomentumOptimizer",
        "train.RMSPropOptimizer",
        "layers",
        "InteractiveSession",
    ),
)
FIRST_ARGUMENTS = frozenset({"nb_epoch", "samples_per_epoch", "nb_val_samples"})


def keras_major(file: SourceFile, targets: Targets) -> int | None:
    """2 or 3 where the package of Keras 2, the targets, or API that only one of them has, decide; else None."""
    if any(f"{module}.".startswith("tf_keras.") for module in imported(file)):
        return 2
    if (major := targets.keras_major) is not None:
        return major
    found = set()
    for path in used_paths(file):
        found |= {3 for home in KERAS3_ONLY if path == home or path.startswith(home + ".")}
        found |= {2 for home in KERAS2_ONLY if path == home or path.startswith(home + ".")}
    return found.pop() if len(found) == 1 else None


def used_paths(file: SourceFile) -> set[str]:
    """The Keras paths that the program imports or reads."""
    found = set()
    for statement in file.syntax.all(ast.ImportFrom):
        if (home := keras_path(statement.module)) is not None and not statement.level:
            found |= {f"{home}.{alias.name}".lstrip(".") for alias in statement.names}
    for node in file.syntax.all(ast.Attribute):
        if not isinstance(file.syntax.parents[node], ast.Attribute) and (path := keras_path(file.names.resolve(node))):
            found.add(path)
    return found


def loop_major(file: SourceFile, targets: Targets) -> int | None:
    """The same of a file with a training loop: the loss-scaling methods that it uses decide as well."""
    known = keras_major(file, targets)
    if known is not None:
        return known
    found: set[int] = set()
    found |= {2} if any(is_old_backend(file.names.resolve(node)) for node in file.syntax.all(ast.Attribute)) else set()
    found |= {2 for module in imported(file) if module.startswith(KERAS2_MODULES)}
    methods = {node.attr for node in file.syntax.all(ast.Attribute)}
    found |= {2} if "reset_states" in methods and "stateful" not in file.document.text else set()  # Keras 3 has it for layers with a state
    found |= {2 for method in KERAS2_METHODS if method in methods} | {3 for method in KERAS3_METHODS if method in methods}
    found |= {3} if '"KERAS_BACKEND"' in file.document.text.replace("'", '"') else set()
    return found.pop() if len(found) == 1 else None


def before_policies(file: SourceFile) -> ast.stmt | ast.expr | ast.keyword | None:
    """The first place that shows that a file is written for a package `keras` that has no policies; None where nothing does."""
    found: list[ast.stmt | ast.expr | ast.keyword] = []
    if not any(module.split(".")[0] == "keras" for module in imported(file)):
        return None
    statements: list[ast.Import | ast.ImportFrom] = [*file.syntax.all(ast.Import), *file.syntax.all(ast.ImportFrom)]
    for statement in statements:
        home = "" if isinstance(statement, ast.Import) else f"{statement.module}."
        guarded = any(isinstance(parent, (ast.Try, ast.If)) for parent in file.syntax.ancestors(statement))
        relative = isinstance(statement, ast.ImportFrom) and statement.level
        if not guarded and not relative and any(is_gone(home + alias.name) for alias in statement.names):
            found.append(statement)
    found += [node for node in file.syntax.all(ast.Attribute) if is_gone(file.names.resolve(node) or "")]
    for call in file.syntax.all(ast.Call):
        fits = isinstance(call.func, ast.Attribute) and call.func.attr in ("fit", "fit_generator")
        found += [keyword for keyword in call.keywords if fits and keyword.arg in FIRST_ARGUMENTS]
        if any(name in ("keras.models.Model", "keras.Model") for name in file.names.candidates(call.func)):
            found += [keyword for keyword in call.keywords if keyword.arg in ("input", "output")]
    return min(found, key=lambda node: (node.lineno, node.col_offset), default=None)


def before_tensorflow2(file: SourceFile) -> ast.expr | None:
    """The first place that shows that a file is written for TensorFlow 1; None where nothing does, or where a test chooses it."""
    if not any(module.split(".")[0] == "tensorflow" for module in imported(file)):
        return None
    found = [
        node
        for node in file.syntax.all(ast.Attribute)
        if not isinstance(file.syntax.parents[node], ast.Attribute)
        and is_tensorflow1(file.names.resolve(node) or "")
        and not chosen(file, node)
    ]
    return min(found, key=lambda node: (node.lineno, node.col_offset), default=None)


def is_tensorflow1(path: str) -> bool:
    """Whether a dotted name leads to what TensorFlow has had only before 2.0."""
    return any(path == f"tensorflow.{name}" or path.startswith(f"tensorflow.{name}.") for name in TENSORFLOW1)


def chosen(file: SourceFile, node: ast.AST) -> bool:
    """Whether something else may run in the place of a name: where a version, or what a module has, is asked for, or errors are caught."""
    around = file.syntax.ancestors(node)
    return any(isinstance(item, ast.Try) or (isinstance(item, (ast.If, ast.IfExp)) and asks_version(file, item.test)) for item in around)


def asks_version(file: SourceFile, test: ast.expr) -> bool:
    """Whether a test asks for a version, or whether a module has something, be it by a name that stands for the answer."""
    names = [part for part in ast.walk(test) if isinstance(part, ast.Name)]
    values = [binding.value for name in names for binding in file.names.reaching(name) if binding.value is not None]
    return any("ersion" in text or "hasattr" in text for text in map(ast.unparse, (test, *values)))


def is_gone(path: str) -> bool:
    """Whether a dotted name leads to what Keras has had no more since 2.4."""
    return any(path == home or path.startswith(f"{home}.") for home in BEFORE_POLICIES)


def is_old_backend(name: str | None) -> bool:
    """Whether a name is one of the tensor functions of `keras.backend`, which Keras 3 has no more under its own name."""
    home, _, last = (name or "").rpartition(".")
    return home == "keras.backend" and last in KERAS2_BACKEND


def imported(file: SourceFile) -> list[str]:
    """Dotted names of what a file imports."""
    modules = [a.name for statement in file.syntax.all(ast.Import) for a in statement.names]
    return modules + [f"{statement.module}.{a.name}" for statement in file.syntax.all(ast.ImportFrom) for a in statement.names]
