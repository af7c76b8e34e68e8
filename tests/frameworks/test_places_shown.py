"""Findings show the places of their own run, and offer to take away only what another line does as well."""

from __future__ import annotations

from pathlib import Path

import pytest

import mplint
from mplint.findings import Finding
from mplint.program.event import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Place

FIXTURES = Path(__file__).parents[2] / "fixtures"

TWO_REGIONS = """import torch
from accelerate import Accelerator


def train(model, optimizer, loader, held_out):
    accelerator = Accelerator(mixed_precision="fp16")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    while True:
        for images, labels in loader:
            with accelerator.autocast():
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        with accelerator.autocast(), torch.no_grad():
            print(model(held_out).argmax())
"""


def found(path: Path, code: str) -> list[Finding]:
    return [finding for finding in mplint.check([str(path)]).findings if finding.code == code]


def test_a_trainers_region_is_shown_where_the_backward_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(TWO_REGIONS)
    (only,) = found(path, "MP305")
    assert (only.location.line, [related.location.line for related in only.related]) == (12, [10])


def test_the_only_update_of_a_scaler_is_not_taken_away() -> None:
    (only,) = found(FIXTURES / "MP310" / "bad_update_in_the_step_of_each.py", "MP310")
    assert only.fix is None


@pytest.fixture
def entries() -> list[Entry]:
    def of(*kinds: str) -> Entry:
        events = [Event(kind, Place("train.py", 0), frozenset(), (), (), None, "main", {}) for kind in kinds]
        return Entry("train.py", "main", True, events)

    return [of("a", "b", "a"), of("c"), of("b", "c")]


def test_events_of_some_kinds_come_in_order_from_all_entries(entries: list[Entry]) -> None:
    trace = Trace(entries=entries)
    assert [event.kind for event in entries[0].of("b", "a")] == ["a", "b", "a"]
    assert [(entry is entries[0], event.kind) for entry, event in trace.of("b", "c")] == [
        (True, "b"),
        (False, "c"),
        (False, "b"),
        (False, "c"),
    ]
    assert not trace.of("d")


def test_events_that_come_later_are_seen(entries: list[Entry]) -> None:
    trace = Trace(entries=entries)
    assert len(trace.of("a")) == 2
    trace.entries = entries[1:]
    assert not trace.of("a")
    entries[1].events = [*entries[1].events, entries[0].events[0]]
    assert len(entries[1].of("a")) == 1
