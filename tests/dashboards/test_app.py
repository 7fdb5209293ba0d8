"""The dashboard's server: an error of its own is an answer, a mistaken address another."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.seeing.conftest import served
from tests.synthetic import small, write_sweep
from tread_lab.dashboards.app import DashboardServer, serve
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError


def get(url: str) -> tuple[int, str, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], json.loads(error.read())


def test_an_exception_is_a_500_with_one_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = write_sweep(tmp_path, small())

    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("no such\nrun")

    monkeypatch.setattr("tread_lab.dashboards.views.overview", broken)
    with served(lab) as url:
        status, kind, tree = get(f"{url}api/sweeps/placement")
        assert (status, kind) == (500, "application/json")
        assert tree == {"error": r"error in the dashboard: KeyError: 'no such\nrun'"}
        assert get(f"{url}api/sweeps")[0] == 200
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_parameter_is_named(tmp_path: Path) -> None:
    with served(write_sweep(tmp_path, small())) as url:
        assert get(f"{url}api/sweeps?verbose=1")[::2] == (
            404,
            {"error": "unknown parameter 'verbose'"},
        )


def test_addresses_that_are_none_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(write_sweep(tmp_path, small())) as url:
        assert get(f"{url}api/sweeps/placement/cells/1?seed=%C2%B2")[0] == 200
        assert get(f"{url}api/sweeps/{'n' * 300}")[0] == 404
        host = urllib.parse.urlsplit(url)
        with socket.create_connection((str(host.hostname), host.port or 0)) as connection:
            connection.sendall(f"GET http://[ HTTP/1.1\r\nHost: {host.netloc}\r\n\r\n".encode())
            assert connection.recv(20) == b"HTTP/1.1 400 Bad Req"
    assert capsys.readouterr().err == "" and DashboardServer.request_queue_size == 128


def test_it_starts_before_the_first_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DashboardServer, "serve_forever", stop)
    said: list[str] = []
    serve(Lab(tmp_path / "later"), port=0, say=said.append)
    assert "no sweep has been planned there yet" in said[1]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file, no lab"):
        serve(Lab(tmp_path / "file"), port=0, say=said.append)
