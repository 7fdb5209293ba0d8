"""The dashboard's server: the page of every sweep of a lab, read again while runs go."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from tread_lab.config.errors import UserError
from tread_lab.config.units import counts_text, duration
from tread_lab.dashboards.contents import HERE, contents, progress, render
from tread_lab.dashboards.panel import panel
from tread_lab.records.durable import digest, modified
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import metric_label
from tread_lab.results import ranked_cells, ranking_key, result_texts, routed, trials_frame

NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,199}")
LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
HEADERS = {
    # Plotly sets styles and compiles the functions of its WebGL charts.
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-eval';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE = "page.html.jinja"
SMALL = 1400  # bytes below which nothing is compressed
LEAVE = 2  # seconds that answers under way have when the server ends


Reader = Callable[[Lab, str], dict[str, Any]]


class Pages:
    """Responses of the server; a sweep is read again after its records change."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._read: dict[tuple[Reader, str], tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def read(self, name: str, reader: Reader = contents) -> tuple[str, dict[str, Any]]:
        """Return the version of a sweep's records, and the result of a reader."""
        with self._lock:
            version = self.version(name)
            if self._read.get((reader, name), ("",))[0] != version:
                self._read[reader, name] = version, reader(self.lab, name)
            return self._read[reader, name]

    def version(self, name: str) -> str:
        """Return a digest of the modification times of a page's sources."""
        folder = self.lab.known_sweep(name)
        times: list[object] = [folder.stamp]
        for run in folder.plan().runs():
            path = self.lab.run(run).path
            places = (path, path / "result.json", *sorted(path.glob("evaluations/*")))
            times += [modified(place) or 0 for place in places]
        return digest(repr(times))

    def index(self) -> Response:
        """Answer a line for each sweep, the newest first, or why it cannot be read."""
        lines = list[dict[str, Any]]()
        for name in self.lab.sweeps():
            try:
                lines.append(dict(self.read(name, sweep_line)[1]))
            except UserError as error:
                unread = {"question": str(error), "states": "", "best": "", "at": 0}
                lines.append({"name": name, **unread})
        for line in lines:
            line["age"] = f"{duration(time.time() - line['at'])} ago" if line["at"] else ""
        lines.sort(key=lambda line: -line["at"])
        return _html(render("sweeps.html.jinja", sweeps=lines, root=self.lab.root.name))

    def page(self, name: str, part: str = "") -> Response:
        """Answer the page of a sweep, or its part `main` or `progress`; the tag changes with
        anything but the progress."""
        if part not in ("", "main", "progress"):
            raise UserError(f"no part {part}")
        version, now = self.read(name)
        found = {**now, "progress": progress(self.lab, now["frame"], now["plan"])}
        text = render(PAGE, **found, live=True, assets=None, fragment=part, panels=[])
        return _html(text, ETag=f'"{version}"')

    def cell(self, name: str, number: str) -> Response:
        _, now = self.read(name)
        if not number.isdecimal() or int(number) >= len(now["numbers"]):
            raise UserError(f"no cell {number}; the sweep has {len(now['numbers'])}")
        found = panel(self.lab, now["plan"], now["frame"], int(number), embed=False)
        return _html(render(PAGE, panels=[found], live=True, assets=None, fragment="panel"))

    def grid(self, run: str, evaluation: str) -> Response:
        path = self.lab.run(run).path / "evaluations" / evaluation / "grid.png"
        if not path.is_file():
            raise UserError(f"run {run} has no samples {evaluation}")
        return FileResponse(path, headers={"Cache-Control": "max-age=600"})

    def static(self, file: str) -> Response:
        """Answer the style, the script and Plotly."""
        if file == "plotly.js":
            import plotly

            path = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
            return FileResponse(path, headers={"Cache-Control": "max-age=86400"})
        if file not in ("page.css", "page.js"):
            raise UserError(f"no file {file}")
        return FileResponse(HERE / file)


class DashboardServer(uvicorn.Server):
    """The server of one lab; port 0 selects a free port.

    Attributes:
        loopback: whether only this machine can reach it; other host names are then rejected.
    """

    def __init__(self, lab: Lab, host: str, port: int) -> None:
        self._socket = socket.create_server((host, port))
        self.loopback = ipaddress.ip_address(self._socket.getsockname()[0]).is_loopback
        config = uvicorn.Config(
            application(Pages(lab), hosts=[*LOOPBACK, host] if self.loopback else ["*"]),
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
        """Where the page is."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}/"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set or a signal arrives, which then has its usual effect."""
        super().run(sockets or [self._socket])


def application(pages: Pages, *, hosts: Sequence[str]) -> Starlette:
    """Return the application, which answers GET requests to these hosts."""
    guards = [
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        Middleware(GZipMiddleware, minimum_size=SMALL, compresslevel=1),
    ]
    routes = [
        Route("/", _answer(pages.index)),
        Route("/sweeps/{name}", _answer(pages.page)),
        Route("/sweeps/{name}/{part}", _answer(pages.page)),
        Route("/sweeps/{name}/cells/{number}", _answer(pages.cell)),
        Route("/runs/{run}/evaluations/{evaluation}/grid.png", _answer(pages.grid)),
        Route("/static/{file}", _answer(pages.static)),
    ]
    return Starlette(
        routes=routes,
        middleware=guards,
        exception_handlers={UserError: _mistake, Exception: _failure},
    )


def _answer(make: Callable[..., Response]) -> Callable[[Request], Response]:
    """Return what answers a request by the names in its path, none of which leads elsewhere."""

    def answer(request: Request) -> Response:
        if not all(NAME.fullmatch(name) for name in request.path_params.values()):
            raise UserError(f"no page {request.url.path}")
        return make(**request.path_params)

    return answer


def _html(text: str, **headers: str) -> Response:
    return Response(text, headers=headers, media_type="text/html")


def _mistake(_: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 404)


def _failure(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return PlainTextResponse(f"error in the dashboard: {text}", 500)


def sweep_line(lab: Lab, name: str) -> dict[str, Any]:
    """Return question, states, best gap with its interval, and when the sweep was planned."""
    plan, frame = lab.sweep(name).plan(), trials_frame(lab, name)
    states, key = Counter(map(str, frame.drop_duplicates("run")["state"])), ranking_key(frame)
    best = ""
    if key is not None:
        cells = ranked_cells(frame, key)
        first = cells[cells["role"] == "trial"].head(1)
        number = result_texts(first, key)
        best = f"{routed(first['cell'].iloc[0])}: {metric_label(key)} {number[0]}" if number else ""
    return {
        "name": name,
        "question": plan.question,
        "states": counts_text(states),
        "best": best,
        "at": plan.created or 0,
    }


def serve(
    lab: Lab,
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted; the lab may be created later by its first sweep.

    Raises:
        UserError: the port is taken.
    """
    try:
        server = DashboardServer(lab, host, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host}:{port} ({reason}). Try another --port.") from None
    who = "this machine only" if server.loopback else "no login: whoever reaches it can read it"
    try:
        say(f"dashboard of {lab.root}: {server.url} ({who}); Ctrl-C ends it")
        server.run()
    except KeyboardInterrupt:
        say("")
