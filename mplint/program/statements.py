"""What each statement does. A handler returns whether control goes on behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mplint.program.calls import run_function, set_attribute
from mplint.program.conditions import EMPTY, Condition, Path
from mplint.program.expressions import (
    HANDLERS as EXPRESSIONS,
)
from mplint.program.expressions import (
    UNROLLED,
    branches,
    class_member,
    combine,
    compare,
    either,
    entries_of,
    evaluate,
    items_of,
    keep_test,
    longest,
    most_items,
    names_in,
    narrow_subjects,
    new_list,
    round_scope,
    truths,
)
from mplint.program.lower import GENERATOR, IR
from mplint.program.machine import IDENTITY, Args, Exit, Frame, Loop, Machine, derived
from mplint.program.store import Difference, join, under
from mplint.program.values import (
    FALSE,
    LEAVES,
    NONE,
    TRUE,
    Alternatives,
    Atom,
    Autocast,
    Class,
    Code,
    Constant,
    Context,
    Entries,
    External,
    Function,
    Items,
    Lazy,
    Module,
    Object,
    State,
    Tensor,
    Unknown,
    Value,
    atoms,
)

TESTS = frozenset({"compare", "and", "or", "unary", "call"})  # expressions that may ask what a variable is
ROUNDS = 2  # of a loop over unknown items
MOST_LITERALS = 12  # that a path keeps of a loop with fewer rounds
MOST_CHECKS = 8  # statements of a loop that checks something
YIELDS = 4  # of a generator context, on as many paths


def block(m: Machine, statements: Sequence[IR]) -> bool:
    """Run statements in order; whether control goes on behind them."""
    for ir in statements:
        m.left -= 1
        if m.left < 0:
            m.step()
        if not STATEMENTS[ir[0]](m, ir):
            return False
    return True


def s_expression(m: Machine, ir: IR) -> bool:
    m.dropped = ir[2][1] if ir[2][0] == "call" else -1
    value = evaluate(m, ir[2])
    if ir[2][0] == "call" and ir[2][2][0] == "attribute":
        changed_in_place(m, ir[2][2], value)
    return value is not LEAVES


def changed_in_place(m: Machine, method: IR, value: Value) -> None:
    """`x.add_(1)` as a statement: what a variable or an attribute holds has become what the method gives."""
    _, _, receiver, name = method
    if not (name[-1:] == "_" != name[:1] and receiver[0] in ("name", "attribute")):
        return
    if are_tensors(value) and are_tensors(evaluate(m, receiver)):
        assign(m, receiver, value)


def are_tensors(value: Value) -> bool:
    """Whether a value is a tensor, whatever the conditions."""
    return all(type(a) is Tensor for a in atoms(value))


def s_assign(m: Machine, ir: IR) -> bool:
    value = evaluate(m, ir[3])
    if m.loops and ir[3][0] == "binary" and is_counted(value) and ir[2][0][0] == "name" == ir[3][3][0] and ir[2][0][2] == ir[3][3][2]:
        value = Unknown(f"{ir[2][0][2]}{IDENTITY}{m.frames[-1].path}{ir[1]}{m.round()}")  # n = n + 1
    for target in ir[2]:
        assign(m, target, value)
        if target[0] == "name" and is_top(m) and ir[3][0] in GIVEN:
            m.library.named(m, target[2], value, m.here(target[1]))
        if target[0] == "name" and ir[3][0] in TESTS:
            keep_test(m, target[2], ir[3], value)
    return True


GIVEN = frozenset({"constant", "dict", "call"})  # what the value of a variable of a module is that users edit


def is_top(m: Machine) -> bool:
    """Whether a statement runs at the top of a file, outside of functions and classes."""
    frame = m.frames[-1]
    return frame.code is None and frame.owner is None


def s_annotated(m: Machine, ir: IR) -> bool:
    _, _, target, annotation, value = ir
    if value is not None:
        given = evaluate(m, value)
        assign(m, target, given)
        if target[0] == "name" and is_top(m) and value[0] in GIVEN:
            m.library.named(m, target[2], given, m.here(target[1]))
    frame = m.frames[-1]
    if frame.owner is not None and frame.code is None and target[0] == "name":  # a field of a dataclass
        fields = m.read(frame.id, "#fields")
        held = fields.items if type(fields) is Items else ()
        m.write(frame.id, "#fields", Items((*held, Constant(target[2]))))
        m.write(frame.id, f"#annotation:{target[2]}", State(annotation))
    return True


def s_augmented(m: Machine, ir: IR) -> bool:
    _, position, target, op, read, value = ir
    left = evaluate(m, read)
    right = evaluate(m, value)
    if op == "+" and type(left) is Object and left.kind == "list":
        extra = items_of(m, right, position)
        held = m.read(left.id, "#items")
        if type(held) is Items:
            rest = held.rest if extra is not None else either(held.rest, next(iter(iterate(m, right, position, 1)), None))
            m.write(left.id, "#items", Items((*held.items, *(extra or ())), rest))
            return True
    result = combine(m, op, left, right, position, in_place=True)
    again = bool(m.loops) or is_kept(m, target)
    if again and type(left) in (Constant, Unknown) and (type(result) is Unknown or is_counted(result)):
        result = Unknown(f"{target[2] if target[0] == 'name' else 'value'}{IDENTITY}{m.frames[-1].path}{position}{m.round()}")
    assign(m, target, result)
    return True


def is_kept(m: Machine, target: IR) -> bool:
    """Whether a method counts in an attribute of its object: it may be called any number of times."""
    code = m.frames[-1].code
    return target[0] == "attribute" and code is not None and m.frames[-1].owner is not None and code.name != "__init__"


def is_counted(value: Value) -> bool:
    """Whether a number that changes in a loop stands for those of all later rounds."""
    return type(value) is Constant and isinstance(value.value, (int, float)) and not isinstance(value.value, bool)


def assign(m: Machine, target: IR, value: Value) -> None:
    """Bind a target."""
    kind = target[0]
    if kind == "name":
        bind_name(m, target[2], value)
    elif kind == "attribute":
        receiver = evaluate(m, target[2])
        set_attribute(m, receiver, target[3], value, target[1])
    elif kind == "tuple":
        unpack(m, target, value)
    elif kind == "subscript":
        set_item(m, evaluate(m, target[2]), evaluate(m, target[3]), value, target[1])
    elif kind == "star":
        assign(m, target[2], value)


def bind_name(m: Machine, name: str, value: Value) -> None:
    """Set a variable of the running frame."""
    frame = m.frames[-1]
    if name in frame.outer_names:
        scope = frame.parent
        if frame.outer_names[name] == "global":
            m.write(frame.path, name, value)
            return
        while scope is not None:
            if scope.locals is not None and name in scope.locals:
                m.write(scope.id, name, value)
                return
            scope = scope.parent
    m.write(frame.id, name, value)


def set_item(m: Machine, receiver: Value, index: Value, value: Value, position: int) -> None:
    """Set an item of a value."""

    def one(atom: Atom) -> Value:
        if type(atom) is Object and atom.kind == "dict":
            held = m.read(atom.id, "#entries")
            for_each = held if type(held) is Entries else None
            if type(held) is Alternatives:
                m.write(atom.id, "#entries", m.each(held, lambda e: put(e, index, value)))
            elif for_each is not None:
                m.write(atom.id, "#entries", put(for_each, index, value))
            m.library.assign_item(m, atom, index, value, m.here(position))
            return NONE
        if type(atom) is Object and atom.kind == "list":
            held = m.read(atom.id, "#items")
            if type(held) is Items:
                if type(index) is Constant and isinstance(index.value, int) and -len(held.items) <= index.value < len(held.items):
                    items = list(held.items)
                    items[index.value] = value
                    m.write(atom.id, "#items", Items(tuple(items), held.rest))
                else:
                    m.write(atom.id, "#items", Items(held.items, value))
            return NONE
        if type(atom) is Unknown and type(index) is Constant:
            m.write(atom, f"[{index.value!r}]", value)
        m.library.assign_item(m, atom, index, value, m.here(position))
        return NONE

    m.each(receiver, one)


def put(held: Atom, index: Value, value: Value) -> Value:
    """Entries with one set."""
    if type(held) is not Entries:
        return held
    if type(index) is Constant:
        try:
            return held.put(index.value, value)
        except TypeError:
            return held
    if type(index) is External:
        return held.put(index, value)
    return Entries(held.entries, value)


def unpack(m: Machine, target: IR, value: Value) -> None:
    """Bind the parts of a tuple target; of several values that there may be, each under its conditions."""
    targets = target[2]
    base = m.path
    ways: list[tuple[Path, list[Value]]] = []
    for path, atom in under(value, base):
        if type(atom) is Constant and atom.value is None and type(value) is Alternatives:
            continue  # None can't be unpacked
        m.path = path
        ways.append((path - base, parts_of(m, atom, targets, target[1])))
        m.path = base
    for number, part in enumerate(targets):
        assign(m, part, join((guards, parts[number]) for guards, parts in ways) if ways else Unknown(f"[{number}]{IDENTITY}{target[1]}"))


def parts_of(m: Machine, value: Atom, targets: Sequence[IR], position: int) -> list[Value]:
    """What each target of an unpacking gets of an atom."""
    items = items_of(m, value, position)
    star = next((n for n, t in enumerate(targets) if t[0] == "star"), None)
    if items is not None and star is not None and len(items) >= len(targets) - 1:
        after = len(targets) - star - 1
        middle = items[star : len(items) - after]
        return [*items[:star], new_list(m, Items(tuple(middle)), position), *items[len(items) - after :]]
    if items is not None and len(items) == len(targets):
        return items
    return [part_of(m, value, n, position) for n in range(len(targets))]


def part_of(m: Machine, atom: Atom, index: int, position: int) -> Value:
    """The item of something that is unpacked and whose items are not known."""
    if type(atom) is Items and atom.rest is not None:
        return atom.items[index] if index < len(atom.items) else atom.rest
    if type(atom) is Object and atom.kind == "list":
        held = m.read(atom.id, "#items")
        if type(held) is Items:
            return held.items[index] if index < len(held.items) else (held.rest or Unknown(f"[{index}]{IDENTITY}{position}"))
    known = m.library.subscript(m, atom, Constant(index), m.here(position))
    if known is not None:
        return known
    if type(atom) is Unknown:
        return derived(atom, f"[{index}]")
    if type(atom) is Tensor:
        return atom
    return Unknown(f"[{index}]{IDENTITY}{m.frames[-1].path}{position}")


def s_return(m: Machine, ir: IR) -> bool:
    value = evaluate(m, ir[2]) if ir[2] is not None else NONE
    frame = m.frames[-1]
    if ir[2] is not None and holds_scaled(m, value):
        m.emit("scaled loss returned", m.here(ir[2][1]), value=value)
    leave(m, frame.exits, frame.depth, value)
    return False


def holds_scaled(m: Machine, value: Value, depth: int = 0) -> bool:
    """Whether a value, or an item of it, may be a loss that was multiplied by a scale."""
    for atom in atoms(value):
        if type(atom) is Tensor:
            if atom.scaled is not None:
                return True
            continue
        held = m.read(atom.id, "#entries") if type(atom) is Object and atom.kind == "dict" else atom
        inner = held.items if type(held) is Items else [v for _, v in held.entries] if type(held) is Entries else ()
        if depth < 2 and any(holds_scaled(m, item, depth + 1) for item in inner):
            return True
    return False


def leave(m: Machine, exits: list[Exit], depth: int, value: Value) -> None:
    """Note a way out of a frame or loop whose layers begin at `depth`."""
    direct = len(m.store.layers) == depth + 1
    found = Exit(m.path, m.store.since(depth), value, direct)
    exits.append(found)
    m.log.append(found)


def s_raise(m: Machine, ir: IR) -> bool:
    frame = m.frames[-1]
    if frame.code is not None and frame.code.body == (ir,):  # left to subclasses: what they do is not known
        name = frame.code.name
        leave(m, frame.exits, frame.depth, Unknown(f"{name}(){IDENTITY}{frame.path}:{ir[1]}{m.round()}"))
    else:
        if ir[2] is not None:
            evaluate(m, ir[2])
        m.library.raised(m, m.here(ir[1]))
    return False


def s_break(m: Machine, ir: IR) -> bool:
    loops = m.frames[-1].loops
    if loops:
        leave(m, loops[-1].breaks, loops[-1].depth, NONE)
    return False


def s_continue(m: Machine, ir: IR) -> bool:
    loops = m.frames[-1].loops
    if loops:
        leave(m, loops[-1].continues, loops[-1].round_depth, NONE)
    return False


def s_delete(m: Machine, ir: IR) -> bool:
    for target in ir[2]:
        if target[0] == "name":
            m.store.drop(m.frames[-1].id, target[2])
        elif target[0] == "subscript":
            receiver, index = evaluate(m, target[2]), evaluate(m, target[3])
            if type(receiver) is Object and receiver.kind == "dict" and type(index) is Constant:
                held = m.read(receiver.id, "#entries")
                if type(held) is Entries:
                    m.write(receiver.id, "#entries", Entries(tuple(e for e in held.entries if e[0] != index.value), held.rest))
    return True


def s_assert(m: Machine, ir: IR) -> bool:
    return narrow(m, ir[2], True)


def denies_release(m: Machine, literal: Condition) -> bool:
    """Whether a condition says that a package is of another version than the program was taken to be for: who asserts that knows better."""
    (kind, *about), sense = literal
    switch = m.switches.get(about[0]) if kind == "true" else None
    return switch is not None and switch.kind == "release" and switch.default == (FALSE if sense else TRUE)


def narrow(m: Machine, test: IR, truth: bool) -> bool:
    """Go on only where a test comes out so."""
    found = [literals for literals, t in branches(m, test) if t is truth]
    if not found:
        return True  # what can't hold by our lights may hold by others'
    from mplint.program.conditions import extend

    path = extend(m.path, [literal for literal in found[0] if not denies_release(m, literal)])
    if path is not None:
        m.path = path
    return True


def s_if(m: Machine, ir: IR) -> bool:
    test, body, orelse = ir[2:]
    found = branches(m, test)
    if len(found) == 1:
        from mplint.program.conditions import extend

        literals, truth = found[0]
        m.path = extend(m.path, literals) or m.path
        if not truth and test[-1] == "TYPE_CHECKING":
            told(m, body)
        return block(m, body if truth else orelse)

    def run(truth: bool) -> tuple[bool, Value]:
        narrow_subjects(m, test, truth)
        return block(m, body if truth else orelse), NONE

    return m.fork([(literals, partial(run, truth)) for literals, truth in found])[0]


def told(m: Machine, statements: Sequence[IR]) -> None:
    """Keep what type checkers are told that a module holds, for names that it makes in a way which nobody follows."""
    frame = m.frames[-1]
    for statement in statements:
        if statement[0] == "from":
            _, _, module, level, names = statement
            found = m.project.relative(frame.path, level, module) if level else m.project.absolute(frame.path, module)
            for name, alias in names if found is not None else ():
                m.write(frame.path, f"#told {alias or name}", Lazy(found, name))  # type: ignore[arg-type]


def arm(m: Machine, statements: Sequence[IR]) -> Callable[[], tuple[bool, Value]]:
    """A block as the arm of a fork."""
    return lambda: (block(m, statements), NONE)


def s_while(m: Machine, ir: IR) -> bool:
    _, position, test, body, orelse = ir
    endless = False

    def round_of(number: int) -> bool:
        nonlocal endless
        found = branches(m, test)
        endless = all(truth for _, truth in found)
        true = [literals for literals, truth in found if truth]
        if not true:
            return False
        return block(m, body)

    return loop(m, position, ROUNDS, lambda n: round_of(n), orelse, lambda: endless, True)


def s_for(m: Machine, ir: IR) -> bool:
    _, position, target, items, body, orelse = ir
    value = evaluate(m, items)
    elements = (names_in(m, value, items[1]) if refuses(body) else None) or iterate(m, value, items[1], ROUNDS)
    if fills_by_name(target, body) and (known := of_settings(m, value)):
        elements = known
    elif len(elements) == UNROLLED and sets_attributes(body):
        elements = iterate(m, value, items[1], MOST_SET)
    elif len(elements) == UNROLLED and chooses_by(target, body):
        elements = iterate(m, value, items[1], MOST_CHOSEN)
    elif len(elements) == UNROLLED and all(type(e) is Object and e.kind == "field" for e in elements):
        elements = iterate(m, value, items[1], MOST_FIELDS)
    if not elements:
        return block(m, orelse)
    partly = [guards_of(element) for element in elements]
    ways = lengths(m, value) if not any(partly) else []

    def of_element(number: int) -> tuple[bool, Value]:
        assign(m, target, elements[number])
        return block(m, body), NONE

    def round_of(number: int) -> bool:
        m.frames[-1].loops[-1].over = elements[number]
        if partly[number]:
            return m.fork([(partly[number], partial(of_element, number)), ((), lambda: (True, NONE))])[0]
        having = [literals for literals, length in ways if length > number]
        if len(having) != 1 or len(ways) == 1:
            return of_element(number)[0]
        lacking = [literals for literals, length in ways if length <= number]
        return m.fork([(having[0], partial(of_element, number)), *((literals, lambda: (True, NONE)) for literals in lacking)])[0]

    alike = len(elements) == ROUNDS and are_alike(elements[0], elements[1])
    return loop(m, position, len(elements), round_of, orelse, lambda: False, alike)


def guards_of(value: Value) -> Path:
    """The conditions under which alone there is an item."""
    return value.options[0][0] if type(value) is Alternatives and len(value.options) == 1 else EMPTY


def sets_attributes(body: Sequence[IR]) -> bool:
    """Whether the body of a loop only sets attributes by their names, perhaps under a condition: `setattr(self, name, value)`."""
    if len(body) != 1:
        return False
    statement = body[0]
    if statement[0] == "if" and not statement[4]:
        return sets_attributes(statement[3])
    return bool(
        statement[0] == "expression" and statement[2][0] == "call" and statement[2][2][:1] == ("name",) and statement[2][2][2] == "setattr"
    )


def fills_by_name(target: IR, body: Sequence[IR]) -> bool:
    """Whether the body of a loop only sets items by the name that it goes over, in the arms of branches too: `found[name] = …`."""
    name = target[2][0] if target[0] == "tuple" and target[2] else target
    if name[0] != "name" or not body:
        return False
    for statement in body:
        if statement[0] == "if":
            if not fills_by_name(target, statement[3]) or (statement[4] and not fills_by_name(target, statement[4])):
                return False
        elif statement[0] != "assign" or not all(held[0] == "subscript" and held[3][::2] == name[::2] for held in statement[2]):
            return False
    return True


def of_settings(m: Machine, value: Value) -> list[Value]:
    """The names, or names and values, that are known of a section of settings; users may add others."""
    if type(value) is not Object:
        return []
    if value.kind == "settings":
        entries = entries_of(m, value)
        return [Constant(name) for name, _ in entries.entries[:MOST_SET]] if entries is not None else []
    if value.kind != "list" or m.read(value.id, "#section") is None:
        return []
    held = m.read(value.id, "#items")
    return list(held.items[:MOST_SET]) if type(held) is Items and held.rest is not None else []


def chooses_by(target: IR, body: Sequence[IR]) -> bool:
    """Whether the body of a loop is a chain of branches, each for one text that the loop goes over: `if name == "sum": …`."""
    if target[0] != "name" or len(body) != 1 or body[0][0] != "if":
        return False
    test = body[0][2]
    compared = test[0] == "compare" and test[2][0] == "name" and test[2][2] == target[2] and len(test[4]) == 1
    return bool(compared and test[4][0][0] == "constant" and isinstance(test[4][0][2], str))


MOST_FIELDS = 192  # fields of a class, of which options are made
MOST_CHOSEN = 16  # texts that choose a branch
MOST_SET = 256  # attributes that a loop sets


def refuses(body: Sequence[IR]) -> bool:
    """Whether the body of a loop is one that checks what it is over: it raises, or collects, under conditions, and does little else."""
    kinds = {statement[0] for statement in body}
    if not kinds or not kinds <= {"assign", "if", "expression", "continue", "raise"} or len(body) > MOST_CHECKS:
        return False
    inner = [statement for part in body if part[0] == "if" for statement in (*part[3], *part[4])]
    ends = {statement[0] for statement in inner}
    return "raise" in ends or ("continue" in ends and collects(body[-1]))


def collects(statement: IR) -> bool:
    """Whether a statement is `found.append(…)`."""
    if statement[0] != "expression" or statement[2][0] != "call":
        return False
    callee: IR = statement[2][2]
    return bool(callee[0] == "attribute" and callee[3] == "append")


def lengths(m: Machine, value: Value) -> list[tuple[Path, int]]:
    """How many items a sequence has on each of several ways; nothing where that is not known, or the same on all."""
    found: list[tuple[Path, int]] = []
    for path, atom in under(value, m.path):
        held = m.read(atom.id, "#items") if type(atom) is Object and atom.kind == "list" else atom
        for own, items in under(held, path) if held is not None else ():
            if type(items) is not Items or items.rest is not None:
                return []
            found.append((own - m.path, len(items.items)))
    return found if len({length for _, length in found}) > 1 else []


def are_alike(one: Value, other: Value) -> bool:
    """Whether two rounds see nothing different: unknown items, or the same."""
    if type(one) is Items and type(other) is Items and len(one.items) == len(other.items):
        return all(are_alike(a, b) for a, b in zip(one.items, other.items, strict=True))
    return one == other or (type(one) is Unknown and type(other) is Unknown)


def loop(
    m: Machine,
    position: int,
    rounds: int,
    run: Callable[[int], bool],
    orelse: Sequence[IR],
    endless: Callable[[], bool],
    alike: bool,
) -> bool:
    """Run rounds of a loop and merge the ways out of it; where they are `alike`, a second one only for what the first has done."""
    frame = m.frames[-1]
    base = m.path
    state = Loop(m.here(position), m.store.begin())
    frame.loops.append(state)
    alive = True
    for number in range(rounds):
        state.round = number
        state.continues = []
        state.round_depth = m.store.begin()
        m.loops.append((state.place, number))
        before = len(m.events)
        start = state.start = m.path
        went = run(number)
        m.loops.pop()
        written = m.store.undo()
        ends: list[tuple[Path, Difference, Value]] = [(m.path, written, NONE)] if went else []
        ends += [(e.path, e.written, NONE) for e in state.continues]
        m.path = start
        alive, _ = m.rejoin(start, ends)
        if not alive:
            break
        if number == 0 and alike and len(m.events) == before:
            break
        if m.path != base and len(m.path) - len(base) > max(MOST_LITERALS, rounds):
            m.path = base
    frame.loops.pop()
    if alive and not endless():
        alive = block(m, orelse)
    elif alive and state.breaks:
        alive = False
    if not state.breaks:
        m.store.keep()
        if not alive:
            m.path = base
        return alive
    path = m.path
    written = m.store.undo()
    ends = [(path, written, NONE)] if alive else []
    ends += [(e.path, e.written, NONE) for e in state.breaks[:4]]
    m.path = base
    return m.rejoin(base, ends)[0]


def iterate(m: Machine, value: Value, position: int, rounds: int) -> list[Value]:
    """The items that a loop sees: all of a short known sequence, else as many unknown ones as there are rounds.

    Of several sequences that there may be, the items of each under its conditions.
    """
    found = [(path, atom) for path, atom in under(value, m.path) if not (type(atom) is Constant and atom.value is None)]
    if not found:
        return []
    if len(found) == 1:
        return items_seen(m, found[0][1], position, rounds)
    base = m.path
    ways: list[tuple[Path, list[Value]]] = []
    for path, atom in found:
        m.path = path
        ways.append((path - base, items_seen(m, atom, position, rounds)))
        m.path = base
    most = max(len(items) for _, items in ways)
    return [join((guards, items[n]) for guards, items in ways if n < len(items)) for n in range(most)]


def items_seen(m: Machine, atom: Atom, position: int, rounds: int) -> list[Value]:
    """The items that a loop over an atom sees."""
    if type(atom) is Object and type(atom.type) is Class:
        made = m.call_method(atom, "__iter__", Args(), position, position)
        atom = next(iter(atoms(made)))
        if type(atom) is Object and type(atom.type) is Class:
            return [m.call_method(atom, "__next__", Args(), position, position) for _ in range(rounds)]
    items, most = longest(m, atom, position), 0
    if items is None and type(atom) is Object and atom.kind == "dict":
        held = m.read(atom.id, "#entries")
        if type(held) is Entries and held.rest is None:
            items = [Constant(k) if not isinstance(k, External) else k for k, _ in held.entries]
            most = most_items(m, [value for _, value in held.entries])
    if items is not None and len(items) <= max(most or most_items(m, items), rounds):
        return items
    if items:
        return items[:UNROLLED]
    known = m.library.elements(m, atom, m.here(position))
    if known is not None:
        if isinstance(known, Sequence):
            return list(known)[:UNROLLED]
        return [again(known, n) for n in range(rounds)]
    if type(atom) is Items and atom.rest is not None:
        return [again(atom.rest, n) for n in range(rounds)]
    if type(atom) is Object and atom.kind in ("list", "set", "generator"):
        held = m.read(atom.id, "#items")
        if type(held) is Items and (held.items or held.rest is not None):
            return [held.items[0]] * rounds if held.rest is None else [again(held.rest, n) for n in range(rounds)]
    if type(atom) is Unknown:
        return [derived(atom, "[]", f"{position}{m.round()}#{n}") for n in range(rounds)]
    return [Unknown(f"item{IDENTITY}{m.frames[-1].path}{position}{m.round()}#{n}") for n in range(rounds)]


def again(value: Value, number: int) -> Value:
    """An element of a later round: another unknown."""
    if type(value) is Unknown and number:
        return derived(value, "", f"#{number}")
    if type(value) is Items:
        return Items(tuple(again(v, number) for v in value.items), value.rest)
    return value


def s_with(m: Machine, ir: IR) -> bool:
    items, body = ir[2:]
    return enter(m, items, body, 0)


def enter(m: Machine, items: Sequence[tuple[IR, IR | None]], body: Sequence[IR], number: int) -> bool:
    """Enter the contexts of a with-statement one after the other, then its body."""
    if number == len(items):
        return block(m, body)
    expression, target = items[number]
    value = evaluate(m, expression)
    return enter_value(m, value, expression[1], lambda held: bind_and_go(m, target, held, items, body, number))


def bind_and_go(m: Machine, target: IR | None, held: Value, items: Sequence[tuple[IR, IR | None]], body: Sequence[IR], number: int) -> bool:
    """Bind what a context gives, and enter the next."""
    if target is not None:
        assign(m, target, held)
    return enter(m, items, body, number + 1)


def enter_value(m: Machine, value: Value, position: int, run: Callable[[Value], bool]) -> bool:
    """Run a body inside a context manager, whatever it may be."""
    found = under(value, m.path)
    plain = (Autocast, Context, Unknown, Constant)
    if all(type(atom) in plain for _, atom in found) and len(found) > 1:
        return enter_choices(m, found, position, run)
    if len(found) > 1:
        base = m.path

        def one(atom: Value) -> Callable[[], tuple[bool, Value]]:
            return lambda: (enter_one(m, atom, position, run), NONE)

        return m.fork([(path - base, one(atom)) for path, atom in found])[0]
    return enter_one(m, found[0][1], position, run)


def enter_choices(m: Machine, found: Sequence[tuple[Path, Value]], position: int, run: Callable[[Value], bool]) -> bool:
    """Several contexts under conditions: the body runs once, with what each sets under its conditions."""
    from mplint.program.store import join

    place, base = m.here(position), m.path
    entered = []
    for path, atom in found:
        m.path = path
        entered.append((path - base, m.library.enter(m, atom, place)))  # type: ignore[arg-type]
    m.path = base
    slots = dict.fromkeys(change[0] for _, (_, change) in entered if change is not None)
    held = join((guards, bound) for guards, (bound, _) in entered)

    def inside(names: list[tuple[object, str]]) -> bool:
        if not names:
            return run(held)
        slot = names[0]
        before = m.store.get(*slot) or m.library.default(m, slot) or NONE
        value = join((guards, change[1] if change is not None and change[0] == slot else before) for guards, (_, change) in entered)
        return m.scoped(slot, value, lambda: inside(names[1:]))

    alive = inside(list(slots))
    for _, atom in found:
        m.library.leave(m, atom, place)  # type: ignore[arg-type]
    return alive


def enter_one(m: Machine, atom: Value, position: int, run: Callable[[Value], bool]) -> bool:
    """Run a body inside one context manager."""
    place = m.here(position)
    if type(atom) is Object and atom.kind == "generator context":
        return enter_generator(m, atom, position, run)
    if type(atom) is Object and type(atom.type) is Class and class_member(m, atom.type, "__enter__") is not None:
        before = {name: m.state(name) for name in sorted(m.library.scoped)}
        held = m.call_method(atom, "__enter__", Args(), position, position)
        alive = run(held)
        if class_member(m, atom.type, "__exit__") is not None:
            if not alive:
                m.store.begin()
            m.call_method(atom, "__exit__", Args((NONE, NONE, NONE)), position, position)
            for name, value in before.items():
                m.set_state(name, value)
            if not alive:
                m.store.undo()
        return alive
    held, change = m.library.enter(m, atom, place)  # type: ignore[arg-type]
    alive = m.scoped(*change, lambda: run(held)) if change is not None else run(held)
    m.library.leave(m, atom, place)  # type: ignore[arg-type]
    return alive


def enter_generator(m: Machine, context: Object, position: int, run: Callable[[Value], bool]) -> bool:
    """A function with `@contextmanager`: its body runs, and the with-statement's where it yields, on each path."""
    held = m.read(context.id, "#call")
    if type(held) is not Items or type(held.items[0]) is not Function:
        return run(Unknown(f"context{IDENTITY}{position}"))
    function = held.items[0]
    frames = len(m.frames)
    went: list[tuple[Path, bool]] = []

    def on_yield(value: Value) -> Value:
        if len(went) == YIELDS or any(path <= m.path for path, _ in went):  # a generator context yields once on each path
            return NONE
        path, inner = m.path, m.frames[frames:]
        del m.frames[frames:]
        try:
            went.append((path, run(value)))
        finally:
            m.frames.extend(inner)
        return NONE

    run_function(m, function, context_args(m, context), position, on_yield=on_yield)
    return any(alive for _, alive in went) if went else run(NONE)


