"""The commands that show results hand on what they are told, and print where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.cli.main import main


def test_figures_and_report_print_their_paths(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(in_folder / "lab", small())
    figures = "tread_lab.analysis.figures.catalogue.write_figures"
    monkeypatch.setattr(figures, lambda lab, name: [Path(f"{name}.png"), Path("a.pdf")])
    assert main(["figures", "placement"]) == 0
    assert capsys.readouterr() == ("placement.png\na.pdf\n", "")
    monkeypatch.setattr("tread_lab.dashboards.contents.page_file", lambda lab, name: name)
    assert main(["report", "placement", "--output", "there.html"]) == 0
    assert capsys.readouterr().out == "there.html\n" and Path("there.html").read_text()


def test_pages_are_served_where_it_is_told_and_mlflow_is_synced_before(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def served(lab: Any, **how: Any) -> None:
        calls.append((how["host"], how["port"]))

    monkeypatch.setattr("tread_lab.dashboards.server.serve", served)
    monkeypatch.setattr("tread_lab.tracking.store.ui", served)
    sync = "tread_lab.cli.mlflow_view.sync_if_possible"
    monkeypatch.setattr(sync, lambda lab, name: calls.append(name))
    assert main(["dashboard", "--host", "h", "--port", "7"]) == 0  # also of a lab that is not there
    for name in "ab":
        write_sweep(in_folder / "lab", small(name=name))
    assert main(["ui"]) == 0
    assert calls == [("h", 7), "a", "b", ("127.0.0.1", 5000)]
