"""The report holds every kind of figure a sweep can have, and its numbers are the records'."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis.figures.catalogue import sweep_records
from tread_lab.analysis.report import report
from tread_lab.analysis.report.report import contents, cost_sheet, render, write_report
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab

STYLE = Path(report.__file__).with_name("report.css").read_text()
TIMES = "\N{MULTIPLICATION SIGN}"


def test_costs_are_those_of_a_step_against_the_own_baseline(tmp_path: Path) -> None:
    frame = trials_frame(write_sweep(tmp_path, small(seeds=(0, 1))), "placement")
    more = {"cost/peak_memory_bytes": 3.5e9, "cost/mfu": 0.125}
    sheet = cost_sheet(frame.assign(**more))
    assert sheet is not None
    rows = {row[0]: dict(zip(sheet.heads[1:], row[1:])) for row in sheet.rows}
    assert list(rows) == ["dense", "0→4 s=0.5", "2→8 s=0.5", "5→8 s=0.5"]
    assert rows["2→8 s=0.5"] == {
        "steps": "400", "training FLOPs": "8.5 TFLOP", "speed-up, FLOPs": f"1.41{TIMES}",
        "speed-up, measured": f"1.30{TIMES}", "training seconds": "46 s",
        "images per second": "540 images/s", "peak memory": "3.5 GB", "MFU": "0.1250 \u00b1 0",
    }  # fmt: skip
    assert rows["dense"]["speed-up, FLOPs"] == ""
    assert cost_sheet(frame.drop(columns="throughput/step_seconds")) is None


def test_the_facts_name_every_network_data_set_batch_and_precision(
    tmp_path: Path, no_figures: None
) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),)))
    path = lab.sweep("placement").plan_path
    plan = json.loads(path.read_text())
    other = plan["trials"][1]["spec"]
    other["model"]["depth"], other["train"]["batch"], other["precision"] = 24, 32, "bf16"
    other["data"] |= {"source": "images", "path": "elsewhere"}
    path.write_text(json.dumps(plan))
    facts = dict(contents(lab, "placement")["facts"])
    assert facts["network"] == "DiT-12x32/2 or DiT-24x32/2 on fashion16 or images"
    assert sweep_records(lab, lab.sweep("placement")).title().startswith("2 networks")
    assert facts["training"] == "400 steps of 16 or 32, fp32 or bf16"
    other["train"]["steps"] = 1520
    path.write_text(json.dumps({**plan, "sweep": {"sweep": {"match": "train_flops"}}}))
    facts = dict(contents(lab, "placement")["facts"])
    assert facts["training"] == "400 to 1,520 steps of 16 or 32, fp32 or bf16"
    assert facts["compared"] == "at equal training FLOPs"
    once = facts["runs"], facts["training of all runs"]
    plan["trials"].append({**plan["trials"][1], "label": "the same run", "cell": {"again": 1}})
    path.write_text(json.dumps(plan))
    facts = dict(contents(lab, "placement")["facts"])
    assert (facts["runs"], facts["training of all runs"]) == once
    assert once[0] == "2 of 2 completed"


def test_a_sweep_is_planned_when_its_plan_says(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),)))
    path = lab.sweep("placement").plan_path
    path.write_text(json.dumps({**json.loads(path.read_text()), "created": 86400.0 * 200}))
    assert "lanned on 20 July 1970" in contents(lab, "placement")["times"]


def test_page_names_every_run_without_result(
    one_of_four: tuple[str, Lab, str], no_figures: None
) -> None:
    _, lab, sweep = one_of_four
    page = render({**contents(lab, sweep), "written": "today", "times": "at other times"})
    frame = trials_frame(lab, sweep)
    for run in frame.loc[frame["state"].isin(["failed", "diverged"]), "run"]:
        assert run in page


@pytest.mark.slow  # its figures are drawn
def test_a_report_is_written_where_it_is_asked_for_with_its_figures(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(routes=((2, 8),), guided=True, pictures=True))
    path = tmp_path / "sent" / "report.html"
    assert write_report(lab, "placement", path=path) == path
    text = path.read_text(encoding="utf-8")
    assert "Guidance: quality against the cost of an image" in text
    assert "<dt>s</dt>" in text and "arxiv.org/abs/2501.04765" in text
    assert "Ranked by gap/heldout" in text and "a row is a cell" in text
    assert text.count('<section class="figure wide" id=') == 2 and "<h2>Figures</h2>" not in text
    pictures = re.findall(r"data:image/([a-z+]+);", text)
    assert pictures == ["svg+xml", "png"]  # of guidance, and of samples
