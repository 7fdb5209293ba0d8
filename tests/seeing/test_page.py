"""The page in a browser: every shape of sweep, every width, both themes, live and from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Page
from tests.four_sweeps import ENDINGS
from tests.seeing.conftest import Shoot, needs_chromium, served
from tests.synthetic import Synthetic, small, write_sweep
from tread_lab.dashboards.contents import page_file
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState

pytestmark = [pytest.mark.slow, needs_chromium]
LONG = "a_sweep_whose_name_has_eighty_characters_so_that_whatever_is_too_narrow_for_it_shows"
DRAWN = "document.querySelectorAll('.plot .main-svg').length > 0"
SHAPES = ("placement", "axis", "seeds", "waiting", LONG)
SHIFT = 8


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A sweep of every shape; runs have lengths of their own, so that none is another sweep's."""
    root = tmp_path_factory.mktemp("pages")
    for sweep in (
        Synthetic(states=ENDINGS, pictures=True),
        small(name="axis", routes=((2, 8),), rates=(0.25, 0.5, 0.75), steps=401, specs=True),
        small(name="seeds", seeds=(0, 1), steps=402, specs=True),
        small(
            name="waiting",
            states=dict.fromkeys(((0, 4), (2, 8), (5, 8), None), "interrupted"),
            steps=403,
            history=True,
            specs=True,
        ),
        small(name=LONG, steps=404, specs=True),
    ):
        write_sweep(root, sweep)
    return Lab(root)


@pytest.fixture(scope="module")
def url(lab: Lab) -> Iterator[str]:
    with served(lab) as address:
        yield address


@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (420, "dark")])
def test_every_shape_fits_every_screen(url: str, page: Page, width: int, theme: str) -> None:
    scheme = {"name": "prefers-color-scheme", "value": theme}
    page.call("Emulation.setEmulatedMedia", media="", features=[scheme])
    page.resize(width, 900)
    for sweep in SHAPES:
        page.open(f"{url}sweeps/{sweep}")
        page.wait(DRAWN)
        assert page.js("document.documentElement.scrollWidth <= innerWidth"), sweep
        assert page.errors == [], sweep
        assert all(request.startswith(url) for request in page.requests)


def test_a_file_opens_without_a_network(
    placed: Lab, page: Page, tmp_path: Path, shoot: Shoot
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_file(placed, "route_placement"))
    page.resize(1400, 1500)
    page.offline()
    page.open(path.as_uri())
    page.wait(DRAWN)
    page.wait("document.querySelector('#panels .numbers')")
    assert set(page.requests) == {path.as_uri()} and page.errors == []
    shoot(page, "report")


@pytest.fixture(scope="module")
def placed_url(placed: Lab) -> Iterator[str]:
    with served(placed) as address:
        yield address


def test_rows_select_sort_and_filter(placed_url: str, page: Page, shoot: Shoot) -> None:
    page.resize(1400, 1500)
    page.open(f"{placed_url}sweeps/route_placement")
    page.wait("document.querySelector('#panels h3')")
    rows = "[...document.querySelectorAll('#table-ranking tbody tr')]"
    row = "#table-ranking tbody tr:nth-child({})"
    page.click(row.format(4))
    page.wait("document.querySelectorAll('#panels .panel').length === 1")
    page.click(row.format(5), modifiers=SHIFT)
    page.wait("document.querySelectorAll('#panels .panel').length === 2")
    assert page.js("location.hash.split('cell=').length") == 3
    page.open(page.js("location.href"))
    page.wait("document.querySelectorAll('#panels .panel').length === 2")
    page.js("document.querySelector('#ranking').scrollIntoView()")
    shoot(page, "dashboard")
    page.click("#table-ranking th:nth-child(2) button")
    names = page.js(f"{rows}.map((row) => row.cells[1].innerText)")
    assert names == sorted(names)
    page.js("document.querySelector('input[type=search]').value = '2→8'")
    page.js("document.querySelector('input').dispatchEvent(new Event('input', {bubbles: true}))")
    assert page.js(f"{rows}.filter((row) => !row.hidden).length") == 1
    assert page.errors == []


def test_a_click_in_the_map_selects(url: str, page: Page) -> None:
    page.open(f"{url}sweeps/placement")
    page.wait(DRAWN)
    page.js(
        "document.querySelector('.plot > div').emit('plotly_click',"
        " {points: [{customdata: 3}], event: {shiftKey: false}})"
    )
    page.wait("document.querySelector('#panels [data-panel=\"3\"]')")
    assert page.js("location.hash") == "#cell=3"


def test_a_running_sweep_is_followed(tmp_path: Path, page: Page) -> None:
    lab = write_sweep(tmp_path, small(states={(2, 8): "interrupted"}, specs=True))
    with served(lab) as url:
        page.open(f"{url}sweeps/placement")
        page.wait("document.querySelector('#progress .state.completed')")
        run = lab.sweep("placement").plan().trials[2].run
        page.wait("version !== ''")
        lab.run(run).finish(RunState.DIVERGED, step=3, reason="on purpose")
        page.wait("document.querySelector('#failures .state.diverged')")
        assert page.js("performance.getEntriesByType('navigation').length") == 1
        assert page.errors == []
