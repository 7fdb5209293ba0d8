"""A search tries some cells of a space, and is resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.drivers import KILLED, Place, Zygote
from tests.tasks.conftest import FIXED, PROBE, Answer, attempts, trials
from tread_lab.records.lab import Lab
from tread_lab.results import started_cells

Sweep = Callable[..., Answer]
SPACE = f"""{FIXED}axes: {{route: {{start: 0..3, end: 0..3}}, rate: [0.5]}}
where: start <= end
search: {{sampler: %s, trials: 4, startup: 2}}
{PROBE}"""


def suggested(lab: Lab) -> list[object]:
    """The cells of a search in the order in which they were chosen."""
    lines = lab.sweep("small").suggestions_path.read_text().splitlines()
    return [json.loads(line)["cell"] for line in lines]


@pytest.mark.task(21, 22)
@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_search_measures_as_many_cells_as_asked(sampler: str, run_sweep: Sweep, lab: Lab) -> None:
    run_sweep(SPACE % sampler)
    frame = trials(lab)
    done = frame[(frame["role"] == "trial") & (frame["state"] == "completed")]
    assert len(done) == 4 == len(suggested(lab)) and done["gap/heldout"].notna().all()
    assert len(attempts(lab)) == 5
    before = attempts(lab)
    run_sweep(SPACE.replace("trials: 4", "trials: 5") % sampler)
    assert before.items() <= attempts(lab).items() and len(attempts(lab)) == 6


@pytest.mark.slow
@pytest.mark.task(23)
def test_a_killed_search_continues_with_the_same_cells(zygote: Zygote, tmp_path: Path) -> None:
    whole, cut = (Place(zygote, tmp_path / name) for name in ("whole", "cut"))
    for place in (whole, cut):
        place.folder.mkdir()
        place.write(SPACE % "tpe")
    whole.finish("--device", "cpu")
    third = "die('tread_lab.records.lab:RunFolder.finish', nth=3)"
    with cut.sweep("--device", "cpu", prelude=third) as driver:
        assert driver.wait() == KILLED, driver.said()
    assert 0 < len(suggested(cut.lab)) < 4
    cut.finish("--device", "cpu")
    assert suggested(cut.lab) == suggested(whole.lab)
    assert sorted(attempts(cut.lab).values()) == [1, 1, 1, 1, 2]
    cells = trials(whole.lab).set_index("run")["gap/heldout"]
    assert trials(cut.lab).set_index("run")["gap/heldout"][cells.index].equals(cells)


@pytest.mark.task(24)
def test_early_stopping_ends_bad_cells_once(run_sweep: Sweep, lab: Lab) -> None:
    text = f"""{FIXED}axes: {{route: ["0->1", "0->3", "1->3"], rate: [0.5, 0.75]}}
seeds: [0, 1]
match: train_flops
stop_early: {{grace: 2, reduction: 2}}
{PROBE}"""
    done = run_sweep(text)
    ranking = done.out
    assert "compares 6 cells at step 2 of the shortest run and continues at least 3;" in done.err
    frame = trials(lab)
    states = frame[frame["role"] == "trial"].groupby("cell")["state"].agg(set)
    assert {*map(len, states)} == {1} and set.union(*states) == {"completed", "stopped"}
    assert started_cells(frame) == 6 and "other cells had a lower held-out" in ranking
    runs = frame.set_index("run")["state"]
    assert all([*lab.run(run).checkpoints.glob("step-*")] for run in runs[runs == "stopped"].index)
    before = attempts(lab)
    assert run_sweep(text).out == ranking and attempts(lab) == before
    run_sweep(text, "stop_early=null")
    assert {*trials(lab)["state"]} == {"completed"} and attempts(lab).keys() == before.keys()
