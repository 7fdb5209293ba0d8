"""A sweep's own table, and the paper's: consistent, with sources and recipes."""

from __future__ import annotations

from tread_lab.analysis import paper_tables
from tread_lab.config import RunSpec, decode
from tread_lab.config.load import load_experiment


def test_tables_agree_on_shared_runs() -> None:
    table2 = paper_tables.table("Table 2").set_index(["backbone", "size"])
    table5 = paper_tables.table("Table 5").set_index("selection_rate")["fid"]
    assert table5[0.0] == table2.loc[("DiT", "B/2"), "fid_dense"]
    assert table5[0.5] == table2.loc[("DiT", "B/2"), "fid_tread"]
    assert paper_tables.table("Table 6")["fid"].min() == table2.loc[("DiT", "XL/2"), "fid_tread"]


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
