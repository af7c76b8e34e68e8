"""Whether a program's Keras code ever meets half precision: by the policies that are set, by what it mentions, and by who imports it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from mplint.findings import Confidence
from mplint.frameworks.keras.policies import GUARD, MIXED, compute_letter
from mplint.frameworks.keras.running import CALLED_BACK, Uses
from mplint.frameworks.libraries import Libraries
from mplint.frameworks.outside import Sign, lines_of, place_in, said_in_texts
from mplint.program.conditions import Condition, Path
from mplint.program.entries import definitions
from mplint.program.lower import IR
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, Words, possible
from mplint.program.values import BFLOAT, COMPUTE, HALF, Chain, Module, Place, State, Step, Tensor
from mplint.program.verdict import Verdict
from mplint.python.document import is_test_path

MINDFUL = frozenset(
    [
        "mixed_precision",
        "mixed_float16",
        "mixed_bfloat16",
        "compute_dtype",
        "_compute_dtype",
        "set_global_policy",
        "dtype_policy",
        "_dtype_policy",
        "fp16",
        "float16",
        "bfloat16",
        "set_policy",
        "global_policy",
        "use_mixed_precision",
        "amp",
        "use_fp16",
    ]
)
# words that code has which only gets along with whatever policy its users set
OBLIGING = frozenset(["compute_dtype", "_compute_dtype", "dtype_policy", "_dtype_policy", "float16", "bfloat16", "amp", "global_policy"])
# words that code for another framework has as well, and that say nothing of Keras in a file that imports that one
SHARED = frozenset(["fp16", "float16", "bfloat16", "amp", "use_fp16", "mixed_precision", "use_mixed_precision"])
OTHERS = frozenset(["torch", "apex", "jax", "mxnet", "paddle"])
# what has TensorFlow put casts into its graphs, while the dtypes that programs see stay float32
REWRITES = ("enable_mixed_precision_graph_rewrite", "auto_mixed_precision", "TF_ENABLE_AUTO_MIXED_PRECISION")
# what code says that is run in half precision under Keras or TensorFlow, or ready to be; `_compute_dtype` stands in copies of Keras
HALF_WORDS = re.compile(
    rb"\bmixed_precision\b|\bmixed_b?float16\b|\bcompute_dtype\b|\b_?dtype_policy\b|\bglobal_policy\b"
    rb"|\b(?:tf|tensorflow|dtypes)\.(?:b?float16|half)\b|[\"']b?float16[\"']|\bdtype\s*=\s*[\"']half[\"']|--fp16\b|\bfp16\b(?![\"'`\\])"
)
# what code says that is run with TensorFlow 1 as well: it asks for the version, or has an arm for what only that one has
OLD = re.compile(rb"\b(?:tf|tensorflow)\.__version__|\btf\.VERSION\b|\b(?:tf|tensorflow)\.contrib\b|\btensorflow\.contrib\b")
# code that follows the policy that its users set, or names one
FOLLOWS = re.compile(rb"\bglobal_policy\(\)|\bdtype_policy\(\)|\bcompute_dtype\b|[\"']mixed_b?float16[\"']")
CONVERTER = b"TFLiteConverter"  # what speaks of float16 beside it means files for phones
# code that gets along with half tensors, as much of Keras does
GUARDS = re.compile(rb"(?<=dtype)[ \t]*(?:==|!=|(?:not )?in\b)[ \t]*[\[({]?(?:[ \t]*[\"']b?float\d+[\"'],?)+")
COMMENT = re.compile(rb"(?m)#.*$|^[ \t]*>>>.*$")
KERAS = re.compile(rb"\b(?:tensorflow|keras)\b")
TORCH = re.compile(rb"(?m)^\W*(?:from|import) torch\b")
TRAINS = frozenset(["fit", "fit_generator", "GradientTape", "compile", "train_on_batch", "__name__"])
HALVES = frozenset(["float16", "bfloat16"])
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PRIVATE = "tensorflow.python"  # parts of TensorFlow that serve its graphs as well
PRIVATE_KERAS = f"{PRIVATE}.keras"
UNTOLD = HALVES | frozenset(MIXED)
GRAPHS = ("tensorflow.compat.v1", "tensorflow.contrib")


def speaks_of_half(data: bytes) -> int:
    """Where a program of TensorFlow or Keras says anything of half precision: a packed range, 0 where it does not."""
    if CONVERTER in data:
        return 0
    if KERAS.search(data) is None or TORCH.search(data) is not None:
        return 0
    return place_in(GUARDS.sub(lines_of, COMMENT.sub(lines_of, data)), HALF_WORDS)


def speaks_of_old(data: bytes) -> bool:
    """Whether a program of TensorFlow may be run with TensorFlow 1 as well."""
    return OLD.search(COMMENT.sub(b"", data)) is not None


def follows_policy(data: bytes) -> bool:
    """Whether a program of TensorFlow or Keras follows the policy that is set."""
    return FOLLOWS.search(data) is not None and FOLLOWS.search(COMMENT.sub(b"", data)) is not None


class Policy(NamedTuple):
    """A half policy that a program may set: where, its name, and what has to be turned for it."""

    place: Place
    name: str
    verdict: Verdict
    entry: Entry


def policies(trace: Trace) -> list[Policy]:
    """Every mixed or half policy that the program sets."""
    found = []
    for entry, event in trace.of("policy set"):
        for path, atom in possible(event.data["policy"], event.path):  # type: ignore[arg-type]
            name = str(atom.data[0]) if type(atom) is State else ""  # type: ignore[index]
            if compute_letter(name) in (HALF, BFLOAT):
                found.append(Policy(event.place, name, trace.verdict(entry, path), entry))
    return found


def imports(ir: IR) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """The imports of a module: dotted name, level, and names taken from it."""
    blocks: list[Iterable[IR]] = [ir[1]]
    while blocks:
        for statement in blocks.pop():
            kind = statement[0]
            if kind == "import":
                for name, _ in statement[2]:
                    yield name, 0, ()
            elif kind == "from":
                yield statement[2], statement[3], tuple(name for name, _ in statement[4])
            elif kind == "if":
                blocks += [statement[3], statement[4]]
            elif kind == "try":
                blocks += [statement[2], *(handler[3] for handler in statement[3]), statement[4]]
            elif kind == "define":
                blocks.append(statement[2][4])
            elif kind == "with":
                blocks.append(statement[3])


def uses_its_own(ir: IR) -> bool:
    """Whether a module calls, as it is run, a class or function that it defines itself: what only offers them does not."""
    own = {s[2] for s in ir[1] if s[0] == "class"} | {s[2][2] for s in ir[1] if s[0] == "define"}
    called = (s[3] if s[0] == "assign" else s[2] for s in ir[1] if s[0] in ("assign", "expression"))
    return any(call[0] == "call" and call[2][0] == "name" and call[2][2] in own for call in called)


class Programs:
    """Which files of a project import which, and what each mentions."""

    def __init__(self, trace: Trace) -> None:
        assert trace.project is not None
        self.project = trace.project
        self.trace = trace
        self.loaded = {path: ir for path, ir in self.project._ir.items() if ir is not None}
        self.uses: dict[str, set[str]] = {}
        self.used: dict[str, set[str]] = {}
        for path, ir in sorted(self.loaded.items()):
            for module, level, names in imports(ir):
                for other in self.meant(path, module, level, names):
                    if other != path:
                        self.uses.setdefault(path, set()).add(other)
                        self.used.setdefault(other, set()).add(path)
        self.policies = policies(trace)
        self.libraries = Libraries(self.project, self.is_program)
        self.spoken: dict[str, Sign | None] = {}
        self.sure: dict[str, Confidence] = {}
        self.running = Uses(trace.project, lambda path, word: trace.ask is None or trace.ask(path, Words((word,))))

    def meant(self, path: str, module: str, level: int, names: tuple[str, ...]) -> list[str]:
        """The files that an import means."""
        found = self.project.relative(path, level, module) if level else self.project.absolute(path, module)
        if found is None:
            return []
        members = [self.project.member(found, name) for name in names]
        return [m.path for m in (found, *members) if type(m) is Module and m.path]

    def mentions(self, path: str, words: frozenset[str] = MINDFUL) -> bool:
        """Whether the code of a file has half precision in mind."""
        ir = self.loaded.get(path)
        return ir is not None and not ir[2].isdisjoint(words)

    def speaks(self, path: str) -> bool:
        """Whether the code of a file speaks of half precision under Keras: what one of torch says is about torch."""
        ir = self.loaded.get(path)
        if ir is None:
            return False
        about_others = any(module.partition(".")[0] in OTHERS for module, level, _ in imports(ir) if not level)
        about_others = about_others or self.rewrites_graphs
        return not ir[2].isdisjoint(MINDFUL - OBLIGING - SHARED if about_others else MINDFUL - OBLIGING)

    @cached_property
    def rewrites_graphs(self) -> bool:
        """Whether the project has its graphs rewritten for mixed precision, and never sets a policy."""
        ask = self.trace.ask
        return not self.policies and ask is not None and any(ask(path, Words(REWRITES)) for path in sorted(self.loaded))

    def connected_mention(self, path: str, words: frozenset[str]) -> bool:
        """Whether a file, or one that runs together with it, mentions something."""
        return any(self.mentions(other, words) for other in sorted(self.connected(path)))

    def is_program(self, path: str) -> bool:
        """Whether a file is run as it is: it trains, or puts to use what it defines, and no other imports it."""
        ir = self.project.ir(path)
        if ir is None or self.used.get(path) or self.project.graph.users(path):
            return False
        return not ir[2].isdisjoint(TRAINS) or (uses_its_own(ir) and not self.libraries.is_packaged(path))

    def connected(self, path: str) -> set[str]:
        """The files that run together with one: what it imports, what imports it, and what those import."""
        found = {path}
        queue = [path]
        while queue:
            for other in self.uses.get(queue.pop(), ()):
                if other not in found:
                    found.add(other)
                    queue.append(other)
        users, queue = {path}, [path]
        while queue:
            for other in self.used.get(queue.pop(), ()):
                if other not in users:
                    users.add(other)
                    queue.append(other)
        for user in sorted(users):
            found |= self.uses.get(user, set())
        return found | users

    def is_library(self, path: str) -> bool:
        """Whether a file belongs to a package that is installed and used under policies of its users."""
        return self.libraries.holds(path)

    def is_run_in_half(self, path: str) -> bool:
        """Whether a file belongs to a library that has half precision in mind."""
        return self.sign(path) is not None

    def sign(self, path: str) -> Sign | None:
        """What tells that the library which a file belongs to has half precision in mind somewhere: its code, tests, examples or texts."""
        if not self.is_library(path) or self.trace.ask is None:
            return None
        root = self.libraries.root_of(os.path.dirname(path)) or ""
        if root not in self.spoken:
            below = [other for other in self.project.paths if not root or other.startswith(f"{root}/")]
            below.sort(key=lambda other: (is_test_path(other), other))
            said = ((other, self.trace.ask(other, speaks_of_half)) for other in below)
            signs = (Sign(other, place) for other, place in said if place and self.uses_packaged(other))
            self.spoken[root] = next(signs, None) or said_in_texts(self.project, root)
        return self.spoken[root]

    def sureness(self, path: str, entry: Entry | None = None) -> Confidence:
        """How sure it is that what follows the policy in a file meets half precision; `entry`: what it was met in.

        Low where the half policies of the project are set elsewhere, or where it sets none, nor follows the one that is set: that users
        run this in half precision is a guess. So it is where nothing makes the layer, though programs of the project set a half policy.
        """
        if entry is not None and self.is_idle(entry):
            return Confidence.LOW
        if path not in self.sure:
            set_here = (policy for policy in self.policies if self.is_live(policy) and self.is_beside(policy, path))
            met = any(set_here) if self.policies else self.follows(path)
            self.sure[path] = Confidence.MEDIUM if met else Confidence.LOW
        return self.sure[path]

    def is_idle(self, entry: Entry) -> bool:
        """Whether an entry begins with what none of the project's programs comes to by its name, some of which set a half policy."""
        if entry.script or not self.setting or self.is_library(entry.path):
            return False
        return self.running.programs(entry.path, entry.name) == frozenset() and not self.running.are_taken_by_name(entry.path)

    def is_live(self, policy: Policy) -> bool:
        """Whether somebody may set a policy: a parameter that decides it is given by some call, or by users of a library."""
        verdict = policy.verdict
        if verdict.dead:
            return False
        left = [switch for s in verdict.symbols - self.trace.turned if (switch := self.trace.switch(s)) is not None]
        return all(switch.kind != "parameter" for switch in left) or self.is_library(policy.place.path)

    def is_beside(self, policy: Policy, path: str) -> bool:
        """Whether a policy is set where a file may be used: not by a program or test that never imports it."""
        home = policy.entry.path
        return not (policy.entry.script or is_test_path(home)) or path in self.project.graph.below([home])

    def follows(self, path: str) -> bool:
        """Whether the library that a file belongs to, or what runs together with the file, follows the policy that is set.

        So does a library whose tests run its layers in half precision.
        """
        if self.is_library(path):
            root = self.libraries.root_of(os.path.dirname(path)) or ""
            beside = [other for other in self.project.paths if not root or other.startswith(f"{root}/")]
        else:
            beside = sorted(self.connected(path))
        ask = self.trace.ask
        if ask is None:
            return False
        tests = (other for other in beside if is_test_path(other) and self.uses_packaged(other))
        return any(ask(other, follows_policy) for other in beside) or any(ask(other, speaks_of_half) for other in tests)

    def told(self, path: str, tensor: object) -> Chain:
        """What findings show of the users who choose the precision, where no policy of the project gives a tensor its dtype."""
        followed = isinstance(tensor, Tensor) and tensor.dtypes == {COMPUTE} and not self.policies
        sign = self.sign(path) if followed and not self.mentions(path) else None
        return sign.steps if sign is not None else ()

    def uses_packaged(self, path: str) -> bool:
        """Whether a file is part of a library, or imports some of one: a program that only stands beside it tells nothing."""
        libraries = self.libraries
        used = (path, *sorted(self.project.graph.targets.get(path, ())))
        return any(libraries.is_packaged(other) or libraries.is_framework(other) for other in used)

    def builds_graphs(self, path: str) -> bool:
        """Whether a file is written for TensorFlow 1, whose graphs no policy of Keras reaches."""
        ir = self.project.ir(path)
        named = {module for module, level, _ in imports(ir) if not level} if ir is not None else set()
        of_graphs = {module for module in named if module.startswith(GRAPHS)}
        others = [f"{module}." for module in named - of_graphs if not module.startswith(PRIVATE) or ".keras" in module]
        return bool(of_graphs) and not any(module.startswith(("tensorflow.", "keras.", "tf_keras.")) for module in others)

    def supports_old(self, path: str) -> bool:
        """Whether a file, or one that runs together with it, is written for TensorFlow 1 as well as for later ones."""
        ask = self.trace.ask
        return ask is not None and any(ask(other, speaks_of_old) for other in sorted(self.connected(path)))

    def is_beyond_policies(self, path: str) -> bool:
        """Whether the layers of a file are of TensorFlow's private Keras, which no policy of the public one reaches from 2.6 on."""
        ir = self.project.ir(path)
        named = {module for module, level, _ in imports(ir) if not level} if ir is not None else set()
        public = any(module.partition(".")[0] in ("keras", "tf_keras") or module.startswith("tensorflow.keras") for module in named)
        if public or not any(module.startswith(PRIVATE_KERAS) for module in named):
            return False
        pinned = self.trace.targets(path).tensorflow
        return pinned is None or not pinned.below("2.6")

    def sets_policy(self, path: str) -> bool:
        """Whether a run of this file as a script sets a half policy."""
        return any(policy.entry.path == path and policy.entry.script for policy in self.policies)

    @cached_property
    def setting(self) -> frozenset[str]:
        """The programs, tests left out, that may set a half policy as they are run."""
        found: set[str] = set()
        for policy in self.policies:
            home = policy.entry.path
            if policy.entry.script:
                found.add(home)
            elif not is_test_path(home):
                runs = self.running.programs(home, self.begun(policy.entry, policy.place))
                found |= runs if runs is not None else self.project.graph.above([home])
        return frozenset(path for path in found if not is_test_path(path))

    @cached_property
    def stays_in_float32(self) -> bool:
        """Whether the project has programs of its own, and none of them sets a policy that is half or that nobody knows."""
        events = (event for _, event in self.trace.of("policy set"))
        set_ones = (atom for event in events for _, atom in possible(event.data["policy"], event.path))  # type: ignore[arg-type]
        if self.policies or any(type(atom) is not State for atom in set_ones):
            return False
        return any(self.is_program(path) and not is_test_path(path) for path in sorted(self.loaded))

    def is_left_out(self, entry: Entry, event: Event, low: Tensor) -> bool:
        """Whether no program of the project runs in half precision what an entry begins with: those that do set no half policy, while
        others set some, or none runs both what makes a tensor half and what uses it.

        What a library offers, its users run under policies of their own; layers that nobody makes here may be meant for others.
        """
        if entry.script:
            return False
        name = self.begun(entry, event.calls[0] if event.calls else event.place)
        found = self.running.programs(entry.path, name)
        if found is None:
            return False
        makers = {self.begun(entry, step.place) for step in low.half if step.place.path == entry.path} - {name, entry.name}
        for maker in sorted(makers):
            found &= self.running.programs(entry.path, maker) or frozenset()
        if not found and makers:
            return True
        called_back = name == entry.name and self.is_class(entry)
        if COMPUTE not in low.dtypes or not self.setting or (called_back and (not found or self.is_library(entry.path))):
            return False
        return found.isdisjoint(self.setting)

    def is_class(self, entry: Entry) -> bool:
        """Whether an entry begins with a class."""
        ir = self.project.ir(entry.path)
        return ir is not None and any(s[0] == "class" and s[2] == entry.name for s in definitions(ir[1]))

    def begun(self, entry: Entry, place: Place) -> str:
        """The name by which programs run what an entry begins with, on the way to a place: a function, a method, or a class."""
        found = self.trace.node(place) if place.path == entry.path and self.is_class(entry) else None
        around = (found[1], *found[0].syntax.ancestors(found[1])) if found is not None else ()
        methods = [node.name for node in around if isinstance(node, FUNCTIONS)]
        owners = [node.name for node in around if isinstance(node, ast.ClassDef)]
        name = methods[-1] if methods and owners[-1:] == [entry.name] else entry.name
        return entry.name if name.startswith("__") or name in CALLED_BACK else name

    def in_mind(self, path: str, entry: Entry | None = None) -> bool:
        """Whether the code of a file may meet a mixed policy: its program, or those that run together with it, have one in mind.

        Of a library that speaks of half precision anywhere, the layers and models that it offers; `entry`: where it was met, if not there.
        Nothing of a project whose own programs set no policy, whatever a comment or an option says.
        """
        if self.is_program(path):
            return self.sets_policy(path)
        if self.stays_in_float32 and not self.is_library(path):
            return False
        if self.builds_graphs(path):
            return self.mentions(path, MINDFUL - OBLIGING)
        if self.is_beyond_policies(path):
            return any(self.speaks(other) for other in sorted(self.connected(path)))
        if self.mentions(path) or (self.is_run_in_half(path) and (entry is None or bool(entry.of("layer used", "model made")))):
            return True
        return any(self.speaks(other) for other in sorted(self.connected(path)))


