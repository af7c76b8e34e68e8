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


def unbound(name: str, star_imports: Sequence[str]) -> list[str]:
    """What a name stands for that nothing binds: a package under its usual name, or what a star import brings."""
    if (root := PACKAGES.get(name)) is not None:
        return [root]
    for module in star_imports:
        if keras_path(module) or module in STAR_MODULES:
            return [f"{module}.{name}"] if module != "torch" or name in ("nn", "optim", "cuda", "autocast") else []
    return []


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