def context_args(m: Machine, context: Object) -> Args:
    """The arguments with which a generator context was made."""
    held = m.read(context.id, "#call")
    named = m.read(context.id, "#named")
    assert type(held) is Items
    by_name = {str(k): v for k, v in named.entries} if type(named) is Entries else {}
    return Args(held.items[1:], by_name)


def s_try(m: Machine, ir: IR) -> bool:
    _, position, body, handlers, orelse, final = ir
    place = m.here(position)
    arms: list[tuple[Path, Callable[[], tuple[bool, Value]]]] = []
    if handlers:
        package = package_tried(m, body, handlers)
        key = ("place", "import", package) if package else ("place", place, "try", m.round())
        arms.append((frozenset({(key, True)}), lambda: (block(m, body) and block(m, orelse), NONE)))
        for number, (_, _, name, statements) in enumerate(handlers[:3]):
            literals = frozenset({(key, False), (("place", place, number, m.round()), True)})
            arms.append((literals, handler(m, name, statements)))
        alive, _ = m.fork(arms)
    else:
        alive = block(m, body)
    if final:
        if alive:
            return block(m, final)
        m.store.begin()
        path = m.path
        block(m, final)
        m.path = path
        m.store.undo()
    return alive


def package_tried(m: Machine, body: Sequence[IR], handlers: Sequence[IR]) -> str:
    """The package of which a try asks whether it is there, so that all who ask get the same answer; "" where it asks something else.

    A program that imports the package without asking, or another part of it in its place, asks for a version.
    """
    path = m.frames[-1].path
    if any(statement[0] not in DECLARING for statement in body) or not any(catches_import(kind) for _, kind, _, _ in handlers):
        return ""
    packages = packages_in(m, body)
    module = m.project.ir(path)
    if len(packages) != 1 or module is None or not packages.isdisjoint(packages_in(m, module[1])):
        return ""
    return "" if any(not packages.isdisjoint(packages_in(m, inner)) for _, _, _, inner in handlers) else packages.pop()


