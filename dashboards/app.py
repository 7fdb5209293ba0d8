"""The dashboard's server: one page, JSON views and sample grids, on this machine unless told."""

from __future__ import annotations

import gzip
import ipaddress
import json
import re
import sys
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pandas as pd

from tread_lab.dashboards import cell, views
from tread_lab.dashboards.live import MEASURING, LiveLab, progress
from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.records.plan import StoredPlan
from tread_lab.specs.errors import UserError

PAGE = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
NAME = r"([A-Za-z0-9][\w.+-]{0,199})"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SMALL = 1400  # bytes below which nothing is compressed
RUNNING = 12  # running runs whose steps are shown


class Pages:
    """What the server answers, apart from how: path and query -> (type, body)."""

    def __init__(self, lab: Lab) -> None:
        self.live = LiveLab(lab)
        self.lab = lab
        files = {p.name: (KINDS[p.suffix], p.read_bytes()) for p in PAGE.iterdir() if p.is_file()}
        self._files = {**files, "": files["index.html"]}
        self._routes: list[tuple[str, Callable[..., Any], set[str]]] = [
            ("/api/sweeps", self._sweeps, set()),
            (f"/api/sweeps/{NAME}", self._sweep, {"metric", "version"}),
            (rf"/api/sweeps/{NAME}/cells/(\d{{1,7}})", self._cell, {"seed"}),
        ]

    def answer(self, path: str, query: dict[str, str]) -> tuple[str, bytes]:
        """Return the type and body of a page.

        Raises:
            UserError: there is no such page, sweep, cell, picture or parameter.
        """
        if path.removeprefix("/") in self._files:
            return self._files[path.removeprefix("/")]
        if found := re.fullmatch(rf"/runs/{NAME}/evaluations/{NAME}/grid\.png", path):
            return "image/png", self._grid(*found.groups())
        for pattern, make, parameters in self._routes:
            if found := re.fullmatch(pattern, path):
                if unknown := sorted(query.keys() - parameters):
                    raise UserError(f"unknown parameter {unknown[0]!r}")
                tree = make(*found.groups(), **query)
                body = json.dumps(tree, separators=(",", ":"), allow_nan=False, default=str)
                return "application/json", body.encode()
        raise UserError(f"no page {path}")

    def _sweeps(self) -> list[views.Tree]:
        sweeps = map(self.lab.sweep, self.lab.sweeps())
        lines = [views.sweep_line(sweep.name, _plan(sweep)) for sweep in sweeps]
        return sorted(lines, key=lambda line: -(line["created"] or 0))

    def _sweep(self, name: str, metric: str = "", version: str = "") -> views.Tree:
        """Return all of a sweep, or only what runs now if the page has this version of the rest."""
        now = self.live.sweep(name).snapshot()
        running = self._running(now.plan, now.frame)
        tree = {"version": now.version, "running": running, "problem": now.problem}
        tree |= {"age": round(now.age, 1), "time_left": self.lab.sweep(name).time_left()}
        if version == str(now.version) and now.version:
            return tree
        above = views.overview(now.plan, now.frame)
        chosen = metric if metric in above["metrics"] else above["metric"]
        return {**above, **tree, "cells": views.cells(now.frame, chosen, now.plan)}

    def _running(self, plan: StoredPlan, frame: pd.DataFrame) -> list[views.Tree]:
        """Return the runs that are at work, and how far they are."""
        steps = {trial.run: trial.steps for trial in plan.trials}
        rows = frame[frame["state"].isin(["running", MEASURING])].drop_duplicates("run")
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

    def _cell(self, name: str, number: str, seed: str = "") -> views.Tree:
        now = self.live.sweep(name).snapshot()
        chosen = int(seed) if re.fullmatch("[0-9]{1,19}", seed) else None
        return cell.cell(self.lab, now.plan, now.frame, int(number), chosen)

    def _grid(self, run: str, evaluation: str) -> bytes:
        folder = self.lab.run(run).path / "evaluations" / evaluation
        try:
            return (folder / "grid.png").read_bytes()
        except OSError:
            raise UserError(f"run {run} has no samples {evaluation}") from None


class Handler(BaseHTTPRequestHandler):
    """GET only; every answer is whole, typed and not to be stored."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tread-lab", ""
    server: DashboardServer

    def do_GET(self) -> None:
        """Answer one request; a mistake is one line of JSON."""
        if not self.server.knows(self.headers.get("Host", "")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"unknown host\n")
            return
        try:
            address = urlsplit(self.path)
        except ValueError:
            self._send_error(HTTPStatus.BAD_REQUEST, "this is no address")
            return
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        try:
            kind, body = self.server.pages.answer(unquote(address.path), query)
        except UserError as error:
            self._send_error(HTTPStatus.NOT_FOUND, str(error))
        except Exception as error:
            sys.stderr.write(traceback.format_exc())
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, f"error in the dashboard: {text}")
        else:
            self._send(HTTPStatus.OK, kind, body)

    def _send_error(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "application/json", json.dumps({"error": text}).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        packed = len(body) > SMALL and kind != "image/png"
        packed = packed and "gzip" in self.headers.get("Accept-Encoding", "")
        body = gzip.compress(body, 1) if packed else body
        try:
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Cache-Control", "max-age=600" if kind == "image/png" else "no-store")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # the reader went away

    def log_message(self, *_: Any) -> None:
        """Print no line for a request."""


class DashboardServer(ThreadingHTTPServer):
    """The server of one lab; port 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait; five by default

    def __init__(self, lab: Lab, host: str, port: int) -> None:
        self.pages = Pages(lab)
        self.loopback = _is_loopback(host)
        super().__init__((host, port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless the reader went away."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"

    def knows(self, host: str) -> bool:
        """Return whether a request names this server; on loopback no other name is accepted."""
        name = host.rpartition(":")[0] if re.search(r":\d+\Z", host) else host
        return not self.loopback or name in ("127.0.0.1", "localhost", "[::1]")


def serve(
    lab: Lab, *, host: str = "127.0.0.1", port: int = 8600, say: Callable[[str], None] = print
) -> None:
    """Serve until interrupted; the lab may be made later, by its first sweep.

    Raises:
        UserError: the lab is a file, or the port is taken.
    """
    if lab.root.exists() and not lab.root.is_dir():
        raise UserError(f"{lab.root} is a file, no lab; name the folder of one with --root")
    try:
        server = DashboardServer(lab, host, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host}:{port} ({reason}); choose a --port") from None
    who = (
        "this machine only"
        if server.loopback
        else "no login: whoever reaches this machine can read it"
    )
    say(f"dashboard of {lab.root}: {server.url} ({who}); Ctrl-C ends it")
    if not lab.sweeps():
        say("no sweep has been planned there yet; the page shows the first one when it is")
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("")


def _plan(sweep: SweepFolder) -> StoredPlan:
    """Return a sweep's plan; of one that cannot be read, what is listed says why."""
    try:
        return sweep.plan()
    except UserError as error:
        return StoredPlan(sweep.name, str(error), "", (), (), {})


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
