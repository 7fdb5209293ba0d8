"""Cells are ranked by the gap; with baselines of several kinds by held-out loss."""

from __future__ import annotations

from pathlib import Path

from tests.synthetic import Synthetic, small, write_sweep
from tread_lab.frames import ranked_cells, ranking_caption, ranking_key, trials_frame


def test_the_key_is_the_gap_to_one_kind_of_baseline(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, Synthetic(routes=[(0, 4), (2, 8)], seeds=(0, 1), images=32))
    frame = trials_frame(lab, "placement")
    assert ranking_key(frame) == "gap/heldout"
    cells = ranked_cells(frame, "gap/heldout")
    assert list(cells["cell"]).count("dense") == 1
    assert list(cells["gap/heldout"]) == sorted(cells["gap/heldout"])


def test_the_key_is_held_out_loss_with_several_kinds(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, Synthetic(routes=[(0, 4)], images=32, budgets=(200, 400)))
    assert ranking_key(trials_frame(lab, "placement")) == "heldout/loss"


def test_nothing_is_ranked_before_anything_is_measured(tmp_path: Path) -> None:
    states = {None: "pending", (0, 4): "pending"}
    lab = write_sweep(tmp_path, Synthetic(routes=[(0, 4)], states=states, images=32))
    assert ranking_key(trials_frame(lab, "placement")) is None


def test_the_caption_of_a_ranking_names_key_order_and_rows() -> None:
    seeds = "a row is a cell, its seeds averaged"
    assert ranking_caption("gap/heldout") == f"ranked by gap/heldout, lower is better; {seeds}"
    assert ranking_caption("is@10k") == f"ranked by is@10k, higher is better; {seeds}"
    assert ranking_caption("gap/train").split("; ")[0].endswith("which is no measure of quality")


def test_a_cell_of_which_a_seed_failed_follows_all_that_are_whole(tmp_path: Path) -> None:
    states = {((2, 8), 1): "failed"}
    lab = write_sweep(tmp_path, small(seeds=(0, 1), states=states))
    cells = ranked_cells(trials_frame(lab, "placement"), "gap/heldout")
    assert list(cells["cell"]) == ["dense", "5->8 s=0.5", "0->4 s=0.5", "2->8 s=0.5"]
