"""Names that settings spell out: functions, classes and modules that a program looks up by a text, and what it builds of them.

Where the text is a setting, its default and its choices are tried, each under its condition; anything else stays unknown.
"""

from __future__ import annotations

from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.calls import call
from mplint.program.conditions import Condition
from mplint.program.expressions import attribute, entries_of, items_of, lookup, new_list
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.store import choose, join
from mplint.program.values import (
    NONE,
    Alternatives,
    Atom,
    Class,
    Constant,
    Entries,
    External,
    Items,
    Module,
    Object,
    Partial,
    Place,
    Unknown,
    Value,
    atoms,
)

vocabulary = Vocabulary()
DEEPEST = 5  # objects within objects that settings describe


def spelled(m: Machine, value: Value) -> Value:
    """A value with the texts that settings in it may be, each under its condition."""
    return m.each(value, lambda atom: texts_of(m, atom)) if type(value) is Alternatives else texts_of(m, value)


def texts_of(m: Machine, atom: Atom) -> Value:
    """The texts that a setting may be, and itself for any other; what is none as it is."""
    switch = m.switches.get(atom.symbol) if type(atom) is Unknown else None
    names = named_by(switch) if switch is not None else []
    if type(atom) is not Unknown or switch is None or not names:
        return atom
    kept = names[: Alternatives.LIMIT - 1]
    found: list[tuple[frozenset[Condition], Value]] = [
        (frozenset({(("in", atom.symbol, frozenset({name})), True)}), Constant(name)) for name in kept
    ]
    if not switch.choices or len(kept) < len(names):
        found.append((frozenset({(("in", atom.symbol, frozenset(kept)), False)}), atom))
    return choose(join(found), m.path)


def named_by(switch: Switch) -> list[str]:
    """The texts that are a setting's choices, its default, or what the configuration files of the project give for it."""
    default = (switch.default.value,) if type(switch.default) is Constant else ()
    texts = [text for text in switch.choices or (*default, *switch.offered) if isinstance(text, str) and text]
    return list(dict.fromkeys(texts))


def module_named(m: Machine, text: str, place: Place) -> Value:
    """The module of a dotted name."""
    found = m.project.absolute(place.path, text)
    if found is not None:
        return found
    known = m.library.external(m, text, place)
    return known if known is not None else External(text)


def named_object(m: Machine, text: str, place: Place) -> Value | None:
    """What a dotted path names: a member of one of the project's modules, or the name of another package."""
    parts = text.replace(":", ".").split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return None
    for end in range(len(parts) - 1, 0, -1):
        module = m.project.absolute(place.path, ".".join(parts[:end]))
        if type(module) is Module and (module.path or end == 1):
            value: Value = module
            for part in parts[end:]:
                value = attribute(m, value, part, place.position)
            return value
    return module_named(m, ".".join(parts), place)


