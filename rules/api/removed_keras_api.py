"""MP102 removed-keras-api."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Severity
from mplint.frameworks.keras.versions import keras_major
from mplint.frameworks.names import keras_path
from mplint.python.file import SourceFile
from mplint.python.syntax import argument
from mplint.rule import Consequence, Rule, Surroundings
from mplint.targets import Targets

from .keras_migration import Migration, stable_fix
from .loss_scale_optimizers import is_loss_scale_optimizer, is_model_optimizer
from .removed_names import Reference, is_guarded, is_tensorflow1, may_be_keras3, table

POLICIES = ("mixed_precision.Policy", "DTypePolicy", "mixed_precision.DTypePolicy")


class RemovedKerasApi(Rule):
    """Mixed-precision API that Keras has removed

    ## What it does
    Finds mixed-precision API of Keras that no longer exists: everything in `mixed_precision.experimental` however it is imported or
    aliased, `set_policy`, the `loss_scale` argument of `Policy` and `LossScaleOptimizer`, and, where the target is Keras 3, the
    loss-scaling methods of Keras 2 (`get_scaled_loss`, `get_unscaled_gradients`, `minimize(tape=...)`, `dynamic=False`, `.loss_scale`).
    Version checks keep it silent, but for one that lets in every newer release as well (`if float(tf.__version__[:3]) >= 2.1:`).

    ## Why is this bad?
    `mixed_precision.experimental` was removed in TensorFlow 2.9: the import raises ImportError and the attribute AttributeError before
    the first training step. `set_policy` without `experimental` never existed. Keras 3 accepts `LossScaleOptimizer(opt, "dynamic")`
    silently, takes the string for the initial scale and fails when the optimizer is built.

    ## Example
    ```python
    from tensorflow.keras import optimizers
    from tensorflow.keras.mixed_precision import experimental as mixed_precision

    mixed_precision.set_policy("mixed_float16")
    optimizer = mixed_precision.LossScaleOptimizer(optimizers.Adam(1e-4), "dynamic")
    ```

    ## Use instead
    ```python
    from tensorflow.keras import optimizers
    from tensorflow.keras import mixed_precision

    mixed_precision.set_global_policy("mixed_float16")
    optimizer = mixed_precision.LossScaleOptimizer(optimizers.Adam(1e-4))
    ```

    ## Fix safety
    Safe: the stable names do the same since TensorFlow 2.4, and an alias is changed together with all its uses. Without a fix where no
    exact counterpart exists: a fixed loss scale when the Keras version is not known, private modules, the loss-scaling methods that
    Keras 3 replaced by `scale_loss`, and aliases that a version check also binds.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp102.py.

    ## References
    - https://www.tensorflow.org/guide/mixed_precision
    - https://github.com/google/automl/issues/1153
    - https://github.com/keras-team/keras/issues/19479
    """

    code = "MP102"
    name = "removed-keras-api"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("keras",)
    tokens = ("mixed_precision", "set_policy", "LossScale", "get_scaled_loss", "get_unscaled_gradients", "set_global_policy")
    adoption = Consequence(mends=True)

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report names, then arguments, then methods that are gone."""
        migration = Migration(file, around)
        yield from self._names(file, migration, around.targets)
        yield from self._arguments(file, migration, around.targets)
        major = keras_major(file, around.targets)
        if major == 3 or (major is None and may_be_keras3(file, around.targets) and not is_tensorflow1(file)):
            yield from self._methods(file, migration, sure=major == 3)

    def _names(self, file: SourceFile, migration: Migration, targets: Targets) -> Iterator[Finding]:
        target = targets.tensorflow
        told: set[ast.AST] = set()
        for reference in migration.references:
            gone, node = reference.entry.gone, reference.node
            if is_guarded(file, migration.tests, node, gone) or (
                gone and ((target is not None and target.below(gone)) or is_tensorflow1(file))
            ):
                continue
            if reference.binding is not None and migration.own_changes(reference) == []:
                continue  # the alias is reported where it is bound, and this use of it stays as it is
            place = file.syntax.statement(node) if isinstance(node, ast.alias) else file.syntax.parents[node]
            if place in told or any(parent in told for parent in file.syntax.ancestors(node) if isinstance(parent, ast.Call)):
                continue  # one import statement, one finding; arguments belong to the call that is reported as a whole
            told.add(place)
            yield self._removed(file, reference, migration.fix(reference))

    def _removed(self, file: SourceFile, reference: Reference, fix: Fix | None) -> Finding:
        entry, node = reference.entry, reference.node
        written = reference.path if isinstance(node, ast.alias) else file.text(node)
        error = "ImportError" if isinstance(node, ast.alias) else "AttributeError"
        if not entry.gone:
            message, why = f"`{written}` does not exist", f"This line raises {error} in every release since TensorFlow 2.4."
        else:
            alias = f" is `{reference.path}`, which" if reference.alias else ""
            message = f"`{written}`{alias} was removed in TensorFlow {entry.gone}"
            early = "" if entry.home else "; in 2.4 to 2.8 it is deprecated"
            why = f"With TensorFlow {entry.gone} or newer this line raises {error}{early}."
        last = reference.path.removeprefix(entry.path).lstrip(".").split(".")[0]
        use = f"{entry.use}.{table().renamed.get(last, last)}" if last in table().stable else entry.use
        return self.finding(file, node, message, why=why, help=f"use `{use}`", fix=fix)

    def _arguments(self, file: SourceFile, migration: Migration, targets: Targets) -> Iterator[Finding]:
        for call in file.syntax.all(ast.Call):
            paths = {keras_path(name) for name in file.names.candidates(call.func)}
            path = paths.pop() if len(paths) == 1 else None
            if path is None or "experimental" in path or is_guarded(file, migration.tests, call):
                continue
            if path in POLICIES:
                if (value := argument(call, "loss_scale", 1)) is not None:
                    help = "the loss scale belongs to LossScaleOptimizer; drop it here"
                    yield self._argument(file, migration, call, "Policy", value, help)
            elif path.rpartition(".")[2] == "LossScaleOptimizer":
                yield from self._optimizer(file, migration, call, keras_major(file, targets))

    def _optimizer(self, file: SourceFile, migration: Migration, call: ast.Call, major: int | None) -> Iterator[Finding]:
        value, second = argument(call, "loss_scale"), argument(call, "dynamic", 1)
        given = migration.definitions.constant_or(second)
        is_scale = isinstance(given, (int, float)) and not isinstance(given, bool)
        if value is None and (given == "dynamic" or (is_scale and major == 2)):
            value = second
        if value is not None:
            yield self._argument(file, migration, call, "LossScaleOptimizer", value, "drop it: the scale is dynamic by default")
        elif given is False and major == 3:
            help = table().members["dynamic"]
            yield self.finding(file, call, "Keras 3 has no `LossScaleOptimizer(dynamic=False)`", why="It raises ValueError.", help=help)

    def _argument(self, file: SourceFile, migration: Migration, call: ast.Call, kind: str, value: ast.expr, help: str) -> Finding:
        changes = migration.argument_changes(call, kind)
        fix = stable_fix(changes, migration.targets) if changes else None
        why = "Keras 2 raises TypeError; Keras 3 raises ValueError, or takes a string in this place for the initial scale and fails later."
        return self.finding(file, value, f"`{kind}` no longer takes a loss scale (`{file.text(value)}`)", why=why, help=help, fix=fix)

    def _methods(self, file: SourceFile, migration: Migration, *, sure: bool) -> Iterator[Finding]:
        members = table().members
        for node in file.syntax.all(ast.Attribute):
            minimized = file.syntax.parents[node] if node.attr == "minimize" else None
            with_tape = isinstance(minimized, ast.Call) and argument(minimized, "tape", 3) is not None
            if not isinstance(node.ctx, ast.Load) or not (node.attr in members or with_tape) or is_guarded(file, migration.tests, node):
                continue
            if is_loss_scale_optimizer(file, migration.definitions, node.value) or (
                sure and node.attr not in ("loss_scale", "dynamic") and is_model_optimizer(file, node.value)
            ):
                written = f"{file.text(node)}(tape=...)" if with_tape else file.text(node)
                help = members.get(node.attr, "scale the loss in the tape with `scale_loss`, then `tape.gradient` and `apply`")
                why = "Keras 3 raises AttributeError: its optimizers scale in `scale_loss` and unscale when they apply gradients."
                gone = "Keras 3" if sure else "Keras 3, which is that of TensorFlow 2.16 and newer"
                confidence = Confidence.HIGH if sure else Confidence.MEDIUM
                yield self.finding(file, node, f"`{written}` is gone in {gone}", why=why, help=help, confidence=confidence)
