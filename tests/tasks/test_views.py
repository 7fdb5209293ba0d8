"""The same numbers in status, tables, the report and MLflow, whichever one opens."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

from tests.seeing.conftest import served
from tests.tasks.conftest import DONE, MISTAKE, Command, trials
from tread_lab.frames import cells_frame
from tread_lab.records.lab import Lab


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
    from tread_lab.analysis.figures import catalogue, loss_gap, placement_figures, similarity

    monkeypatch.undo()
    monkeypatch.chdir(swept_lab.root.parent)
    drawn = (placement_figures.grids, loss_gap.over_steps, similarity.pair)
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
    from mlflow import MlflowClient, search_runs, set_tracking_uri

    def rows() -> pd.DataFrame:
        set_tracking_uri(swept_lab.mlflow_uri)
        found = search_runs(search_all_experiments=True)
        assert isinstance(found, pd.DataFrame)
        return found[found["params.seed"].notna()].set_index("run_id")

    assert run_command("sync small").code == DONE
    first, frame = rows(), trials(swept_lab)
    assert len(first) == len(frame) == 10
    assert (first["status"] == "FINISHED").all()
    client = MlflowClient(swept_lab.mlflow_uri)
    noted = first.index[0]
    client.set_tag(noted, "mlflow.note.content", "seen on Monday")
    client.set_tag(noted, "mine", "yes")
    assert run_command("sync small").code == DONE
    again = rows()
    assert {*again.index} == {*first.index}
    assert again.loc[noted, "tags.mlflow.note.content"] == "seen on Monday"
    assert again.loc[noted, "tags.mine"] == "yes"
    told = ("route_start", "route_end", "selection_rate", "precision")
    ends = ("gap/heldout", "gap/heldout:low", "gap/heldout:high")
    routed = again[again["tags.role"] == "trial"]
    assert len(routed) == 8 and (again["tags.role"] == "baseline").sum() == 2
    needed = [*(f"params.{name}" for name in told), *(f"metrics.{name}" for name in ends)]
    assert routed[needed].notna().all(axis=None)
    gaps = frame.set_index("run")["gap/heldout"]
    assert routed["metrics.gap/heldout"].tolist() == gaps[routed["tags.signature"]].tolist()
    assert routed["tags.mlflow.loggedImages"].notna().all()
