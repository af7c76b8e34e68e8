"""What a program is given to be run: nothing that matters is lost because something else took all the steps."""

from __future__ import annotations

import ast
import re
import textwrap

import pytest

from mplint.frameworks.known import AGAIN, frameworks
from mplint.program import entries
from mplint.program.interpreter import interpreter
from mplint.program.lower import IR, lower
from mplint.program.machine import Machine
from mplint.program.modules import ImportGraph
from mplint.program.project import Project
from mplint.program.trace import Entry, Trace
from mplint.program.values import Constant

LONG = "".join(f"    a{n} = {n} + 1\n" for n in range(300))  # some 1,000 steps
LIMITS = ("OWN_STEPS", "SCRIPT_STEPS", "PROJECT_STEPS", "FILE_STEPS", "MOST_STEPS", "LAST_STEPS", "REST_STEPS", "AGAIN_STEPS")


def run(monkeypatch: pytest.MonkeyPatch, files: dict[str, str], leading: tuple[str, ...] = (), **limits: int) -> Trace:
    for name, steps in limits.items():
        assert name in LIMITS
        monkeypatch.setattr(entries, name, steps)
    texts = {path: textwrap.dedent(text) for path, text in files.items()}

    def lowered(path: str) -> IR | None:
        return lower(ast.parse(texts[path])) if path in texts else None

    imports = {path: tuple(re.findall("from (\\w+) import", text)) for path, text in texts.items()}
    project = Project(list(texts), lowered, frozenset({"torch"}), graph=ImportGraph(imports))
    found = entries.trace(project, frameworks(), lambda words: "GradScaler" in words, list(texts), leading=leading, again=AGAIN)
    assert not found.faults
    return found


def makers(found: Trace) -> list[str]:
    """The entries in which a scaler is made."""
    return [entry.name for entry in found.entries if entry.of("scaler made")]


def test_function_that_is_cut_off_begins_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"import torch\ndef train():\n{LONG}    torch.amp.GradScaler('cuda')\ndef main():\n{LONG}    train()\nmain()\n"
    assert makers(run(monkeypatch, {"m.py": program})) == ["<module>"]
    assert makers(run(monkeypatch, {"m.py": program}, OWN_STEPS=1500, SCRIPT_STEPS=1500)) == ["train"]


def test_what_goes_deeper_than_the_stack_is_not_taken_for_read_to_its_end() -> None:
    def deeper() -> None:
        deeper()

    project = Project(["m.py"], lambda path: lower(ast.parse("")), frozenset())
    m, found = interpreter(project, frameworks(), 1000), Trace(switches={}, project=project)
    for start, complete in ((deeper, False), (lambda: None, True)):
        entry = Entry("m.py", "<module>", True)
        entries.run(m, found, entry, start)
        assert entry.complete is complete
    assert not found.faults


OPTIONS = """
import argparse
import torch

def work(given):
LONG    if given["mixed"] and given["brain"]:
        torch.amp.GradScaler("cuda")

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--brain", action="store_true")
    given = vars(parser.parse_args())
REFUSED
    given = dict(given)
    given["rank"] = 0
LONG    work(given)

main()
"""
REFUSED = "    if given['mixed'] and given['brain']:\n        raise ValueError"


@pytest.mark.parametrize(("refused", "found"), [(REFUSED, []), ("", ["work"])])
def test_function_that_is_cut_off_begins_again_with_the_options_that_it_was_given(
    monkeypatch: pytest.MonkeyPatch, refused: str, found: list[str]
) -> None:
    program = OPTIONS.replace("LONG", LONG).replace("REFUSED", refused)
    assert makers(run(monkeypatch, {"m.py": program})) == (["<module>"] if found else [])
    assert makers(run(monkeypatch, {"m.py": program}, OWN_STEPS=1500, SCRIPT_STEPS=1500)) == found


def test_function_that_has_run_to_its_end_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"import torch\ndef train():\n    torch.amp.GradScaler('cuda')\ndef main():\n    train()\n{LONG}\nmain()\n"
    assert makers(run(monkeypatch, {"m.py": program}, OWN_STEPS=500, SCRIPT_STEPS=500)) == ["<module>"]


def test_functions_that_the_steps_of_a_project_do_not_reach_have_a_few_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = "".join(f"def f{n}(x):\n{LONG}    torch.amp.GradScaler('cuda')\n" for n in range(4))
    whole = run(monkeypatch, {"m.py": "import torch\n" + functions})
    assert makers(whole) == ["f0", "f1", "f2", "f3"] and not whole.exhausted
    cut = run(monkeypatch, {"m.py": "import torch\n" + functions}, OWN_STEPS=2000, PROJECT_STEPS=2000, FILE_STEPS=0, REST_STEPS=1800)
    assert makers(cut) == ["f0", "f1", "f2", "f3"] and cut.exhausted
    short = run(monkeypatch, {"m.py": "import torch\n" + functions}, OWN_STEPS=2000, PROJECT_STEPS=2000, FILE_STEPS=0, REST_STEPS=100)
    assert makers(short) == ["f0", "f1"]


