"""The dashboard's server: what is answered at which address, on this machine unless told."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from tread_lab.dashboards.pages import Pages
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError

NAME = r"[A-Za-z0-9][\w.+-]{0,199}"
LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none';"
    " form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SMALL = 1400  # bytes below which nothing is compressed
LEAVE = 2  # seconds that answers under way have when the server ends


class DashboardServer(uvicorn.Server):
    """The server of one lab; port 0 takes a free one.

    Attributes:
        loopback: whether this machine alone reaches it; then no other name of a host is answered.
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
        """Serve until `should_exit` is set or a signal comes, which then has its usual effect."""
        super().run(sockets or [self._socket])


def application(pages: Pages, *, hosts: Sequence[str]) -> Starlette:
    """Return what answers requests that name one of these hosts."""
    guards = [
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        Middleware(GZipMiddleware, minimum_size=SMALL, compresslevel=1),
    ]
    routes = [
        Route("/api/lab", _answer(pages.lab_page)),
        Route("/api/sweeps", _answer(pages.sweeps)),
        Route("/api/sweeps/{name}", _answer(pages.sweep, "metric", "version")),
        Route("/api/sweeps/{name}/cells/{number}", _answer(pages.cell, "seed")),
        Route("/runs/{run}/evaluations/{evaluation}/grid.png", _answer(pages.grid)),
        Route("/", _answer(pages.file)),
        Route("/{name:path}", _answer(pages.file)),
    ]
    return Starlette(
        routes=routes,
        middleware=guards,
        exception_handlers={UserError: _mistake, Exception: _failure},
    )


def _answer(make: Callable[..., Any], *parameters: str) -> Callable[[Request], Response]:
    """Return what answers a request with a file or tree, by names in path and parameters."""

    def answer(request: Request) -> Response:
        if not all(re.fullmatch(NAME, name) for name in request.path_params.values()):
            raise UserError(f"no page {request.url.path}")
        query = dict(request.query_params)
        unknown = sorted(query.keys() - set(parameters))
        if unknown and request.url.path.startswith("/api/"):
            raise UserError(f"unknown parameter {unknown[0]!r}")
        known = {name: value for name, value in query.items() if name in parameters}
        made = make(**request.path_params, **known)
        return _file(made) if isinstance(made, Path) else _json(made)

    return answer


def _file(path: Path) -> Response:
    cached = "max-age=600" if path.suffix == ".png" else "no-store"
    return FileResponse(path, headers={"Cache-Control": cached})


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
    say: Callable[[str], None] = print,
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
    who = "this machine only" if server.loopback else "no login: whoever reaches it can read it"
    try:
        say(f"dashboard of {lab.root}: {server.url} ({who}); Ctrl-C ends it")
        if not lab.sweeps():
            say("no sweep has been planned there yet; the page shows the first one when it is")
        server.run()
    except KeyboardInterrupt:
        say("")
