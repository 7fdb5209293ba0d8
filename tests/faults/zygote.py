"""Starts tread-lab commands as processes of their own in milliseconds: imports once, then forks."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def serve() -> None:
    """Answer requests, one JSON line each: `{argv, cwd, env, prelude, out, err}` -> `{pid}`, where
    `err` may be absent, and `{poll: pid}` -> `{status}`. What was started dies with this process.
    """
    _import()
    print("{}", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _poll(request["poll"]) if "poll" in request else {"pid": _start(request)}
        print(json.dumps(answer), flush=True)


def _import() -> None:
    """What drivers need; no thread and no connection may be left open before a fork.

    Ray is left out: its processes would name their nodes alike.
    """
    import gc

    import tread_lab.analysis.figures.catalogue
    import tread_lab.cli.launch
    import tread_lab.cli.train_and_evaluate
    import tread_lab.evaluate.features
    import tread_lab.tracking.mlflow_tracker  # noqa: F401
    from tread_lab.data.embedded import open_fashion16
    from tread_lab.train.provenance import code_digest

    code_digest()
    for split in ("train", "heldout"):
        open_fashion16(split)  # type: ignore[arg-type]
    gc.collect()
    gc.freeze()


def _start(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        null, out = os.open(os.devnull, os.O_RDONLY), _opened(request["out"])
        err = _opened(request["err"]) if request.get("err") else out
        for descriptor, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(descriptor, target)
        os.chdir(request["cwd"])
        os.environ.update(request["env"])
        status = _run(request["argv"], request["prelude"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _run(argv: list[str], prelude: str) -> int:
    import traceback

    from tread_lab.cli.main import main

    try:
        exec(prelude, {})
        return main(argv)
    except BaseException:
        traceback.print_exc()
        return 70


def _poll(pid: int) -> dict[str, int | None]:
    """The exit code once the process has ended, negative for a signal."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return {"status": os.waitstatus_to_exitcode(status) if ended else None}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    assert Path.cwd().joinpath("tests/faults").is_dir()
    serve()
