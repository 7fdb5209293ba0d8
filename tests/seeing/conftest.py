"""Labs to look at, the dashboard over them, and pictures of pages for the documentation."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.browser import Browser, Page, browser, find_chromium
from tests.synthetic import Synthetic, write_sweep
from tread_lab.dashboards.server import DashboardServer
from tread_lab.records.lab import Lab

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MOST = 200_000  # bytes of a picture
Shoot = Callable[..., Path]

needs_chromium = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium here; install it or set CHROMIUM to its path"
)


def finished_lab() -> Path | None:
    """The lab whose pages are pictured for the documentation, where one is named."""
    named = os.environ.get("TREAD_LAB_PICTURES")
    return Path(named).absolute() if named else None


@pytest.fixture(scope="session")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A finished placement sweep, `route_placement`: the named lab's, else a synthetic one."""
    named = finished_lab()
    if named is not None:
        return Lab(named)
    sweep = Synthetic(name="route_placement", pictures=True)
    return write_sweep(tmp_path_factory.mktemp("placed"), sweep)


@pytest.fixture
def under_way(placed: Lab, tmp_path: Path) -> Iterator[Lab]:
    """The same sweep when ten of its runs were done, two at work and five had not begun."""
    lab = Lab(tmp_path / "under_way")
    plan = placed.sweep("route_placement").plan_path
    lab.sweep("route_placement").path.mkdir(parents=True)
    shutil.copy(plan, lab.sweep("route_placement").plan_path)
    runs = list(dict.fromkeys(trial.run for trial in lab.sweep("route_placement").plan().trials))
    with contextlib.ExitStack() as stack:
        for number, name in enumerate(runs[:12]):
            light = shutil.ignore_patterns(
                "checkpoints", *(["evaluations", "result.json"] * (number > 9))
            )
            shutil.copytree(placed.run(name).path, lab.run(name).path, ignore=light)
            if number > 9:
                log = lab.run(name).log_path
                lines = log.read_text().splitlines(keepends=True)
                log.write_text("".join(lines[: len(lines) * (number - 8) // 4]))
                stack.enter_context(lab.run(name).lock())
        yield lab


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def tab(chromium: Browser) -> Iterator[Page]:
    """One tab for all tests of a file: each new one starts a process of the browser's."""
    with chromium.page() as opened:
        yield opened


@pytest.fixture
def page(tab: Page) -> Page:
    """The tab, as if it were new: what pages keep, they keep for their server's port."""
    tab.renew()
    return tab


@contextlib.contextmanager
def served(lab: Lab, *, host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a dashboard over `lab`."""
    server = DashboardServer(lab, host, 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def shoot(tmp_path: Path) -> Shoot:
    """Take a picture of a page; where TREAD_LAB_PICTURES names a lab it is one of docs/pictures."""

    def take(page: Page, name: str, *, height: int | None = None) -> Path:
        taken = page.screenshot(tmp_path / "shot.png")
        if finished_lab() is None:
            return taken
        path = PICTURES / f"{name}.png"
        shot = Image.open(io.BytesIO(taken.read_bytes())).convert("RGB")
        shot = shot.crop((0, 0, shot.width, min(height or shot.height, shot.height)))
        shot.save(path, optimize=True)
        if path.stat().st_size > MOST:
            few = shot.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2)
            few.save(path, optimize=True)
        assert path.stat().st_size < MOST
        return path

    return take
