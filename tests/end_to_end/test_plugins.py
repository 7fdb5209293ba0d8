"""A selection and a metric of one's own: the module of the page, swept, measured and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, section
from tests.faults.drivers import QUIET, Zygote
from tread_lab.records.caveats import mixtures
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState

PAGE = {b.title: b.text for b in section(DOCS / "add_your_own.md", "A selection and a metric")}
HERE = ("--executor", "inline", "--tracker=none", "--device", "cpu")


@pytest.mark.slow
@pytest.mark.task(62)
def test_plugins_travel_with_their_runs(tmp_path: Path, zygote: Zygote) -> None:
    def tread_lab(*words: str, code: int = 0) -> str:
        """Run a command in a process of its own; return what it prints."""
        done = zygote.run(tmp_path, *words, prelude=QUIET, HOME=str(tmp_path))
        assert done.returncode == code, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stderr if code else done.stdout

    for title in ("ours.py", "ours.yaml"):
        (tmp_path / title).write_text(PAGE[title])
    ranking = tread_lab("sweep", "ours.yaml", *HERE)
    assert "mean_gap[fashion16-v1]@100" in ranking and "by last" in ranking
    lab = Lab(tmp_path / "lab")
    assert [run.state() for run in lab.runs()] == [RunState.COMPLETED] * 3
    for run in lab.runs():
        made = [a.fingerprint["plugin ours"] for a in run.attempts()]
        records = [json.loads(p.read_text()) for p in run.path.glob("evaluations/*/metrics.json")]
        assert {*made} == {record["made_with"]["plugin ours"] for record in records}
    tread_lab("evaluate", "ours", "mean_gap@200", "--device", "cpu")
    assert "by last" in tread_lab("status", "ours")
    found = lab.root.glob("runs/*/evaluations/*/metrics.json")
    records = [json.loads(path.read_text()) for path in found]
    assert sum(any("@200" in name for name in record["metrics"]) for record in records) == 3
    (tmp_path / "ours.py").write_text(PAGE["ours.py"].replace("[0] - means", "[0] + means"))
    tread_lab("sweep", "ours.yaml", "seeds=[1]", "--name", "other", *HERE)
    (line,) = mixtures(lab, [run.name for run in lab.runs()])
    assert "plugin ours differs" in line
    (tmp_path / "ours.py").unlink()
    line = tread_lab("sweep", "ours.yaml", *HERE, code=2)
    assert "plugins: cannot import 'ours'" in line
