"""Functions whose parameters are options: click, typer, fire; absl's flags, and the environment."""

from __future__ import annotations

from mplint.frameworks.options.namespaces import (
    KIND,
    declare,
    default_of,
    is_plain,
    keys_of,
    leaf,
    missing,
    note_key,
)
from mplint.frameworks.vocabulary import Vocabulary
from mplint.program.expressions import items_of
from mplint.program.machine import IDENTITY, Args, Machine, Switch
from mplint.program.values import (
    FALSE,
    NONE,
    Alternatives,
    Atom,
    Class,
    Constant,
    External,
    Function,
    Items,
    Object,
    Partial,
    Place,
    Unknown,
    Value,
    Wrapped,
    atoms,
)

vocabulary = Vocabulary()

# click


@vocabulary.call("click.option", "click.argument", "rich_click.option", "rich_click.argument", "asyncclick.option")
def click_option(m: Machine, name: str, args: Args, place: Place) -> Value:
    names = [str(v.value) for v in args.positional if type(v) is Constant and isinstance(v.value, str)]
    if not names:
        return External("builtins.identity")
    shown = next((n for n in names if n.startswith("--")), names[0])
    positive, _, negative = (part.strip() for part in shown.partition("/"))
    plain = [n for n in names if not n.startswith("-")]
    dest = (plain[-1] if plain and name.endswith("option") else positive.lstrip("-")).replace("-", "_").lower()
    default = args.named.get("default")
    flag = args.named.get("is_flag")
    if default is None and (negative or (type(flag) is Constant and flag.value is True)):
        default = FALSE
    kind = args.named.get("type")
    choices: tuple[object, ...] = ()
    if type(kind) is Object and kind.kind == "click choice":
        held = m.read(kind.id, "#items")
        choices = keys_of(held.items) if type(held) is Items else ()
    required = args.named.get("required")
    needed = name.endswith("argument") or (type(required) is Constant and required.value is True)
    value: Value | None = None if needed else NONE
    if default is not None:
        value = default_of(default) if is_plain(default) else None
    switch = Switch(positive, value, place, "option", choices, negative)
    made = Object(("click option", place, dest), "click option", name, place)
    held_value = leaf(m, dest, f"option:{place.path}:{place.position}", switch)
    declare(m, dest, held_value)
    m.write(made.id, "#dest", Constant(dest))
    m.write(made.id, "#value", held_value)
    return made


