"""The dashboard's server: page, views, sample grids and metrics, on this machine unless told."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from tread_lab.analysis.report.reproduce import Repetition
from tread_lab.analysis.report.times import times_text
from tread_lab.dashboards import cell, views
from tread_lab.dashboards.actions import Drivers, Guard, Refused, act, again, asked
from tread_lab.dashboards.live import MEASURING, LiveLab, Snapshot, progress
from tread_lab.dashboards.metrics import CONTENT, metrics_text
from tread_lab.dashboards.table import ranking_table
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount, duration

PAGE = Path(__file__).parent / "page"
NAME = r"[A-Za-z0-9][\w.+-]{0,199}"
NAMES = {"name": rf"{NAME}(,{NAME}){{0,9}}"}  # several sweeps are one name, too
LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none';"
    " form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TABLE = ("metric", "question", "where", "sort", "columns")  # what chooses rows and columns
SMALL = 1400  # bytes below which nothing is compressed
AT_ONCE = 4  # sweeps that the lab's page reads for the first time
RUNNING = 12  # running runs whose steps are shown
LEAVE = 2  # seconds that answers under way have when the server ends


@dataclass(frozen=True)
class Text:
    """A text to send; one with a name is kept as that file."""

    body: str
    media: str
    name: str = ""


class Pages:
    """What the server answers, apart from how; each raises UserError for what there is not."""

    def __init__(self, lab: Lab) -> None:
        self.live, self.drivers = LiveLab(lab), Drivers(lab)
        self._sizes: dict[str, tuple[int, int]] = {}  # by sweep, of a version
        self.lab = lab

    def sweeps(self) -> list[views.Tree]:
        """Return a line for each sweep, the newest first."""
        sweeps = map(self.lab.sweep, self.lab.sweeps())
        lines = [dict(_line(s, s.stamp, modified(s.suggestions_path))) for s in sweeps]
        return sorted(lines, key=lambda line: -(line["created"] or 0))

    def lab_page(self) -> list[views.Tree]:
        """Return each sweep with its answer, states, age and size; a few are read at a time."""
        lines, unread = self.sweeps(), 0
        for line in lines:
            if unread < AT_ONCE:
                line |= self._standing(line["name"])
                unread += line["answer"] is None
        return lines

    def _standing(self, name: str) -> views.Tree:
        try:
            now = self.live.sweep(name).snapshot(wait=0)
        except UserError as error:
            return {"answer": None, "counts": {}, "problem": str(error)}
        created = now.plan.created
        return {
            "answer": (said := now.answer()) and vars(said),
            "counts": views.counts(now.plan, now.frame),
            "age": duration(time.time() - created) if created else "",
            "disk": amount(self._bytes(now)),
            "tags": self.lab.sweep(name).remarks.tags,
            "problem": now.problem,
        }

    def _bytes(self, now: Snapshot) -> int:
        """Return the bytes of a sweep and its runs, counted once for each version."""
        known, size = self._sizes.get(now.plan.name, (0, 0))
        if known != now.version:
            folders = [self.lab.sweep(now.plan.name).path]
            folders += [self.lab.run(run).path for run in now.plan.runs()]
            size = sum(map(_bytes_in, folders))
            self._sizes[now.plan.name] = now.version, size
        return size

    def sweep(
        self, name: str, metric: str = "", version: str = "", question: str = ""
    ) -> views.Tree:
        """Return all of a sweep, or only what runs now if the page has this version of the rest.

        Args:
            question: `steps` compares at equal steps where the runs of the sweep answer that, too.
        """
        now, folder = self.live.sweep(name).snapshot(), self.lab.sweep(name)
        running = self._running(now.plan, now.frame)
        tree = {"version": now.version, "running": running, "problem": now.problem}
        tree["age"] = round(now.age, 1)
        if now.version:
            tree["times"] = times_text(folder, now.plan.created, done=now.ended, newest=now.newest)
        tree["budget"] = views.budget(folder, now.plan, now.frame)
        tree |= {"driven": self.drivers.driven(folder), "remarks": views.remarks(folder.remarks)}
        tree["failure"] = self.drivers.failure(folder)
        if version == str(now.version) and now.version:
            return tree
        frame = now.asked(question)
        above = views.overview(now.plan, frame, now.answer(question))
        above |= {"counts": views.counts(now.plan, now.frame), "questions": now.questions}
        above["between"] = now.between and vars(now.between)
        chosen = metric if metric in above["metrics"] else above["metric"]
        return {**above, **tree, "cells": views.cells(frame, chosen, now.plan)}

    def table(self, name: str, columns: str = "", **chosen: str) -> views.Tree:
        """Return the ranking as the page shows it, or why there is none."""
        now = self.live.sweep(name).snapshot()
        if not now.version:
            return {"problem": "the records are being read"}
        frame = now.asked(chosen.get("question", ""))
        try:
            table = ranking_table(now.plan, frame, **chosen)
            return table.tree(frame, frame.attrs.get("comparison", ""))
        except UserError as error:
            return {"problem": str(error)}

    def csv(self, name: str, columns: str = "", **chosen: str) -> Text:
        """Return the ranking's rows with their whole numbers."""
        now = self.live.sweep(name).snapshot()
        table = ranking_table(now.plan, now.asked(chosen.get("question", "")), **chosen)
        return Text(table.csv(), "text/csv; charset=utf-8", f"{name}.csv")

    def latex(self, name: str, columns: str = "", **chosen: str) -> Text:
        """Return the ranking's rows and some of its columns as a LaTeX table."""
        now = self.live.sweep(name).snapshot()
        table = ranking_table(now.plan, now.asked(chosen.get("question", "")), **chosen)
        return Text(table.latex(columns), "text/x-tex; charset=utf-8", f"{name}.tex")

    def cell(self, name: str, number: str, seed: str = "", question: str = "") -> views.Tree:
        """Return the cell of a sweep with this number, through one of its seeds."""
        now = self.live.sweep(name).snapshot()
        if (place := _whole(number)) is None:
            raise UserError(f"no cell {number}")
        command = again(self.lab.sweep(name))
        frame = now.asked(question)
        return cell.cell(self.lab, now.plan, frame, place, _whole(seed), again=command)

    def repeat(self, name: str) -> views.Tree:
        """Return how to repeat a sweep, as its report says."""
        now = self.live.sweep(name)
        repetition = Repetition.of(self.lab, now.folder, now.snapshot().plan)
        return vars(repetition) | {"setups": [(vars(s), n) for s, n in repetition.setups]}

    def grid(self, run: str, evaluation: str) -> Path:
        """Return the picture of the samples of an evaluation."""
        path = self.lab.run(run).path / "evaluations" / evaluation / "grid.png"
        if not path.is_file():
            raise UserError(f"run {run} has no samples {evaluation}")
        return path

    def metrics(self) -> Text:
        """Return what Prometheus scrapes."""
        return Text(metrics_text(self.lab), CONTENT)

    def act(self, action: str, name: str, text: str = "") -> views.Tree:
        """Do what the page asks of a sweep or a run; return what follows."""
        return {"said": act(self.drivers, action, name, text)}

    def file(self, name: str = "index.html") -> Path:
        """Return a file of the page."""
        if name not in {path.name for path in PAGE.iterdir()}:
            raise UserError(f"no page /{name}")
        return PAGE / name

    def _running(self, plan: StoredPlan, frame: pd.DataFrame) -> list[views.Tree]:
        """Return the runs that are at work, and how far they are."""
        rows = frame[frame["state"].isin(["running", MEASURING])].drop_duplicates("run")
        if rows.empty:
            return []
        steps = {trial.run: trial.steps for trial in plan.trials}
        place = views.cell_numbers(frame)
        return [
            {
                "run": row["run"],
                "number": place[row["role"], row["cell"]],
                "seed": int(row["seed"]),
                "measuring": row["state"] == MEASURING,
                **progress(self.lab.run(row["run"]), steps[row["run"]]),
            }
            for row in rows.head(RUNNING).to_dict("records")
        ]