DECLARING = frozenset({"import", "from", "assign", "annotated", "define", "class"})
IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception"})


def catches_import(kind: IR | None) -> bool:
    """Whether an except-clause is for imports that fail."""
    parts = kind[2] if kind is not None and kind[0] == "tuple" else (kind,)
    return any(part is None or (part[0] == "name" and part[2] in IMPORT_ERRORS) for part in parts)


def packages_in(m: Machine, statements: Sequence[IR]) -> set[str]:
    """The other packages that statements import, those that stand alone."""
    path = m.frames[-1].path
    names = [name for s in statements if s[0] == "import" for name, _ in s[2]]
    names += [s[2] for s in statements if s[0] == "from" and not s[3] and s[2]]
    return {name.partition(".")[0] for name in names if m.project.absolute(path, name) is None}


def handler(m: Machine, name: str | None, statements: Sequence[IR]) -> Callable[[], tuple[bool, Value]]:
    """An except-clause as the arm of a fork."""

    def run() -> tuple[bool, Value]:
        if name:
            bind_name(m, name, Unknown(f"{name}{IDENTITY}{m.fresh()}"))
        return block(m, statements), NONE

    return run


def s_match(m: Machine, ir: IR) -> bool:
    subject, cases = ir[2:]
    value = evaluate(m, subject)
    arms: list[tuple[Path, Callable[[], tuple[bool, Value]]]] = []
    excluded: Path = frozenset()
    certain = False
    for number, (where, (kind, parts), guard, body) in enumerate(cases):
        if kind == "any" and guard is None:
            arms.append((excluded, arm(m, body)))
            certain = True
            break
        if kind == "values" and guard is None:
            tests = [compare(m, "==", value, evaluate(m, part), where) for part in parts]
            true = [literals for test in tests for literals, truth in truths(m, test) if truth]
            false = [literals for test in tests for literals, truth in truths(m, test) if not truth]
            for literals in true:
                arms.append((excluded | literals, arm(m, body)))
            if len(false) < len(tests):
                certain = True
                break
            for literals in false:
                excluded = excluded | literals
        else:
            literals = frozenset({(("place", m.here(where), number, m.round()), True)})
            arms.append((excluded | literals, arm(m, body)))
    if not certain:
        arms.append((excluded, lambda: (True, NONE)))
    return m.fork(arms)[0] if arms else True


