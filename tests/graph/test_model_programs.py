"""The models of fixtures that are programs give exactly the findings that their comments name, in every form that they are saved in."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_programs import KERAS, expectations, findings, forms

from mplint.findings import Severity

pytestmark = pytest.mark.framework
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
MODELS = [(path, form) for path in sorted(FIXTURES.glob("MP*/*.model")) for form in forms(path.read_text())]


@pytest.mark.parametrize(("path", "form"), MODELS, ids=lambda p: p if isinstance(p, str) else f"{p.parent.name}-{p.stem}")
def test_model_gives_the_findings_that_its_comments_name_in_this_form(path: Path, form: str, tmp_path: Path) -> None:
    pytest.importorskip("keras" if form in KERAS else "torch")
    text = path.read_text()
    expected = expectations(text, form)
    wanted = {e.code for e in expected}
    found = [f for f in findings(text, form, tmp_path) if f.severity is not Severity.INFO or f.code in wanted]
    assert sorted((f.code, f.severity.value, f.node) for f in found) == [tuple(e) for e in expected]
    if path.name.startswith("good_"):
        assert not expected


def test_rules_on_what_models_compute_have_fixtures_of_keras_of_tensorflow_and_of_torch() -> None:
    rules = ("MP201", "MP202", "MP203", "MP204", "MP205", "MP211", "MP405", "MP407", "MP501", "MP601", "MP602")
    seen = {(path.parent.name, form) for path, form in MODELS if path.name.startswith("bad_")}
    for code in rules:
        assert (code, "keras") in seen or (code, "h5") in seen, code
        assert (code, "savedmodel") in seen and (code, "pt2") in seen, code
