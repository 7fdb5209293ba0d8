"""Renders the report as one HTML file that needs no network; the only door to jinja2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_HERE = Path(__file__).parent


def render(contents: dict[str, Any]) -> str:
    """Return the page; every text is escaped, style and pictures are inside."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (_HERE / "report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.jinja").render(**contents, style=style)