def s_import(m: Machine, ir: IR) -> bool:
    frame = m.frames[-1]
    for name, alias in ir[2]:
        found = m.project.absolute(frame.path, name)
        run_in_order(m, found)
        if alias:
            bind_name(m, alias, Lazy(found, "") if found is not None else external_module(m, name))
            continue
        first = name.partition(".")[0]
        if found is not None:
            root = m.project.absolute(frame.path, first)
            bind_name(m, first, Lazy(root, "") if root is not None else Unknown(first))
        else:
            bind_name(m, first, external_module(m, first))
    return True


def run_in_order(m: Machine, *modules: Module | None) -> None:
    """Run imported modules now, where the order of what they do matters; all others run when they are first used."""
    for module in modules:
        if module is not None and module.path and m.library.runs_at_import(m, module):
            m.enter_module(module)


def external_module(m: Machine, name: str) -> Value:
    """Another package's module."""
    known = m.library.external(m, name, m.here(0))
    return known if known is not None else External(name)


def s_from(m: Machine, ir: IR) -> bool:
    _, position, module, level, names = ir
    frame = m.frames[-1]
    found = m.project.relative(frame.path, level, module) if level else m.project.absolute(frame.path, module)
    run_in_order(m, found, *(m.project.member(found, name) for name, _ in names if found is not None))
    for name, alias in names:
        if name == "*":
            star = m.read(frame.path, "*")
            held = star.items if type(star) is Items else ()
            m.write(frame.path, "*", Items((*held, found if found is not None else External(module))))
        elif found is not None:
            bind_name(m, alias or name, Lazy(found, name))
        elif level:
            bind_name(m, alias or name, Unknown(f"{name}{IDENTITY}{module}"))
        else:
            dotted = f"{module}.{name}"
            known = m.library.external(m, dotted, m.here(position))
            own = m.project.own(frame.path, module) if known is None and not m.library.knows(dotted) else None
            bind_name(m, alias or name, Lazy(own, name) if own is not None else known if known is not None else External(dotted))
    return True


