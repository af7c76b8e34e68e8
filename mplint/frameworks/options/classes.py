"""Classes of settings: dataclasses, attrs, pydantic, NamedTuples; their fields' defaults, and instances that a user fills."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mplint.frameworks.options.namespaces import KIND, PLAIN, default_of, leaf, opened
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import ancestors, bind, class_member, external_bases, lookup
from mplint.program.lower import IR
from mplint.program.machine import Args, Frame, Machine, Switch
from mplint.program.values import (
    FALSE,
    NONE,
    TRUE,
    Atom,
    Class,
    Constant,
    DType,
    External,
    Function,
    Items,
    Object,
    Place,
    State,
    Unknown,
    Value,
    atoms,
)

vocabulary = Vocabulary()
FLAGS_OF_BASES = ("fp16", "bf16")  # what transformers' arguments have, and is off by default
DECORATORS = frozenset(
    [
        "dataclasses.dataclass",
        "attr.s",
        "attr.attrs",
        "attr.define",
        "attr.dataclass",
        "attr.frozen",
        "attrs.define",
        "attrs.frozen",
        "attrs.mutable",
        "pydantic.dataclasses.dataclass",
        "chz.chz",
        "flax.struct.dataclass",
        "datargs.argsclass",
        "torch.utils.data.dataclass",
    ]
)
BASES = frozenset(
    [
        "pydantic.BaseModel",
        "pydantic.BaseSettings",
        "pydantic_settings.BaseSettings",
        "typing.NamedTuple",
        "typing.TypedDict",
        "msgspec.Struct",
        "simple_parsing.Serializable",
        "simple_parsing.helpers.Serializable",
        "tap.Tap",
        "transformers.TrainingArguments",
        "transformers.Seq2SeqTrainingArguments",
        "draccus.ChoiceRegistry",
    ]
)
FIELDS = (
    "dataclasses.field",
    "pydantic.Field",
    "attr.ib",
    "attr.field",
    "attrs.field",
    "simple_parsing.field",
    "simple_parsing.helpers.field",
    "simple_parsing.choice",
    "simple_parsing.flag",
    "chz.field",
    "datargs.arg",
    "draccus.field",
    "pyrallis.field",
)
NAMED = re.compile(r"(config|configs|args|arguments|options|settings|hparams|hyperparameters|cfg|conf|params)$", re.I)


@vocabulary.call(*FIELDS)
def field(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The default that a field's description gives."""
    from mplint.program.calls import call

    factory = args.named.get("default_factory") or args.named.get("factory")
    if factory is not None:
        return call(m, factory, Args(), place.position)
    default = args.named.get("default")
    if default is None and name in ("pydantic.Field", "attr.ib", "simple_parsing.flag", "simple_parsing.field"):
        default = args.get(0)
    return default if default is not None else Unknown(f"field\0{place.path}:{place.position}")


