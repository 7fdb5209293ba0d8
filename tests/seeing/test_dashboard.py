"""The dashboard in a real browser: it moves with a running sweep, opens cells, hides no failure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Page
from tests.faults.drivers import Driver, Zygote
from tests.four_sweeps import ENDINGS
from tests.seeing.conftest import Shoot, finished_lab, needs_chromium, served
from tests.synthetic import Synthetic, small, write_sweep
from tread_lab.records.lab import Lab

pytestmark = [pytest.mark.slow, needs_chromium]

SHIFT = 8
SWEEP = """
question: Does the page move while a sweep runs?
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: 60, batch: 4}
  execution: {log_every: 2, checkpoint_every: 30}
axes: {route: {start: 0..1, end: 1..2}}
where: end - start == 1
evaluate: [{heldout_loss: {images: 32, levels: 4}}]
"""
QUIET = "from tests.faults.tricks import *\nwithout_extras()\n"
WINDOW = "tread_lab.engine.trainer:Trainer.log_window"  # of two steps in both sweeps
GATE = "gate({place!r}, path={path!r}, nth={nth})\n"
ENDED = "document.querySelector('#progress')?.getAttribute('aria-label')"


@pytest.fixture(scope="module")
def at_equal_steps(placed: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A placement sweep whose cells differ in cost, which those of the named lab need not."""
    if finished_lab() is None:
        return placed
    return write_sweep(tmp_path_factory.mktemp("steps"), Synthetic(name="route_placement"))


@pytest.fixture(scope="module")
def url(at_equal_steps: Lab) -> Iterator[str]:
    """The address of one server for tests of a finished sweep: it reads it once."""
    with served(at_equal_steps) as address:
        yield f"{address}#sweep=route_placement"


def cell(**marks: str) -> str:
    """The selector of the first cell of the map with these marks."""
    return "#grid g.cell" + "".join(f'[data-{name}="{value}"]' for name, value in marks.items())


def driven(zygote: Zygote, folder: Path, sweep: str, gates: str = "") -> Driver:
    """A real sweep that has just been started; its lab is `folder`/lab."""
    (folder / "moving.yaml").write_text(sweep)
    command = ("sweep", "moving.yaml", "--tracker=none", "--executor", "inline")
    return zygote.start(folder, *command, out=folder / "driver.txt", prelude=QUIET + gates)


