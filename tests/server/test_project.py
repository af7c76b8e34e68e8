"""The project that an editor has open: texts beside files, and what fails on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.server.project import Project

OLD = "import torch\n\nwith torch.cuda.amp.autocast():\n    pass\n"


def test_an_edited_text_stands_for_its_file_until_it_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD)
    project = Project(str(tmp_path))
    assert [f.code for f in project.check()[0][str(file)]] == ["MP101"]
    project.edit(str(file), b"import torch\n")
    assert project.check() == ({}, ())
    project.forget(str(file))
    assert list(project.check()[0]) == [str(file)]


def test_a_fault_of_a_rule_is_told_beside_the_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text(OLD)
    from mplint.rules.api.deprecated_torch_amp import DeprecatedTorchAmp

    monkeypatch.setattr(DeprecatedTorchAmp, "check_source", lambda *_: 1 / 0)
    project = Project(str(tmp_path))
    project.edit(str(tmp_path / "a.py"), OLD.encode())
    _, faults = project.check()
    assert [(fault.rule, fault.path) for fault in faults] == [("MP101", str(tmp_path / "a.py"))]