def s_global(m: Machine, ir: IR) -> bool:
    for name in ir[2]:
        m.frames[-1].outer_names[name] = ir[0]
    return True


def s_define(m: Machine, ir: IR) -> bool:
    frame = m.frames[-1]
    code = Code(frame.path, ir[2])
    scope = frame if frame.owner is None or frame.code is not None else frame.parent
    owner = frame.owner if frame.code is None else None
    assert scope is not None
    value: Value = Function(code, round_scope(m, code, scope), owner)
    for decorator in reversed(code.decorators):
        value = decorate(m, value, evaluate(m, decorator), decorator)
    name = code.name
    if any(d[0] == "attribute" and d[3] == "setter" for d in code.decorators):
        m.write(frame.id, name + ".setter", Function(code, scope, owner))
        return True
    bind_name(m, name, value)
    return True


def decorate(m: Machine, value: Value, decorator: Value, ir: IR) -> Value:
    """What a decorator makes of a function or class."""

    def one(atom: Atom) -> Value:
        if type(atom) is Function or (type(atom) is Object and type(atom.type) is Class):
            made = m.call(atom, Args((value,), places=(ir[1],)), ir[1])
            return value if type(made) is Unknown or (type(made) is Constant and made.value is None) else made
        return m.library.decorated(m, value, atom, m.here(ir[1]))

    return m.each(decorator, one)


