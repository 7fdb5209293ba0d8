"""What a page may do: only a page of this server, with its token, and as the terminal does it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.faults.drivers import eventually
from tests.seeing.conftest import TOKENS, served
from tests.synthetic import small, write_sweep
from tread_lab.dashboards.actions import LONGEST, TOKEN
from tread_lab.dashboards.app import DashboardServer
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder

STATES = {(0, 4): "interrupted", (5, 8): "failed"}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A sweep, `placement`: a run that was interrupted, a failed one, two that completed."""
    return write_sweep(tmp_path, small(states=STATES, specs=True))


@pytest.fixture
def url(lab: Lab) -> Iterator[str]:
    with served(lab) as address:
        yield address


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same sweep, which no test may change."""
    return write_sweep(tmp_path_factory.mktemp("kept"), small(states=STATES, specs=True))


@pytest.fixture(scope="module")
def kept_url(kept: Lab) -> Iterator[str]:
    with served(kept) as address:
        yield address


@pytest.fixture
def in_lab(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started find modules in the lab first."""
    monkeypatch.setenv("PYTHONPATH", str(lab.root))


def post(url: str, body: Any, *, method: str = "POST", **changes: str | None) -> tuple[int, str]:
    """The status and the line that answer a request of the page, with some of its headers changed.

    A header that is changed to `None` is not sent.
    """
    host = urlsplit(url).netloc
    headers: dict[str, str | None] = {
        "Host": host,
        "Origin": f"http://{host}",
        "Content-Type": "application/json",
        TOKEN: TOKENS.get(url, ""),
        **changes,
    }
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = HTTPConnection(host, timeout=30)
    sent = {name: value for name, value in headers.items() if value is not None}
    connection.request(method, "/api/act", text, sent)
    response = connection.getresponse()
    answer = response.read()
    try:
        tree = json.loads(answer)
    except ValueError:
        return response.status, answer.decode()
    return response.status, str(tree.get("said") or tree["error"])


def written(lab: Lab) -> dict[str, bytes]:
    """Every file of a lab."""
    paths = (path for path in lab.root.rglob("*") if path.is_file())
    return {str(path.relative_to(lab.root)): path.read_bytes() for path in paths}


def open_run(lab: Lab) -> RunFolder:
    """The run that has not ended."""
    runs = (lab.run(trial.run) for trial in lab.sweep("placement").plan().trials)
    return next(run for run in runs if run.result() is None)


STOP = {"action": "stop", "name": "RUN"}
OTHER: dict[str, str | None] = {"Origin": "http://evil.example"}
REBOUND: dict[str, str | None] = {"Host": "evil.example", **OTHER}


@pytest.mark.parametrize(
    ("method", "changes", "body", "status", "line"),
    [
        ("GET", {}, STOP, 404, "no page /api/act"),
        ("PUT", {}, STOP, 405, "Method Not Allowed"),
        ("POST", OTHER, STOP, 403, "not of a page of this server"),
        ("POST", {"Origin": None}, STOP, 403, "not of a page of this server"),
        ("POST", {"Origin": "null"}, STOP, 403, "not of a page of this server"),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, STOP, 403, "not of a page of this server"),
        ("POST", REBOUND, STOP, 400, "Invalid host header"),
        ("POST", {TOKEN: None}, STOP, 403, "address that this start of the dashboard"),
        ("POST", {TOKEN: "\xe9" * 43}, STOP, 403, "address that this start of the dashboard"),
        ("POST", {"Content-Type": "text/plain"}, STOP, 415, "sent as application/json"),
        ("POST", {"Content-Type": None}, STOP, 415, "sent as application/json"),
        ("POST", {}, b"", 413, "1 to 20,000 bytes"),
        ("POST", {}, b" " * (LONGEST + 1), 413, "1 to 20,000 bytes"),
        ("POST", {}, b"{", 400, 'write {"action"'),
        ("POST", {}, b"[" * 5000, 400, 'write {"action"'),
        ("POST", {}, {"action": "stop"}, 400, 'write {"action"'),
        ("POST", {}, {**STOP, "force": "yes"}, 400, 'write {"action"'),
        ("POST", {}, {**STOP, "text": 5}, 400, 'write {"action"'),
        ("POST", {}, {**STOP, "action": "stopp"}, 409, "did you mean 'stop'?"),
        ("POST", {}, {**STOP, "name": "../placement"}, 409, "is not a name"),
        ("POST", {}, {**STOP, "name": "placment"}, 409, "did you mean 'placement'?"),
        ("POST", {}, {**STOP, "name": "placement"}, 409, "is not running; there is nothing"),
        ("POST", {}, {"action": "again", "name": "RUN", "text": "failed"}, 409, "not a run alone"),
        ("POST", {}, {"action": "again", "name": "placement", "text": "all"}, 409, "unknown 'all'"),
        ("POST", {}, {"action": "note", "name": "RUN", "text": " "}, 409, "a note has 1 to 4,000"),
        ("POST", {}, {"action": "tag", "name": "RUN", "text": "a,b"}, 409, "a word of letters"),
    ],
)
def test_what_is_no_request_of_the_page_changes_nothing(
    method: str,
    changes: dict[str, Any],
    body: Any,
    status: int,
    line: str,
    kept: Lab,
    kept_url: str,
) -> None:
    if isinstance(body, dict) and body.get("name") == "RUN":
        body = {**body, "name": open_run(kept).name}
    files = written(kept)
    code, said = post(kept_url, body, method=method, **changes)
    assert (code, line in said) == (status, True), said
    assert written(kept) == files


