"""Where mistakes are put into right code: only where the project reaches the place and can switch on what the mistake needs."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LOOP = """
import torch

def train(model, loader, optimizer, scaler=None, use_amp={default}):
    for x in loader:
        with torch.autocast("cuda", enabled=use_amp):
            loss = model(x)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
"""
MAIN = """
import argparse
import torch
from loop import train

parser = argparse.ArgumentParser()
{option}
args = parser.parse_args()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters())
{call}
"""
SAVED = """
import torch
from torch.amp import GradScaler, autocast

def save(model, optimizer, scaler):
    torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}}, "last.pt")

def load(scaler):
    {load}

def run(model, optimizer):
    scaler = GradScaler("cuda")
    {loaded}
    with autocast("cuda"):
        loss = model(1)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    save(model, optimizer, scaler)

run(None, None)
"""


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def places(folder: Path, files: dict[str, str]) -> dict[str, int]:
    """The kinds of mistakes that have places in a project, with how many."""
    import mutations

    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = mutations.places_of(mutations.programs(str(folder), 100), mutations.KINDS.values())
    return {name: len(spots) for name, spots in found.items()}


def loop(call: str, option: str = "", default: str = "False") -> dict[str, str]:
    return {"loop.py": LOOP.format(default=default), "main.py": MAIN.format(call=call, option=option)}


GIVEN = "train(model, [], optimizer, scaler=torch.amp.GradScaler('cuda', enabled=args.amp), use_amp=args.amp)"


def test_option_switches_it_on(tmp_path: Path) -> None:
    found = places(tmp_path, loop(GIVEN, "parser.add_argument('--amp', action='store_true')"))
    assert "step past the scaler" in found


def test_settings_switch_it_on(tmp_path: Path) -> None:
    call = "train(model, [], optimizer, scaler=torch.amp.GradScaler('cuda'), use_amp=config.amp)"
    assert "step past the scaler" in places(tmp_path, {**loop(call), "configs/base.yaml": "amp: true\n"})


def test_settings_leave_it_off(tmp_path: Path) -> None:
    call = "train(model, [], optimizer, scaler=torch.amp.GradScaler('cuda'), use_amp=config.amp)"
    assert "step past the scaler" not in places(tmp_path, {**loop(call), "configs/base.yaml": "amp: false\n"})


def test_nobody_gives_the_scaler(tmp_path: Path) -> None:
    call = "scaler = torch.amp.GradScaler('cuda')\ntrain(model, [], optimizer, use_amp=True)"
    assert "step past the scaler" not in places(tmp_path, loop(call))


def test_passed_on_by_position(tmp_path: Path) -> None:
    call = "scaler = torch.amp.GradScaler('cuda')\ntrain(model, [], optimizer, scaler, True)"
    assert "step past the scaler" in places(tmp_path, loop(call))


def test_constant_that_is_off(tmp_path: Path) -> None:
    call = "USE = False\ntrain(model, [], optimizer, scaler=torch.amp.GradScaler('cuda', enabled=USE), use_amp=USE)"
    assert places(tmp_path, loop(call)).keys().isdisjoint({"step past the scaler", "update removed", "loss scaling taken out whole"})


def test_nobody_calls_the_loop(tmp_path: Path) -> None:
    call = "scaler = torch.amp.GradScaler('cuda')"
    assert "step past the scaler" not in places(tmp_path, loop(call, default="True"))


def test_only_its_own_comment_names_it(tmp_path: Path) -> None:
    files = loop("scaler = torch.amp.GradScaler('cuda')  # train(...) is for later", default="True")
    assert "step past the scaler" not in places(tmp_path, files)


def test_renamed_by_an_import(tmp_path: Path) -> None:
    files = loop("fit(model, [], optimizer, scaler=torch.amp.GradScaler('cuda'), use_amp=True)")
    files["main.py"] = files["main.py"].replace("import train", "import train as fit")
    assert "step past the scaler" in places(tmp_path, files)


def test_state_that_is_restored(tmp_path: Path) -> None:
    text = SAVED.format(load='scaler.load_state_dict(torch.load("last.pt")["scaler"])', loaded="load(scaler)")
    assert {"scaler dropped from a checkpoint", "scaler not restored"} <= places(tmp_path, {"train.py": text}).keys()


@pytest.mark.parametrize(
    ("load", "loaded"),
    [("pass", "load(scaler)"), ('scaler.load_state_dict(torch.load("last.pt")["scaler"])', "pass")],
    ids=["nothing reads it", "nobody calls what reads it"],
)
def test_state_that_nobody_restores(tmp_path: Path, load: str, loaded: str) -> None:
    found = places(tmp_path, {"train.py": SAVED.format(load=load, loaded=loaded)})
    assert found.keys().isdisjoint({"scaler dropped from a checkpoint", "scaler not restored"})
    assert "step past the scaler" in found


POLICY = """
from tensorflow import keras

USE = {use}

def build():
    return keras.Sequential([keras.layers.Dense(256), keras.layers.Dense(10, dtype="float32")])

def main():
    if USE:
        keras.mixed_precision.set_global_policy("mixed_float16")
    build()

main()
"""


@pytest.mark.parametrize(("use", "there"), [("True", True), ("False", False)])
def test_policy_that_can_be_set(tmp_path: Path, use: str, there: bool) -> None:
    assert ("float32 of the output dropped" in places(tmp_path, {"train.py": POLICY.format(use=use)})) is there
