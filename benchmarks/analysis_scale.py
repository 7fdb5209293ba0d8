"""How long reading results takes: a sweep of 10,000 runs as frames, heatmap and page in a browser.

    python benchmarks/analysis_scale.py                  # makes the lab, measures, removes it
    python benchmarks/analysis_scale.py --lab scale_lab  # keeps it for the next time

Runs are written by `tests.synthetic`: 78 placements at 3 rates, over and over with other seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.browser import browser, find_chromium
from tests.synthetic import Synthetic, write_sweep
from tread_lab.analysis.figures.placement_figures import draw_route_grid
from tread_lab.analysis.figures.placements import placements
from tread_lab.analysis.figures.style import figure, show
from tread_lab.dashboards.app import DashboardServer
from tread_lab.frames import cells_frame, trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.log import LogWriter
from tread_lab.records.metric_names import TRAIN_LOSS

PLACES = tuple((i, j) for i in range(12) for j in range(i, 12))
RATES = (0.25, 0.5, 0.75)
FIRST_PAINT = "document.querySelectorAll('#grid g.cell').length > 0"
NUMBERS = "document.querySelectorAll('#grid g.cell[data-value]').length > 0"


def make_lab(root: Path, runs: int) -> Lab:
    """A finished sweep of about `runs` runs; nothing is synced, it is no record to keep."""
    seeds = range(max(1, round(runs / (len(PLACES) * len(RATES) + 1))))
    sweep = Synthetic(
        name="scale", routes=PLACES, rates=RATES, seeds=seeds, history=False, similarity=False
    )
    fsync, os.fsync = os.fsync, lambda _: None
    try:
        return write_sweep(root, sweep)
    finally:
        os.fsync = fsync


def timed(say: str, work: Callable[[], Any]) -> Any:
    """Wall seconds, and CPU seconds of this process: on a busy machine the first says little."""
    started, busy = time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - started, time.process_time() - busy
    print(f"{say:52} {wall:7.2f} s {cpu:7.2f} s CPU", flush=True)
    return result


def import_seconds() -> None:
    """Every module of the analysis, in a fresh interpreter."""
    folder = Path(__file__).parents[1] / "analysis"
    modules = [p.relative_to(folder).with_suffix("") for p in folder.rglob("*.py")]
    names = [".".join(m.parts) for m in modules if m.name != "__init__"]
    code = "; ".join(f"import tread_lab.analysis.{name}" for name in names)
    command = [sys.executable, "-c", code]
    timed("import of all of analysis", lambda: subprocess.run(command, check=True))


def frames(lab: Lab) -> None:
    """What a notebook does first."""
    frame = timed("trials_frame", lambda: trials_frame(lab, "scale"))
    print(f"  {len(frame)} trials, {len(frame.columns)} columns")
    timed("cells_frame", lambda: cells_frame(frame))

    def heatmap() -> None:
        fig, (ax,) = figure()
        half = frame[(frame["rate"] == 0.5) | frame["rate"].isna()]
        draw_route_grid(placements(half, "gap/heldout"), ax)
        show(fig)

    timed("heatmap, drawn", heatmap)


def dashboard(lab: Lab) -> None:
    """What somebody waits for in front of the page."""
    server = DashboardServer(lab, "127.0.0.1", 0)
    threading.Thread(target=server.run, daemon=True).start()
    with browser() as started, started.page() as page:
        page.open("about:blank#ready")

        def opened(until: str) -> Callable[[], None]:
            def work() -> None:
                page.call("Page.navigate", url=f"{server.url}#sweep=scale")
                page.wait(until, 120)

            return work

        timed("dashboard: first paint of the map, fresh server", opened(FIRST_PAINT))
        timed("dashboard: numbers in the map", lambda: page.wait(NUMBERS, 120))
        page.call("Page.navigate", url="about:blank#again")
        timed("dashboard: opened again", opened(NUMBERS))
        timed(
            "dashboard: a click until the cell is open",
            lambda: (
                page.click("#grid g.cell"),
                page.wait("document.querySelector('#panel h2')", 60),
            ),
        )
    server.should_exit = True


def growing(root: Path, runs: int = 1000) -> None:
    """A sweep of a thousand trials whose second half ends while somebody looks at it."""
    lab = make_lab(root / "growing", runs)
    names = sorted(path.name for path in (lab.root / "runs").iterdir())
    later, aside = names[len(names) // 2 :], root / "later"
    aside.mkdir()
    for name in later:
        shutil.move(lab.run(name).path, aside / name)
    server = DashboardServer(lab, "127.0.0.1", 0)
    threading.Thread(target=server.run, daemon=True).start()
    ended = "document.querySelector('#progress')?.getAttribute('aria-label')"
    with browser() as started, started.page() as page:

        def opened() -> None:
            page.open(f"{server.url}#sweep=scale")
            page.wait(NUMBERS, 60)

        def grows() -> None:
            for name in later:
                shutil.move(aside / name, lab.run(name).path)
                time.sleep(20 / len(later))

        def follows() -> None:
            page.wait(f"{ended}?.startsWith('{len(names)} of')", 60)

        print(f"a sweep of {len(names)} runs, {len(later)} of them still to come")
        timed("dashboard: numbers in the map", opened)
        timed(f"{len(later)} runs end within 20 s", grows)
        timed("dashboard: after the last one, until it is shown", follows)
    server.should_exit = True


def reporting(root: Path, runs: int = 100, seconds: int = 60) -> None:
    """Runs that each log an entry every second, and somebody who looks as often."""
    lab = make_lab(root / "reporting", 3 * len(PLACES))
    names = [trial.run for trial in lab.sweep("scale").plan().trials if trial.role == "trial"]
    for name in names[:runs]:
        (lab.run(name).path / "result.json").unlink()
        shutil.rmtree(lab.run(name).path / "evaluations")
    command = [sys.executable, __file__, "--lab", str(lab.root), "--report", str(seconds + 5)]
    workers = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert workers.stdout is not None
    workers.stdout.readline()
    server = DashboardServer(lab, "127.0.0.1", 0)
    threading.Thread(target=server.run, daemon=True).start()
    version, waits, steps, busy = "", [], [], time.process_time()
    for _ in range(seconds):
        started = time.perf_counter()
        with urllib.request.urlopen(f"{server.url}api/sweeps/scale?version={version}") as answer:
            tree = json.load(answer)
        version, waited = tree["version"], time.perf_counter() - started
        waits.append(waited)
        steps.append(tree["running"][0]["step"])
        time.sleep(max(0.0, 1 - waited))
    server.should_exit = True
    workers.communicate()
    print(f"{runs} runs that report each second, for {seconds} s")
    print(
        f"  answers take {sum(waits[1:]) / (seconds - 1):.3f} s, the slowest {max(waits[1:]):.3f}"
    )
    print(f"  {(time.process_time() - busy) / seconds:.3f} CPU s of the server a second")
    print(f"  shown steps of a run: {steps[0]} at first, {steps[-1]} at the end")


def report(lab: Lab, seconds: int) -> None:
    """Be the workers of all runs without a result."""
    runs = [lab.run(path.name) for path in (lab.root / "runs").iterdir()]
    with contextlib.ExitStack() as stack:
        logs = []
        for run in runs:
            if run.result() is None:
                stack.enter_context(run.lock())
                logs.append(LogWriter(run.log_path))
        print("ready", flush=True)
        for step in range(1, seconds + 1):
            for log in logs:
                log(step, **{TRAIN_LOSS: 0.5})
            time.sleep(1)


def main() -> None:
    """Make the lab where there is none, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--lab", type=Path, help="where to keep the lab; else it is removed")
    parser.add_argument("--report", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report:
        report(Lab(options.lab), options.report)
        return
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        lab = Lab(options.lab or Path(folder))
        if not lab.sweep("scale").plan_path.exists():
            timed(f"making {options.runs} runs", lambda: make_lab(lab.root, options.runs))
        import_seconds()
        frames(lab)
        if find_chromium() is None:
            print("no Chromium: the dashboard is not measured")
        else:
            dashboard(lab)
            growing(Path(folder))
        reporting(Path(folder))


if __name__ == "__main__":
    main()
