"""Claims about a lab's MLflow store and the command that shows it."""

from __future__ import annotations

import socket
import threading

import pytest

from tread_lab.config import UserError
from tread_lab.records.lab import Lab
from tread_lab.tracking.store import (
    check_store,
    one_writer,
    shown,
)


@pytest.mark.parametrize("uri", ["./mlruns", "file:///mlruns", ""])
def test_folders_are_refused(uri: str) -> None:
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI: must be"):
        check_store(uri)


def test_passwords_are_not_shown() -> None:
    assert shown("http://me:secret@host:1/x") == "http://me:***@host:1/x"
    assert shown("postgresql://me:se@cr/et@host/x y") == "postgresql://me:***@host/x y"
    assert shown("mysql://host/x?sslpassword=secret&a=1") == "mysql://host/x?sslpassword=***&a=1"
    assert shown("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"


def test_second_writer_waits(lab: Lab) -> None:
    order: list[str] = []

    def second() -> None:
        with one_writer(lab):
            order.append("second")

    waiting = threading.Thread(target=second)
    with one_writer(lab):
        waiting.start()
        waiting.join(0.5)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
