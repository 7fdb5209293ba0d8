"""The dashboard's server: what it answers, to whom, and how it ends."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.seeing.conftest import served
from tests.synthetic import small, write_sweep
from tread_lab.dashboards.app import DashboardServer, serve
from tread_lab.dashboards.live import LiveSweep
from tread_lab.dashboards.pages import Pages
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.specs.errors import UserError


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A finished sweep, `placement`, with pictures."""
    return write_sweep(tmp_path_factory.mktemp("served"), small(pictures=True))


@pytest.fixture(scope="module")
def address(lab: Lab) -> Iterator[str]:
    with served(lab) as url:
        yield urlsplit(url).netloc


def ask(address: str, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(address, timeout=10)
    connection.request("GET", path, headers={"Host": address, **headers})
    response = connection.getresponse()
    return response, response.read()


def error(address: str, path: str) -> tuple[int, Any]:
    response, body = ask(address, path)
    return response.status, json.loads(body)["error"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/app.js", "javascript; charset=utf-8"),
        ("/api/sweeps", "application/json"),
        ("/api/sweeps/placement?metric=heldout/loss", "application/json"),
        ("/api/sweeps/placement/cells/1?seed=%C2%B2", "application/json"),
        ("/api/lab", "application/json"),
    ],
)
def test_every_page_is_typed_guarded_and_not_stored(address: str, path: str, kind: str) -> None:
    response, body = ask(address, path)
    assert response.status == 200 and response.headers["Content-Type"].endswith(kind) and body
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


def test_a_sample_grid_may_be_kept_and_is_the_file_itself(lab: Lab, address: str) -> None:
    grid = next(lab.root.glob("runs/*/evaluations/*/grid.png"))
    response, body = ask(address, f"/{grid.relative_to(lab.root)}", **{"Accept-Encoding": "gzip"})
    assert body == grid.read_bytes() and response.headers["Cache-Control"] == "max-age=600"
    assert response.headers["Content-Type"] == "image/png"


def test_long_answers_are_compressed_for_whom_can_read_that(address: str) -> None:
    response, packed = ask(address, "/app.js", **{"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == ask(address, "/app.js")[1]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/../pyproject.toml", "no page /../pyproject.toml"),
        ("/runs/../evaluations/x/grid.png", "no page /runs/../evaluations/x/grid.png"),
        ("/runs/x/evaluations/y/grid.png", "run x has no samples y"),
        ("/api/sweeps/../../x", "no page /api/sweeps/../../x"),
        ("/runs/x/evaluations/..%2f..%2fx/grid.png", None),
        (f"/api/sweeps/{'n' * 300}", f"no page /api/sweeps/{'n' * 300}"),
        ("/api/sweeps/placement/cells/-1", None),
        ("/api/sweeps/placement/cells/4", "no cell 4; the sweep has 4"),
        (f"/api/sweeps/placement/cells/{'9' * 30}", f"no cell {'9' * 30}"),
        ("/api/sweeps?verbose=1", "unknown parameter 'verbose'"),
        ("/api/sweeps/placement?seed=1", "unknown parameter 'seed'"),
    ],
)
def test_what_there_is_not_is_one_line(
    address: str, path: str, message: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = error(address, path)
    assert status == 404 and message in (None, said)
    assert ask(address, "http://[")[0].status == 404
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:8600", 200), ("evil.example:80", 400)],
)
def test_on_loopback_other_names_of_the_host_are_refused(
    address: str, host: str, status: int
) -> None:
    assert ask(address, "/api/sweeps", Host=host)[0].status == status


def test_only_loopback_refuses_names(lab: Lab) -> None:
    server = DashboardServer(lab, "127.0.0.1", 0)
    assert server.loopback and server.url.startswith("http://127.0.0.1:")
    with served(lab, host="127.0.0.2") as url:  # named itself, it is answered
        assert ask(urlsplit(url).netloc, "/api/sweeps")[0].status == 200
    with served(lab, host="0.0.0.0") as url:
        netloc = f"127.0.0.1:{urlsplit(url).port}"
        assert ask(netloc, "/api/sweeps", Host="some.name")[0].status == 200


def test_an_exception_is_a_500_with_one_line_of_json(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("no such\nrun")

    monkeypatch.setattr("tread_lab.dashboards.views.overview", broken)
    message = r"error in the dashboard: KeyError: 'no such\nrun'"
    assert error(address, "/api/sweeps/placement") == (500, message)
    assert ask(address, "/api/sweeps")[0].status == 200
    assert "Traceback" in capsys.readouterr().err


def test_a_sweep_is_listed_by_its_plan_as_it_is_now(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    pages, path = Pages(lab), lab.sweep("placement").plan_path
    text = path.read_text()
    for written, trials in ((text, 4), (text[:-20], 0), (text, 4)):
        path.write_text(written)
        assert [line["trials"] for line in pages.sweeps()] == [trials]


def test_sweeps_are_listed_the_newest_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for name, created in (("b", 2.0), ("c", 3.0), ("a", 1.0), ("undated", None)):
        plan = StoredPlan(name, "", "", (), (), {}, created=created)
        write_text(lab.sweep(name).plan_path, plan.text())
    assert [line["name"] for line in Pages(lab).sweeps()] == ["c", "b", "a", "undated"]


def test_a_sweep_that_cannot_be_read_keeps_none_from_the_page_of_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("broken", "other"):
        lab = write_sweep(tmp_path, small(name=name, states={(2, 8): "failed"}))
    lab.sweep("broken").plan_path.write_text("{")
    monkeypatch.setattr(LiveSweep, "_read", lambda _: None)  # records that take for ever
    pages = Pages(lab)
    lines = {line["name"]: line for line in pages.lab_page()}
    other, broken = lines["other"], lines["broken"]
    assert (other["counts"], broken["counts"]) == ({"completed": 3, "failed": 1}, {})
    assert "plan.json" in broken["question"]
    tree = pages.sweep("other")
    assert tree.keys().isdisjoint({"times", "hours"})
    assert tree["table"] == {"problem": "the records are being read"}


def test_a_port_that_is_taken_is_one_line(lab: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"cannot listen on 127.0.0.1:{port} \(.*in use"):
            serve(lab, port=port)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 130)])
def test_a_signal_ends_it_without_a_traceback(lab: Lab, number: signal.Signals, code: int) -> None:
    program = "from tread_lab.cli import run; run()"
    command = [sys.executable, "-c", program, "dashboard", "--port", "0", "--root", str(lab.root)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible)
    assert process.stderr is not None
    head = process.stderr.readline()
    assert "this machine only" in head
    assert ask(urlsplit(head.split()[3]).netloc, "/api/sweeps")[0].status == 200
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == code and "Traceback" not in rest


def interruptible() -> None:
    """Let SIGINT have its effect: it is ignored in what a shell runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_starts_before_the_first_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DashboardServer, "run", stop)
    said: list[str] = []
    serve(Lab(tmp_path / "later"), port=0, say=said.append)
    assert "no sweep has been planned there yet" in said[1]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file, no lab"):
        serve(Lab(tmp_path / "file"), port=0, say=said.append)
