"""The report, opened from disk with no network: it asks for nothing, and its figures are seen."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.browser import Page
from tests.seeing.conftest import Shoot, needs_chromium
from tread_lab.analysis.report.report import write_report
from tread_lab.records.lab import Lab

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture(scope="module")
def report(placed: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a finished placement sweep."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(placed, "route_placement", path=path)


def test_it_opens_from_disk_without_a_single_request(
    report: Path, page: Page, shoot: Shoot
) -> None:
    page.resize(1100, 1000)
    page.offline()
    page.open(report.as_uri())
    assert set(page.requests) == {report.as_uri()}
    pictures = page.js(
        "[...document.images].map((i) => [i.complete, i.naturalWidth, i.offsetWidth])"
    )
    assert len(pictures) >= 8
    assert all(done and real > 100 and seen > 100 for done, real, seen in pictures)
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert page.errors == []
    shoot(page, "report")


def test_the_first_of_four_printed_pages_holds_answer_map_front_and_cost(
    report: Path, page: Page
) -> None:
    """Of A4 with its margins, 176 x 261 mm."""
    page.resize(665, 986)
    page.call("Emulation.setEmulatedMedia", media="print")
    page.open(report.as_uri())
    page.wait("[...document.images].every((image) => image.naturalWidth > 0)")
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    first = ["#answer", "#route_grid-gap-heldout", "#cost + p + .scroll"]
    if "dense at equal training FLOPs" not in page.text("#answer"):
        first.append("#pareto-gap-heldout")  # at equal FLOPs there is no front
    for part in first:
        assert page.js(bottom.format(part)) < 986, part
    printed = page.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
    assert len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed))) <= 4
