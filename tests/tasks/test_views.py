"""The same numbers in status, tables, the report and MLflow, whichever one opens."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.seeing.conftest import served
from tests.tasks.conftest import DONE, MISTAKE, Command, trials
from tread_lab.analysis.figures import catalogue, loss_gap, placements, similarity
from tread_lab.analysis.figures.catalogue import write_figures  # as no fixture has replaced it
from tread_lab.records.lab import Lab
from tread_lab.results import cells_frame


@pytest.mark.task(55)
def test_status_counts_states_and_names_runs(swept_lab: Lab, run_command: Command) -> None:
    shown = run_command("status")
    assert shown.code == DONE and "small" in shown.out
    assert "10" in run_command("status small").out
    rows = run_command("status small --json").json
    assert {row["run"] for row in rows} == {*trials(swept_lab)["run"]}
    assert {(row["state"], row["step"]) for row in rows} == {("completed", 4)}
    assert run_command("status smal").code == MISTAKE


@pytest.mark.task(56, 57)
def test_figures_leave_pictures_and_both_kinds_of_tables(
    swept_lab: Lab, run_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "write_figures", write_figures)
    drawn = (placements.grids, loss_gap.over_steps, similarity.pair)
    monkeypatch.setattr(catalogue, "KINDS", drawn)
    done = run_command("figures small")
    assert done.code == DONE, done.err
    written = [Path(line) for line in done.out.splitlines()]
    assert written and all(path.stat().st_size > 0 for path in written)
    names = {path.name for path in written}
    for kind in ("route_grid-gap-heldout", "gap_over_steps", "similarity"):
        found = {name for name in names if name.startswith(kind)}
        assert {Path(name).suffix for name in found} == {".png", ".pdf"}, kind
    markdown, latex = (swept_lab.sweep("small").figures / f"ranking.{end}" for end in ("md", "tex"))
    for cell in cells_frame(trials(swept_lab))["cell"]:
        assert cell in markdown.read_text()
    assert latex.read_text().count(r"\\") >= 5


@pytest.mark.task(59)
def test_a_report_is_one_file_and_the_page_is_live(swept_lab: Lab, run_command: Command) -> None:
    assert run_command("report small --output there.html").code == DONE
    page = Path("there.html").read_text()
    assert "Where does a route cost least?" in page
    assert not re.search(r'(src|href)="https?://[^"]*\.(js|css|png)', page)
    with served(swept_lab) as url:
        assert "tread-lab" in urllib.request.urlopen(url).read().decode()


@pytest.mark.slow
@pytest.mark.task(60)
def test_mlflow_has_a_row_for_each_cell_and_seed(swept_lab: Lab, run_command: Command) -> None:
    from mlflow import MlflowClient

    assert run_command("sync small").code == DONE
    client, frame = MlflowClient(swept_lab.mlflow_uri), trials(swept_lab)

    def rows() -> dict[str, Any]:
        experiments = [found.experiment_id for found in client.search_experiments()]
        return {run.info.run_id: run for run in client.search_runs(experiments)}

    first = rows()
    assert len(first) == len(frame) == 10
    assert {run.info.status for run in first.values()} == {"FINISHED"}
    noted = next(iter(first))
    client.set_tag(noted, "mlflow.note.content", "seen on Monday")
    client.set_tag(noted, "mine", "yes")
    assert run_command("sync small").code == DONE
    again = rows()
    assert again.keys() == first.keys()
    tags = again[noted].data.tags
    assert (tags["mlflow.note.content"], tags["mine"]) == ("seen on Monday", "yes")
    recorded = frame.set_index("run")
    for run in again.values():
        own = recorded.loc[run.data.tags["signature"]]
        assert run.data.metrics == first[run.info.run_id].data.metrics
        assert (run.data.params["seed"], run.data.params["precision"]) == (str(own["seed"]), "fp32")
        if own["role"] == "trial":
            places = (run.data.params[end] for end in ("start", "end"))
            assert [*places] == [str(int(own[end])) for end in ("start", "end")]
            assert float(run.data.params["rate"]) == own["rate"]
        for gap in ("gap/heldout", "gap/heldout:low", "gap/heldout:high"):
            dense = own["role"] == "baseline"
            assert run.data.metrics[gap] == (0 if dense else own[gap])
        assert run.data.tags["mlflow.loggedImages"]