def programs(trace: Trace) -> Programs:
    """The files of a trace's project, once for all rules."""
    held = trace.held.get("keras programs")
    if not isinstance(held, Programs):
        held = trace.held["keras programs"] = Programs(trace)
    return held


def excluded(path: Iterable[Condition]) -> bool:
    """Whether a test of the compute dtype on the path leaves half precision out."""
    return any(key[0] == "in" and key[1] == GUARD and bool(key[2] & HALVES) is not sense for key, sense in path)


def untold(trace: Trace, path: Path) -> bool:
    """Whether the policy's name, or the dtype's, is computed from something that no option or setting of the program tells."""
    return any(
        key[0] == "in" and sense and key[1] not in trace.switches and isinstance(key[2], frozenset) and bool(key[2] & UNTOLD)
        for key, sense in path
    )


class Origins:
    """What the tensors of an entry were made by: a helper's by the call that leads to where they are used."""

    def __init__(self, entry: Entry) -> None:
        self.events: dict[Place, list[Event]] = {}
        for event in entry.of("tensor made"):
            self.events.setdefault(event.place, []).append(event)

    def of(self, step: Step, used: Event | None = None) -> Event | None:
        """The event in which the tensor of a step was made, of several the one nearest to the event that uses it."""
        found = self.events.get(step.place)
        if not found:
            return None
        return max(found, key=lambda made: shared(made.calls, used.calls)) if used is not None else found[-1]


def shared(one: Sequence[Place], other: Sequence[Place]) -> int:
    """How many calls two chains share, from the outermost on."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