class DashboardServer(uvicorn.Server):
    """The server of one lab; port 0 takes a free one.

    Args:
        act: whether pages may act though other machines reach the server.

    Attributes:
        loopback: whether this machine alone reaches it; then no other name of a host is answered.
    """

    def __init__(self, lab: Lab, host: str, port: int, *, act: bool = False) -> None:
        self._socket = socket.create_server((host, port))
        self.loopback = ipaddress.ip_address(self._socket.getsockname()[0]).is_loopback
        names = (
            (*LOOPBACK, host) if self.loopback else (socket.gethostname(), socket.getfqdn(), "*")
        )
        self.guard = Guard(names) if self.loopback or act else Guard((), "")
        config = uvicorn.Config(
            application(Pages(lab), self.guard, hosts=names if self.loopback else ["*"]),
            headers=list(HEADERS.items()),
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            timeout_graceful_shutdown=LEAVE,
        )
        super().__init__(config)

    @property
    def url(self) -> str:
        """Where the page is, for whoever may read it."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}/"

    @property
    def acting_url(self) -> str:
        """The same with the token, for whoever may act."""
        return f"{self.url}#token={self.guard.token}" if self.guard.token else self.url

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set or a signal comes, which then has its usual effect."""
        super().run(sockets or [self._socket])


