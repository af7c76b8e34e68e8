"""The packages of the frameworks, under all their names."""

from __future__ import annotations

from collections.abc import Sequence

# Packages that a name stands for when nothing in the file binds it (star imports, notebook fragments).
PACKAGES = {
    "torch": "torch",
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "np": "numpy",
    "numpy": "numpy",
    "torch_xla": "torch_xla",
}
KERAS_ROOTS = (
    "tensorflow.compat.v1.keras",
    "tensorflow.compat.v2.keras",
    "tensorflow.python.keras",
    "tensorflow.keras",
    "tensorflow._keras",
    "tensorflow_core.keras",
    "tf_keras.src",
    "tf_keras",
    "keras.api._v2.keras",
    "keras.api",
    "keras.src",
    "keras_core",
    "keras",
)
# Modules whose names are known where everything is imported from them.
STAR_MODULES = ("torch", "torch.nn", "torch.cuda.amp", "torch.amp", "torch.nn.functional", "tensorflow", "apex.amp")


# What modules of Keras bring that a program imports everything of several of them for.
KERAS_HOMES = {
    "optimizers": frozenset({"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD"}),
    "models": frozenset({"Model", "Sequential", "clone_model", "load_model", "model_from_json", "model_from_yaml", "save_model"}),
    "losses": frozenset({"BinaryCrossentropy", "CategoricalCrossentropy", "Huber", "MeanSquaredError", "SparseCategoricalCrossentropy"}),
    "callbacks": frozenset({"Callback", "CSVLogger", "EarlyStopping", "LearningRateScheduler", "ModelCheckpoint", "ReduceLROnPlateau"}),
}


def unbound(name: str, star_imports: Sequence[str]) -> list[str]:
    """What a name stands for that nothing binds: a package under its usual name, or what a star import brings."""
    if (root := PACKAGES.get(name)) is not None:
        return [root]
    for module in home_first(name, star_imports):
        if keras_path(module) or module in STAR_MODULES:
            return [f"{module}.{name}"] if module != "torch" or name in ("nn", "optim", "cuda", "autocast") else []
    return []


def home_first(name: str, star_imports: Sequence[str]) -> list[str]:
    """The modules that a program imports everything of, the one of Keras first that is known to hold a name."""
    home = next((home for home, names in KERAS_HOMES.items() if name in names), None)
    return sorted(star_imports, key=lambda module: home is None or keras_path(module) != home)


def keras_path(name: str | None) -> str | None:
    """The part after the Keras package of a dotted name ("layers.Dense"), "" for the package, None for anything else."""
    if name is None:
        return None
    for root in KERAS_ROOTS:
        if name == root:
            return ""
        if name.startswith(root + "."):
            return name[len(root) + 1 :]
    return None