def s_class(m: Machine, ir: IR) -> bool:
    _, position, name, bases, keywords, decorators, body, words = ir
    frame = m.frames[-1]
    place = m.here(position)
    held = tuple(evaluate(m, base) for base in bases)
    for _, keyword in keywords:
        evaluate(m, keyword)
    cls = Class(("class", place, frame.id if frame.code is not None else 0), name, frame.path, held, words)
    inner = Frame(cls.id, frame.path, frame if frame.owner is None or frame.code is not None else frame.parent, None, cls)
    m.frames.append(inner)
    try:
        block(m, body)
    finally:
        m.frames.pop()
    value: Value = cls
    for decorator in reversed(decorators):
        evaluated = evaluate(m, decorator)
        made = decorate(m, value, evaluated, decorator)
        value = made if any(type(a) is Class for a in atoms(made)) else value
    bind_name(m, name, value)
    return True


def s_unknown(m: Machine, ir: IR) -> bool:
    for part in ir[2]:
        evaluate(m, part)
    return True


STATEMENTS: dict[str, Callable[[Machine, IR], bool]] = {
    "expression": s_expression,
    "assign": s_assign,
    "annotated": s_annotated,
    "augmented": s_augmented,
    "return": s_return,
    "raise": s_raise,
    "break": s_break,
    "continue": s_continue,
    "delete": s_delete,
    "assert": s_assert,
    "if": s_if,
    "while": s_while,
    "for": s_for,
    "with": s_with,
    "try": s_try,
    "match": s_match,
    "import": s_import,
    "from": s_from,
    "global": s_global,
    "nonlocal": s_global,
    "define": s_define,
    "class": s_class,
    "unknown statement": s_unknown,
}

__all__ = ["EXPRESSIONS", "GENERATOR", "block"]
