"""What each trainer does for its user: the table data/trainer_duties.toml, read when a program imports one of them."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

# The packages of the table, and what objects of theirs are called by convention; the tests compare both with the table.
PACKAGES = frozenset(
    {
        *("lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "transformers", "trl", "sentence_transformers", "setfit"),
        *("mmengine", "mmcv", "deepspeed", "colossalai", "composer", "ignite", "fastai", "catalyst", "skorch", "detectron2"),
        *("speechbrain", "monai"),
    }
)
UNKNOWN = "?"  # a dtype that nobody knows
OBJECTS = frozenset({"accelerator", "fabric", "trainer", "engine", "model_engine", "optim_wrapper", "booster"})


class Given(NamedTuple):
    """An argument of a call: its name, and its place among the positional ones (-1: none)."""

    name: str
    place: int = -1


class Kind(NamedTuple):
    """One trainer of the table, in its terms; `homes` longest first."""

    key: str
    title: str
    homes: tuple[str, ...]
    active: frozenset[str] = frozenset()
    passive: frozenset[str] = frozenset()
    makers: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()
    hooks: frozenset[str] = frozenset()
    prepares: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    backward: str = ""
    clip: str = ""
    unscale: str = ""
    precision: str = ""
    modes: tuple[tuple[str, str], ...] = ()
    switch: tuple[tuple[str, str], ...] = ()
    default: str = ""
    removed: frozenset[str] = frozenset()
    run: frozenset[str] = frozenset()
    steps: tuple[str, ...] = ()
    model: Given | None = None
    loss: Given | None = None
    does: frozenset[str] = frozenset()
    by_hand: frozenset[str] | None = None

    def rest(self, name: str) -> str | None:
        """What follows the package in a dotted name of this trainer's, None for any other name."""
        for home in self.homes:
            if name == home or name.startswith(home + "."):
                return name[len(home) + 1 :]
        return None

    def takes_part(self, name: str) -> bool:
        """Whether the imported name has to do with training (loggers, metrics and the like have not)."""
        rest = self.rest(name)
        if rest is None:
            return False
        parts = set(rest.split("."))
        if self.active:
            return bool(parts & self.active)
        return not parts & self.passive

    def makes(self, name: str) -> bool:
        """Whether the dotted name is a class or function whose result trains."""
        return self.rest(name) is not None and fits(name, self.makers)

    def runs(self, name: str) -> bool:
        """Whether classes derived from the one with this dotted name hold code that the trainer runs."""
        return self.rest(name) is not None and fits(name, self.hosts)

    def configures(self, name: str) -> bool:
        """Whether the precision of the trainer is an argument of the class with this dotted name."""
        return self.rest(name) is not None and fits(name, self.settings)

    def mode(self, value: object) -> str:
        """The dtype that a value of the precision argument means ("float16", "pure float16", "bfloat16", …), "?" for an unknown one."""
        return dict(self.modes).get(str(value), UNKNOWN)


def fits(name: str, patterns: frozenset[str]) -> bool:
    """Whether the last part of a dotted name is one of `patterns`; "*Config" fits every end like that, "trl:*Config" those of trl."""
    last, package = name.rpartition(".")[2], name.partition(".")[0]
    if last in patterns:
        return True
    ends = (pattern.partition("*") for pattern in patterns if "*" in pattern)
    return any(last.endswith(end) and home in ("", package + ":") for home, _, end in ends)


def configured(name: str) -> Kind | None:
    """The trainer whose precision is an argument of the class with this dotted name, or None."""
    kind = kind_of(name)
    return kind if kind is not None and kind.configures(name) else None


@cache
def kinds() -> tuple[Kind, ...]:
    """Every trainer of the table; of two packages in each other the inner one first."""
    import tomllib
    from pathlib import Path

    data = tomllib.loads((Path(__file__).parents[2] / "data" / "trainer_duties.toml").read_text(encoding="utf-8"))
    found = [_kind(key, section) for key, section in data.items() if isinstance(section, dict)]
    return tuple(sorted(found, key=lambda kind: -max(len(home) for home in kind.homes)))


@cache
def trainer(key: str) -> Kind:
    """The trainer that the table calls `key`."""
    return next(kind for kind in kinds() if kind.key == key)


def takes_over(title: str) -> bool:
    """Whether a trainer steps optimizers that a program hands to it and steps in its own loops, where it runs not only its own."""
    return not any(kind.title == title and kind.hosts and not kind.prepares for kind in kinds())


def casts_weights(title: str) -> bool:
    """Whether a trainer may put the weights of a model in half precision, and does not run it under autocast alone."""
    return any(kind.title == title and "cast" in kind.does for kind in kinds())


def unscales_in_its_step(title: str) -> bool:
    """Whether a trainer leaves gradients scaled, in loops that the user drives, until it steps the optimizer."""
    return any(kind.title == title and kind.by_hand is not None and "unscale" not in kind.by_hand for kind in kinds())


@lru_cache(maxsize=1024)
def kind_of(name: str) -> Kind | None:
    """The trainer to which a dotted name belongs, or None."""
    if name.partition(".")[0] not in PACKAGES:
        return None
    fitting = [(len(name) - len(rest), kind) for kind in kinds() if (rest := kind.rest(name)) is not None]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _kind(key: str, section: dict[str, object]) -> Kind:
    def names(field: str) -> tuple[str, ...]:
        value = section.get(field, ())
        return tuple(str(item) for item in value) if isinstance(value, list) else ()

    def table(field: str) -> tuple[tuple[str, str], ...]:
        value = section.get(field, {})
        return tuple((str(k), str(v)) for k, v in value.items()) if isinstance(value, dict) else ()

    def text(field: str) -> str:
        return str(section.get(field, ""))

    def given(field: str) -> Given | None:
        value = section.get(field)
        return Given(str(value["name"]), int(value.get("place", -1))) if isinstance(value, dict) else None

    fields = ("active", "passive", "makers", "hosts", "settings", "hooks", "prepares", "objects", "removed", "run", "does")
    sets = {field: frozenset(names(field)) for field in fields}
    return Kind(
        key=key,
        homes=tuple(sorted(names("homes"), key=len, reverse=True)),
        title=text("title"),
        backward=text("backward"),
        clip=text("clip"),
        unscale=text("unscale"),
        precision=text("precision"),
        modes=table("modes"),
        switch=table("switch"),
        default=text("default"),
        steps=names("steps"),
        model=given("model"),
        loss=given("loss"),
        by_hand=frozenset(names("by_hand")) if "by_hand" in section else None,
        **sets,
    )
