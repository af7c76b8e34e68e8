"""Which calls of a program build layers or models that follow the global policy, by whatever helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from mplint.frameworks.keras.layers import is_preparing
from mplint.python.syntax import FUNCTIONS, Function
from mplint.source.file import SourceFile
from mplint.source.keras.layers import keras_name
from mplint.source.keras.models import KerasModels
from mplint.source.keras.policy import KerasPolicy

# Packages whose classes and functions build Keras models and layers.
PACKAGES = ("keras_hub", "keras_nlp", "keras_cv", "kecam", "keras_cv_attention_models", "tensorflow_hub", "tensorflow_addons.layers",
            "segmentation_models",
            "efficientnet", "classification_models", "tfimm", "tensorflow_similarity.models", "keras_unet_collection",
            "vit_keras", "keras_tuner.applications", "official.nlp", "official.vision", "keras_rs", "tensorflow_recommenders")  # fmt: skip
MODEL_METHODS = frozenset({"fit", "compile", "fit_generator", "train_on_batch", "trainable_variables", "trainable_weights"})
KERAS_FIT = frozenset({"epochs", "batch_size", "validation_data", "validation_split", "callbacks", "steps_per_epoch", "verbose"})
NOT_MODELS = (".losses.", ".metrics.", ".optimizers.", ".callbacks.", ".utils.", ".preprocessing.", ".datasets.", ".tokenizers.")
OTHERS = ("sklearn", "scipy", "numpy", "xgboost", "lightgbm", "catboost", "pandas", "torch", "builtins", "re.", "statsmodels", "joblib",
          "sonnet", "keras_tuner", "kerastuner")  # fmt: skip
INPUT_LAYERS = ("layers.Input", "layers.experimental.preprocessing")
INPUTS = ("Input", "layers.Input", "layers.InputLayer")
MODELS = ("Sequential", "Model", "models.Sequential", "models.Model")


class Builders:
    """Answers which calls build something that the policy decides about."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._known: dict[ast.AST, bool] = {}

    def builds(self, call: ast.Call) -> bool:
        """Whether a call builds a layer or model, itself, in code of this file, or as far as its use as a model tells."""
        return (
            self.is_layer(call) or self._comes_from_package(call) or call in self.makers or any(self.inside(d) for d in self.called(call))
        )

    @cached_property
    def all(self) -> list[ast.Call]:
        """Every call that builds something, in source order."""
        return [call for call in self.file.syntax.all(ast.Call) if self.builds(call)]

    @cached_property
    def any_layer(self) -> bool:
        """Whether anything is built that may compute in half: more than a model around layers that came from elsewhere."""
        return any(keras_name(self.file, call.func) not in (*MODELS, *INPUTS) or self._has_own_code(call) for call in self.all)

    def _has_own_code(self, call: ast.Call) -> bool:
        return any(self.inside(scope) for scope in self.called(call))

    def is_layer(self, call: ast.Call) -> bool:
        """Whether a call builds a layer or model of Keras that follows the policy."""
        path = keras_name(self.file, call.func)
        name = path.rpartition(".")[2] if path is not None else ""
        if path is None or not name[:1].isupper() or path.startswith(INPUT_LAYERS) or is_preparing(name):
            return False
        if path in MODELS or path in INPUTS:
            return True
        return path.startswith(("layers.", "applications.")) and self.file.fact(KerasPolicy).dtype_argument(call) is None

    def called(self, call: ast.Call) -> Iterator[Function | ast.ClassDef]:
        """The functions and classes of this file that a call runs, also those that it is given to run."""
        for node in (call.func, *call.args):
            if isinstance(node, (ast.Name, ast.Attribute)) and (found := self.file.names.local_function(node)) is not None:
                yield found

    def inside(self, scope: Function | ast.ClassDef) -> bool:
        """Whether the code of a function or class builds anything; a network of its own does."""
        known = self._known.get(scope)
        if known is None:
            self._known[scope] = False  # what calls itself builds what the rest of it builds
            if isinstance(scope, ast.ClassDef) and self.file.fact(KerasModels).is_network_class(scope):
                known = True
            else:
                bases = self.file.names.bases(scope) if isinstance(scope, ast.ClassDef) else []
                calls = [node for node in ast.walk(scope) if isinstance(node, ast.Call)]
                known = any(self.builds(call) for call in calls) or any(self.inside(base) for base in bases)
            self._known[scope] = known
        return known

    def _comes_from_package(self, call: ast.Call) -> bool:
        for name in self.file.names.candidates(call.func):
            parts = name.split(".")
            if any(part in name for part in NOT_MODELS):
                continue
            if name.startswith(PACKAGES) or (parts[0] == "transformers" and len(parts) > 1 and parts[1].startswith("TF")):
                return any(part[:1].isupper() for part in parts[1:]) or parts[0].startswith("keras_cv_attention")
        return False

    @cached_property
    def makers(self) -> frozenset[ast.Call]:
        """Calls into other files whose result is used as a Keras model."""
        found: set[ast.Call] = set()
        for node in self.file.syntax.all(ast.Attribute):
            if node.attr in MODEL_METHODS and self._is_model_use(node):
                found.update(self._made_elsewhere(node.value))
        return frozenset(found)

    def _is_model_use(self, node: ast.Attribute) -> bool:
        """Whether reading an attribute says that its owner is a Keras model: many other things have a `fit`."""
        call = self.file.syntax.parents[node]
        if node.attr not in ("fit", "compile"):
            return True
        keywords = {k.arg for k in call.keywords} if isinstance(call, ast.Call) and call.func is node else set()
        return bool(keywords & KERAS_FIT) if node.attr == "fit" else bool(keywords & {"optimizer", "loss", "metrics"})

    def _made_elsewhere(self, model: ast.expr) -> Iterator[ast.Call]:
        for definition in self.file.values.definitions(model):
            if isinstance(definition, ast.Call) and self.file.names.local_function(definition.func) is None:
                names = self.file.names.candidates(definition.func)
                own = isinstance(definition.func, ast.Name) and definition.func.id == "super"
                if keras_name(self.file, definition.func) is None and not own and not any(name.startswith(OTHERS) for name in names):
                    yield definition


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that running a statement makes: not those in functions and classes that it defines."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(item, ast.Call):
            yield item
        stack.extend(ast.iter_child_nodes(item))
