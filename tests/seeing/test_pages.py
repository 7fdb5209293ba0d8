"""The pages that people live in: their answer first, by keyboard, on any screen, in both themes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser, Page
from tests.four_sweeps import ENDINGS
from tests.seeing.conftest import needs_chromium, served
from tests.synthetic import Synthetic, small, write_sweep
from tread_lab.analysis.report.answer import answer
from tread_lab.frames import trials_frame
from tread_lab.records.durable import write_json
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import TRAIN_LOSS

pytestmark = [pytest.mark.slow, needs_chromium]

DRAWN = "document.querySelector('#panel .numbers') && document.querySelector('#ranking td')"
SERIOUS = """
axe.run({rules: {"label-content-name-mismatch": {enabled: true}}}).then((found) => found.violations
  .filter((v) => ["serious", "critical"].includes(v.impact))
  .map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)).join(" | ")}`))
"""
ROWS = "[...document.querySelectorAll('#ranking tbody tr')].map((r) => r.innerText)"
ROUTES = ((0, 4), (0, 6), (0, 8), (2, 8), (5, 8))
LONG = "a_sweep_whose_name_has_eighty_characters_so_that_whatever_is_too_narrow_for_it_shows"


def axe() -> Path | None:
    """axe-core 4.14 or newer, where AXE names its file: 4.10 reads SVG titles as text."""
    return Path(named) if (named := os.environ.get("AXE")) else None


RATES, SHIFT = (0.25, 0.5, 0.75), {0: 0.001, 1: -0.001, 2: 0.0}
SEARCH = {
    "search": {"sampler": "tpe", "objectives": ["gap/heldout"], "space": {"cells": 78}},
    "space": [],
    "sweep": {"sweep": {"search": {"trials": 20}}},
}


LIVE = {(0, 8): "interrupted", (2, 8): "interrupted", (5, 8): "pending"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A sweep of every kind; runs have lengths of their own, so that none is another sweep's."""
    root = tmp_path_factory.mktemp("pages")
    axis = small(name="axis", routes=((2, 8),), rates=RATES, seeds=(0, 1, 2), seed_shift=SHIFT)
    for sweep in (
        Synthetic(name="grid", routes=ROUTES, pictures=True),
        axis,
        Synthetic(name="endings", states={**ENDINGS, (0, 2): "interrupted"}),
        small(name=LONG, budgets=(104, 204, 304, 404)),
        small(name="search", routes=ROUTES, rates=RATES),
        small(name="live_grid", routes=ROUTES, states=LIVE, steps=401),
        small(name="live_search", routes=ROUTES, states=LIVE, steps=402),
        small(name="matched", budgets=(405, 406)),
        small(name="unmatched", budgets=(407, 408)),
    ):
        lab = write_sweep(root, sweep)
    replan(lab, "search", **SEARCH)
    replan(lab, "live_search", **SEARCH)
    for name in ("matched", "unmatched"):
        dense, other, *trials = json.loads(lab.sweep(name).plan_path.read_text())["trials"]
        longer = [t | {"baseline": dense["run"]} for t in trials if t["baseline"] == other["run"]]
        match = {"sweep": {"match": "train_flops" if name == "matched" else None}}
        replan(lab, name, trials=[dense, *longer], sweep=match)
    with contextlib.ExitStack() as locks:
        for name in ("live_grid", "live_search"):
            for trial in lab.sweep(name).plan().trials:
                run = lab.run(trial.run)
                if run.state() == "interrupted":
                    with run.log() as log:
                        log(200, **{TRAIN_LOSS: 0.4})
                    locks.enter_context(run.lock())
        yield lab


@pytest.fixture(scope="module")
def url(lab: Lab) -> Iterator[str]:
    """The address of one server for all tests: it reads each sweep once."""
    with served(lab) as address:
        yield address


def replan(lab: Lab, name: str, **changes: Any) -> None:
    path = lab.sweep(name).plan_path
    write_json(path, json.loads(path.read_text()) | changes)


def opened(page: Page, address: str) -> None:
    page.open(address)
    page.wait(DRAWN)


LAB = "document.querySelectorAll('#lab article').length === 9"
RUNS = f"{DRAWN} && document.querySelectorAll('#running li').length === 2"
COMPARED = "document.querySelector('#compared').innerText === 'compared at {}'"
SEEN = {  # sweep, "" for all -> what is seen of it
    "": LAB,
    "grid": DRAWN,
    "axis": "document.querySelectorAll('#grid .along .seed').length === 9",
    "endings": "document.querySelectorAll('#failures tbody tr').length === 4",
    "search": f"{DRAWN} && document.querySelector('#space').innerText.startsWith('15 of 20')",
    LONG: f"{DRAWN} && {ROWS}.filter((row) => row.includes('dense')).length === 4",
    "live_grid": RUNS,
    "live_search": f"{RUNS} && document.querySelector('#space').innerText.includes('in 78 cells')",
    "matched": f"{DRAWN} && {COMPARED.format('equal training FLOPs')}",
    "unmatched": f"{DRAWN} && {COMPARED.format('unequal steps')}",
}
FIT = "document.documentElement.scrollWidth <= innerWidth"
THEMED = "document.documentElement.dataset.theme = {!r}"


@pytest.mark.parametrize("sweep", SEEN)
def test_every_state_fits_every_screen_and_axe_finds_nothing_serious(
    url: str, page: Page, sweep: str
) -> None:
    """Both themes at three widths; axe-core, where it is there, reads each theme and each width."""
    page.open(f"{url}#sweep={sweep}" if sweep else url)
    page.wait(SEEN[sweep])
    fits(page, (1400, ("light", "dark")), (900, ("dark",)), (420, ("light",)))
    press_tab_to(page, "#lab a" if not sweep else "#grid [data-cell]")
    page.call("Input.dispatchKeyEvent", **ENTER)
    page.wait("location.hash.includes('cells=')" if sweep else "location.hash !== ''")
    assert page.errors == []


def fits(page: Page, *looks: tuple[int, tuple[str, ...]]) -> None:
    """A page fits each width in some themes, and axe-core, where it is there, finds nothing."""
    program = axe()
    page.js((program.read_text() if program else "") + ";0")
    for width, themes in looks:
        page.resize(width, 900)
        for theme in themes if program else themes[:1]:  # without it colours decide nothing
            page.js(THEMED.format(theme))
            page.wait(FIT)  # charts are drawn anew
            assert program is None or page.js(SERIOUS) == [], (width, theme)


ENTER = {"type": "keyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
ENTER["text"] = "\r"
ON = """
(() => {
  const { activeElement } = document;
  const { left, right, top, bottom } = activeElement.getBoundingClientRect();
  const seen = right > 0 && left < innerWidth && bottom > 0 && top < innerHeight;
  return [activeElement.matches(%r), seen];
})()
"""


def press_tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is on such an element; wherever it is, it is on the screen."""
    page.js("document.activeElement.blur()")
    for _ in range(60):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        reached, seen = page.js(ON % selector)
        assert seen
        if reached:
            return
    raise AssertionError(f"60 times Tab do not reach {selector}")


def test_an_empty_lab_says_what_will_be_shown_there(tmp_path: Path, page: Page) -> None:
    with served(Lab(tmp_path)) as url:
        page.open(url)
        page.wait("document.querySelector('#none')?.hidden === false")
        fits(page, (1400, ("light", "dark")), (420, ("light", "dark")))
        assert page.errors == []


def test_a_sweep_opens_with_the_answer_of_its_report_and_its_best_cell(
    lab: Lab, url: str, page: Page
) -> None:
    said = answer(lab, trials_frame(lab, "grid"), lab.sweep("grid").plan())
    opened(page, f"{url}#sweep=grid")
    assert page.text("#finding") == said.sentence
    assert page.text("#certainty") == said.certainty
    assert page.text("#report").endswith(": tread-lab report grid")
    assert "lower is better" in page.text("#terms")
    assert page.text("#panel .heads h2") == "2\u21928 s=0.5"
    page.click("#grid g.cell[aria-label^='0\u21924']")
    page.wait("document.querySelector('#panel h2').innerText.startsWith('0\u21924')")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    page.wait("document.querySelector('#panel h2').innerText.startsWith('2\u21928')")
    assert "cells" not in page.js("location.hash")


BESIDE = """
[...document.querySelectorAll('#pareto .point')].every((point) => {
  const [mark, name] = ['.reach', '.name'].map((part) => point.querySelector(part));
  const [{ x, width }, { left, right }] = [mark, name].map((at) => at.getBoundingClientRect());
  return right < x + width / 2 || left > x + width / 2;
})
"""


def test_arrow_keys_move_on_the_map_and_every_point_has_its_name(url: str, page: Page) -> None:
    name = "document.activeElement.getAttribute('aria-label').split(',')[0]"
    opened(page, f"{url}#sweep=grid")
    assert page.js("document.querySelectorAll('#grid [tabindex=\"0\"]').length") == 1
    page.js("document.querySelector('#grid [tabindex=\"0\"]').focus()")
    for key, cell in (("ArrowUp", "0\u21928"), ("ArrowLeft", "0\u21926")):
        page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        assert page.js(name) == f"{cell} s=0.5"
    names = "[...document.querySelectorAll('#pareto .point .name')].map((n) => n.textContent)"
    shown = {f"{start}\u2192{end}" for start, end in ROUTES}
    assert set(page.js(names)) == {"dense", *shown}
    assert page.js(BESIDE)
    page.js("document.querySelector('#pareto .point').focus()")
    seen = "getComputedStyle(document.activeElement.querySelector('.name')).visibility"
    assert page.js(seen) == "visible"


def test_a_head_sorts_the_ranking_and_a_copied_link_opens_the_same_view_elsewhere(
    url: str, page: Page, chromium: Browser
) -> None:
    opened(page, f"{url}#sweep=grid")
    for sort, first in (("ascending", "0\u21928"), ("descending", "dense")):
        page.click("#ranking th:nth-child(3) button")
        page.wait(f"document.querySelector('#ranking th[aria-sort={sort}]')")
        assert first in page.js(ROWS)[0]
    page.click("#ranking th:nth-child(3) button")  # as ranked again
    page.click("#ranking tbody tr:nth-child(2) button")
    page.wait("location.hash.includes('cells=')")
    page.click("#theme")
    assert page.errors == []
    address, rows = page.js("location.href"), page.js(ROWS)
    with chromium.page() as other:
        opened(other, address)
        assert other.js(ROWS) == rows
        assert other.text("#panel h2") == page.text("#panel h2")
        assert other.js("document.documentElement.dataset.theme") == "light"


def test_an_axis_is_a_curve_with_its_seeds(url: str, page: Page) -> None:
    opened(page, f"{url}#sweep=axis")
    assert page.js("document.querySelectorAll('#grid .along .point').length") == 3
    assert page.js("document.querySelectorAll('#grid .along .interval').length") == 3
    assert "over all seeds" in page.text("#panel .mean-of-seeds")
    assert page.errors == []


def test_the_lab_lists_its_sweeps_with_their_states(url: str, page: Page) -> None:
    page.open(url)
    page.wait(LAB)
    states = "3 completed \u00b7 2 running \u00b7 1 not started"
    assert page.text("#lab article:has([href='#sweep=live_grid']) .hint") == states
    page.click("#lab a[href='#sweep=grid']")
    page.wait("document.querySelector('#question').innerText.startsWith('Where should')")