@vocabulary.call(*(name for name in sorted(DECORATORS)))
def decorator(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`@dataclass(frozen=True)`: the decorator itself."""
    first = args.get(0)
    if type(first) is Class:
        m.write(first.id, "#dataclass", TRUE)
        return first
    return External(name)


def decorated(m: Machine, value: Value, atom: Atom, place: Place) -> Value | None:
    """`@dataclass` on a class."""
    if type(value) is Class and type(atom) is External and m.library.canonical(atom.name) in DECORATORS:  # type: ignore[attr-defined]
        m.write(value.id, "#dataclass", TRUE)
        return value
    return None


vocabulary.decorators.append(decorated)


def holds_settings(m: Machine, cls: Class) -> bool:
    """Whether a class has fields that its constructor fills."""
    for ancestor in ancestors(m, cls):
        if type(ancestor) is Class and m.read(ancestor.id, "#dataclass") is not None:
            return True
    return any(m.library.canonical(base) in BASES for base in external_bases(m, cls))  # type: ignore[attr-defined]


def is_filled_by_users(m: Machine, cls: Class) -> bool:
    """Whether a class checks what comes from outside, as settings do."""
    return any(m.library.canonical(base).startswith("pydantic") for base in external_bases(m, cls))  # type: ignore[attr-defined]


def fields_of(m: Machine, cls: Class) -> dict[str, tuple[Class, IR | None]]:
    """The annotated names of a class and its bases, with the class that has each and the annotation."""
    found: dict[str, tuple[Class, IR | None]] = {}
    for ancestor in reversed([a for a in ancestors(m, cls) if type(a) is Class]):
        held = m.read(ancestor.id, "#fields")
        for name in held.items if type(held) is Items else ():
            if type(name) is Constant:
                noted = m.read(ancestor.id, f"#annotation:{name.value}")
                annotation = noted.data if type(noted) is State and isinstance(noted.data, tuple) else None
                found[str(name.value)] = (ancestor, annotation)
    return found


def open_instance(m: Machine, cls: Class, place: Place, prefix: str = "", kind: str = "setting", depth: int = 0) -> Object:
    """An instance whose fields are left to its user: unknowns, each with its default as a switch.

    `prefix` stands before the names of the fields as the user types them ("--", "cfg.").
    """
    from mplint.program.calls import after_fields, call

    made = Object(("settings", cls.id, prefix), "instance", cls, place)
    m.write(made.id, "#set", NONE)
    for name, (owner, annotation) in fields_of(m, cls).items():
        member = class_member(m, cls, name)
        default = member[0] if member is not None else None
        inner = inner_class(m, default, annotation, owner)
        if inner is not None and depth < 4:
            m.write(made.id, name, open_instance(m, inner, place, f"{prefix}{name}.", kind, depth + 1))
            continue
        if default is not None and not all(type(a) in (Constant, DType, Unknown) for a in atoms(default)):
            m.write(made.id, name, default)
            continue
        if type(default) is Constant and not isinstance(default.value, PLAIN):
            continue
        switch = Switch(f"{prefix}{name}", default_of(default), place, kind, literals(annotation))
        m.write(made.id, name, leaf(m, f"{cls.name}.{name}", f"{kind}:{cls.path}:{owner.name}:{prefix}", switch))
    for name in FLAGS_OF_BASES if extends_arguments(m, cls) else ():
        if m.read(made.id, name) is None:
            switch = Switch(f"{prefix}{name}", FALSE, place, kind)
            m.write(made.id, name, leaf(m, f"{cls.name}.{name}", f"{kind}:{cls.path}:{cls.name}:{prefix}", switch))
    after = after_fields(m, cls)
    if after is not None:
        call(m, bind(m, after[0], made, cls, after[1], place.position), Args(), place.position)
    return made


def extends_arguments(m: Machine, cls: Class) -> bool:
    """Whether a class of settings extends transformers' arguments, which bring flags of their own."""
    bases = (base.rpartition(".") for base in external_bases(m, cls))
    return any(home.partition(".")[0] == "transformers" and name.endswith("TrainingArguments") for home, _, name in bases)


def read_of_class(m: Machine, atom: Atom, name: str, place: Place) -> Value | None:
    """A field that a program reads of a class of settings itself (`TrainConfig.amp`): a setting, with its default."""
    if type(atom) is not Class or name not in fields_of(m, atom) or not holds_settings(m, atom):
        return None
    owner, annotation = fields_of(m, atom)[name]
    default = m.read(owner.id, name)
    if type(default) is not Constant or not isinstance(default.value, (bool, str, type(None))):
        return None
    switch = Switch(f"{atom.name}.{name}", default, place, "setting", literals(annotation))
    return leaf(m, f"{atom.name}.{name}", f"class:{owner.path}:{owner.name}", switch)


vocabulary.atom_attributes.append(read_of_class)


def takes_open_names(m: Machine, receiver: Value | None, key: Value | None) -> bool:
    """Whether a program asks settings for a name that comes from outside, or sets one."""
    if type(receiver) is not Object or type(key) is not Unknown:
        return False
    held = receiver.kind == "instance" and type(receiver.type) is Class
    return receiver.kind == KIND or (held and holds_settings(m, receiver.type))  # type: ignore[arg-type]


def leave_open(m: Machine, made: Object, place: Place) -> None:
    """Leave each field of settings to the user, its value so far the default: what is set has a name from outside."""
    if made.kind == KIND:
        opened(m, made, place)
        return
    cls = made.type
    for name, (owner, annotation) in fields_of(m, cls).items() if type(cls) is Class else ():
        value = m.read(made.id, name) or m.read(owner.id, name)
        if type(value) is Constant and isinstance(value.value, PLAIN):
            shown = f"{owner.name}.{name}"
            switch = Switch(shown, value, place, "setting", literals(annotation))
            m.write(made.id, name, leaf(m, shown, f"outside:{owner.path}:{owner.name}", switch))


def filled_from_outside(m: Machine, instance: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """Settings that are made of a table from outside (`Settings(**given)`): each field is the user's."""
    own = all(base.startswith("abc.") for base in bases)
    if args.opaque and own and type(instance.type) is Class and holds_settings(m, instance.type):
        leave_open(m, instance, place)


vocabulary.made.append(filled_from_outside)


def inner_class(m: Machine, default: Value | None, annotation: IR | None, owner: Class) -> Class | None:
    """The class of settings that a field holds an instance of."""
    for atom in atoms(default) if default is not None else ():
        if type(atom) is Object and type(atom.type) is Class and holds_settings(m, atom.type):
            return atom.type
    if annotation is None or default is not None:
        return None
    found = class_named(m, annotation, Frame(owner.path, owner.path, None))
    return found if found is not None and holds_settings(m, found) else None


def class_named(m: Machine, annotation: IR, frame: Frame) -> Class | None:
    """The project's class that an annotation names, `Optional[…]` and `… | None` taken off."""
    node = annotation
    if node[0] == "subscript" and node[2][-1] in ("Optional", "Annotated", "Type"):
        node = node[3]
    if node[0] == "binary" and node[2] == "|":
        node = node[3]
    value: Value | None = None
    if node[0] == "name" or (node[0] == "constant" and isinstance(node[2], str) and node[2].isidentifier()):
        value = lookup(m, frame, node[2], node[1])
    elif node[0] == "attribute" and node[2][0] == "name":
        from mplint.program.expressions import attribute

        m.frames.append(frame)
        try:
            value = attribute(m, lookup(m, frame, node[2][2], node[1]), node[3], node[1])
        finally:
            m.frames.pop()
    return next((a for a in atoms(value) if type(a) is Class), None) if value is not None else None


def literals(annotation: IR | None) -> tuple[str | int | bool | None, ...]:
    """The values that a `Literal[…]` annotation lists."""
    if annotation is None or annotation[0] != "subscript" or annotation[2][-1] != "Literal":
        return ()
    parts = annotation[3][2] if annotation[3][0] == "tuple" else (annotation[3],)
    return tuple(part[2] for part in parts if part[0] == "constant")


def annotated(m: Machine, name: str, annotation: IR, frame: Frame, place: Place) -> Value | None:
    """A parameter of library code that is annotated with a class of settings: any instance of it."""
    found = class_named(m, annotation, frame)
    if found is None or not holds_settings(m, found) or not (NAMED.search(found.name) or is_filled_by_users(m, found)):
        return None
    return open_instance(m, found, place, f"{name}.")


vocabulary.annotations.append(annotated)

FILLED = (
    "tyro.cli",
    "simple_parsing.parse",
    "simple_parsing.parse_known_args",
    "draccus.parse",
    "pyrallis.parse",
    "jsonargparse.CLI",
    "jsonargparse.auto_cli",
    "datargs.parse",
    "chz.entrypoint",
    "chz.nested_entrypoint",
    "pydantic_cli.run_and_exit",
    "dacite.from_dict",
    "cattrs.structure",
    "omegaconf.OmegaConf.structured",
    "omegaconf.OmegaConf.to_object",
)
FROM_FILES = ("dacite.from_dict", "cattrs.structure", "omegaconf.OmegaConf.structured", "omegaconf.OmegaConf.to_object")


@vocabulary.call(*FILLED)
def fill(m: Machine, name: str, args: Args, place: Place) -> Value:
    """What a library makes of a class (or a function) and the command line."""
    wanted = next((v for n, v in args.named.items() if n in ("config_class", "data_class", "components", "f", "cls")), None) or args.get(0)
    atom = next(iter(atoms(wanted))) if wanted is not None else None
    prefix, kind = ("", "setting") if name in FROM_FILES else ("--", "option")
    if type(atom) is Object and type(atom.type) is Class and name not in ("omegaconf.OmegaConf.to_object",):
        atom = atom.type
    if type(atom) is Object and name == "omegaconf.OmegaConf.to_object":
        return atom
    if type(atom) is Class:
        return open_instance(m, atom, place, prefix, kind)
    if type(atom) is Function:
        from mplint.frameworks.options.commands import run_command

        return run_command(m, atom, place)
    return Unknown(f"args\0{place.path}:{place.position}")


WRAPS = ("draccus.wrap", "pyrallis.wrap", "lerobot.configs.parser.wrap")


@vocabulary.call(*WRAPS)
def wrap(m: Machine, name: str, args: Args, place: Place) -> Value:
    return External(f"{name}()")


def wrapped(m: Machine, value: Value, atom: Atom, place: Place) -> Value | None:
    """`@draccus.wrap()` over a function whose first parameter is a class of settings."""
    if type(atom) is not External or atom.name.removesuffix("()") not in WRAPS or type(value) is not Function:
        return None
    from mplint.program.values import Partial

    for parameter, _, _, annotation in value.code.parameters[:1]:
        found = class_named(m, annotation, Frame.of(value.frame)) if annotation is not None else None
        if found is not None:
            return Partial(value, (), ((parameter, open_instance(m, found, place, "--", "option")),))
    return None


vocabulary.decorators.append(wrapped)

__all__ = ["Callable", "open_instance", "vocabulary"]
