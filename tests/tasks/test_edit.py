"""What a user does with an edited sweep file: finished runs are found, tried cells count."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tasks.conftest import INLINE, attempts
from tread_lab.cli.main import main
from tread_lab.records.lab import Lab
from tread_lab.results import started_cells, trials_frame

SMALL = ["model.width=16", "model.heads=1", "model.depth=4", "train.batch=8", "train.warmup=2"]
STEPS = ["train.steps=8", "train.ema.halflife=0.1", "execution.checkpoint_every=4"]
LOSS = "{heldout_loss: {images: 8, levels: 2}}"
BOTH, ONE = 'axes.route=["0->1","1->2"]', 'axes.route=["0->1"]'


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the lab with the two cells is kept."""
    return tmp_path_factory.mktemp("once") / "lab"


@pytest.fixture
def lab(once: Path, in_folder: Path, no_figures: None) -> Lab:
    """The lab of the current folder, in which both cells have ended."""
    if not once.exists():
        assert sweep(BOTH) == 0
        shutil.copytree("lab", once, symlinks=True)
    else:
        shutil.copytree(once, "lab", symlinks=True)
    return Lab(in_folder / "lab")


def sweep(*words: str, name: str = "s", evaluate: str = LOSS) -> int:
    fixed = ["tiny", *SMALL, *STEPS, f"evaluate=[{evaluate}]", "--name", name, *INLINE]
    return main(["sweep", *fixed, *words])


@pytest.mark.task(10, 11, 14)
@pytest.mark.parametrize(
    ("words", "new"),
    [
        pytest.param([BOTH, "seeds=[0,1]"], 3, id="seed"),
        pytest.param(['axes.route=["0->1","1->2","0->2"]'], 1, id="cell"),
        pytest.param([BOTH, "match=train_flops"], 2, id="match"),
    ],
)
def test_edit_trains_only_what_is_new(lab: Lab, words: list[str], new: int) -> None:
    before = attempts(lab)
    assert sweep(*words) == 0
    after = attempts(lab)
    assert before.items() <= after.items() and len(after) == len(before) + new
    assert len(lab.sweep("s").history()) == 2


@pytest.mark.task(12)
def test_removed_cell_has_left_and_counts(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(ONE) == 0
    assert "left the file, still counted: 1->2 s=0.5" in capsys.readouterr().out
    frame = trials_frame(lab, "s")
    assert "1->2 s=0.5" not in set(frame["cell"]) and started_cells(frame) == 2
    assert main(["status", "s"]) == 0
    assert "1->2 s=0.5" in capsys.readouterr().out
    assert sweep(BOTH) == 0
    frame = trials_frame(lab, "s")
    assert frame.attrs["left"] == [] and started_cells(frame) == 2


@pytest.mark.task(13)
def test_missing_snapshot_is_trained_again(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    asked = f"{LOSS}, {{heldout_loss: {{images: 8, levels: 2, at: [2]}}}}"
    losses = trials_frame(lab, "s")["heldout/loss"].tolist()
    assert sweep(BOTH, "--plan", evaluate=asked) == 0
    plan = capsys.readouterr().out
    assert "trained again" in plan and "1->2 s=0.5 seed 0 at 2" in plan
    assert sweep(BOTH, evaluate=asked) == 0
    assert all(len([*run.evaluations()]) == 2 for run in lab.runs())
    assert trials_frame(lab, "s")["heldout/loss"].tolist() == losses
    before = attempts(lab)
    assert sweep(BOTH, evaluate=asked) == 0 and attempts(lab) == before


@pytest.mark.task(15)
def test_two_sweeps_share_their_runs(lab: Lab) -> None:
    before = attempts(lab)
    assert sweep(ONE, name="other") == 0 and attempts(lab) == before


@pytest.mark.task(16)
def test_edit_that_shares_nothing_is_refused(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    before = attempts(lab)
    assert sweep(BOTH, "train.lr=0.1") == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("tread-lab: --name: ")
    assert attempts(lab) == before and len(lab.sweep("s").history()) == 1
