"""A sweep's own table, and the paper's: consistent, with sources and recipes."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from tests.synthetic import small, write_sweep
from tread_lab.analysis import paper_tables
from tread_lab.analysis.paper_tables import (
    all_published,
    parameters,
    sizes,
    sweep_table,
)
from tread_lab.config import RunSpec, decode
from tread_lab.config.load import load_experiment
from tread_lab.results import trials_frame


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    """A better cell that is its own baseline, a worse one, one that failed, one not measured."""
    sweep = small(
        seeds=(0, 1), seed_shift={0: 0.001, 1: -0.001}, states={(5, 8): "failed"},
        routes=((0, 4), (2, 8), (5, 8), (7, 8)),
    )  # fmt: skip
    frame = trials_frame(write_sweep(tmp_path, sweep), "placement")
    frame.loc[frame["start"] == 7, "heldout/loss"] = math.nan
    own = frame["start"] == 2
    frame.loc[own, "run"] = frame.loc[own, "baseline"]
    return frame


def test_table_ranks_cells_beside_differences(frame: pd.DataFrame) -> None:
    table = sweep_table(frame, "heldout/loss", "Mixed.")
    rows = table.texts[["cell", "heldout/loss", "delta/heldout/loss", "state"]].values.tolist()
    assert rows == [
        ["dense", "0.43 \u00b1 0.20", "0", "completed"],
        ["0->4 s=0.5", "0.45 \u00b1 0.19", "+0.010 \u00b1 0.013", "completed"],
        ["5->8 s=0.5", "", "", "failed: failed on purpose"],
        ["7->8 s=0.5", "", "", "completed"],
    ]
    assert table.markdown.startswith("**This sweep.** Ranked by heldout/loss, lower is better")
    assert table.markdown.endswith("Source: the runs of this sweep. Mixed.\n")
    assert table.latex.startswith("% This sweep: Ranked by heldout/loss")


def test_published_sizes_have_known_costs() -> None:
    found = sizes()
    assert list(found.columns) == [
        "size", "width", "heads", "layers", "route", "parameters_M", "dense_gmac", "routed_gmac",
        "speed_up",
    ]  # fmt: skip
    expected = [
        ("S", 384, 6, 12, "2->8", 32.858896, 6.0541, 4.20441, 1.43994),
        ("B", 768, 12, 12, "2->8", 130.303504, 23.00196, 16.13169, 1.42589),
        ("L", 1024, 16, 24, "2->20", 457.824272, 80.69343, 48.17918, 1.67486),
        ("XL", 1152, 16, 28, "2->24", 674.816272, 118.6167, 69.12811, 1.715897),
    ]
    for row, values in zip(found.itertuples(index=False), expected, strict=True):
        assert tuple(row)[:5] == values[:5]
        assert tuple(row)[5:] == pytest.approx(values[5:], rel=1e-5)


def test_route_adds_no_parameters() -> None:
    found = parameters()
    assert found.to_dict("list") == {
        "model": ["DiT", "DiT + TREAD", "MaskDiT", "SPRINT"],
        "parameters_M": [674.816272, 674.816272, 730.116368, 677.472784],
    }


def test_published_numbers_name_their_source() -> None:
    page = all_published()
    assert "| DiT | B/2 | 130 | 43.47 | 21.34 | \u221222.13\u2020 | DiT | EDM |  |" in page
    assert "| SG (FID) | 1.58 | 173.16 | not stated |" in page
    assert "Source: TREAD, ICCV 2025 (arXiv 2501.04765, later versions), Table 6. How 1/6" in page


def test_tables_agree_on_shared_runs() -> None:
    table2 = paper_tables.table("Table 2").set_index(["backbone", "size"])
    table5 = paper_tables.table("Table 5").set_index("selection_rate")["fid"]
    assert table5[0.0] == table2.loc[("DiT", "B/2"), "fid_dense"]
    assert table5[0.5] == table2.loc[("DiT", "B/2"), "fid_tread"]
    assert paper_tables.table("Table 6")["fid"].min() == table2.loc[("DiT", "XL/2"), "fid_tread"]


def test_every_published_fid_names_its_recipe() -> None:
    columns = {"fid": "recipe", "fid_dense": "recipe_dense", "fid_tread": "recipe_tread"}
    named = 0
    recipes = {*paper_tables.recipes()["recipe"], "not stated"}
    for name in paper_tables.TABLES:
        table = paper_tables.table(name)
        for fid in set(columns) & set(table.columns):
            assert set(table[columns[fid]]) <= recipes, table.attrs["source"]
            named += 1
    assert named == 10  # dense and routed of Tables 2 and 4, one each of six others


def test_figure_8_has_sixteen_placements() -> None:
    assert len(paper_tables.FIG8) == 16
    best = min(paper_tables.FIG8, key=lambda route: paper_tables.FIG8[route])
    assert best == (2, 8)
    # scored on few samples: as far above FID-50K for the baseline as for the best
    above = 49.89 - 43.47, 49.89 + paper_tables.FIG8[best] - 21.34
    assert above == pytest.approx((6.42, 6.68))


def test_tables_1_and_2_agree() -> None:
    table1 = paper_tables.table("Table 1")
    assert len(table1) == 16 and (table1["guidance"] == "none").sum() == 8
    best = table1.loc[table1["fid"].idxmin()]
    assert (best["system"], best["guidance"]) == ("TREAD (F)", "CFG in an interval")
    by_cost = paper_tables.table("Sparse guidance, Table 2").set_index("guidance")["fid"]
    table2 = paper_tables.table("Table 2").set_index(["backbone", "size"])
    sit = table2.loc[("SiT", "XL/2"), "fid_tread"]
    assert by_cost["none"] == sit  # 400K steps there, 400 epochs here


def test_experiments_have_published_optimisation() -> None:
    rows = paper_tables.table("Table S8, optimisation").set_index("setting")["value"]
    for name in ("s2_imagenet256", "sit_b2_imagenet256", "b2_imagenet512"):
        spec = decode(RunSpec, dict(load_experiment(name, []).run))
        train = spec.train
        ours = {
            "lr": train.lr,
            "betas": train.betas,
            "eps": train.eps,
            "weight_decay": train.weight_decay,
            "warmup": train.warmup,
            "batch": train.batch,
            "steps": train.steps,
            "ema": train.ema.decay,
            "label_drop": train.label_drop,
        }
        for setting, value in ours.items():
            numbers = tuple(float(x) for x in rows[setting].split(","))
            assert numbers == (value if isinstance(value, tuple) else (value,)), setting
        assert (train.schedule, spec.precision) == (rows["schedule"], rows["precision"])
        assert train.clip is None and rows["clip"] == "none" and train.ema.halflife is None
