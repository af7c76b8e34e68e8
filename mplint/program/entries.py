"""Where programs begin, and the trace of what happens from each beginning on.

Scripts begin at their module (high confidence: real chains); what no entry has called and what speaks of the matter begins with
unknown arguments (library code); the methods of a class run one after the other on one instance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from mplint.errors import describe
from mplint.program.calls import instantiate
from mplint.program.conditions import forget
from mplint.program.event import Event
from mplint.program.expressions import ancestors, bind
from mplint.program.heirs import drivers
from mplint.program.interpreter import interpreter
from mplint.program.lower import GENERATOR, IR, NESTS, PASSED_ON
from mplint.program.lowered import imported_names, last, parts, root
from mplint.program.machine import IDENTITY, MAIN, STATE, Args, Exhausted, Library, Machine, Recorder
from mplint.program.project import Project
from mplint.program.statements import is_counted
from mplint.program.trace import Entry, Trace
from mplint.program.values import NONE, Class, Code, Constant, Function, Module, Object, Partial, Unknown, Value, Wrapped, atoms
from mplint.python.document import is_test_path

OWN_STEPS = 120_000  # of an entry
SCRIPT_STEPS = 240_000  # of a script, where there are not too many
PROJECT_STEPS = 600_000  # of a project, and
FILE_STEPS = 9_000  # more for each relevant file, up to
MOST_STEPS = 1_500_000
LAST_STEPS = 200_000  # of what runs after all else
REST_STEPS = 8_000  # of each function that the steps of the project did not reach
OFFERED_STEPS = 120_000  # of what a library offers and its own programs call
HEIR_STEPS = 30_000  # of each class that replaces a step of its bases, and
HEIRS_STEPS = 150_000  # of all of them
AGAIN_STEPS = 300_000  # of all that is run again without what its models are made of
RETURNED = 3  # levels of functions that functions return


class Again(NamedTuple):
    """Which main programs run again without their models: those that ran out of steps after what was `built` and no more.

    `closed`: whether classes with some bases are models, of which nothing is seen then.
    """

    built: Callable[[Sequence[Event]], bool]
    closed: Callable[[Sequence[str]], bool]


def trace(
    project: Project,
    library: Library,
    relevant: Callable[[frozenset[str]], bool],
    paths: Iterable[str],
    after: Callable[[Machine, Trace], None] | None = None,
    recorder: Recorder | None = None,
    leading: Iterable[str] = (),
    around: Callable[[Project], Mapping[str, frozenset[str]]] | None = None,
    last: Callable[[frozenset[str]], bool] | None = None,
    tested: Callable[[frozenset[str]], bool] | None = None,
    offered: Callable[[str], bool] | None = None,
    again: Again | None = None,
) -> Trace:
    """Run the entries of the relevant programs among `paths`, scripts first; then what `after` makes of what happened.

    `leading`: programs that import relevant ones; those that do something when they are run are scripts as well. `recorder` looks on.
    `around`: further programs that matter, with the names by which their functions do. `last`: what runs by itself after all else.
    `tested`: what test code speaks of that is worth running: nothing else is asked of tests than what they do themselves. `offered`:
    the files whose functions others than the project's programs call as well. `again`: what runs again.
    """
    forget()
    m = interpreter(project, library, OWN_STEPS)
    m.recorder, m.relevant = recorder, relevant
    found = Trace(switches=m.switches, project=project)
    paths = list(paths)
    run_all(m, found, project, relevant, paths, list(leading), around, tested, offered)
    if again is not None:
        run_again(m, found, again)
    if after is not None:
        after(m, found)
    if last is not None:
        run_last(m, found, last, sorted(path for path in paths if not is_test_path(path)))
    found.turned = turned(m, project)
    found.unset = unset(m, found.turned, offered)
    always = m.surely_given - m.left_at_none
    found.given = frozenset(symbol for symbol, code in m.parameters.items() if (code, m.switches[symbol].name) in always)
    for entry in found.entries:
        entry.events = [event for event in entry.events if not found.is_dead(event.path)]
    return found


class Instances:
    """Which calls with a keyword may be of instances, whose `forward` gets it: those of no function, class or member of a module."""

    def __init__(self, project: Project) -> None:
        self.modules = project.known()
        self.functions: frozenset[str] | None = None
        self.found: dict[tuple[str, str], bool] = {}

    def take(self, callee: str, keyword: str) -> bool:
        """Whether something of a name, which may be an instance, is called with a keyword somewhere."""
        if not callee[:1].islower() or callee in self.named():
            return False
        if (callee, keyword) not in self.found:
            word = f"{callee}({keyword}="
            self.found[callee, keyword] = any(self.in_module(ir[1], callee, keyword) for ir in self.modules if word in ir[2])
        return self.found[callee, keyword]

    def named(self) -> frozenset[str]:
        """The names of the project's functions and methods."""
        if self.functions is None:
            top = [one for ir in self.modules for one in definitions(ir[1])]
            members = (s[2][2] for one in top if one[0] == "class" for s in one[6] if s[0] == "define")
            self.functions = frozenset((*(one[2][2] for one in top if one[0] == "define"), *members))
        return self.functions

    def in_module(self, body: Sequence[IR], callee: str, keyword: str) -> bool:
        """The same, in one module."""
        calls = [part for part in parts(body, "call") if last(part[2]) == callee and any(key == keyword for key, _ in part[4])]
        imported = imported_names(body) if calls else ()
        return any(root(part[2]) not in imported for part in calls)


