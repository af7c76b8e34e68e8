"""argparse and what follows its manner: parsers as objects, options as unknowns with a switch, namespaces as objects with attributes.

A parser's options stand in slots `option dest`, listed in `#dests`; groups and subparsers add to the parser that they belong to.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Sequence

from mplint.frameworks.options.classes import open_instance
from mplint.frameworks.options.namespaces import (
    KIND,
    declare,
    default_of,
    is_plain,
    keys_of,
    leaf,
    name_of,
    namespace,
    put,
)
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import external_bases, items_of, spread
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.store import join
from mplint.program.values import (
    FALSE,
    NONE,
    TRUE,
    Atom,
    Class,
    Constant,
    External,
    Function,
    Items,
    Lazy,
    Method,
    Object,
    Partial,
    Place,
    Unknown,
    Value,
    Wrapped,
    atoms,
)

vocabulary = Vocabulary()
PARSER = "parser"
PARSERS = (
    "argparse.ArgumentParser",
    "configargparse.ArgumentParser",
    "configargparse.ArgParser",
    "configargparse.ArgParse",
    "configargparse.Parser",
    "configargparse.get_argument_parser",
    "configargparse.get_parser",
    "simple_parsing.ArgumentParser",
    "jsonargparse.ArgumentParser",
    "transformers.HfArgumentParser",
    "transformers.hf_argparser.HfArgumentParser",
    "trl.TrlParser",
    "trl.commands.cli_utils.TrlParser",
    "trl.scripts.utils.TrlParser",
    "tap.Tap",
    "datargs.ArgumentParser",
    "optparse.OptionParser",
    "lightning.pytorch.cli.LightningArgumentParser",
    "fastai.script.ArgumentParser",
)
GROUPS = ("add_argument_group", "add_mutually_exclusive_group", "add_option_group", "add_subparsers", "add_parser")
PARSES = ("parse_args", "parse_intermixed_args")
KNOWN = ("parse_known_args", "parse_known_intermixed_args")
FILLS = (
    "parse_args_into_dataclasses",
    "parse_args_and_config",
    "parse_json_file",
    "parse_yaml_file",
    "parse_dict",
    "parse_args_with_config",
)
CALLED = (Function, Method, Partial, Wrapped, Lazy)  # what a command of the command line runs
ON, OFF = ("store_true", "store_false"), ("store_false",)


@vocabulary.call(*PARSERS)
def new_parser(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object((PARSER, m.identity(place)), PARSER, name, place)
    begin(m, made, name, args, place)
    return made


def begin(m: Machine, parser: Object, name: str, args: Args, place: Place) -> None:
    """What a new parser has from the start: its parents' options, and the classes that it fills."""
    m.write(parser.id, "#dests", Items(()))
    parents = args.get(-1, "parents")
    for parent in (items_of(m, parents, place.position) or []) if parents is not None else []:
        if type(parent) is Object:
            for dest in dests(m, parent.id):
                value = m.read(parent.id, f"option {dest}")
                if value is not None:
                    add(m, parser.id, dest, value)
    if "Hf" in name or "Trl" in name:
        given = args.get(0, "dataclass_types")
        held = items_of(m, given, place.position) if given is not None else []
        m.write(parser.id, "#classes", Items(tuple(held if held is not None else [given] if given is not None else [])))


def extends_parser(m: Machine, made: Object, bases: object, args: Args, place: Place) -> None:
    """Instances of project classes that extend a parser."""
    names = [name for name in list(bases) if name in PARSERS]  # type: ignore[call-overload]
    if names:
        begin(m, made, names[0], args, place)


vocabulary.made.append(extends_parser)


def dests(m: Machine, parser: Hashable) -> list[str]:
    """The names of a parser's options."""
    held = m.read(parser, "#dests")
    found = dict.fromkeys(str(d.value) for a in atoms(held or NONE) if type(a) is Items for d in a.items if type(d) is Constant)
    return list(found)


def add(m: Machine, parser: Hashable, dest: str, value: Value) -> None:
    """Give a parser an option."""
    known = dests(m, parser)
    if dest not in known:
        m.write(parser, "#dests", Items(tuple(Constant(d) for d in (*known, dest))))
    m.write(parser, f"option {dest}", value)


