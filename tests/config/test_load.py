"""Overrides reach the file that they belong to; files are found and read as they are written."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tread_lab.config import UserError
from tread_lab.config.load import find, load_experiment, load_sweep
from tread_lab.config.yaml_text import dump_yaml, load_yaml
from tread_lab.sweep.expand import expand


def test_key_belongs_to_the_sweep_or_run(in_folder: Path) -> None:
    text = "experiment: tiny\nquestion: Why?\naxes: {rate: [0.5]}\nsearch: {trials: 3}\n"
    Path("s.yaml").write_text(text)
    overrides = ["seeds=[3,4]", "question=Who?", "search.trials=5", "train.steps=7"]
    name, sweep, experiment = load_sweep("s", overrides)
    assert (name, sweep.seeds, sweep.question) == ("s", (3, 4), "Who?")
    assert sweep.search is not None and sweep.search.trials == 5
    assert (experiment.name, sweep.fixed) == ("tiny", {"train.steps": 7})


def test_data_path_is_relative_to_the_user(in_folder: Path) -> None:
    Path("e.yaml").write_text("model: DiT-S/2\nprecision: fp32\n")
    trials = "trials: [{data: {path: x}}, {data.path: ~/x}, {data.path: /x}]"
    Path("s.yaml").write_text(f"experiment: e\nevaluate: []\nbaseline: null\n{trials}\n")
    paths = [trial.spec.data.path for trial in expand(*load_sweep("s.yaml")[1:]).trials]
    assert paths == [str(in_folder / "x"), str(Path.home() / "x"), "/x"]


def test_file_here_precedes_the_shipped_one(in_folder: Path) -> None:
    shipped = find("tiny", "experiments")
    assert shipped.name == "tiny.yaml" and not shipped.is_relative_to(in_folder)
    Path("experiments").mkdir()
    for here in ("experiments/tiny.yaml", "tiny.yaml"):
        Path(here).touch()
        assert find("tiny", "experiments") == in_folder / here
    Path("other.yml").touch()
    assert find("other.yml", "experiments") == in_folder / "other.yml"
    Path("experiments/tiny.yaml").unlink()
    assert find("experiments/tiny", "experiments") == shipped
    with pytest.raises(UserError, match=r"^experiment: must be here or in exp.*'elsewhere/tiny'"):
        find("elsewhere/tiny", "experiments")


def test_file_is_merged_over_its_defaults(in_folder: Path) -> None:
    Path("a.yaml").write_text("model: DiT-S/2\nprocess: {kind: flow, time: uniform}\nseed: 3\n")
    Path("b.yaml").write_text("defaults: [a]\nprocess: {direction: 1}\ndata: {classes: 5}\n")
    Path("c.yaml").write_text("defaults: [_self_, b]\nseed: 4\nprocess: {kind: edm, p_std: 1}\n")
    flow = {"kind": "flow", "time": "uniform", "direction": 1}
    assert load_experiment("b.yaml").run["process"] == flow
    assert load_experiment("c.yaml").run == {**load_experiment("b.yaml").run, "seed": 3}


# a file, what is typed with it, and the file that says the same
TYPED: list[tuple[str, list[str], str]] = [
    ("", ["route=2->8,2->10"], "axes: {route: [2->8, 2->10]}"),
    ("", ["train.lr=choice(1e-3,3e-3)"], "axes: {train.lr: [1e-3, 3e-3]}"),
    ("", ["sampler.steps=4,8", "seed=0,1"], "sampler_axes: {steps: [4, 8]}\nseeds: [0, 1]"),
    ("", ["baseline=null", "evaluate=[fd@1k]"], "baseline: null\nevaluate: [fd@1k]"),
    ("fixed: {train.lr: 1}", ["train.lr=1,2"], "axes: {train.lr: [1, 2]}"),
    ("fixed: {train: {lr: 1, steps: 9}}", ["train={lr: 2}"], "fixed: {train: {lr: 2, steps: 9}}"),
    ("fixed: {model: DiT-S/2}", ["model.depth=4"], "fixed: {model: DiT-4x384x6/2}"),
    (
        "fixed: {route: 1->2}",
        ["route.end=3", "rate=0.75"],
        "fixed: {routes: [{start: 1, end: 3, rate: 0.75}]}",
    ),
    (
        "fixed: {process: {kind: flow, direction: 1}}",
        ["process={kind: edm, p_std: 1}"],
        "fixed: {process.p_std: 1}",
    ),
    ("axes: {train.lr: [1, 2]}", ["train.lr=3"], "axes: {train: {lr: [3]}}"),
    ("axes: {route: {start: 2, end: 8}}", ["route=1->2"], "axes: {route: 1->2}"),
    ("sampler_axes: {steps: [4, 8]}", ["sampler.steps=5"], "sampler_axes: {steps: [5]}"),
    (
        "variants: {of: {big: {train.lr: 1}}}",
        ["variants.of.big.train.lr=2"],
        "variants: {of: {big: {train: {lr: 2}}}}",
    ),
    ("variants: {of: {a: {train.lr: 1}, b: {}}}", ["of=b"], "variants: {of: {b: {}}}"),
    ("stop_early: asha", ["stop_early.grace=5"], "stop_early: {grace: 5}"),
]


@pytest.mark.parametrize(("file", "typed", "same"), TYPED)
def test_typed_values_take_precedence(
    file: str, typed: list[str], same: str, in_folder: Path
) -> None:
    Path("a.yaml").write_text(f"experiment: tiny\n{file}\n")
    Path("b.yaml").write_text(f"experiment: tiny\n{same}\n")
    (_, one, base), (_, other, same_base) = load_sweep("a.yaml", typed), load_sweep("b.yaml")
    found, meant = expand(one, base), expand(other, same_base)
    assert [t.run for t in found.trials] == [t.run for t in meant.trials]
    assert found.evaluations == meant.evaluations and one.stop_early == other.stop_early


SCALARS = {
    "010": 10, "0o10": 8, "0x1f": 31, "-7": -7, "1e-4": 1e-4, "1.": 1.0, ".5": 0.5, "+1E+3": 1e3,
    "true": True, "False": False, "null": None, "~": None, "-.inf": -math.inf,
    **{text: text for text in ("no", "yes", "on", "off", "1:30", "1_000", "2->8", "2020-01-01")},
}  # fmt: skip


def test_scalars_are_those_of_yaml_1_2(in_folder: Path) -> None:
    Path("b.yaml").write_text("model: DiT-S/2\n")
    for text, value in SCALARS.items():
        found = load_yaml(f"a: [{text}]", "f")["a"][0]
        assert (type(found), found) == (type(value), value)
        Path("e.yaml").write_text(f"model: DiT-S/2\nsampler: {{rho: {text}}}\n")
        typed = load_experiment("b.yaml", [f"sampler.rho={text}"])
        assert typed.sampler == load_experiment("e.yaml").sampler


texts = st.text(alphabet="01234567890eE+-._xonaftruely:~<=", max_size=8)


@given(st.lists(texts | st.floats(allow_nan=False) | st.integers() | st.none() | st.booleans()))
def test_written_yaml_reads_back(values: list[object]) -> None:
    assert load_yaml(dump_yaml(values), "f") == values
