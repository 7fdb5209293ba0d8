"""Claims about the status of a run: what counts as progress."""

from __future__ import annotations

import os

from tread_lab.records.lab import Lab
from tread_lab.records.run_status import run_status
from tread_lab.records.status import RunState


def test_a_run_moved_when_any_of_its_records_was_last_written(lab: Lab) -> None:
    run = lab.run("abc")
    assert run_status(run).moved is None
    run.attempts.close(run.attempts.open(), "completed")
    with run.log() as log:
        log(1, loss=0.5)
    run.heartbeat_path.touch()
    run.finish(RunState.COMPLETED, step=1)
    paths = [run.path / name for name in ("attempts.jsonl", "log.jsonl", ".pulse", "result.json")]
    for latest in paths:
        for path in paths:
            os.utime(path, (1000, 2000 if path == latest else 1000))
        assert run_status(run).moved == 2000