@vocabulary.method(PARSER)
def of_parser(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    value = parser_method(m, receiver, name, args, place)
    return value if value is not None else Unknown(f"parser.{name}(){IDENTITY}{place.path}:{place.position}")


def parser_method(m: Machine, parser: Object, name: str, args: Args, place: Place) -> Value | None:
    """The methods of a parser; None for one that it does not have."""
    if name in ("add_argument", "add_option", "add", "add_arg", "add_config_argument", "add_bool_argument"):
        found = option(m, args, place)
        if found is not None:
            add(m, parser.id, *found)
        return NONE
    if name in GROUPS:
        return parser
    if name == "set_defaults":
        for dest, value in args.named.items():
            set_default(m, parser, dest, value, place)
        return NONE
    if name == "get_default":
        return NONE
    if name == "add_arguments":
        return add_class(m, parser, args, place)
    if name in (*PARSES, *KNOWN):
        parsed = parse(m, parser, args, place)
        if name in PARSES and parser.type != "optparse.OptionParser":
            return parsed
        return Items((parsed, Unknown(f"rest{IDENTITY}{place.path}:{place.position}")))
    if name in FILLS:
        return filled_classes(m, parser, name, args.get(0) if name == "parse_dict" else None, place)
    if name in ("add_argparse_args", "add_model_specific_args"):
        return args.get(0)
    return None


def option(m: Machine, args: Args, place: Place) -> tuple[str, Value] | None:
    """The name and value of the option that `add_argument` declares; None where the name is not known."""
    names = [v.value for v in args.positional if type(v) is Constant and isinstance(v.value, str)]
    if not names or len(names) < len(args.positional):
        return None
    shown = next((n for n in names if n.startswith("--")), names[0])
    given = args.named.get("dest")
    dest = str(given.value) if type(given) is Constant else shown.lstrip("-").replace("-", "_")
    if not dest:
        return None
    action = args.named.get("action")
    acts = str(action.value) if type(action) is Constant else action.name.rpartition(".")[2] if type(action) is External else ""
    default, off = args.named.get("default"), ""
    if acts == "store_true":
        default = default if default is not None else FALSE
    elif acts == "store_false":
        default, off = default if default is not None else TRUE, shown
    elif acts == "BooleanOptionalAction":
        off = "--no-" + shown.removeprefix("--")
    elif acts == "store_const" and type(default) is not Constant and type(args.named.get("const")) is Constant:
        default = default if default is not None else NONE
    default_value: Value | None
    if not is_plain(default):
        default_value = None
    elif default is None:
        required = args.named.get("required")
        positional = not shown.startswith("-") and "nargs" not in args.named
        needed = positional or (type(required) is Constant and required.value is True) or args.opaque
        default_value = None if needed else NONE
    else:
        default_value = read_as(m, default_of(default), args.named.get("type"), place)
    listed = args.named.get("choices")
    choices = keys_of(items_of(m, listed, place.position) or []) if listed is not None else ()
    switch = Switch(shown, default_value, place, "option", choices, off)
    value = leaf(m, f"args.{dest}", f"option:{place.path}:{place.position}", switch)
    declare(m, dest, value)
    return dest, value


def read_as(m: Machine, default: Value | None, kind: Value | None, place: Place) -> Value | None:
    """A default as parsing gives it: a text is read by the type of its option; None where what that makes of it is not known."""
    if type(default) is not Constant or not isinstance(default.value, str) or kind is None:
        return default
    if type(kind) is Function:
        made = m.call(kind, Args((default,), places=(place.position,)), place.position)
        return default_of(made)
    reader = READERS.get(kind.name) if type(kind) is External else None
    if reader is None:
        return None
    try:
        return Constant(reader(default.value))
    except (ValueError, SyntaxError):
        return None


READERS: dict[str, Callable[[str], object]] = {
    "builtins.str": str,
    "builtins.int": int,
    "builtins.float": float,
    "builtins.bool": bool,
    "ast.literal_eval": ast.literal_eval,
    "builtins.eval": ast.literal_eval,
    "pathlib.Path": str,
    "distutils.util.strtobool": lambda text: text.lower() in ("y", "yes", "t", "true", "on", "1"),
    "os.path.expanduser": str,
    "os.path.abspath": str,
}


def set_default(m: Machine, parser: Object, dest: str, value: Value, place: Place) -> None:
    """`set_defaults(amp=True)`; of functions, one for each command, any may be what is run."""
    held = m.read(parser.id, f"option {dest}")
    if type(held) is Unknown and (switch := m.switches.get(held.symbol)) is not None:
        m.switches[held.symbol] = switch._replace(default=default_of(value))
    elif held is not None and value != held and all(type(a) in CALLED for v in (held, value) for a in atoms(v)):
        key = ("place", place)
        add(m, parser.id, dest, join([(frozenset({(key, True)}), value), (frozenset({(key, False)}), held)]))
    else:
        add(m, parser.id, dest, value)


def add_class(m: Machine, parser: Object, args: Args, place: Place) -> Value:
    """`add_arguments(Config, dest="config")` of simple_parsing: the fields of a class as options."""
    cls, dest = args.get(0, "dataclass"), args.get(1, "dest")
    atom = next(iter(atoms(cls))) if cls is not None else None
    if type(atom) is Object and type(atom.type) is Class:
        atom = atom.type
    if type(atom) is Class and type(dest) is Constant:
        add(m, parser.id, str(dest.value), open_instance(m, atom, place, "--", "option"))
    return NONE


def parse(m: Machine, parser: Object, args: Args, place: Place) -> Value:
    """The namespace that parsing gives."""
    into = args.get(1, "namespace")
    if type(into) is Object and into.kind == KIND:
        made = into
    else:
        made = namespace(m, ("parsed", parser.id), "argparse.Namespace", place, "args")
    words = fixed_words(m, args, place)
    for dest in dests(m, parser.id):
        value = m.read(parser.id, f"option {dest}")
        if value is not None:
            put(m, made, dest, value if words is None else as_written(m, dest, value, words))
    classes = m.read(parser.id, "#annotated")
    if type(classes) is Class:
        return open_instance(m, classes, place, "--", "option")
    return made


def fixed_words(m: Machine, args: Args, place: Place) -> list[str] | None:
    """The command line that the program itself gives to its parser; None where it is the user's."""
    given = args.get(0, "args")
    if type(given) is Constant and isinstance(given.value, str):
        return given.value.split()
    held = items_of(m, given, place.position) if given is not None and type(given) is not Constant else None
    if held is None or not all(type(item) is Constant and isinstance(item.value, str) for item in held):
        return None
    return [str(item.value) for item in held if type(item) is Constant]


def as_written(m: Machine, dest: str, value: Value, words: Sequence[str]) -> Value:
    """The value of an option on a command line that the program itself has written: its default, unless its name stands there."""
    switch = m.switches.get(value.symbol) if type(value) is Unknown else None
    if switch is None or switch.default is None:
        return value
    if any(word.startswith("-") and is_of(word, switch.name) for word in words):
        flag = type(switch.default) is Constant and isinstance(switch.default.value, bool) and switch.name in words
        return (FALSE if switch.default == TRUE else TRUE) if flag else value
    m.declared.pop(dest, None)
    return switch.default


def is_of(word: str, name: str) -> bool:
    """Whether a word of a command line may name an option: in full, shortened, or by a letter that nobody knows."""
    return not word.startswith("--") or name.startswith(word.partition("=")[0])


def filled_classes(m: Machine, parser: Object, name: str, values: Value | None, place: Place) -> Value:
    """The instances that HfArgumentParser fills, in the order of its classes; `values`: the dict that it fills them from."""
    filled = spread(m, values) if values is not None else None
    held = m.read(parser.id, "#classes")
    prefix, kind = ("--", "option") if "args" in name else ("", "setting")
    made: list[Value] = []
    for cls in held.items if type(held) is Items else ():
        atom = next(iter(atoms(cls)))
        if type(atom) is Class:
            made.append(open_instance(m, atom, place, prefix, kind))
        elif type(atom) is External and filled is not None:
            made.append(m.call(atom, filled, place.position))
        elif type(atom) is External:
            made.append(namespace(m, (atom.name, prefix), atom.name, place, prefix, rest=True))
        else:
            made.append(Unknown(f"args{IDENTITY}{place.path}:{place.position}#{len(made)}"))
    return Items(tuple(made), Unknown(f"rest{IDENTITY}{place.path}:{place.position}"))


def of_others(m: Machine, receiver: Atom, name: str, args: Args, place: Place) -> Value | None:
    """Parsers that project classes extend, and parsers that come from outside: their options are known all the same."""
    if type(receiver) is Object and type(receiver.type) is Class and m.read(receiver.id, "#dests") is not None:
        if name in (*PARSES, *KNOWN) and "tap.Tap" in [m.library.canonical(b) for b in external_bases(m, receiver.type)]:  # type: ignore[attr-defined]
            return open_instance(m, receiver.type, place, "--", "option")
        return parser_method(m, receiver, name, args, place)
    if type(receiver) is Unknown and name == "add_argument" and option(m, args, place) is not None:
        return NONE
    if type(receiver) is Unknown and name in GROUPS and "pars" in receiver.symbol:
        return receiver
    if type(receiver) is Unknown and name in PARSES:
        return Unknown(f"args{IDENTITY}{receiver.symbol.partition(IDENTITY)[2]}")
    if type(receiver) is Unknown and name in KNOWN:
        return Items((Unknown(f"args{IDENTITY}{receiver.symbol.partition(IDENTITY)[2]}"), Unknown(f"rest{IDENTITY}{place}")))
    return None


vocabulary.atom_methods.append(of_others)

__all__ = ["name_of", "vocabulary"]