def unset(m: Machine, turned: frozenset[str], offered: Callable[[str], bool] | None) -> frozenset[str]:
    """The switches that stay at their defaults: parameters whose functions the project calls, and which no call gives another value,
    unless others call these functions as well, and what the machine, or the version of a package, decides.
    """
    closed = [(symbol, code) for symbol, code in m.parameters.items() if code in m.callers and symbol not in turned]
    called = (symbol for symbol, code in closed if offered is None or is_private(code.name) or not offered(code.path))
    return frozenset((*called, *(symbol for symbol, switch in m.switches.items() if switch.kind in ("machine", "release"))))


def is_private(name: str) -> bool:
    """Whether a function's name says that nobody outside calls it."""
    return name.startswith("_") and not name.endswith("__")


def turned(m: Machine, project: Project) -> frozenset[str]:
    """The switches of parameters that some call of the project gives another value than the default, or names.

    A call that passes a parameter on, `f(x=x)`, gives what its own callers give; so does one that passes on keywords, `f(**kwargs)`, which
    nobody knows where no call is known of what it stands in. What is given to something that no function of the project is called like, and
    that is no member of a module, `self.model(x, penalty=True)`, may be given to any `forward`.
    """
    found = {s for s in m.parameters if s in m.given}
    found.update(to for of, to in (given for given in m.given if type(given) is tuple) if type(of) is Code and of not in m.callers)
    passed = [(of, to) for of, to in (given for given in m.given if type(given) is tuple) if type(of) is str and of in m.parameters]
    while more := [to for of, to in passed if to not in found and (of in found or m.parameters[of] not in m.callers)]:
        found.update(more)
    if len(found) == len(m.parameters):
        return frozenset(found)
    keywords: dict[str, dict[str, set[str]]] = {}
    for ir in project.known():
        for word in ir[2]:
            callee, bracket, argument = word.partition("(")
            keyword, _, value = argument.partition("=")
            if bracket and value:
                keywords.setdefault(keyword, {}).setdefault(callee, set()).add(value)
    instances = Instances(project)
    for symbol, code in m.parameters.items():
        switch = m.switches[symbol]
        calls = keywords.get(switch.name, {})
        untold = {PASSED_ON, repr(switch.default.value) if type(switch.default) is Constant else ""}
        by_value = {callee for callee, values in calls.items() if not values <= untold}
        callees = calls.keys() if by_value else by_value
        if code.name == "forward" and any(instances.take(callee, switch.name) for callee in by_value):
            found.add(symbol)
        if code.name in callees or (code.name == "__init__" and any(c[:1].isupper() or c == "cls" for c in callees)):
            found.add(symbol)
    return frozenset(found)


