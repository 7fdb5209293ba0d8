"""MLflow's own pages in a real browser: cells compared, named by what differs, pictured."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tests.browser import Browser, Page
from tests.faults.drivers import eventually
from tests.seeing.conftest import Shoot, needs_chromium
from tests.tracking.test_live_server import answers
from tests.tracking.test_store import free_port
from tread_lab.records.lab import Lab
from tread_lab.tracking.store import EXPERIMENT, QUIET, STORE, ui_command

# What a view holds is tested in tests/tracking; that these pages show it changes with MLflow alone.
pytestmark = [pytest.mark.slow, pytest.mark.long, needs_chromium]

TEXT = "document.body.innerText"
NO_TOOLS = "document.head.insertAdjacentHTML('beforeend', '<style>.modebar {opacity: 0}</style>')"


@pytest.fixture(scope="module")
def store(placed: Lab) -> Iterator[str]:
    """The address of the experiment's runs in MLflow's pages over a synchronised lab."""
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    MlflowTracker(placed, placed.mlflow_uri).sync("route_placement")
    port = free_port()
    process = subprocess.Popen(
        ui_command(placed, port=port),
        env={**os.environ, **QUIET, STORE: placed.mlflow_uri},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: answers(port), 90)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    """One page for all tests: MLflow's program takes seconds to load."""
    with chromium.page() as opened:
        yield opened


def saved_view(base: str, name: str) -> str:
    """The address of a view that the sweep saved, as MLflow's menu of views opens it."""
    query = f"{base}/api/2.0/mlflow/experiments/get-by-name?experiment_name={EXPERIMENT}"
    with urllib.request.urlopen(query, timeout=10) as answer:
        experiment = json.load(answer)["experiment"]
    tags = {tag["key"]: tag["value"] for tag in experiment["tags"]}
    views = {json.loads(v)["name"]: k for k, v in tags.items() if "sharedViewState" in k}
    key = views[name].rpartition(".")[2]
    page = f"{base}/#/experiments/{experiment['experiment_id']}/runs"
    return f"{page}?viewStateShareKey={key}&compareRunsMode=CHART&workflowType=machine_learning"


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
def test_the_cells_of_the_sweep_are_compared(store: str, page: Page, shoot: Shoot) -> None:
    open_view(page, saved_view(store, "route_placement"), "Which cell is best")
    page.wait(f"{TEXT}.includes('17 matching runs')")
    page.wait("document.querySelectorAll('.js-plotly-plot').length >= 4")
    text = page.js(TEXT)
    assert "2->8 s=0.5" in text and "2->8 s=0.5 seed 0" in text, "names say what differs"
    assert "Sort: gap/heldout" in text and "During training" in text
    assert all(request.startswith(store) for request in page.requests)
    time.sleep(1)  # bars grow into place
    shoot(page, "mlflow_cells")