@vocabulary.call("click.Choice", "rich_click.Choice")
def click_choice(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object(("click choice", place), "click choice", name, place)
    listed = args.get(0, "choices")
    m.write(made.id, "#items", Items(tuple((items_of(m, listed, place.position) or []) if listed is not None else [])))
    return made


def with_option(m: Machine, value: Value, decorator: Atom, place: Place) -> Value | None:
    """`@click.option(…)` over a function: called without arguments it gets the option."""
    if type(decorator) is Object and decorator.kind == "click option":
        dest, held = m.read(decorator.id, "#dest"), m.read(decorator.id, "#value")
        if type(dest) is Constant and held is not None and type(value) in (Function, Partial, Wrapped):
            return Partial(value, (), ((str(dest.value), held),))
    return None


vocabulary.decorators.append(with_option)

# functions as commands


def run_command(m: Machine, function: Function, place: Place) -> Value:
    """Call a function with options in the place of its parameters."""
    from mplint.program.calls import call

    named: dict[str, Value] = {}
    for name, kind, default, _annotation in function.code.parameters[1 if function.bound is not None else 0 :]:
        if kind in ("*", "**"):
            continue
        value = command_default(m, function, default)
        if value is not None and not is_plain(value):
            named[name] = value
            continue
        shown = f"--{name.replace('_', '-')}"
        switch = Switch(shown, default_of(value), Place(function.code.path, function.code.place), "option")
        named[name] = leaf(m, name, f"option:{function.code.path}:{function.code.place}", switch)
        declare(m, name, named[name])
    takes_more = any(kind == "**" for _, kind, _, _ in function.code.parameters)  # what the command line says beyond the parameters
    return call(m, function, Args((), named, (), dict.fromkeys(named, place.position), takes_more), place.position)


def command_default(m: Machine, function: Function, default: tuple[object, ...] | None) -> Value | None:
    """The default of a command's parameter; what `typer.Option(…)` says is its first argument."""
    if default is None:
        return None
    if default[0] == "call" and isinstance(default[2], tuple) and default[2][-1] in ("Option", "Argument"):
        named = dict(default[4])  # type: ignore[call-overload]
        given = named.get("default") or next(iter(default[3]), None)  # type: ignore[call-overload]
        if given is None or given == ("constant", given[1], ...):
            return None
        return command_default(m, function, given)
    from mplint.program.calls import default_value

    return default_value(m, function, default)


@vocabulary.call("typer.Option", "typer.Argument")
def typer_option(m: Machine, name: str, args: Args, place: Place) -> Value:
    first = args.get(0, "default")
    return first if first is not None else NONE


@vocabulary.call(
    "fire.Fire",
    "typer.run",
    "defopt.run",
    "clize.run",
    "plac.call",
    "cyclopts.run",
    "absl.app.run",
    "tensorflow.compat.v1.app.run",
    "tensorflow.app.run",
)
def run_functions(m: Machine, name: str, args: Args, place: Place) -> Value:
    """Run what is given as a command: a function, a class and its methods, or a dict of such."""
    from mplint.program.calls import call, instantiate

    given = args.get(0, "component" if name == "fire.Fire" else "function")
    for atom in atoms(given) if given is not None else ():
        if name.endswith("app.run"):
            call(m, atom, Args((Unknown(f"argv{IDENTITY}{place}"),)), place.position)
        elif type(atom) is Function:
            run_command(m, atom, place)
        elif type(atom) is Wrapped and type(atom.callee) is Function:
            run_command(m, atom.callee, place)
        elif type(atom) is Class:
            instantiate(m, atom, Args(opaque=True), place.position)
        elif type(atom) is Object and atom.kind == "dict":
            from mplint.program.expressions import entries_of

            held = entries_of(m, atom)
            for _, value in held.entries if held is not None else ():
                if type(value) is Function:
                    run_command(m, value, place)
    return NONE


@vocabulary.call("typer.Typer", "cyclopts.App")
def typer_app(m: Machine, name: str, args: Args, place: Place) -> Value:
    made = Object(("typer app", place), "typer app", name, place)
    m.write(made.id, "#items", Items(()))
    return made


@vocabulary.method("typer app")
def of_typer(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    if name in ("command", "default", "callback"):
        return Object(("typer command", receiver.id), "typer command", "typer.command", place)
    return NONE


@vocabulary.invoke("typer app")
def run_app(m: Machine, receiver: Object, name: str, args: Args, place: Place) -> Value:
    held = m.read(receiver.id, "#items")
    for value in held.items if type(held) is Items else ():
        if type(value) is Function:
            run_command(m, value, place)
    return NONE


def with_command(m: Machine, value: Value, decorator: Atom, place: Place) -> Value | None:
    """`@app.command()` over a function: running the app runs it."""
    if type(decorator) is Object and decorator.kind == "typer command" and isinstance(decorator.id, tuple):
        app = decorator.id[1]
        held = m.read(app, "#items")
        m.write(app, "#items", Items((*(held.items if type(held) is Items else ()), value)))
        return value
    return None


vocabulary.decorators.append(with_command)

# absl

FLAGS = Object((KIND, "absl flags"), KIND, "absl.flags.FLAGS")
HOMES = ("absl.flags", "tensorflow.compat.v1.flags", "tensorflow.app.flags", "tensorflow.flags", "gflags")
vocabulary.values.update({f"{home}.FLAGS": FLAGS for home in HOMES})
KINDS = ("bool", "boolean", "string", "enum", "integer", "float", "list", "multi_string", "enum_class", "multi_enum")


@vocabulary.call(*(f"{home}.DEFINE_{kind}" for home in HOMES for kind in KINDS))
def define_flag(m: Machine, name: str, args: Args, place: Place) -> Value:
    key, default = args.get(0, "name"), args.get(1, "default")
    if type(key) is not Constant or not isinstance(key.value, str):
        return Unknown(f"flag{IDENTITY}{place.path}:{place.position}")
    listed = args.get(2, "enum_values") if name.endswith(("_enum", "_multi_enum")) else None
    choices = keys_of(items_of(m, listed, place.position) or []) if listed is not None else ()
    off = f"--no{key.value}" if name.endswith(("bool", "boolean")) else ""
    switch = Switch(f"--{key.value}", default_of(default), place, "option", choices, off)
    value = leaf(m, f"FLAGS.{key.value}", f"option:{place.path}:{place.position}", switch)
    declare(m, key.value, value)
    m.write(FLAGS.id, key.value, value)
    note_key(m, FLAGS, key.value)
    holder = Object(("flag", place), "flag", name, place)
    m.write(holder.id, "value", value)
    m.write(holder.id, "default", default if default is not None else NONE)
    return holder


# constants that a script lets its user replace


@vocabulary.call("builtins.exec")
def execute(m: Machine, name: str, args: Args, place: Place) -> Value:
    """`exec(open("configurator.py").read())` in a module: its flags and names so far are settings."""
    frame = m.frames[-1]
    if frame.code is not None or frame.owner is not None or len(args.positional) > 1:
        return NONE
    for key, value in m.store.slots.of(frame.id):
        plain = type(value) is Constant and isinstance(value.value, (bool, str))
        if plain and not key.startswith(("__", "#")):
            m.write(frame.id, key, leaf(m, key, f"setting:{frame.path}", Switch(f"--{key}", value, place, "setting")))
    return NONE


# the environment


@vocabulary.call("os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop")
def environment(m: Machine, name: str, args: Args, place: Place) -> Value:
    key, default = args.get(0, "key"), args.get(1, "default")
    if type(key) is not Constant or not isinstance(key.value, str):
        return Unknown(f"environ{IDENTITY}{place.path}:{place.position}")
    switch = Switch(f"${key.value}", default_of(default) if default is not None else NONE, place, "setting")
    return leaf(m, f"${key.value}", "environment", switch)


def environment_item(m: Machine, receiver: Atom, index: Value, place: Place) -> Value | None:
    """`os.environ["AMP"]`."""
    if type(receiver) is External and receiver.name == "os.environ" and type(index) is Constant:
        return leaf(m, f"${index.value}", "environment", Switch(f"${index.value}", None, place, "setting"))
    return None


vocabulary.subscripts.append(environment_item)

__all__ = ["Alternatives", "missing", "run_command", "vocabulary"]