def run_all(
    m: Machine,
    found: Trace,
    project: Project,
    relevant: Callable[[frozenset[str]], bool],
    paths: Sequence[str],
    leading: Sequence[str],
    around: Callable[[Project], Mapping[str, frozenset[str]]] | None = None,
    tested: Callable[[frozenset[str]], bool] | None = None,
    offered: Callable[[str], bool] | None = None,
) -> None:
    """Run the modules of the relevant programs and of those that lead to them, then what they have not called or others call as well."""
    heirs = heirs_of(project, [*paths, *(path for path in leading if not is_test_path(path))], relevant)
    hold_heirs = {path for path, _ in heirs}
    files = [path for path in paths if (ir := project.ir(path)) is not None and (path in hold_heirs or concerns(ir, relevant))]
    files += sorted(hold_heirs - set(paths))
    helpers = region_makers(project, files, [path for path in (*paths, *leading) if path not in set(files)])
    for path, names in around(project).items() if around is not None and files else ():
        helpers[path] = helpers.get(path, frozenset()) | names
    files = sorted({*files, *(path for path in helpers if not is_test_path(path))})
    above = project.graph.above(files) - set(files)
    m.spine = frozenset(project.graph.above([path for path in files if (ir := project.ir(path)) is not None and "backward" in ir[2]]))
    users = {*leading, *(path for path in paths if path in above and not is_test_path(path))}
    scripts = [path for path in sorted(users - set(files)) if (ir := project.ir(path)) is not None and begins(ir)]
    left = min(PROJECT_STEPS + FILE_STEPS * len(files), MOST_STEPS)
    idle = silent_tests(project, paths, tested) if tested is not None else frozenset()
    files = [path for path in files if path not in idle]
    beginning = [*files, *scripts]
    kept = left // 3  # for what no script calls
    if len(beginning) * OWN_STEPS > left - kept:  # what trains comes first, where not all may have their turn
        beginning.sort(key=lambda path: path not in m.spine)
    for number, path in enumerate(beginning):
        if left <= kept:
            found.exhausted = True
            break
        ir = project.ir(path)
        assert ir is not None
        m.limit = max(OWN_STEPS, min(SCRIPT_STEPS, left // (2 * (len(beginning) - number))))
        run(m, found, Entry(path, "<module>", True), partial(module, m, path, ir))
        left -= m.limit - max(m.left, 0)
    m.limit = OWN_STEPS
    left -= run_callers(m, found, callers_of(m, project, paths, relevant), left // 4)
    begun = uncalled(m, project, files, relevant, helpers, heirs)
    called = frozenset(m.called)
    rest = run_definitions(m, found, begun, left)
    if rest:
        found.exhausted = True
        m.limit = REST_STEPS
        run_definitions(m, found, sorted(rest, key=lambda begun: "backward" not in words_of(begun[1])), LAST_STEPS)
        m.limit = OWN_STEPS
    run_heirs(m, found, sorted(heirs), relevant)
    if offered is not None:
        around_them = [(path, statement, relevant) for path, statement in users_of(m, project, begun, offered)]
        run_offered(m, found, [*around_them, *begun], called, offered)


def silent_tests(project: Project, paths: Iterable[str], tested: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """Those of some programs that are tests and do not speak of what counts in tests, nor does the test code that they import."""
    found = {path for path in paths if is_test_path(path)}
    speaking = [path for path in found if (ir := project.ir(path)) is not None and tested(ir[2])]
    pending = [path for path in project.graph.above(speaking) if is_test_path(path)] if speaking else []
    folders = tuple(os.path.dirname(path) + "/" for path in pending if os.path.basename(path) == "conftest.py")
    return frozenset(path for path in found.difference(pending) if not path.startswith(folders))


Begun = tuple[str, IR, Callable[[frozenset[str]], bool]]


def uncalled(
    m: Machine,
    project: Project,
    files: Iterable[str],
    relevant: Callable[[frozenset[str]], bool],
    helpers: Mapping[str, frozenset[str]],
    heirs: set[tuple[str, str]],
) -> list[Begun]:
    """The relevant functions and classes of some files that no script calls, and what is relevant there: what others use first."""
    found: list[Begun] = []
    for path in sorted(files, key=lambda path: (path.endswith(".ipynb") or is_test_path(path), path)):
        ir = project.ir(path)
        assert ir is not None
        known = helpers.get(path, frozenset())
        for statement in definitions(ir[1]):
            unconcerned = not relevant(words_of(statement)) and words_of(statement).isdisjoint(known)
            if not unconcerned or (statement[0] == "class" and (path, statement[2]) in heirs):
                found.append((path, statement, widened(relevant, helpers.get(path))))
    return found


def run_definitions(m: Machine, found: Trace, begun: Sequence[Begun], left: int) -> list[Begun]:
    """Run functions and classes that nothing has called yet, as long as steps are left; those that are not reached."""
    for number, (path, statement, relevant) in enumerate(begun):
        if left <= 0:
            return list(begun[number:])
        if statement[0] == "define":
            if Code(path, statement[2]) in m.called:
                continue
            run(m, found, Entry(path, statement[2][2], False), partial(function, m, path, statement))
        else:
            run(m, found, Entry(path, statement[2], False), partial(class_, m, path, statement, relevant))
        left -= m.limit - max(m.left, 0)
    return []


def run_offered(m: Machine, found: Trace, begun: Iterable[Begun], called: frozenset[Code], offered: Callable[[str], bool]) -> None:
    """Run by themselves what a library offers and its own programs call: users may choose what these leave at its default.

    `called`: what programs had called before anything was run by itself. Of a class, that is all that was not run.
    """
    left, m.limit = OFFERED_STEPS, OWN_STEPS // 2
    alone = {(entry.path, entry.name) for entry in found.entries if not entry.script}
    for path, statement, relevant in begun:
        name = statement[2][2] if statement[0] == "define" else statement[2]
        codes = [s[2] for s in ([statement] if statement[0] == "define" else statement[6]) if s[0] == "define"]
        known = called if statement[0] == "class" and (path, name) in alone else m.called
        chosen = any(Code(path, code) in known and leaves_a_choice(code) for code in codes)
        ran = statement[0] == "define" and (path, name) in alone
        if left <= 0 or not chosen or ran or is_private(name) or is_test_path(path) or not offered(path):
            continue
        before, m.called = m.called, set()
        start = partial(function, m, path, statement) if statement[0] == "define" else partial(class_, m, path, statement, relevant)
        run(m, found, Entry(path, name, False), start)
        m.called |= before
        left -= m.limit - max(m.left, 0)
    m.limit = OWN_STEPS


def users_of(m: Machine, project: Project, begun: Sequence[Begun], offered: Callable[[str], bool]) -> list[tuple[str, IR]]:
    """The functions beside offered ones that call these, for the loops around them, and that programs call as well."""
    held = {(path, s[2][2]) for path, s, _ in begun if s[0] == "define" and Code(path, s[2]) in m.called and leaves_a_choice(s[2])}
    started = {(path, s[2][2]) for path, s, _ in begun if s[0] == "define"}
    found: list[tuple[str, IR]] = []
    for path in sorted({path for path, _ in held}):
        ir = project.ir(path)
        names = {name for where, name in held if where == path}
        if ir is not None and offered(path):
            functions = (s for s in definitions(ir[1]) if s[0] == "define" and (path, s[2][2]) not in started)
            found += [(path, s) for s in functions if Code(path, s[2]) in m.called and not names.isdisjoint(s[2][8])]
    return found


def leaves_a_choice(code: IR) -> bool:
    """Whether a function has a parameter that is off, or nothing, by default."""
    return any(default is not None and default[0] == "constant" and default[-1] in (None, False) for _, _, default, _ in code[3])


def run_heirs(m: Machine, found: Trace, heirs: Iterable[tuple[str, str]], relevant: Callable[[frozenset[str]], bool]) -> None:
    """Run what classes inherit that nobody uses and that replace a step of it, each on an instance of its own."""
    left, m.limit = HEIRS_STEPS, HEIR_STEPS
    for path, name in heirs:
        ir = m.project.ir(path)
        statement = next((s for s in definitions(ir[1]) if s[0] == "class" and s[2] == name), None) if ir is not None else None
        if left <= 0 or statement is None or is_test_path(path):
            continue
        if any(s[0] == "define" and Code(path, s[2]) not in m.called for s in statement[6]):
            run(m, found, Entry(path, name, False), partial(heir, m, path, statement, relevant))
            left -= m.limit - max(m.left, 0)
    m.limit = OWN_STEPS


def heir(m: Machine, path: str, statement: IR, relevant: Callable[[frozenset[str]], bool]) -> None:
    """A class with a step of its own: what runs the steps, on an instance with unknown arguments."""
    m.library.begins(m, False)
    frame = m.enter_module(Module(path, path))
    value = m.read(frame.id, statement[2])
    cls = next((a for a in atoms(value) if type(a) is Class), None) if value is not None else None
    m.events.clear()
    running = drivers(m, cls, statement, relevant)[:MAX_DRIVERS] if cls is not None else []
    if cls is None or not running:
        return
    m.frames.append(frame)
    made = instantiate(m, cls, Args(opaque=True), statement[1])
    for function in running:
        if type(made) is Object:
            forget_protocols(m)
            call_open(m, bind(m, function, made, cls, function.owner or cls, statement[1]), statement[1])
            m.path = frozenset()
    m.frames.pop()


MAX_DRIVERS = 2


def run_last(m: Machine, found: Trace, relevant: Callable[[frozenset[str]], bool], paths: Sequence[str]) -> None:
    """Run functions and classes that nothing has called, by themselves."""
    left, m.limit = LAST_STEPS, OWN_STEPS // 2
    known = {(entry.path, entry.name) for entry in found.entries}
    for path in paths:
        ir = m.project.ir(path)
        if ir is None or not relevant(ir[2]):
            continue
        made = [s for s in ir[1] if s[0] == "assign" and relevant(words_in(s[3]))]
        own = widened(relevant, frozenset(target[2] for s in made for target in s[2] if target[0] == "name"))
        if made and left > 0 and not begins(ir) and (path, "<module>") not in known:
            run(m, found, Entry(path, "<module>", True), partial(module, m, path, ir))
            left -= m.limit - max(m.left, 0)
        for statement in definitions(ir[1]):
            name = statement[2][2] if statement[0] == "define" else statement[2]
            codes = [s[2] for s in ([statement] if statement[0] == "define" else statement[6]) if s[0] == "define" and own(s[2][8])]
            if left <= 0 or all(Code(path, code) in m.called for code in codes):
                continue
            start = partial(function, m, path, statement) if statement[0] == "define" else partial(class_, m, path, statement, own)
            run(m, found, Entry(path, name, False), start)
            left -= m.limit - max(m.left, 0)
    m.limit = OWN_STEPS


def run_callers(m: Machine, found: Trace, callers: Sequence[tuple[str, IR]], budget: int) -> int:
    """Run functions that only call what matters, for the loops and values around it; what they call begins on its own all the same."""
    spent = 0
    for path, statement in callers:
        if spent >= budget:
            break
        called = set(m.called)
        run(m, found, Entry(path, statement[2][2], False), partial(function, m, path, statement))
        m.called = called
        spent += OWN_STEPS - max(m.left, 0)
    return spent


def callers_of(m: Machine, project: Project, paths: Sequence[str], relevant: Callable[[frozenset[str]], bool]) -> list[tuple[str, IR]]:
    """Functions that nobody has run, are not relevant themselves, and call by its name a relevant one that nobody has run."""
    waiting: dict[str, set[str]] = {}
    for path in paths:
        ir = project.ir(path)
        for statement in definitions(ir[1]) if ir is not None else ():
            if statement[0] == "define" and relevant(statement[2][8]) and Code(path, statement[2]) not in m.called:
                waiting.setdefault(path, set()).add(statement[2][2])
    names = {name for held in waiting.values() for name in held}
    found: list[tuple[str, IR]] = []
    for path in paths if names else ():
        ir = project.ir(path)
        if ir is None or is_test_path(path):
            continue
        seen = waiting.get(path, set()) | {name for s in ir[1] if s[0] == "from" for name, alias in s[4] if alias is None and name in names}
        for statement in definitions(ir[1]) if seen else ():
            calls = statement[0] == "define" and not seen.isdisjoint(statement[2][8]) and not relevant(statement[2][8])
            if calls and Code(path, statement[2]) not in m.called:
                found.append((path, statement))
    return found


def concerns(ir: IR, relevant: Callable[[frozenset[str]], bool]) -> bool:
    """Whether a module, or anything that it defines, is relevant."""
    return relevant(ir[2]) or any(relevant(words_of(statement)) for statement in definitions(ir[1]))


def heirs_of(project: Project, paths: Iterable[str], relevant: Callable[[frozenset[str]], bool]) -> set[tuple[str, str]]:
    """Classes that are not relevant themselves, and override methods of one that is."""
    parents: set[str] = set()
    others: list[tuple[str, IR]] = []
    for path in paths:
        ir = project.ir(path)
        for statement in definitions(ir[1]) if ir is not None else ():
            if statement[0] == "class":
                if relevant(words_of(statement)):
                    parents.add(statement[2])
                elif any(s[0] == "define" and s[2][2] != "__init__" for s in statement[6]):
                    others.append((path, statement))
    return {(path, s[2]) for path, s in others if any(base[-1] in parents for base in s[3] if base[0] in ("name", "attribute"))}


def words_of(statement: IR) -> frozenset[str]:
    """The words of a function or class; a class's methods are words of their own kind, "def name"."""
    if statement[0] == "define":
        return statement[2][8]  # type: ignore[no-any-return]
    return statement[7] | frozenset("def " + s[2][2] for s in statement[6] if s[0] == "define")  # type: ignore[no-any-return]


def widened(relevant: Callable[[frozenset[str]], bool], names: frozenset[str] | None) -> Callable[[frozenset[str]], bool]:
    """What is relevant in a file that has some names for regions of other files."""
    return relevant if not names else lambda words: relevant(words) or not words.isdisjoint(names)


def kept_by(cls: IR, relevant: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """The attributes in which the methods of a class keep something relevant."""
    found: set[str] = set()
    stack = [s for method in cls[6] if method[0] == "define" for s in method[2][4]]
    while stack:
        statement = stack.pop()
        if statement[0] == "assign" and relevant(words_in(statement[3])):
            found |= {target[3] for target in statement[2] if target[0] == "attribute"}
        elif statement[0] == "if":
            stack += [*statement[3], *statement[4]]
    return frozenset(found)


def words_in(ir: IR) -> frozenset[str]:
    """The identifiers, and other short texts, in an expression."""
    found: set[str] = set()
    stack: list[object] = [ir]
    while stack:
        part = stack.pop()
        if type(part) is tuple:
            stack += part
        elif type(part) is str:
            found.add(part)
    return frozenset(found)


def region_makers(project: Project, files: Sequence[str], leading: Sequence[str]) -> dict[str, frozenset[str]]:
    """The names by which files know what they and other files enter regions with: by the file."""
    made = {path: makers(ir) for path in files if (ir := project.ir(path)) is not None}
    known = {path: own for path in files if (ir := project.ir(path)) is not None and (own := own_makers(ir))}
    for _ in range(3):  # through packages that pass names on
        before = dict(known)
        for path in [*files, *leading]:
            ir = project.ir(path)
            if ir is None:
                continue
            names = {*known.get(path, ()), *made.get(path, ())}
            for statement in imports(ir[1]):
                if statement[0] == "from":
                    _, _, module, level, given = statement
                    home = project.relative(path, level, module) if level else project.absolute(path, module)
                    there = made.get(home.path, frozenset()) | known.get(home.path, frozenset()) if home is not None else frozenset()
                    names |= {alias or name for name, alias in given if name in there}
                else:
                    homes = [project.absolute(path, name) for name, _ in statement[2]]
                    names |= {name for home in homes if home is not None for name in made.get(home.path, ()) if name in ir[2]}
            if names:
                known[path] = frozenset(names)
        if known == before:
            break
    return known


def own_makers(ir: IR) -> frozenset[str]:
    """What a module defines for itself to enter regions with: contexts, what makes some, and decorators that enter them."""
    direct = {t[2] for s in ir[1] if s[0] == "assign" and "autocast" in words_in(s[3]) for t in s[2] if t[0] == "name"}
    direct |= {s[2] for s in contexts(ir)}
    speaking = direct | {"autocast"}
    functions = [s[2] for s in definitions(ir[1]) if s[0] == "define" and s[2][7] & (NESTS | GENERATOR)]
    around = {function[2] for function in functions if not speaking.isdisjoint(function[8])}
    return frozenset(direct | around)


def contexts(ir: IR) -> list[IR]:
    """The classes of a module that enter regions as context managers."""
    classes = [s for s in definitions(ir[1]) if s[0] == "class" and "autocast" in s[7]]
    return [s for s in classes if "__enter__" in {m[2][2] for m in s[6] if m[0] == "define"}]


def makers(ir: IR) -> frozenset[str]:
    """What a module defines that makes a region, or is one."""
    found = {s[2][2] for s in definitions(ir[1]) if s[0] == "define" and "autocast" in s[2][8] and "backward" not in s[2][8]}
    found |= {s[2] for s in contexts(ir)}
    found |= {s[2][2] for s in definitions(ir[1]) if s[0] == "define" and not found.isdisjoint(words_in(s[2][6]))}  # decorated
    return frozenset(found | {t[2] for s in ir[1] if s[0] == "assign" and "autocast" in words_in(s[3]) for t in s[2] if t[0] == "name"})


def imports(body: Sequence[IR]) -> Iterable[IR]:
    """The imports of a module, those under conditions included."""
    for statement in body:
        if statement[0] in ("import", "from"):
            yield statement
        elif statement[0] == "if":
            yield from imports(statement[3])
            yield from imports(statement[4])
        elif statement[0] == "try":
            yield from imports(statement[2])


def begins(ir: IR) -> bool:
    """Whether a module does something when it is run, beyond defining names."""
    return any(
        statement[0] in ("for", "while", "with")
        or (statement[0] == "expression" and statement[2][0] in ("call", "method"))
        or (statement[0] == "if" and "__name__" in words_in(statement[2]))
        for statement in ir[1]
    )


def definitions(body: Sequence[IR]) -> Iterable[IR]:
    """The functions and classes of a module, those under conditions included."""
    for statement in body:
        if statement[0] in ("define", "class"):
            yield statement
        elif statement[0] == "if":
            yield from definitions(statement[3])
            yield from definitions(statement[4])
        elif statement[0] == "try":
            yield from definitions(statement[2])
            for handler in statement[3]:
                yield from definitions(handler[3])


def run(m: Machine, found: Trace, entry: Entry, start: Callable[[], None], home: str = "") -> None:
    """Run one entry, and keep what happened; entries of one home in a row share what they import."""
    if m.recorder is not None:
        m.recorder.begin(entry.path, entry.name, entry.script)
    known = (set(m.called), set(m.callers), set(m.given)) if is_test_path(entry.path) else None
    try:
        entry.events = m.run(start, home)
    except Exception as error:
        found.faults.append((entry.path, describe(error)))
        entry.events = m.events
    entry.complete, entry.unfinished = m.left >= 0 and not m.broken_off, tuple(m.unfinished)
    if known is not None:  # how tests run the project says nothing of how it is run
        m.called, m.callers, m.given = known
        entry.events = [event for event in entry.events if is_test_path(event.place.path)]
    if entry.events:
        found.entries.append(entry)


def run_again(m: Machine, found: Trace, again: Again) -> None:
    """Run main programs again that ran out of steps before they came to the matter, without what their models are made of."""
    left, m.limit, m.closed = AGAIN_STEPS, OWN_STEPS, again.closed
    called, m.cut = set(m.called), {}
    for entry in [entry for entry in found.entries if entry.script and is_cut(entry) and again.built(entry.events)]:
        ir = m.project.ir(entry.path)
        if left <= 0 or ir is None or is_test_path(entry.path):
            continue
        run(m, found, Entry(entry.path, entry.name, True, hollow=True), partial(module, m, entry.path, ir))
        left -= m.limit - max(m.left, 0)
        m.called = set(called)
    m.limit, m.closed = OWN_STEPS, None


def is_cut(entry: Entry) -> bool:
    """Whether an entry, or a call that it makes, ran out of steps."""
    return not entry.complete or bool(entry.unfinished)


def module(m: Machine, path: str, ir: IR) -> None:
    """A module as the main program; one that only defines names does so as an import."""
    m.library.begins(m, True)
    if not begins(ir):
        m.import_path(path)
        return
    frame = m.module_frame(path)
    m.store.put(path, "#run", MAIN)
    m.run_module(frame, ir, main=True)


def function(m: Machine, path: str, statement: IR) -> None:
    """A function with unknown arguments."""
    m.library.begins(m, False)
    frame = m.enter_module(Module(path, path))
    value = m.read(frame.id, statement[2][2])
    if value is None:
        return
    m.events.clear()
    m.frames.append(frame)
    for atom in list(atoms(value))[:2]:
        call_returned(m, call_again(m, atom, statement[1]), statement[1])
    m.frames.pop()


def call_again(m: Machine, value: Value, position: int) -> Value:
    """Call a function with arguments that nobody knows, or with those of a call that was cut off."""
    cut = m.cut.get(value.code) if type(value) is Function else None
    if cut is None:
        return call_open(m, value, position)
    named: dict[str, Value] = dict(cut.given)
    for name, entries in cut.dicts.items():
        made = Object(("given", m.here(position), name), "dict", "builtins.dict", m.here(position))
        m.write(made.id, "#entries", entries)
        named[name] = made
    m.path = cut.path
    return m.call(value, Args(named=named, opaque=True), position)


def call_returned(m: Machine, made: Value, position: int) -> None:
    """Call the functions that a maker of functions (a decorator, as a rule) gives, where they enter regions and nobody has called them.

    So are those that it hands to an object, which it gives: `return Runner(model, step)`.
    """
    for _ in range(RETURNED):
        given = [a for a in atoms(made) if type(a) is Function]
        held = [
            a for o in atoms(made) if type(o) is Object for _, value in m.store.slots.of(o.id) for a in atoms(value) if type(a) is Function
        ]
        inner = next((a for a in (*given, *held) if "autocast" in a.code.words and a.code not in m.called), None)
        if inner is None:
            return
        made = call_open(m, inner, position)


def class_(m: Machine, path: str, statement: IR, relevant: Callable[[frozenset[str]], bool]) -> None:
    """A class: one instance with unknown arguments, used as its framework does, and its uncalled relevant methods one after the other."""
    m.library.begins(m, False)
    frame = m.enter_module(Module(path, path))
    value = m.read(frame.id, statement[2])
    cls = next((a for a in atoms(value) if type(a) is Class), None) if value is not None else None
    if cls is None:
        return
    m.events.clear()
    relevant = widened(relevant, kept_by(statement, relevant))
    init = next((s for s in statement[6] if s[0] == "define" and s[2][2] == "__init__"), None)
    methods = methods_of_matter(statement, relevant, attributes_of_bases(m, cls, relevant))
    pending = [s for s in methods if Code(path, s[2]) not in m.called]
    if pending:  # what saves and restores belongs to this instance too, though one of an heir has called it
        pending = [s for s in methods if s in pending or keeps_state(s[2])]
    opening = m.library.opening(m, cls)
    if opening is None and not pending and not (init is not None and relevant(init[2][8]) and Code(path, init[2]) not in m.called):
        return
    m.frames.append(frame)
    before = set(m.called)
    made = instantiate(m, cls, Args(opaque=True), statement[1])
    reached = set(m.called)
    if opening is not None and type(made) is Object:
        opening(made, statement[1])
    if type(made) is Object:
        forget_counts(m, made)
        run_setters(m, path, cls, made, [s for s in statement[6] if s[0] == "define" and s not in pending], pending)
        run_setters_of_bases(m, cls, made, {s[2][2] for s in statement[6] if s[0] == "define"}, pending)
        others = [s for s in statement[6] if s[0] == "define" and not s[2][2].startswith("__") and s not in pending]
        pending += [s for s in others if Code(path, s[2]) not in m.called and m.library.computes(m, made, s[2][8])]
    for method in sorted(pending, key=lambda s: (not is_factory(s[2]), is_used_by(s, statement[6]))):
        code = Code(path, method[2])
        forget_protocols(m)
        if code in m.called and code not in reached:
            continue
        held = m.read(cls.id, method[2][2])
        if held is None:
            continue
        bound = bind(m, held, made if type(made) is not Class else None, cls, cls, method[1])  # type: ignore[arg-type]
        try:
            for atom in list(atoms(bound))[:1]:
                result = call_open(m, atom, method[1])
                if is_factory(method[2]) and type(result) is Object and result.type == cls:
                    made = result  # as it leaves the factory
        except Exhausted:
            m.left = OWN_STEPS // 8
            while m.store.layers:
                m.store.keep()
            del m.frames[1:]
            m.calls.clear()
            m.loops.clear()
            m.store.drop(STATE, "autocast")  # it ended in the midst of a region
        m.path = frozenset()
    if methods and type(made) is Object:
        for function in inherited(m, cls, m.called - before):
            if function.code in m.called - before:
                continue  # by one of the others, where it belongs
            m.call(bind(m, function, made, cls, function.owner or cls, statement[1]), Args(opaque=True), statement[1])
            m.path = frozenset()
    m.frames.pop()


def attributes_of_bases(m: Machine, cls: Class, relevant: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """The attributes to which the project's bases of a class assign what matters."""
    found: set[str] = set()
    for base in [base for base in ancestors(m, cls)[1:] if type(base) is Class]:
        ir = m.project.ir(base.path)
        for statement in definitions(ir[1]) if ir is not None else ():
            if statement[0] == "class" and statement[2] == base.name:
                makers = (s for s in statement[6] if s[0] == "define" and relevant(s[2][8]))
                found.update(name for s in makers for name in attributes_of_matter(s[2][4], relevant))
    return frozenset(found)


def methods_of_matter(statement: IR, relevant: Callable[[frozenset[str]], bool], inherited: frozenset[str] = frozenset()) -> list[IR]:
    """The methods of a class that are worth running, in their order; `inherited`: attributes of its bases that matter."""
    methods = [s for s in statement[6] if s[0] == "define" and not s[2][2].startswith("__") and relevant(s[2][8])]
    methods += [
        s for s in statement[6] if s[0] == "define" and s[2][2] in ("__call__", "forward") and s not in methods and relevant(s[2][8])
    ]
    makers = [s for s in statement[6] if s[0] == "define" and relevant(s[2][8])]
    matter = {*inherited, *(name for s in makers for name in attributes_of_matter(s[2][4], relevant))}
    others = [s for s in statement[6] if s[0] == "define" and s not in methods and not s[2][2].startswith("__")]
    methods += [s for s in others if not matter.isdisjoint(s[2][8])]
    methods += callers_of_methods(statement[6], methods)
    methods += [s for s in others if "backward" in s[2][8] and s not in methods]  # what trains with what the class has made
    if methods:  # what saves and restores beside what trains
        methods += [s for s in statement[6] if s[0] == "define" and s not in methods and keeps_state(s[2])]
    return methods


def callers_of_methods(body: Sequence[IR], methods: Sequence[IR]) -> list[IR]:
    """The other methods of a class that mention one of some, and those that mention them: what a round is made of runs in its order."""
    names = {s[2][2] for s in methods}
    left = [s for s in body if s[0] == "define" and s not in methods and not s[2][2].startswith("__")]
    found: list[IR] = []
    while more := [s for s in left if not names.isdisjoint(s[2][8]) and s not in found]:
        found += more
        names |= {s[2][2] for s in more}
    return found


def is_used_by(method: IR, body: Sequence[IR]) -> bool:
    """Whether another method of a class mentions this one: that one runs first, and calls it where it belongs."""
    name = method[2][2]
    return any(s[0] == "define" and s is not method and name in s[2][8] for s in body)


def forget_counts(m: Machine, made: Object) -> None:
    """Take back the numbers from which an object, or what it keeps, counts in methods: others may have been called any number of times."""
    kept = [atom for _, value in m.store.slots.of(made.id) for atom in atoms(value) if type(atom) is Object]
    for owner in dict.fromkeys([made, *kept]):
        if type(owner.type) is Class:
            numbers = {name for name, value in m.store.slots.of(owner.id) if is_counted(value)}
            for name in sorted(numbers & counted_by(m, owner.type)) if numbers else ():
                m.write(owner.id, name, Unknown(f"{name}{IDENTITY}{owner.type.path}{owner.type.name}"))


def counted_by(m: Machine, cls: Class) -> set[str]:
    """The attributes of `self` that methods of a class of the project add to."""
    ir = m.project.ir(cls.path)
    body = next((s[6] for s in definitions(ir[1]) if s[0] == "class" and s[2] == cls.name), ()) if ir is not None else ()
    return {name for s in body if s[0] == "define" and s[2][2] != "__init__" for name in added_to(s[2][4])}


def added_to(ir: IR) -> Iterator[str]:
    """The attributes of `self` that statements add to."""
    if ir and ir[0] == "augmented" and ir[2][0] == "attribute" and ir[2][2][-1] == "self":
        yield ir[2][3]
    for part in ir:
        if type(part) is tuple:
            yield from added_to(part)


LASTING = frozenset({"@weights", "@trained"})  # what models and optimizers hold


def forget_protocols(m: Machine) -> None:
    """Take back what protocols are in the middle of: the next method may run at any other time."""
    for owner, name in [slot for slot in m.store.slots.every() if slot[1].startswith("@") or slot == (STATE, "gradients")]:
        if name not in LASTING:
            m.store.drop(owner, name)


def run_setters(m: Machine, path: str, cls: Class, made: Object, others: Sequence[IR], pending: Sequence[IR]) -> None:
    """Methods that nobody calls and that may set a flag which the pending ones read: each may have run before, or not."""
    read = frozenset().union(*(s[2][8] for s in pending)) if pending else frozenset()
    for statement in others:
        code = Code(path, statement[2])
        if statement[2][2].startswith("__") or code in m.called or not sets_flag(m, made, statement[2][4], read):
            continue
        held = m.read(cls.id, statement[2][2])
        atom = next(iter(atoms(bind(m, held, made, cls, cls, statement[1]))), None) if held is not None else None
        if atom is None or type(atom) not in (Function, Wrapped):
            continue
        key = ("place", path, statement[1], "called before")
        run_one = partial(run_setter, m, atom, statement[1])
        m.fork([(frozenset({(key, True)}), run_one), (frozenset({(key, False)}), lambda: (True, NONE))])
        m.path = frozenset()


def run_setters_of_bases(m: Machine, cls: Class, made: Object, own: set[str], pending: Sequence[IR]) -> None:
    """Inherited methods that set what an instance has at None and the pending methods of its class call: they must have run before."""
    read = called_of_self([s[2][4] for s in pending])
    for base in [base for base in ancestors(m, cls)[1:] if type(base) is Class] if read else ():
        ir = m.project.ir(base.path)
        body = next((s[6] for s in definitions(ir[1]) if s[0] == "class" and s[2] == base.name), ()) if ir is not None else ()
        for statement in body:
            if statement[0] != "define" or statement[2][2] in own or statement[2][2].startswith("__"):
                continue
            if read & {name for name in set_of_self(statement[2][4]) if m.read(made.id, name) == NONE}:
                held = m.read(base.id, statement[2][2])
                atom = next(iter(atoms(bind(m, held, made, cls, base, statement[1]))), None) if held is not None else None
                if type(atom) in (Function, Wrapped):
                    m.within(OWN_STEPS // 8, partial(call_open, m, atom, statement[1]))  # type: ignore[arg-type]
                    m.path = frozenset()


def called_of_self(body: object) -> frozenset[str]:
    """The attributes of `self` that lowered code calls: `self.model(x)`."""
    if type(body) is not tuple and type(body) is not list:
        return frozenset()
    found: frozenset[str] = frozenset().union(*(called_of_self(part) for part in body))
    if len(body) > 2 and body[0] == "call" and body[2][0] == "attribute" and body[2][2][-1] == "self":
        found |= {body[2][3]}
    return found


def set_of_self(body: Sequence[IR]) -> Iterator[str]:
    """The attributes to which statements of a method assign, of `self`."""
    for ir in body:
        if ir[0] == "assign":
            for target in ir[2]:
                yield from (t[3] for t in (target[2] if target[0] == "tuple" else (target,)) if t[0] == "attribute" and t[2][-1] == "self")
        elif ir[0] == "if":
            yield from set_of_self((*ir[3], *ir[4]))


def run_setter(m: Machine, function: Value, position: int) -> tuple[bool, Value]:
    """One such method, as the arm of a fork."""
    call_open(m, function, position)
    return True, NONE


def sets_flag(m: Machine, made: Object, body: Sequence[IR], read: frozenset[str]) -> bool:
    """Whether statements set an attribute of `self` that others read and that is a flag or nothing so far."""
    for ir in body:
        if ir[0] == "assign":
            for target in ir[2]:
                if target[0] == "attribute" and target[2][-1] == "self" and target[3] in read:
                    value = m.read(made.id, target[3])
                    if type(value) is Constant and (value.value is None or isinstance(value.value, bool)):
                        return True
        elif ir[0] == "if" and (sets_flag(m, made, ir[3], read) or sets_flag(m, made, ir[4], read)):
            return True
    return False


def attributes_of_matter(body: Sequence[IR], relevant: Callable[[frozenset[str]], bool]) -> Iterator[str]:
    """The attributes to which statements assign what matters: methods that use them matter too."""
    for ir in body:
        if ir[0] == "assign" and relevant(words_given(ir[3])):
            yield from (target[3] for target in ir[2] if target[0] == "attribute")
        elif ir[0] == "if":
            yield from attributes_of_matter((*ir[3], *ir[4]), relevant)


def words_given(ir: IR) -> frozenset[str]:
    """The identifiers of what a call calls, and of what a condition chooses between; none of anything else."""
    if ir[0] == "conditional":
        return words_in(ir[3:])
    return frozenset(names_in(ir)) if ir[0] == "call" else frozenset()


def names_in(ir: IR) -> Iterator[str]:
    """The identifiers of what a call calls."""
    node = ir[2]
    while node[0] == "attribute":
        yield node[3]
        node = node[2]
    if node[0] == "name":
        yield node[2]


KEEPING = frozenset({"state_dict", "load_state_dict"})


def keeps_state(ir: IR) -> bool:
    """Whether a lowered function saves or restores training by its words."""
    return not KEEPING.isdisjoint(ir[8]) and ir[2] not in ("state_dict", "load_state_dict")


def inherited(m: Machine, cls: Class, called: set[Code]) -> list[Function]:
    """The methods of a class's bases that save or restore, but for some that were called just now; first those that use others of them."""
    bases = {a.id for a in ancestors(m, cls) if type(a) is Class and a is not cls}
    members = [(slot[1], m.store.get(*slot)) for slot in m.store.slots.every() if slot[0] in bases] if bases else []
    methods = [v for name, v in members if type(v) is Function and not name.startswith("__")]
    keeping = [v for v in methods if not KEEPING.isdisjoint(v.code.words)]
    names = {v.code.name for v in keeping} - KEEPING
    found = keeping + [v for v in methods if not names.isdisjoint(v.code.words) and v not in keeping]
    left = [v for v in found if v.code not in called and v.code.name not in KEEPING][:4]
    return sorted(left, key=lambda v: any(v.code.name in other.code.words for other in left if other is not v))


def is_factory(ir: IR) -> bool:
    """Whether a lowered function is a class's method that may make instances."""
    return any(decorator[0] == "name" and decorator[2] == "classmethod" for decorator in ir[6])


def call_open(m: Machine, value: Value, position: int) -> Value:
    """Call with arguments that nobody knows."""
    return m.call(value, Args(opaque=True), position) if type(value) in (Function, Wrapped, Partial) else NONE
