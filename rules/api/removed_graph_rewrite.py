"""MP103 removed-graph-rewrite."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, InsertStatements, Replace, Severity
from mplint.frameworks.names import keras_path
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.rule import Rule, Surroundings

from .graph_rewrite_switches import Rewrite, graph_rewrites
from .removed_names import is_guarded, is_tensorflow1
from .version_tests import VersionTests

HELP = 'set a dtype policy before the model is built: `tf.keras.mixed_precision.set_global_policy("mixed_float16")`'
OPTION = "`auto_mixed_precision` rewrites graphs behind the layers' dtypes: only Grappler sees it, and no loss scaling comes with it"
VARIABLE = "`TF_ENABLE_AUTO_MIXED_PRECISION` is read by NVIDIA's TensorFlow 1 builds only: stock TensorFlow ignores it"


class RemovedGraphRewrite(Rule):
    """TensorFlow's removed mixed-precision graph rewrite

    ## What it does
    Finds TensorFlow's automatic mixed-precision graph rewrite: `enable_mixed_precision_graph_rewrite` in all its homes, the Grappler
    option `auto_mixed_precision`, and the environment variable `TF_ENABLE_AUTO_MIXED_PRECISION`.

    ## Why is this bad?
    `tf.train.experimental.enable_mixed_precision_graph_rewrite` was removed in TensorFlow 2.6, and its `tf.compat.v1` twin refuses Keras 3
    optimizers with a ValueError. The Grappler option is still accepted, next to any misspelled one, without loss scaling: gradients
    under 6e-8 become 0. The environment variable does nothing in stock TensorFlow 2.3 to 2.21.

    ## Example
    ```python
    import tensorflow as tf

    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer)
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(1, dtype="float32")])
    ```

    ## Use instead
    ```python
    import tensorflow as tf

    optimizer = tf.keras.optimizers.Adam(1e-3)
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(1, dtype="float32")])
    ```

    ## Fix safety
    Unsafe: a dtype policy chooses the float16 part by layer, the rewrite chose it by operation. Offered where the wrapper is called before
    the program builds its layers; the option and the environment variable have no fix.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp103.py.

    ## References
    - https://www.tensorflow.org/guide/mixed_precision
    - https://github.com/NVIDIA/tensorflow/issues/39
    - https://github.com/tensorflow/tensorflow/issues/34406
    """

    code = "MP103"
    name = "removed-graph-rewrite"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("keras",)
    tokens = ("enable_mixed_precision_graph_rewrite", "auto_mixed_precision", "TF_ENABLE_AUTO_MIXED_PRECISION")

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report each place that turns the rewrite on."""
        target, tests = around.targets.tensorflow, VersionTests(file, around.modules)
        if is_tensorflow1(file):
            return  # there the rewrite is the way to mixed precision
        for rewrite in graph_rewrites(file):
            match rewrite.kind:
                case "wrapper":
                    if not is_guarded(file, tests, rewrite.node) and not (target is not None and target.below("2.6")):
                        yield self._wrapper(file, rewrite)
                case "option":
                    confidence = Confidence.HIGH if rewrite.certain else Confidence.MEDIUM
                    why = "TensorFlow 2.21 still accepts it, and accepts misspelled options as silently; gradients under 6e-8 become 0."
                    yield self.finding(file, rewrite.node, OPTION, why=why, help=HELP, severity=Severity.WARNING, confidence=confidence)
                case _:
                    why = "The name does not occur in the TensorFlow 2.3 to 2.21 wheels, so training stays in float32."
                    yield self.finding(file, rewrite.node, VARIABLE, why=why, help=HELP, severity=Severity.WARNING)

    def _wrapper(self, file: SourceFile, rewrite: Rewrite) -> Finding:
        node = rewrite.node
        written = file.text(node) if isinstance(node, ast.expr) else node.name
        if "compat" in written or "compat" in (file.names.resolve(node) or "" if isinstance(node, ast.expr) else ""):
            message = f"`{written}` takes only TensorFlow 1 and legacy Keras optimizers"
            why = "With a Keras 3 optimizer it raises ValueError; what it does wrap is not seen by Keras' loss scaling."
        else:
            message, why = f"`{written}` was removed in TensorFlow 2.6", "With TensorFlow 2.6 or newer this line raises AttributeError."
        return self.finding(file, node, message, why=why, help=HELP, fix=self._fix(file, node))

    def _fix(self, file: SourceFile, node: ast.expr | ast.alias) -> Fix | None:
        """Unwrap the optimizer and set a policy, where the layers of this scope are built afterwards."""
        call = file.syntax.parents[node]
        if not isinstance(call, ast.Call) or call.func is not node or len(call.args) != 1 or isinstance(node, ast.alias):
            return None
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        statement, scope = file.syntax.statement(call), file.syntax.scope(call)
        layers = [c for c in file.syntax.all(ast.Call) if file.syntax.scope(c) is scope and builds_layers(file, c)]
        if file.names.resolve(root) != "tensorflow" or not layers or any(position(c) < position(call) for c in layers):
            return None
        policy = f'{file.text(root)}.keras.mixed_precision.set_global_policy("mixed_float16")'
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        given = call.args[0]
        if (
            isinstance(statement, ast.Assign)
            and statement.value is call
            and target is not None
            and ast.unparse(target) == ast.unparse(given)
        ):
            return Fix("set a dtype policy instead", Applicability.UNSAFE, (Replace(file.span(statement), policy),))
        changes = (Replace(file.span(call), file.text(given)), InsertStatements(file.span(statement), (policy,)))
        return Fix("set a dtype policy instead", Applicability.UNSAFE, changes)


def builds_layers(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call builds a Keras layer or model."""
    path = keras_path(file.names.resolve(call.func)) or ""
    return path.startswith(("layers.", "applications.", "models.", "Sequential", "Model"))