def test_those_that_train_have_the_last_steps_first(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = "".join(f"def f{n}(x):\n{LONG}    torch.amp.GradScaler('cuda')\n" for n in range(3))
    trains = f"def train(loss):\n{LONG}    torch.amp.GradScaler('cuda').scale(loss).backward()\n"
    limits = {"OWN_STEPS": 2000, "PROJECT_STEPS": 100, "FILE_STEPS": 0, "REST_STEPS": 1500, "LAST_STEPS": 100}
    assert makers(run(monkeypatch, {"m.py": "import torch\n" + functions + trains}, **limits)) == ["f0", "train"]


def test_large_call_into_another_file_leaves_steps_for_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import torch\nfrom models import build\nmodel = build()\nscaler = torch.amp.GradScaler('cuda')\nmodel()\n"
    other = f"def build():\n{LONG}    return 1\n"
    found = run(monkeypatch, {"m.py": program, "models.py": other}, OWN_STEPS=800, SCRIPT_STEPS=800)
    assert makers(found) == ["<module>"]
    assert found.entries[0].complete


def test_call_that_is_given_up_takes_back_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    machines: list[Machine] = []
    monkeypatch.setattr(entries, "turned", lambda m, project: machines.append(m) or frozenset())
    program = "import torch\nclass Box: pass\nbox = Box()\nbox.n = 1\nfrom models import fill\nfill(box)\ntorch.amp.GradScaler('cuda')\n"
    other = f"def fill(box):\n    box.n = 2\n{LONG}"
    run(monkeypatch, {"m.py": program, "models.py": other}, OWN_STEPS=800, SCRIPT_STEPS=800)
    box = machines[0].read("m.py", "box")
    assert box is not None and machines[0].read(box.id, "n") == Constant(1)  # type: ignore[union-attr]


def test_large_call_leaves_steps_for_training_that_the_program_only_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from models import build\nfrom engine import train\ndef main():\n    model = build()\n    train(model)\nmain()\n"
    built = f"def build():\n{LONG}    return 1\n"
    train = "import torch\ndef train(model):\n    scaler = torch.amp.GradScaler('cuda')\n    scaler.scale(model()).backward()\n"
    texts = {"main.py": program, "models.py": built, "engine.py": train}
    found = run(monkeypatch, texts, ("main.py",), OWN_STEPS=800, SCRIPT_STEPS=800)
    assert makers(found) == ["<module>"]
    assert found.entries[0].complete


DEEP = LONG.replace("    ", "        ")
LAYERED = f"import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        self.layer = torch.nn.Linear(64, 64)\n{DEEP}"
MODELS = LAYERED + "NETS = {'net': Net}\n"
CHOSEN = """
from models import NETS
import torch
def train(name):
    model = NETS[name]()
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler('cuda')
    scaler.scale(model(1)).backward()
    scaler.step(optimizer)
def main():
    train('net')
main()
"""


def test_program_whose_models_take_all_the_steps_runs_again_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"main.py": CHOSEN.replace("model = ", "".join("NETS['net'](), " for _ in range(12)) + "\n    model = "), "models.py": MODELS}
    whole = run(monkeypatch, texts)
    assert [(entry.hollow, len(entry.of("scaler step"))) for entry in whole.entries] == [(False, 1)]
    cut = run(monkeypatch, texts, OWN_STEPS=600, SCRIPT_STEPS=600)
    assert [(entry.path, len(entry.of("scaler step"))) for entry in cut.entries if entry.hollow] == [("main.py", 1)]


def test_programs_that_train_come_first_where_not_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = f"import torch\ndef look():\n{LONG}    return torch.amp.GradScaler\nlook()\n"
    texts = {
        **{f"a{n}.py": idle for n in range(9)},
        "train.py": CHOSEN,
        "models.py": MODELS.replace(DEEP, ""),
    }
    found = run(monkeypatch, texts, OWN_STEPS=1500, SCRIPT_STEPS=1500, PROJECT_STEPS=3000, FILE_STEPS=0)
    assert [entry.path for entry in found.entries if entry.of("scaler step")] == ["train.py"]


def test_call_is_not_cut_short_that_is_given_what_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from engine import Trainer\nfrom runner import run\nrun(Trainer())\n"
    runner = f"def run(trainer):\n{LONG}    trainer.train()\n"
    train = "import torch\nclass Trainer:\n    def train(self):\n        torch.amp.GradScaler('cuda').scale(self.loss()).backward()\n"
    texts = {"main.py": program, "runner.py": runner, "engine.py": train}
    assert makers(run(monkeypatch, texts, ("main.py",), OWN_STEPS=1700, SCRIPT_STEPS=1700)) == ["<module>"]


STAGES = f"""
import torch

def stage(x):
{LONG}    return x

def main(x):
{chr(10).join(["    x = stage(x)"] * 90)}
    torch.amp.GradScaler("cuda")
"""


def test_program_that_takes_more_than_60_000_steps_is_run_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(monkeypatch, {"m.py": STAGES})
    assert [(entry.name, entry.complete) for entry in whole.entries] == [("main", True)] and makers(whole) == ["main"]
    assert makers(run(monkeypatch, {"m.py": STAGES}, OWN_STEPS=60_000)) == []


def test_calls_of_models_leave_steps_for_what_follows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    body = textwrap.indent(LONG, "    ")
    model = f"class Net(torch.nn.Module):\n    def forward(self, x):\n{body}        return x\n"
    calls = "".join(f"x = Net()(torch.ones({n}))\n" for n in range(12))
    rest = "".join(f"b{n} = {n} + 1\n" for n in range(100))
    program = f"import torch\n{model}{calls}{rest}torch.amp.GradScaler('cuda')\n"
    assert makers(run(monkeypatch, {"m.py": program}, OWN_STEPS=3000, SCRIPT_STEPS=3000)) == ["<module>"]
