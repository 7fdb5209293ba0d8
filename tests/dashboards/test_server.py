"""The dashboard's server: what it answers, to whom, and how it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.faults.drivers import Zygote
from tests.seeing.conftest import served
from tests.synthetic import small, write_sweep
from tread_lab.dashboards.server import Pages
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A finished sweep, `placement`, with pictures."""
    return write_sweep(tmp_path_factory.mktemp("served"), small(pictures=True, specs=True))


@pytest.fixture(scope="module")
def address(lab: Lab) -> Iterator[str]:
    with served(lab) as url:
        yield urlsplit(url).netloc


def ask(address: str, path: str, **options: Any) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(address, timeout=60)
    headers = {"Host": options.get("host", address)}
    connection.request(options.get("method", "GET"), path, headers=headers)
    response = connection.getresponse()
    return response, response.read()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/sweeps/placement", "text/html; charset=utf-8"),
        ("/sweeps/placement/main", "text/html; charset=utf-8"),
        ("/sweeps/placement/progress", "text/html; charset=utf-8"),
        ("/sweeps/placement/cells/1", "text/html; charset=utf-8"),
        ("/static/page.css", "text/css; charset=utf-8"),
        ("/static/page.js", "javascript; charset=utf-8"),
        ("/static/plotly.js", "javascript; charset=utf-8"),
    ],
)
def test_every_page_is_typed_and_guarded(address: str, path: str, kind: str) -> None:
    response, body = ask(address, path)
    assert response.status == 200 and response.headers["Content-Type"].endswith(kind) and body
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


def test_a_sample_grid_is_the_file_itself(lab: Lab, address: str) -> None:
    grid = next(lab.root.glob("runs/*/evaluations/*/grid.png"))
    response, body = ask(address, f"/{grid.relative_to(lab.root)}")
    assert body == grid.read_bytes() and response.headers["Content-Type"] == "image/png"


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/static/..%2fserver.py",
        "/static/server.py",
        "/sweeps/absent",
        "/sweeps/placement/cells/99",
        "/sweeps/placement/cells/-1",
        "/runs/../evaluations/x/grid.png",
        "/runs/x/evaluations/y/grid.png",
    ],
)
def test_what_there_is_not_is_404(address: str, path: str) -> None:
    assert ask(address, path)[0].status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:8600", 200), ("evil.example:80", 400)],
)
def test_loopback_refuses_other_host_names(address: str, host: str, status: int) -> None:
    assert ask(address, "/", host=host)[0].status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_only_get_is_answered(address: str, method: str) -> None:
    assert ask(address, "/sweeps/placement", method=method)[0].status == 405


def test_the_tag_changes_with_the_records(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(states={(2, 8): "interrupted"}, specs=True))
    pages = Pages(lab)
    tags = [pages.page("placement", "progress").headers["ETag"] for _ in range(2)]
    assert tags[0] == tags[1]
    run = lab.sweep("placement").plan().trials[2].run
    lab.run(run).finish(RunState.DIVERGED, step=3, reason="on purpose")
    assert pages.page("placement", "progress").headers["ETag"] != tags[0]
    assert b"diverged" in bytes(pages.page("placement", "main").body)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 130)])
def test_a_signal_ends_it_quietly(
    lab: Lab, number: signal.Signals, code: int, zygote: Zygote, tmp_path: Path
) -> None:
    command = ("dashboard", "--port", "0", "--root", str(lab.root))
    with zygote.start(tmp_path, *command, out=tmp_path / "said") as server:
        server.until(lambda: "this machine only" in server.said())
        assert ask(urlsplit(server.said().split()[3]).netloc, "/")[0].status == 200
        server.signal(number)
        assert server.wait() == code and "Traceback" not in server.said()
