"""Trees of settings that the program builds: yacs, ml_collections, OmegaConf, EasyDict and their kin."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.frameworks.options.files import load
from mplint.frameworks.options.namespaces import (
    KIND,
    assigned,
    filled,
    name_of,
    namespace,
    of_namespace,
    opened,
    put,
)
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import entries_of, external_bases
from mplint.program.machine import IDENTITY, Args, Machine
from mplint.program.values import NONE, TRUE, Atom, Class, Constant, Entries, Object, Place, Unknown, Value, atoms

vocabulary = Vocabulary()
LIVE = (
    "yacs.config.CfgNode",
    "fvcore.common.config.CfgNode",
    "iopath.common.config.CfgNode",
    "detectron2.config.CfgNode",
    "ml_collections.ConfigDict",
    "ml_collections.config_dict.ConfigDict",
    "ml_collections.config_dict.config_dict.ConfigDict",
    "ml_collections.config_dict.create",
    "omegaconf.DictConfig",
    "tensorflow.contrib.training.HParams",
)
PLAIN_TREES = (
    "easydict.EasyDict",
    "argparse.Namespace",
    "types.SimpleNamespace",
    "box.Box",
    "munch.Munch",
    "munch.munchify",
    "munch.DefaultMunch",
    "dotmap.DotMap",
    "addict.Dict",
    "attrdict.AttrDict",
    "omegaconf.OmegaConf.create",
    "mmcv.Config",
    "mmcv.ConfigDict",
    "mmengine.ConfigDict",
    "mmengine.config.ConfigDict",
    "ml_collections.FrozenConfigDict",
    "prodict.Prodict",
    "omegaconf.OmegaConf.to_container",
    "ml_collections.config_dict.FrozenConfigDict",
    "omegaconf.OmegaConf.masked_copy",
    "copy.deepcopy.settings",
    "transformers.utils.generic.AttrDict",
)
FROM_OUTSIDE = ("detectron2.config.get_cfg", "ml_collections.config_flags.DEFINE_config_file", "fvcore.common.config.get_cfg")


@vocabulary.call(*LIVE)
def live_tree(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = namespace(m, m.identity(place), name, place)
    m.write(made.id, "#live", TRUE)
    m.write(made.id, "#rest", Unknown(f"setting[]{IDENTITY}{place.path}:{place.position}"))
    if args.named:
        filled(m, made, Entries(tuple(args.named.items())))
    entries = entries_of(m, args.positional[0]) if args.positional else Entries() if args.named else None
    return fill_live(m, made, entries, place)


def fill_live(m: Machine, made: Object, entries: Entries | None, place: Place) -> Object:
    """Give a tree its first values, each a default."""
    if entries is not None:
        filled(m, made, entries)
        opened(m, made, place)
    return made


@vocabulary.call(*PLAIN_TREES)
def plain_tree(m: Machine, name: str, args: Args, place: Place) -> Value:
    first = args.get(0)
    atom = next(iter(atoms(first))) if first is not None else None
    if type(atom) is Object and (atom.kind == KIND or atom.kind == "instance"):
        return atom
    if type(atom) is Unknown and not args.named:
        return atom  # what nobody knows, with other brackets around it
    made = namespace(m, m.identity(place), name, place, rest=args.opaque)
    entries = entries_of(m, atom) if atom is not None else None
    if entries is not None:
        filled(m, made, entries)
    for key, value in args.named.items():
        put(m, made, key, value)
    return made


@vocabulary.call(*FROM_OUTSIDE)
def outside_tree(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = namespace(m, name, name, place, "cfg", rest=True)
    m.write(made.id, "#live", TRUE)
    m.write(made.id, "value", made)
    return made


@vocabulary.call("omegaconf.OmegaConf.merge", "omegaconf.OmegaConf.unsafe_merge")
def merge(m: Machine, name: str, args: Args, place: Place) -> Value:
    """The values of several trees, later ones in place of earlier ones; of something unknown any may come."""
    trees = [a for v in args.positional for a in list(atoms(v))[:1]]
    known = [t for t in trees if type(t) is Object]
    if not known:
        return trees[0] if trees else NONE
    made = known[0]
    for other in known[1:]:
        combine(m, made, other)
    if len(known) < len(trees) and made.kind == KIND:
        opened(m, made, place)
    return made


def combine(m: Machine, made: Object, other: Object, depth: int = 0) -> None:
    """Set the values of one tree in another."""
    found = entries_of(m, other)
    for key, value in found.entries if found is not None and depth < 6 else ():
        if not isinstance(key, str):
            continue
        held = m.read(made.id, key)
        if type(held) is Object and type(value) is Object and held.kind == KIND and value.kind == KIND:
            combine(m, held, value, depth + 1)
        elif made.kind == KIND:
            put(m, made, key, value)
        else:
            m.write(made.id, key, value)


@vocabulary.call("omegaconf.OmegaConf.from_cli", "omegaconf.OmegaConf.from_dotlist")
def from_cli(m: Machine, name: str, args: Args, place: Place) -> Value:
    return Unknown(f"cli{IDENTITY}{place.path}:{place.position}")


@vocabulary.call(*(f"omegaconf.OmegaConf.{name}" for name in ("set_struct", "set_readonly", "resolve", "save")))
def nothing(m: Machine, name: str, args: Args, place: Place) -> Value:
    return NONE


@vocabulary.call("omegaconf.OmegaConf.select")
def select(m: Machine, name: str, args: Args, place: Place) -> Value:
    from mplint.program.expressions import attribute

    value, key = args.get(0, "cfg"), args.get(1, "key")
    if value is None or type(key) is not Constant or not isinstance(key.value, str):
        return Unknown(f"select{IDENTITY}{place.path}:{place.position}")
    for part in key.value.split("."):
        value = attribute(m, value, part, place.position)
    return value


@vocabulary.method(
    KIND,
    "merge_from_file",
    "merge_from_list",
    "merge_from_other_cfg",
    "merge_with",
    "merge_with_dotlist",
    "merge_from_dict",
    "update_from_flattened_dict",
    "load_yaml_with_base",
    "set_new_allowed",
    "freeze",
    "defrost",
    "lock",
    "unlock",
    "register_renamed_key",
    "register_deprecated_key",
)
def of_tree(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    if name == "merge_from_file":
        section = load(m, args.get(0), place, name_of(m, receiver))
        if section is not None:
            combine(m, receiver, section)
        else:
            opened(m, receiver, place)
    elif name.startswith(("merge", "update")):
        other = next((a for v in args.positional for a in atoms(v)), None)
        entries = entries_of(m, other) if other is not None else None
        if entries is not None and type(other) is Object and other.kind == KIND:
            combine(m, receiver, other)
        else:
            opened(m, receiver, place)
    return NONE


def extends_tree(m: Machine, made: Object, bases: Sequence[str], args: Args, place: Place) -> None:
    """Instances of project classes that extend a dict or a tree of settings."""
    if any(base in LIVE for base in bases):
        m.write(made.id, "#live", TRUE)
    if any(base in LIVE or base in PLAIN_TREES or base in ("builtins.dict", "collections.OrderedDict") for base in bases):
        first = args.get(0)
        entries = entries_of(m, first) if first is not None else None
        for key, value in (*(entries.entries if entries is not None else ()), *args.named.items()):
            if isinstance(key, str):
                m.write(made.id, key, value)
                assigned(m, made, key, value, place)  # of a live one, only a default


vocabulary.made.append(extends_tree)


def of_extended(m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value | None:
    """The methods that such instances inherit."""
    if type(receiver) is not Object or type(receiver.type) is not Class or m.read(receiver.id, "#live") is None:
        return None
    if not any(m.library.canonical(base) in LIVE for base in external_bases(m, receiver.type)):  # type: ignore[attr-defined]
        return None
    if name in ("clone", "copy", "get"):
        key = args.get(0)
        if name == "get" and type(key) is Constant and isinstance(key.value, str):
            return m.read(receiver.id, key.value) or args.get(1) or NONE
        return receiver
    return NONE if name.startswith(("merge", "freeze", "defrost", "set_")) else None


vocabulary.atom_methods.append(of_extended)

__all__ = ["of_namespace", "vocabulary"]
