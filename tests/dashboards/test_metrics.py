"""What Prometheus scrapes: states of runs as recorded; faults are metrics, too."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import pytest

from tests.faults.drivers import Zygote, eventually
from tests.readme_tree import ROOT
from tests.seeing.conftest import served
from tests.synthetic import small, write_sweep
from tread_lab.dashboards import metrics
from tread_lab.dashboards.metrics import GAUGES, metrics_text
from tread_lab.records import durable, plan, run_folder
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState

GRAFANA = json.loads((ROOT / "dashboards/grafana.json").read_text())
QUERIES = [target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]]


@contextmanager
def running(root: Path) -> Iterator[Lab]:
    """A sweep with two completed runs, a running one and one that was cut off."""
    states = {(2, 8): "interrupted", (5, 8): "interrupted"}
    lab = write_sweep(root, small(states=states))
    trial = lab.sweep("placement").plan().trials[-1]
    with lab.run(trial.run).lock():
        yield lab


def values(text: str) -> dict[str, float]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_the_runs_of_a_sweep_are_counted_by_their_states(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        found = values(metrics_text(lab))
    of = '{sweep="placement"}'
    counts = {"completed": 2.0, "running": 1.0, "interrupted": 1.0}
    others = dict.fromkeys(("pending", "stopped", "diverged", "failed"), 0.0)
    assert found == {
        "tread_lab_readable": 1,
        "tread_lab_sweeps": 1,
        f"tread_lab_sweep_readable{of}": 1,
        f"tread_lab_sweep_ended{of}": 0,
        f"tread_lab_sweep_driven{of}": 0,
        f"tread_lab_trials{of}": 4,
        **{
            f'tread_lab_runs{{sweep="placement",status="{status}"}}': count
            for status, count in (counts | others).items()
        },
    }


def test_a_sweep_that_has_ended_says_so(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    found = values(metrics_text(lab))
    assert found['tread_lab_sweep_ended{sweep="placement"}'] == 1
    shutil.rmtree(tmp_path / "runs")  # as before the first run
    found = values(metrics_text(Lab(tmp_path)))
    assert found['tread_lab_runs{sweep="placement",status="pending"}'] == 4
    assert found['tread_lab_sweep_ended{sweep="placement"}'] == 0


def test_of_many_sweeps_the_newest_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST", 1)
    for name, written in (("old", 5), ("new", 9), ("older", 1)):
        lab = write_sweep(tmp_path, small(name=name))
        os.utime(lab.sweep(name).plan_path, (written, written))
    found = values(metrics_text(lab))
    assert found["tread_lab_sweeps"] == 3
    assert [name for name in found if name.startswith("tread_lab_trials")] == [
        'tread_lab_trials{sweep="new"}'
    ]


def test_what_did_not_change_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, read = write_sweep(tmp_path, small()), list[str]()

    def reading(path: Path, **how: Any) -> Any:
        read.append(path.name)
        return durable.read_json(path, **how)

    for module in (plan, run_folder):
        monkeypatch.setattr(module, "read_json", reading)
    text = metrics_text(lab)
    assert sorted(read) == ["plan.json", *4 * ["result.json"]]
    assert metrics_text(lab) == text and len(read) == 5
    run = lab.run(lab.sweep("placement").plan().trials[1].run)
    run.log_path.touch()
    for change, state in (
        (run.reopen, "interrupted"),
        (lambda: run.finish(RunState.FAILED, step=1), "failed"),
    ):
        del read[:]
        change()
        found = values(metrics_text(lab))
        assert found[f'tread_lab_runs{{sweep="placement",status="{state}"}}'] == 1, found
        assert "plan.json" not in read


def test_a_search_with_cells_to_suggest_has_not_ended(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    path = lab.sweep("placement").plan_path
    search = {"search": {}, "sweep": {"sweep": {"search": {"trials": 9}}}}
    write_json(path, {**json.loads(path.read_text()), **search})
    assert values(metrics_text(lab))['tread_lab_sweep_ended{sweep="placement"}'] == 0


def test_what_cannot_be_read_is_said_and_has_no_numbers(tmp_path: Path) -> None:
    assert values(metrics_text(Lab(tmp_path / "none"))) == {"tread_lab_readable": 0}
    (tmp_path / "file").touch()
    assert values(metrics_text(Lab(tmp_path / "file"))) == {"tread_lab_readable": 0}
    lab = write_sweep(tmp_path / "lab", small())
    lab.sweep("placement").plan_path.write_text("{")
    broken = {"tread_lab_readable": 1.0, "tread_lab_sweeps": 1.0}
    assert values(metrics_text(lab)) == {
        **broken,
        'tread_lab_sweep_readable{sweep="placement"}': 0,
    }


def test_every_metric_of_the_dashboard_for_grafana_is_one_of_these() -> None:
    named = {name for query in QUERIES for name in re.findall(r"tread_lab_\w+", query)}
    assert len(QUERIES) == 5 and named and named <= GAUGES.keys()
    chooser = GRAFANA["templating"]["list"][1]["query"]
    assert chooser == "label_values(tread_lab_trials, sweep)"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Prometheus) here")
def test_promtool_finds_no_fault_in_names_and_format(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        text = metrics_text(lab)
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def answered(address: str, query: str) -> list[Any]:
    """The series that a Prometheus returns for a query."""
    asked = urlencode({"query": query.replace("$sweep", ".*")})
    with urlopen(f"http://{address}/api/v1/query?{asked}", timeout=10) as response:
        series: list[Any] = json.load(response)["data"]["result"]
    return series


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """The address of a Prometheus with the settings of `docker/`, which scrapes a target."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = (ROOT / "docker/prometheus.yml").read_text()
    for shipped, here in (("dashboard:8600", target), ("30s", "1s")):
        assert settings.count(shipped) == 1
        settings = settings.replace(shipped, here)
    (folder / "prometheus.yml").write_text(settings)
    command = ["prometheus", f"--web.listen-address={address}"]
    command += [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield address
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus here")
def test_a_prometheus_that_scrapes_a_running_sweep_answers_every_query(
    tmp_path: Path, zygote: Zygote
) -> None:
    def series(query: str) -> list[Any]:
        try:
            return answered(address, query)
        except OSError:  # it starts
            return []

    sweep = {"experiment": "tiny", "axes": {"route": ["2->8"]}, "evaluate": []}
    sweep["fixed"] = {"train": {"steps": 100_000}, "execution": {"log_every": 5}}
    (tmp_path / "followed.yaml").write_text(json.dumps(sweep))
    out = tmp_path / "out"
    options = ("--executor", "inline", "--device", "cpu", "--no-mlflow")
    with running(tmp_path / "lab") as lab, served(lab) as url:
        driver = zygote.start(tmp_path, "sweep", "followed.yaml", *options, out=out, err=out)
        try:
            with prometheus(tmp_path, urlsplit(url).netloc) as address:
                running_runs = 'tread_lab_runs{sweep="followed",status="running"}'
                eventually(lambda: series(f"{running_runs} > 0"))
                empty = [query for query in QUERIES if not series(query)]
                assert empty == []
                assert [float(one["value"][1]) for one in series(running_runs)] == [1.0]
        finally:
            driver.kill()