def test_a_page_does_what_the_terminal_does(lab: Lab, url: str) -> None:
    run = open_run(lab)
    asked = [("note", "a\nb"), ("tag", "paper b2"), ("untag", "b2")]
    said = [post(url, {"action": a, "name": run.name, "text": text}) for a, text in asked]
    assert [status for status, _ in said] == [200] * 3
    assert (run.remarks.notes, run.remarks.tags) == (["a\nb"], ["paper"])
    with lab.sweep("placement").lock():
        for name, status in (("placement", 200), (run.name, 409)):
            assert post(url, {"action": "stop", "name": name, "text": "too long"})[0] == status
    assert [(r.event, r.text) for r in lab.sweep("placement").remarks.read()] == [
        ("stop", "too long")
    ]
    assert post(url, {"action": "note", "name": "placement", "text": "x"})[0] == 200
    assert lab.sweep("placement").remarks.notes == ["x"]


def test_the_token_is_of_one_start_of_a_server_and_in_no_answer(lab: Lab, url: str) -> None:
    for path in ("/", "/server.js", "/api/lab", "/api/sweeps/placement", "/metrics"):
        connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200 and TOKENS[url].encode() not in answer.read()
    with served(lab) as other:
        assert TOKENS[other] != TOKENS[url]
        changes = {TOKEN: TOKENS[other]}
        assert post(url, {**STOP, "name": "placement"}, **changes)[0] == 403


@pytest.mark.parametrize(
    ("act", "host", "status"),
    [(False, "127.0.0.1", 403), (True, "127.0.0.1", 200), (True, "evil.example", 403)],
)
def test_beyond_loopback_pages_act_only_if_asked_and_by_number(
    lab: Lab, act: bool, host: str, status: int
) -> None:
    with served(lab, host="0.0.0.0", act=act) as url:
        port = urlsplit(url).port
        assert bool(TOKENS[url]) == act
        names = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}", TOKEN: TOKENS[url]}
        body = {"action": "note", "name": "placement", "text": "x"}
        assert post(f"http://127.0.0.1:{port}/", body, **names)[0] == status
    assert DashboardServer(lab, "127.0.0.1", 0).guard.token


def driver(lab: Lab, code: str, *, host: str | None = None) -> None:
    """Let `python -m tread_lab` be another program, which drove the sweep last."""
    sweep, program = lab.sweep("placement"), lab.root / "tread_lab"
    program.mkdir()
    (program / "__init__.py").touch()
    (program / "__main__.py").write_text(code)
    sweep.keep_command([])
    command = sweep.command()
    assert command
    tree = {**vars(command), "folder": str(lab.root), "host": host or command.host}
    write_json(sweep.path / "command.json", tree)


AGAIN = {"action": "again", "name": "placement", "text": "failed"}
WAITS = """
import pathlib, sys, time
with open("started", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


@pytest.mark.usefixtures("in_lab")
def test_200_at_once_start_one_driver_and_keep_every_note(lab: Lab, url: str) -> None:
    driver(lab, WAITS)
    bodies = [AGAIN, {"action": "note", "name": "placement", "text": "n"}] * 100
    with ThreadPoolExecutor(40) as pool:
        said = list(pool.map(lambda body: post(url, body), bodies))
    statuses = Counter(status for (status, _), body in zip(said, bodies) if body is AGAIN)
    assert statuses == {200: 1, 409: 99}
    assert len(lab.sweep("placement").remarks.notes) == 100
    eventually((lab.root / "started").exists)
    (lab.root / "go").touch()
    assert (lab.root / "started").read_text() == "--retry-failed\n"


@pytest.mark.usefixtures("in_lab")
def test_a_driver_that_ends_at_once_tells_its_line(lab: Lab, url: str) -> None:
    driver(lab, "import sys; print('tread-lab: no room', file=sys.stderr); sys.exit(3)")
    assert post(url, AGAIN)[0] == 200
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)

    def failure() -> str:
        connection.request("GET", "/api/sweeps/placement")
        return str(json.loads(connection.getresponse().read())["failure"])

    eventually(lambda: bool(failure()))
    assert failure() == "the driver that was started here has ended: no room"


@pytest.mark.parametrize("host", ["", "node7"])
def test_what_cannot_be_run_here_is_told_as_a_command(lab: Lab, url: str, host: str) -> None:
    if host:
        driver(lab, "", host=host)
    status, said = post(url, AGAIN)
    command = r"cd \S+ && tread-lab" if host else "tread-lab sweep placement.yaml --name placement"
    where = f"on {host}" if host else "in a terminal"
    assert status == 409 and re.fullmatch(f"run it {where}: {command} --retry-failed", said)


def test_a_sweep_that_is_driven_is_not_started_twice(lab: Lab, url: str) -> None:
    driver(lab, WAITS)
    with lab.sweep("placement").lock():
        status, said = post(url, AGAIN)
    assert status == 409 and said.startswith("sweep placement is running")