@vocabulary.call("hydra.utils.get_class", "hydra.utils.get_method", "hydra.utils.get_object", "hydra.utils.get_static_method")
@vocabulary.call("pydoc.locate", "pkgutil.resolve_name", "mmengine.utils.get_object_from_string")
def locate(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The object of a dotted path."""

    def one(atom: Atom) -> Value:
        text = atom.value if type(atom) is Constant else None
        found = named_object(m, text, place) if isinstance(text, str) else None
        return found if found is not None else Unknown(f"{name}(…){IDENTITY}{place.path}:{place.position}")

    given = args.get(0) or args.get(-1, "path")
    return m.each(spelled(m, given), one) if given is not None else NONE


@vocabulary.call("builtins.eval")
def eval_(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`eval(cfg.model)`: the name that the text is, looked up where the call stands."""

    def one(atom: Atom) -> Value:
        text = atom.value.strip() if type(atom) is Constant and isinstance(atom.value, str) else ""
        called = text.endswith("()")
        first, *rest = text.removesuffix("()").split(".")
        if not first.isidentifier() or not all(part.isidentifier() for part in rest):
            return Unknown(f"eval(…){IDENTITY}{place.path}:{place.position}{getattr(atom, 'symbol', '')[:60]}")
        value = lookup(m, m.frames[-1], first, place.position)
        for part in rest:
            value = attribute(m, value, part, place.position)
        return call(m, value, Args(), place.position) if called else value

    given = args.get(0)
    return m.each(spelled(m, given), one) if given is not None else NONE


# what settings describe

OWN_KEYS = ("_partial_", "_recursive_", "_convert_", "_args_", "_mode_")


@vocabulary.call("hydra.utils.instantiate", "hydra.utils.call", "hydra_zen.instantiate")
def instantiate(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`hydra.utils.instantiate(cfg.model, width=64)`: what `_target_` names, called with the other entries and the arguments."""
    given = args.get(0, "config")
    if given is None:
        return NONE
    named = {key: value for key, value in args.named.items() if key not in ("config", *OWN_KEYS)}
    flags = {key: value for key, value in args.named.items() if key in OWN_KEYS}
    return m.each(given, lambda atom: described(m, atom, Args(args.positional[1:], named), flags, place, 0))


def described(m: Machine, atom: Atom, args: Args, flags: dict[str, Value], place: Place, depth: int) -> Value:
    """The object that a mapping with `_target_` describes; lists and mappings of such, item by item; anything else as it is."""
    if depth > DEEPEST:
        return atom
    items = items_of(m, atom, place.position) if type(atom) in (Items, Object) else None
    if items is not None:
        made = [m.each(item, lambda a: described(m, a, Args(), {}, place, depth + 1)) for item in items]
        return new_list(m, Items(tuple(made)), place.position)
    entries = entries_of(m, atom)
    target = entries.get("_target_") if entries is not None else None
    if entries is None or target is None:
        if depth == 0 and type(atom) is Unknown:
            return Unknown(f"instantiate({atom.symbol.partition(IDENTITY)[0]}){IDENTITY}{place.path}:{place.position}")
        return atom
    held: dict[str, Value] = {}
    for key, value in entries.entries:
        if isinstance(key, str) and key not in ("_target_", *OWN_KEYS):
            held[key] = m.each(value, lambda a: described(m, a, Args(), {}, place, depth + 1))
    whole = Args(args.positional, {**held, **args.named}, opaque=False)
    later = flags.get("_partial_") or entries.get("_partial_")
    is_partial = later is not None and any(held_value(m, a) is True for a in atoms(later))
    callee = locate(m, "hydra.utils.get_object", Args((target,)), place)
    return m.each(callee, lambda a: built(m, a, whole, is_partial, place))


def held_value(m: Machine, atom: Atom) -> object:
    """The constant that a value is, or that a setting is where its user says nothing."""
    switch = m.switches.get(atom.symbol) if type(atom) is Unknown else None
    known = switch.default if switch is not None else atom
    return known.value if type(known) is Constant else None


def built(m: Machine, callee: Atom, args: Args, is_partial: bool, place: Place) -> Value:
    """What a call gives, or the callable with its arguments; a configuration may give a class of the project what it leaves out today."""
    if type(callee) is Class and not is_partial:
        return call(m, callee, Args(args.positional, args.named, opaque=True), place.position)
    if is_partial:
        return Partial(callee, args.positional, tuple(args.named.items()))
    return call(m, callee, args, place.position)


def build_from(m: Machine, callee: Atom, args: Args, place: Place) -> Value | None:
    """`build_from_cfg(cfg.model, MODELS)` of whatever package: the registry builds it."""
    if type(callee) is not External or callee.name.rpartition(".")[2] not in ("build_from_cfg", "build_model_from_cfg"):
        return None
    settings, registry, defaults = args.get(0, "cfg"), args.get(1, "registry"), args.get(2, "default_args")
    atom = next(iter(atoms(registry))) if registry is not None else None
    if settings is None or type(atom) is not Object:
        return None
    named = {str(key): value for key, value in (entries_of(m, defaults) or Entries()).entries} if defaults is not None else {}
    return m.call_method(atom, "build", Args((settings,), named), place.position, place.position)


vocabulary.atom_calls.append(build_from)
