"""Whether a program may run under Keras 3."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mplint.frameworks.keras.versions import keras_major, used_paths
from mplint.source.framework_names import keras_path

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

# Packages that run with Keras 2 only, and what says that a program means that one.
KERAS2_PACKAGES = ("tensorflow_addons", "tf_keras", "tensorflow.python.keras", "tensorflow.contrib", "tensorflow.estimator", "keras.engine")
KERAS2_SWITCHES = ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND", "enable_v2_dtype_behavior")


def may_be_keras3(file: SourceFile) -> bool:
    """Whether nothing that the program says of itself, and no pin, excludes Keras 3."""
    if keras_major(file) == 2 or any(switch in file.document.source for switch in KERAS2_SWITCHES):
        return False
    named = {alias.name for statement in file.syntax.all(ast.Import) for alias in statement.names}
    named |= {f"{s.module}.{alias.name}" for s in file.syntax.all(ast.ImportFrom) for alias in s.names if not s.level}
    if calls_keras2(file):
        return False
    read = [node for node in file.syntax.all(ast.Attribute) if node.attr in ("estimator", "contrib")]
    named |= {name for node in read for name in file.names.candidates(node)}
    return not any(f"{name}.".startswith(f"{package}.") for name in named for package in KERAS2_PACKAGES)


def calls_keras2(file: SourceFile) -> bool:
    """Whether the program calls what only Keras 2 has."""
    from mplint.source.keras.removed import table

    only = table().keras2
    if any(f"{path}.".startswith(f"{home}.") for path in used_paths(file) for home in only["paths"]):
        return True
    for call in file.syntax.all(ast.Call):
        if any(keyword.arg in only["keywords"] for keyword in call.keywords):
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr in only["methods"]:
            return True
        made = keras_path(file.names.resolve(call.func)) or ""
        if made.startswith("optimizers.") and any(keyword.arg == "lr" for keyword in call.keywords):
            return True
    return False