@pytest.mark.task(59)
def test_a_running_sweep_is_followed_without_a_reload(
    tmp_path: Path, page: Page, zygote: Zygote
) -> None:
    """Watched from before its first run, which waits at two steps until the page shows them."""
    stops = {10: tmp_path / "first", 30: tmp_path / "second"}
    gates = [GATE.format(place=WINDOW, path=str(at), nth=n // 2 + 1) for n, at in stops.items()]
    with served(Lab(tmp_path / "lab")) as url:
        page.open(url)
        page.wait("document.querySelector('#none')?.hidden === false")
        with driven(zygote, tmp_path, SWEEP, "".join(gates)) as driver:
            for step, gate in stops.items():
                page.wait(f"document.querySelector('#running progress')?.value === {step}")
                gate.touch()
            page.wait(f"document.querySelector('{cell(state='completed')}')")
            assert page.js(ENDED).startswith(("2", "3"))
            page.wait(f"{ENDED} === '3 of 3 runs have ended'")
            page.wait(f"document.querySelectorAll('{cell(state='completed')}').length === 2")
            assert page.js("document.querySelector('#running').children.length") == 0
            assert driver.wait(60) == 0
        assert page.js("performance.getEntriesByType('navigation').length") == 1
        assert page.errors == []


def test_progress_and_the_map_of_a_sweep_under_way(
    under_way: Lab, page: Page, shoot: Shoot
) -> None:
    with served(under_way) as url:
        page.resize(1360, 1010)
        page.open(url)
        page.wait("document.querySelectorAll('#running li').length === 2")
        page.wait("document.querySelector('#panel .numbers')")
        assert page.js(ENDED) == "10 of 17 runs have ended"
        assert "step" in page.text("#running li")
        states = page.js(
            "[...document.querySelectorAll('#grid g.cell')].map((g) => g.dataset.state)"
        )
        assert {s: states.count(s) for s in states} == {"completed": 9, "running": 2, "pending": 5}
        assert "cells not planned" in page.text("#holes") or not page.text("#holes")
        shoot(page, "dashboard_running")


def test_choices_above_the_map_go_together_where_trials_are_listed(
    tmp_path: Path, page: Page
) -> None:
    """Three trials set a rate, two of them a limit, and one neither: every map has a cell."""
    lab = write_sweep(tmp_path, small(routes=[(0, 4), (0, 6), (0, 8), (2, 8)]))
    path = lab.sweep("placement").plan_path
    plan = json.loads(path.read_text())
    listed = {4: {"train.lr": 1, "train.clip": 5}, 6: {"train.lr": 2, "train.clip": 6}}
    for trial in plan["trials"]:
        if trial["cell"] and trial["cell"]["start"] == 0:
            trial["cell"] |= listed.get(trial["cell"]["end"], {"train.lr": 3})
    path.write_text(json.dumps(plan))
    offered = (
        "Object.fromEntries([...document.querySelectorAll('[data-filter]')].map("
        "(s) => [s.dataset.filter, [...s.options].map((o) => o.value)]))"
    )
    limits = {"1": "5", "2": "6", "3": "not set", "0.0001": "not set"}
    with served(lab) as url:
        page.open(url)
        page.wait("document.querySelector('#grid g.cell[data-value]')")  # the records are read
        page.wait("document.querySelectorAll('[data-filter]').length === 2")
        assert set(page.js(offered)["train.lr"]) == {*limits}
        for rate, limit in limits.items():
            page.js(
                "((s, rate) => { s.value = rate; s.dispatchEvent(new Event('change')) })("
                f"document.querySelector('[data-filter=\"train.lr\"]'), '{rate}')"
            )
            assert page.js(offered)["train.clip"] == [limit]
            assert page.js("document.querySelectorAll('#grid g.cell').length") == 1
            assert page.js("document.activeElement.dataset.filter") == "train.lr"


def test_a_click_opens_a_cell_and_shift_compares(placed: Lab, page: Page, shoot: Shoot) -> None:
    with served(placed) as url:
        page.resize(1360, 1180)
        page.open(f"{url}#sweep=route_placement")
        best = page.wait(
            "[...document.querySelectorAll('#grid g.cell')].find((g) =>"
            " g.ariaLabel.startsWith('2\u21928'))?.dataset.cell"
        )
        page.click(cell(cell=best))
        page.wait("document.querySelector('#panel .heads h2')?.innerText === '2\u21928 s=0.5'")
        assert page.js("document.querySelectorAll('#panel .charts svg path').length") >= 3
        assert page.js("document.querySelectorAll('#panel .similarity svg').length") == 2
        page.wait("[...document.images].every((image) => image.naturalWidth > 0)")
        assert "routes" in page.text("#panel .differences")
        assert "2\u21928 s=0.5" in page.text("#panel .differences")
        page.click("#panel details:last-of-type summary")
        assert "rate: 0.5" in page.text("#panel pre.spec")
        page.js("scrollTo(0, 0)")
        other = page.js(
            "[...document.querySelectorAll('#grid g.cell')].find((g) =>"
            " g.ariaLabel.startsWith('0\u219210'))?.dataset.cell"
        )
        page.click(cell(cell=other), modifiers=SHIFT)
        page.wait("document.querySelectorAll('#panel .heads h2').length === 2")
        unfolded = "[...document.querySelectorAll('#panel details')].map((d) => d.open)"
        assert page.js(unfolded) == [True, False]  # each as it was left
        heads = page.js(
            "[...document.querySelectorAll('#panel .numbers th')].map((t) => t.innerText)"
        )
        assert heads == ["dense", "2\u21928 s=0.5", "0\u219210 s=0.5"]
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
        assert "--retry-failed" in page.text("#panel .ending .advice")
        heights = "[...document.querySelectorAll('tr.go')].map((r) => r.offsetHeight)"
        assert page.js(f"Math.min(...{heights})") >= 24  # as WCAG 2.5.8 asks of targets
        assert page.js("[...document.querySelectorAll('th')].every((t) => t.textContent)")
        assert page.js("getComputedStyle(document.querySelector('.state.bad')).color") == (
            "rgb(181, 79, 0)"  # a contrast of 5 on white
        )
        page.click("#failures tr:nth-child(2)")
        page.wait("document.querySelector('#panel .reason')?.innerText === 'diverged on purpose'")
        assert page.errors == []


def test_space_opens_a_cell_and_keeps_its_focus(url: str, page: Page) -> None:
    page.open(url)
    page.wait("document.querySelector('#grid g.cell')")
    for part in ("#grid g.cell", "#ranking tbody button", "#pareto g.point"):
        page.wait(f"document.querySelector('{part}')")
        page.js(f"document.querySelector('{part}').focus()")
        name = page.js("(document.activeElement.dataset.cell)")
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", text=" ")
        page.wait(f"location.hash.endsWith('cells={name}')")
        assert page.js("document.activeElement.dataset.cell") == name


CONTRAST = """
(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map(Number)
      .map((v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  return Math.min(...[...document.querySelectorAll('#grid g.cell[data-value]')].map((g) => {
    const a = light(getComputedStyle(g.querySelector('rect')).fill);
    const b = light(getComputedStyle(g.querySelector('text')).fill);
    return Math.max(a, b) / Math.min(a, b);
  }));
})()
"""


def test_numbers_on_the_map_have_a_contrast_of_4_5(url: str, page: Page) -> None:
    page.open(url)
    for metric in ("gap/heldout", "gap/train", "heldout/loss_routed", "cost/train_flops"):
        choose(page, metric)
        assert page.js(CONTRAST) >= 4.5
        assert page.js(
            "[...document.querySelectorAll('#grid g.cell')].every((g) =>"
            " g.ariaLabel.includes(g.querySelector('text')?.textContent ?? ''))"
        )
    page.open(url.replace("#", "?again#") + "&metric=gap%2Ftrain")
    page.wait("document.querySelector('#grid-title').innerText.startsWith('gap/train')")
    choose(page, "heldout/loss")
    assert "metric=heldout%2Floss" in page.js("location.hash")


def test_the_page_claims_no_more_than_the_metric_says(url: str, page: Page) -> None:
    page.open(url)
    choose(page, "gap/heldout")
    assert page.text("#legend").endswith("blue is better than dense")
    assert not page.js("document.querySelector('#pareto-card').hidden")
    choose(page, "gap/train")
    assert page.text("#legend").endswith("green is more: no measure of quality")
    assert page.text("#ranking-title").endswith("it is no measure of quality")
    assert page.js("document.querySelector('#pareto-card').hidden")
    choose(page, "heldout/loss_routed")
    assert page.text("#grid-title") == "heldout/loss_routed, the value itself"
    assert page.js("document.querySelectorAll('#grid g.cell[data-value]').length") == 16


def test_an_error_of_the_server_is_shown_as_what_it_is(
    placed: Lab, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a run")

    monkeypatch.setattr("tread_lab.dashboards.views.overview", broken)
    with served(placed) as url:
        page.open(f"{url}#sweep=route_placement")
        page.wait("document.querySelector('#live').className === 'off'")
        assert page.text("#live") == "error in the dashboard: KeyError: 'a run'"


def test_a_sweep_that_is_removed_gives_way_to_the_one_that_is_left(
    tmp_path: Path, page: Page
) -> None:
    write_sweep(tmp_path, small(name="first"))
    lab = write_sweep(tmp_path, small(name="second", routes=((2, 8), (3, 8))))
    with served(lab) as url:
        page.open(url)
        page.wait("document.querySelectorAll('#lab article').length === 2")
        page.click("#lab a[href='#sweep=first']")
        page.wait("document.querySelectorAll('#grid g.cell[data-value]').length === 3")
        shutil.rmtree(lab.sweep("first").path)
        page.wait("document.querySelectorAll('#grid g.cell[data-value]').length === 2")
        assert page.errors == []


PAIRED = """
import("./training.js").then(({ curves }) => {
  const run = (x) => ({ curve: { step: [1, 2], loss: [x, x] } });
  const columns = [
    { name: "dense", run: run(1) },
    { name: "a", run: run(1.5), base: run(1), oneLoss: true },
    { name: "b", run: run(2.5), base: run(2), oneLoss: true },
  ];
  const paths = (svg) => [...svg.querySelectorAll("path")].map((path) => path.getAttribute("d"));
  return paths([...curves(columns).querySelectorAll("svg")].at(-1));
})
"""
SPREAD = """
import("./scatter.js").then(({ scatter }) => {
  const names = ["a", "b", "c"];
  const cells = { name: names, short: names, role: names };
  const empty = [null, null, null];
  const kinds = [[[1, 10, 100], false], [[1, 10, 100], true], [[0, 50, 100], false]];
  return kinds.map(([cost, relative]) => {
    const points = { cost, relative, value: [1, 2, 3], low: empty, high: empty, cell: [0, 1, 2],
      front: [true, false, false], texts: empty, prices: empty };
    const svg = scatter(points, { cells, metric: "m", chosen: [], most: 620 });
    const [a, b, c] = [...svg.querySelectorAll(".reach")].map((p) => Number(p.getAttribute("cx")));
    return [(b - a) / (c - a), /NaN|Infinity/.test(svg.outerHTML)];
  });
})
"""
TICKS = """
import("./axes.js").then(({ axes }) => {
  const box = { left: 0, top: 0, right: 0, bottom: 0 };
  const x = { x: [0, 2000], xTicks: [0.0003125, 1024, 1152] };
  const { frame } = axes({ ...x, y: [0, 1], width: 9, height: 9, box });
  return frame[1].map((tick) => tick.textContent);
})
"""


def test_charts_pair_runs_and_space_costs(tmp_path: Path, page: Page) -> None:
    """Of made numbers: a difference is to a run's own baseline, costs are logarithmic unless they
    are relative or zero. Values of an axis have all their digits."""
    with served(Lab(tmp_path)) as url:
        page.open(url)
        page.wait("document.querySelector('#none')?.hidden === false")
        one, other = page.js(PAIRED)
        assert one == other
        spread = page.js(SPREAD)
        assert [broken for _, broken in spread] == [False] * 3
        assert [share for share, _ in spread] == pytest.approx([1 / 2, 1 / 11, 1 / 2])
        assert page.js(TICKS) == ["3.125e\N{MINUS SIGN}4", "1024", "1152"]


def choose(page: Page, metric: str) -> None:
    """Choose a metric and wait for its map."""
    page.wait("document.querySelector('#grid g.cell[data-value]')")
    choice = "document.querySelector('#metric')"
    page.js(f"{choice}.value = {metric!r}; {choice}.dispatchEvent(new Event('change'))")
    page.wait(f"document.querySelector('#grid-title').innerText.startsWith({metric!r})")


def test_the_page_is_dark_where_the_reader_prefers_that(url: str, page: Page) -> None:
    paper = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    ink = "getComputedStyle(document.querySelector('#grid text')).fill"
    for scheme, background in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(27, 31, 36)")):
        preference = {"name": "prefers-color-scheme", "value": scheme}
        page.call("Emulation.setEmulatedMedia", features=[preference])
        page.open(url)
        page.wait("document.querySelectorAll('#grid g.cell').length")
        assert page.js(paper) == background != page.js(ink)
