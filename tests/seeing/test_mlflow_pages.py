"""MLflow's own pages in a real browser: cells compared, named by what differs, pictured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.browser import Browser, Page
from tests.faults.drivers import eventually
from tests.seeing.conftest import Shoot, needs_chromium
from tests.tracking.test_live_server import answers
from tests.tracking.test_store import free_port
from tread_lab.records.lab import Lab

# What a view holds is tested in tests/tracking; that these pages show it changes with MLflow alone.
pytestmark = [pytest.mark.slow, pytest.mark.long, needs_chromium]

TEXT = "document.body.innerText"
NO_TOOLS = "document.head.insertAdjacentHTML('beforeend', '<style>.modebar {opacity: 0}</style>')"


@pytest.fixture(scope="module")
def comparison(placed: Lab) -> Iterator[str]:
    """The address of the comparison as `tread-lab ui` prints it over a synchronised lab."""
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    MlflowTracker(placed, placed.mlflow_uri).sync("route_placement")
    port = free_port()
    command = [sys.executable, "-m", "tread_lab", "ui", f"--root={placed.root}"]
    process = subprocess.Popen(
        [*command, f"--port={port}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        printed = (line.partition("route_placement: ")[2] for line in process.stdout)
        address = next(filter(None, printed)).strip()
        eventually(lambda: answers(port), 90)
        yield address
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    """One page for all tests: MLflow's program takes seconds to load."""
    with chromium.page() as opened:
        yield opened


def open_view(page: Page, address: str, sign: str) -> None:
    """Open a view, close what MLflow puts beside it, wait for `sign`."""
    page.resize(1500, 1000)
    page.call("Page.navigate", url=address)
    page.wait(f"{TEXT}.includes({json.dumps(sign)})", 90)
    page.js(
        "[...document.querySelectorAll('button')].find((b) => b.ariaLabel === 'Close')?.click()"
    )
    page.js(NO_TOOLS)


@pytest.mark.task(60)
def test_the_cells_of_the_sweep_are_compared(comparison: str, page: Page, shoot: Shoot) -> None:
    open_view(page, comparison, "During training")
    page.wait(f"/1[78] matching runs/.test({TEXT})")  # the demo has a control beside
    page.resize(1500, 2600)  # cards are drawn once they are seen
    page.wait("document.querySelectorAll('.js-plotly-plot').length >= 4")
    page.wait(f"{TEXT}.includes('cost/train_flops')")
    text = page.js(TEXT)
    assert "2->8 s=0.5 seed 0" in text and "dense seed 0" in text, "names say what differs"
    assert "gap/heldout" in text and "cost/train_flops" in text
    assert all(request.startswith(comparison.partition("/#")[0]) for request in page.requests)
    page.resize(1500, 1000)
    time.sleep(1)  # bars grow into place
    shoot(page, "mlflow_cells")