def application(pages: Pages, guard: Guard, *, hosts: Sequence[str]) -> Starlette:
    """Return what answers requests that name one of these hosts: GET, and POST of actions."""
    guards = [
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        Middleware(GZipMiddleware, minimum_size=SMALL, compresslevel=1),
    ]
    routes = [
        Route("/api/act", _acting(pages, guard), methods=["POST"]),
        Route("/api/lab", _answer(pages.lab_page)),
        Route("/api/sweeps", _answer(pages.sweeps)),
        Route("/api/sweeps/{name}", _answer(pages.sweep, "metric", "version", "question")),
        Route("/api/sweeps/{name}/table", _answer(pages.table, *TABLE)),
        Route("/api/sweeps/{name}/table.csv", _answer(pages.csv, *TABLE)),
        Route("/api/sweeps/{name}/table.tex", _answer(pages.latex, *TABLE)),
        Route("/api/sweeps/{name}/repeat", _answer(pages.repeat)),
        Route("/api/sweeps/{name}/cells/{number}", _answer(pages.cell, "seed", "question")),
        Route("/runs/{run}/evaluations/{evaluation}/grid.png", _answer(pages.grid)),
        Route("/metrics", _answer(pages.metrics)),
        Route("/", _answer(pages.file)),
        Route("/{name:path}", _answer(pages.file)),
    ]
    return Starlette(
        routes=routes,
        middleware=guards,
        exception_handlers={UserError: _mistake, Exception: _failure},
    )


def _answer(make: Callable[..., Any], *parameters: str) -> Callable[[Request], Response]:
    """Return what answers a request with a file, text or tree, by names in path and parameters."""

    def answer(request: Request) -> Response:
        parts = request.path_params.items()
        if not all(re.fullmatch(NAMES.get(part, NAME), name) for part, name in parts):
            raise UserError(f"no page {request.url.path}")
        query = dict(request.query_params)
        unknown = sorted(query.keys() - set(parameters))
        if unknown and request.url.path.startswith("/api/"):
            raise UserError(f"unknown parameter {unknown[0]!r}")
        known = {name: value for name, value in query.items() if name in parameters}
        made = make(**request.path_params, **known)
        if isinstance(made, Text):
            return _text(made)
        return _file(made) if isinstance(made, Path) else _json(made)

    return answer


def _acting(pages: Pages, guard: Guard) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers a request of the page to do something."""

    async def answer(request: Request) -> Response:
        try:
            guard.check(request.headers)
            wanted = asked(await request.body())
            return _json(await run_in_threadpool(pages.act, **wanted))
        except Refused as refusal:
            return _json({"error": str(refusal)}, refusal.status)
        except UserError as error:
            return _json({"error": str(error)}, 409)

    return answer


def _file(path: Path) -> Response:
    cached = "max-age=600" if path.suffix == ".png" else "no-store"
    return FileResponse(path, headers={"Cache-Control": cached})


def _text(text: Text) -> Response:
    named = {"Content-Disposition": f'attachment; filename="{text.name}"'} if text.name else {}
    headers = {"Cache-Control": "no-store", "Content-Type": text.media, **named}
    return Response(text.body, headers=headers)


def _json(tree: Any, status: int = 200) -> Response:
    body = json.dumps(tree, separators=(",", ":"), allow_nan=False, default=str)
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def _mistake(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 404)


def _failure(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return _json({"error": f"error in the dashboard: {text}"}, 500)


def serve(
    lab: Lab,
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    act: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted; the lab may be made later, by its first sweep.

    Args:
        act: whether pages may stop and start runs though other machines reach the server.

    Raises:
        UserError: the lab is a file, or the port is taken.
    """
    if lab.root.exists() and not lab.root.is_dir():
        raise UserError(f"{lab.root} is a file, no lab; name the folder of one with --root")
    try:
        server = DashboardServer(lab, host, port, act=act)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host}:{port} ({reason}); choose a --port") from None
    who = (
        "this machine only" if server.loopback else "no login: whoever reaches it can read it"
    ) + ("; whoever has this address can act" if server.guard.token else "")
    try:
        say(f"dashboard of {lab.root}: {server.acting_url} ({who}); Ctrl-C ends it")
        if not lab.sweeps():
            say("no sweep has been planned there yet; the page shows the first one when it is")
        server.run()
    except KeyboardInterrupt:
        say("")


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,19}", text) else None


def _bytes_in(folder: Path) -> int:
    paths = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_size for path in paths if path.exists())


@lru_cache(maxsize=1000)
def _line(sweep: SweepFolder, *_stamps: float | None) -> views.Tree:
    """Return a sweep's line, read once for each plan; of one that cannot be read it says why."""
    try:
        return views.sweep_line(sweep.name, sweep.plan())
    except UserError as error:
        return views.sweep_line(sweep.name, StoredPlan(sweep.name, str(error), "", (), (), {}))
