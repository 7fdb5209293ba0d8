"""The dashboard in a real browser: it moves with a running sweep, opens cells, hides no failure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analysis.conftest import ENDINGS
from tests.browser import Page
from tests.seeing.conftest import Shoot, needs_chromium, served
from tests.synthetic import Synthetic, write_sweep
from tread_lab.records.layout import Lab

pytestmark = [pytest.mark.slow, needs_chromium]

SHIFT = 8
SWEEP = """
question: Does the page move while a sweep runs?
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: 300, batch: 8}
  execution: {log_every: 2, checkpoint_every: 150}
axes: {route: {start: 0..1, end: 1..2}}
where: end - start == 1
evaluate: [{heldout_loss: {images: 32, levels: 4}}]
"""
ENDED = "document.querySelector('#progress')?.getAttribute('aria-label')"


def cell(**marks: str) -> str:
    """The selector of the first cell of the map with these marks."""
    return "#grid g.cell" + "".join(f'[data-{name}="{value}"]' for name, value in marks.items())


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real sweep of three runs that has just been started."""
    (tmp_path / "moving.yaml").write_text(SWEEP)
    program = "from tread_lab.cli import run; run()"
    command = [sys.executable, "-c", program, "sweep", "moving.yaml", "--no-mlflow"]
    process = subprocess.Popen(
        [*command, "--executor", "inline"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_running_sweep_is_followed_without_a_reload(
    driver: subprocess.Popen[bytes], tmp_path: Path, page: Page
) -> None:
    (tmp_path / "lab").mkdir(exist_ok=True)
    with served(Lab(tmp_path / "lab")) as url:
        page.open(url)
        page.wait(f"/^[01] of 3 runs/.test({ENDED})", 60)
        moved = [page.wait("document.querySelector('#running progress')?.value", 60)]
        moved.append(page.wait(f"document.querySelector('#running progress')?.value > {moved[0]}"))
        page.wait(f"document.querySelector('{cell(state='completed')}')", 60)
        assert page.js(ENDED).startswith(("2", "3"))
        page.wait(f"{ENDED} === '3 of 3 runs have ended'", 60)
        page.wait(f"document.querySelectorAll('{cell(state='completed')}').length === 2")
        assert page.js("document.querySelector('#running').children.length") == 0
        assert driver.wait(60) == 0
        assert page.js("performance.getEntriesByType('navigation').length") == 1
        assert page.errors == []


def test_progress_and_the_map_of_a_sweep_under_way(
    under_way: Lab, page: Page, shoot: Shoot
) -> None:
    with served(under_way) as url:
        page.resize(1360, 760)
        page.open(url)
        page.wait("document.querySelectorAll('#running li').length === 2")
        assert page.js(ENDED) == "10 of 17 runs have ended"
        assert "step" in page.text("#running li")
        states = page.js(
            "[...document.querySelectorAll('#grid g.cell')].map((g) => g.dataset.state)"
        )
        assert {s: states.count(s) for s in states} == {"completed": 9, "running": 2, "pending": 5}
        assert "cells left out" in page.text("#holes") or not page.text("#holes")
        shoot(page, "dashboard_running")


def test_a_click_opens_a_cell_and_shift_compares(placed: Lab, page: Page, shoot: Shoot) -> None:
    with served(placed) as url:
        page.resize(1360, 1180)
        page.open(f"{url}#sweep=route_placement")
        best = page.wait(
            "[...document.querySelectorAll('#grid g.cell')].find((g) =>"
            " g.ariaLabel.startsWith('2\u21928'))?.dataset.cell"
        )
        page.click(cell(cell=best))
        page.wait("document.querySelector('#panel .heads h2')?.innerText === '2\u21928'")
        assert page.js("document.querySelectorAll('#panel .charts svg path').length") >= 3
        assert page.js("document.querySelectorAll('#panel .similarity svg').length") == 2
        page.wait("[...document.images].every((image) => image.naturalWidth > 0)")
        assert "routes" in page.text("#panel .differences")
        assert "2\u21928 at 0.5" in page.text("#panel .differences")
        page.click("#panel details:last-of-type summary")
        assert "rate: 0.5" in page.text("#panel pre.spec")
        page.js("scrollTo(0, 0)")
        other = page.js(
            "[...document.querySelectorAll('#grid g.cell')].find((g) =>"
            " g.ariaLabel.startsWith('0\u219210'))?.dataset.cell"
        )
        page.click(cell(cell=other), modifiers=SHIFT)
        page.wait("document.querySelectorAll('#panel .heads h2').length === 2")
        heads = page.js(
            "[...document.querySelectorAll('#panel .numbers th')].map((t) => t.innerText)"
        )
        assert heads == ["", "dense", "2\u21928", "0\u219210"]
        page.wait("[...document.images].every((image) => image.naturalWidth > 0)")
        assert page.js("getSelection().toString()") == ""  # as a shift-click would select text
        shoot(page, "dashboard_compare")
        address = page.js("location.href")
        page.open(address)
        page.wait("document.querySelectorAll('#panel .heads h2').length === 2")
        assert page.errors == [] and all(r.startswith(url) for r in page.requests)


def test_failures_stand_with_their_reason_and_look_different(
    tmp_path: Path, page: Page, shoot: Shoot
) -> None:
    lab = write_sweep(tmp_path, Synthetic(states={**ENDINGS, (0, 2): "interrupted"}))
    with served(lab) as url:
        page.resize(1360, 760)
        page.open(url)
        rows = "[...document.querySelectorAll('#failures tbody tr')].map((r) => r.innerText)"
        page.wait(f"{rows}.length === 4")
        told = page.js(rows)
        for state in ("failed", "diverged", "stopped"):
            assert any(f"{state} on purpose" in row for row in told)
        marks = page.js(
            "Object.fromEntries([...document.querySelectorAll('#grid g.cell')].map((g) =>"
            " [g.dataset.state, g.querySelector('text')?.textContent]))"
        )
        del marks["completed"]
        assert len(set(marks.values())) == len(marks) == 5
        page.click(cell(state="failed"))
        page.wait("document.querySelector('#panel .reason')?.innerText === 'failed on purpose'")
        assert page.errors == []
