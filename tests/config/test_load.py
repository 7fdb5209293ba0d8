"""Overrides reach the file that they belong to, and paths are those of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tread_lab.config.load import (
    evaluations_of,
    find,
    load_experiment,
    load_sweep,
    reference_of,
    sampler_settings,
)
from tread_lab.specs import UserError
from tread_lab.specs.metrics import ReferenceSpec
from tread_lab.specs.sweep import Experiment
from tread_lab.sweep.expand import expand


def test_key_belongs_to_the_sweep_file_or_its_run(in_folder: Path) -> None:
    text = "experiment: tiny\nquestion: Why?\naxes: {rate: [0.5]}\nsearch: {trials: 3}\n"
    Path("s.yaml").write_text(text)
    overrides = ["seeds=[3,4]", "question=Who?", "search.trials=5", "train.steps=7"]
    name, sweep, experiment = load_sweep("s", overrides)
    assert (name, sweep.seeds, sweep.question) == ("s", (3, 4), "Who?")
    assert sweep.search is not None and sweep.search.trials == 5
    assert (experiment.name, sweep.fixed) == ("tiny", {"train.steps": 7})


def test_a_path_of_data_is_that_of_the_users_home_and_folder(in_folder: Path) -> None:
    for written, meant in (("~/x", Path.home() / "x"), ("x", in_folder / "x")):
        Path("e.yaml").write_text(f"model: DiT-S/2\ndata: {{path: {written}}}\n")
        assert load_experiment("e.yaml").run["data"]["path"] == str(meant)
    axes = "axes: {zip: {data: {path: [a, /b]}, train.lr: [1, 2]}}\nfixed: {then: {data.path: c}}\n"
    trials = "trials: [{data: {path: =x}}]\nvariants: {m: {n: {data.path: d}}}\n"
    items = ["{samples: {reference: x/a.npz}}", "{samples: {reference: coco}}", "fd@1k"]
    Path("s.yaml").write_text(f"experiment: e.yaml\n{axes}{trials}evaluate: [{', '.join(items)}]\n")
    _, sweep, _ = load_sweep("s.yaml")
    here = str(in_folder)
    file, name = ({"samples": {"reference": own}} for own in (f"{here}/x/a.npz", "coco"))
    assert sweep.evaluate == (file, name, "fd@1k")
    assert evaluations_of(items) == [file, name, "fd@1k"]
    assert sweep.axes["zip"]["data"]["path"] == [f"{here}/a", "/b"]
    assert sweep.fixed == {"then.data.path": f"{here}/c"}
    assert sweep.trials == ({"data": {"path": "=x"}},)
    assert sweep.variants == {"m": {"n": {"data.path": f"{here}/d"}}}


def test_a_file_as_given_comes_before_that_of_the_folder_and_the_shipped_one(
    in_folder: Path,
) -> None:
    shipped = find("experiments", "tiny")
    assert shipped.name == "tiny.yaml" and shipped.is_absolute()
    assert not shipped.is_relative_to(in_folder)
    Path("experiments").mkdir()
    Path("experiments/tiny.yaml").touch()
    assert find("experiments", "tiny") == in_folder / "experiments" / "tiny.yaml"
    Path("tiny.yaml").touch()
    assert (
        find("experiments", "tiny") == find("experiments", "tiny.yaml") == in_folder / "tiny.yaml"
    )
    Path("other.yml").touch()
    assert find("experiments", "other.yml") == in_folder / "other.yml"
    Path("tiny.yaml").unlink()
    Path("experiments/tiny.yaml").unlink()
    assert find("experiments", "experiments/tiny") == shipped
    with pytest.raises(UserError, match=r"^no experiment 'elsewhere/tiny' here or in exp"):
        find("experiments", "elsewhere/tiny")


def test_a_name_without_a_file_is_told_with_the_nearest(in_folder: Path) -> None:
    with pytest.raises(UserError) as error:
        find("experiments", "tny")
    assert str(error.value) == ("no experiment 'tny' here or in experiments/, did you mean 'tiny'?")
    Path("sweeps").mkdir()
    Path("sweeps/my_rates.yaml").touch()
    with pytest.raises(UserError, match=r"^no sweep 'my_rate' here .*, did you mean 'my_rates'"):
        find("sweeps", "my_rate")
    with pytest.raises(UserError, match=r"^no sweep 'x{300}' here or in"):
        find("sweeps", "x" * 300)


def test_an_experiment_is_its_run_sampler_evaluations_and_reference(in_folder: Path) -> None:
    Path("e.yaml").write_text(
        "question: Why?\nmodel: DiT-S/2\nsampler: {steps: 3}\nevaluate: [fd@1k]\n"
        "reference: x/coco.npz\n"
    )
    typed = ["train.lr=0.5", "sampler.steps=4", "seed=3", "model.depth=4"]
    found = load_experiment("e.yaml", typed)
    path = str(in_folder / "x" / "coco.npz")
    model = {"backbone": "dit", "depth": 4, "width": 384, "heads": 6, "patch": 2}
    assert found == Experiment(
        name="e", run={"model": model, "train": {"lr": 0.5}, "seed": 3}, sampler={"steps": 4},
        evaluate=("fd@1k",), reference=ReferenceSpec(name="coco", path=path),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, None),
        ("heldout", None),
        ("coco", ReferenceSpec(name="coco")),
        ({"name": "a", "path": "/b.npz"}, ReferenceSpec(name="a", path="/b.npz")),
    ],
)
def test_a_reference_is_heldout_images_a_name_or_a_file(written: object, meant: object) -> None:
    assert reference_of(written) == meant
    with pytest.raises(UserError, match=r"reference: unknown key 'of'|^reference\.of: unknown key"):
        reference_of({"of": written})
    home = ReferenceSpec(name="coco", path=str(Path.home() / "coco.npz"))
    assert reference_of("~/coco.npz") == home


def test_settings_of_the_sampler_are_its_dotted_fields() -> None:
    written = ["sampler.steps=40", 'sampler.guidance.routes=["2->8"]', "sampler.solver=heun"]
    assert sampler_settings(written) == {
        "steps": 40, "guidance.routes": ["2->8"], "solver": "heun"
    }  # fmt: skip
    with pytest.raises(UserError, match=r"^steps=4: must be of the sampler\. Try"):
        sampler_settings(["steps=4"])
    with pytest.raises(UserError, match=r"^'sampler.steps=\[1' line 2: not valid YAML: did not"):
        sampler_settings(["sampler.steps=[1"])


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        ("{}", [], "e.yaml: expected `key: value` lines"),
        ("model: DiT-S/2\n3: x", [], "^3: no such field"),
        ("modle: DiT-S/2", [], "^modle: no such field, did you mean 'model'"),
        ("model: DiT-S/2\nseed: 1\nseed: 2", [], r"e.yaml line 3: .* duplicate key 'seed'$"),
        ("model: DiT-S/2", ["~seed"], "^~seed: must be without ~. Try seed=null"),
        ("seed: 1", ["a={b: 2"], r"^'a=\{b: 2' line 1: not valid YAML: did not find expected"),
        ("seed: 1", ["+seed=2"], r"^\+seed=2: must be without \+. Try seed=2"),
        ("seed: 1", ["seed"], "^'seed': must be key=value"),
        ("seed: 1", ["learning_rate=1"], r"^learning_rate=1: unknown key .* Try train\.lr=1$"),
        ("seed: 1", ["route=2->8,2->9"], "^route: must be one value, got 2. Try tread-lab sweep e"),
        ("sampler: 3", ["sampler.steps=4"], "^sampler: must be a mapping, got 3"),
        ("defaults: [e]", [], "e.yaml: defaults: must be names of other files"),
        (
            "defaults: [tiny, bad, _self_]",
            [],
            r"^/.*/bad.yaml line 2: not valid YAML: did not find",
        ),
    ],
)
def test_a_wrong_file_or_override_is_one_line(
    in_folder: Path, text: str, overrides: list[str], said: str
) -> None:
    Path("bad.yaml").write_text("model: [\n")
    Path("e.yaml").write_text(text)
    with pytest.raises(UserError, match=said):
        load_experiment("e.yaml", overrides)


@pytest.mark.parametrize(
    ("axis", "typed", "kept"),
    [
        ("route: {start: 2, end: B-4}", 'axes.route=["2->8","1->8"]', ["2->8", "1->8"]),
        ("route: ['2->8']", "axes.route={start: 2, end: 8}", {"start": 2, "end": 8}),
        ("route: {start: 2, end: 8}", "axes.route={end: 7}", {"start": 2, "end": 7}),
        ("route: {start: 2, end: 8}", "axes.route={}", {"start": 2, "end": 8}),
    ],
)
def test_an_axis_is_typed_whole_or_in_part(
    in_folder: Path, axis: str, typed: str, kept: Any
) -> None:
    Path("s.yaml").write_text(f"experiment: tiny\naxes: {{{axis}}}\n")
    assert load_sweep("s", [typed])[1].axes["route"] == kept


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("axes: {train.lr: [1]}", "axes.train={lr: [0.5]}"),
        ("axes: {train.lr: [1]}", "axes={train.lr: [0.5]}"),
        ("axes: {zip: {train.lr: [1], train.batch: [4]}}", "axes.zip.train.lr=[0.5]"),
        ("variants: {of: {big: {train.lr: 1}}}", "variants.of.big.train.lr=0.5"),
    ],
)
def test_what_is_typed_counts_wherever_the_file_writes_dots(
    in_folder: Path, written: str, typed: str
) -> None:
    Path("s.yaml").write_text(f"experiment: tiny\n{written}\n")
    _, sweep, experiment = load_sweep("s", [typed])
    assert [t.spec.train.lr for t in expand(sweep, experiment).trials if t.role == "trial"] == [0.5]


def test_a_part_of_what_one_word_said_keeps_it(in_folder: Path) -> None:
    Path("s.yaml").write_text("experiment: tiny\naxes: {rate: [0.5]}\nstop_early: asha\n")
    _, sweep, _ = load_sweep("s", ["stop_early.grace=5"])
    assert sweep.stop_early is not None
    assert (sweep.stop_early.grace, sweep.stop_early.reduction) == (5, 3)


def test_another_kind_takes_what_the_file_fixes_of_the_first(in_folder: Path) -> None:
    fixed = "{process: {kind: flow, direction: 1}, train.steps: 9}"
    Path("s.yaml").write_text(f"experiment: tiny\nfixed: {fixed}\n")
    for typed, kind in {
        "process.time=uniform": "flow",
        "process={kind: edm, p_std: 1}": "edm",
    }.items():
        process = expand(*load_sweep("s", [typed, "route=2->8"])[1:]).trials[0].spec.process
        assert process.kind == kind
        assert vars(process).get("direction", 1) == 1 and vars(process).get("p_std", 1) == 1


def test_a_file_is_merged_over_its_defaults(in_folder: Path) -> None:
    Path("a.yaml").write_text("model: DiT-S/2\nprocess: {kind: flow, time: uniform}\nseed: 3\n")
    Path("b.yaml").write_text("defaults: [a]\nprocess: {direction: 1}\ndata: {classes: 5}\n")
    Path("c.yaml").write_text("defaults: [_self_, b]\nseed: 4\nprocess: {kind: edm, p_std: 1}\n")
    flow = {"kind": "flow", "time": "uniform", "direction": 1}
    assert load_experiment("b.yaml").run["process"] == flow
    assert load_experiment("c.yaml").run == {**load_experiment("b.yaml").run, "seed": 3}


def test_a_base_run_that_the_file_fixes_takes_what_is_typed_of_it(in_folder: Path) -> None:
    fixed = "{model: DiT-S/2, model.depth: 9, route: 2->8, rate: 0.25, train: {steps: 4}}"
    Path("own.yaml").write_text(f"experiment: null\nfixed: {fixed}\n")
    Path("child.yaml").write_text("defaults: [own, _self_]\nseeds: [1]\n")
    Path("other.yaml").write_text(f"experiment: tiny\nfixed: {fixed}\n")
    for words in (["own.yaml"], ["child.yaml"], ["other.yaml", "experiment=null"]):
        _, sweep, experiment = load_sweep(words[0], [*words[1:], "train.steps=7"])
        assert sweep.fixed == {"train.steps": 7}
        assert experiment.run["routes"] == [{"start": 2, "end": 8, "rate": 0.25}]
        assert experiment.run["model"]["depth"] == 9
        with pytest.raises(UserError, match=r"^sampler.steps=5: .* has no experiment; write it in"):
            load_sweep(words[0], [*words[1:], "sampler.steps=5"])


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ([], ""),
        (
            ['axes.route=["2->8","2->10"]', "axes.train.lr=[1e-3]", "train.steps=20", "seeds=0..2"],
            "fixed: {train.steps: 20}\naxes: {route: [2->8, 2->10], train: {lr: [0.001]}}\n"
            "seeds: [0, 1, 2]\n",
        ),
        (
            ["axes.route.end=4..9", "rate=0.75", "route.start=1", "search.trials=3"],
            "fixed: {rate: 0.75, route.start: 1}\naxes: {route: {end: 4..9}}\n"
            "search: {trials: 3}\n",
        ),
        (
            ["sampler_axes.steps=[4,8]", "evaluate=[fd@1k]", "baseline=null", "data.path=x"],
            "fixed: {data.path: x}\nevaluate: [fd@1k]\nsampler_axes: {steps: [4, 8]}\n"
            "baseline: null\n",
        ),
    ],
)
def test_an_experiment_is_a_sweep_of_its_base_run(
    typed: list[str], written: str, in_folder: Path
) -> None:
    Path("s.yaml").write_text(f"experiment: tiny_flow\n{written}")
    of_file, asked = load_sweep("s"), load_sweep("tiny_flow", typed)  # which has `defaults`
    assert asked[0] == "tiny_flow" and asked[1:] == of_file[1:]
    assert expand(*asked[1:]).trials


def test_a_file_without_an_experiment_that_says_no_run_is_no_sweep(in_folder: Path) -> None:
    Path("lacking.yaml").write_text("axes: {rate: [0]}\n")
    with pytest.raises(UserError, match=r"^lacking.yaml: missing key 'experiment'"):
        load_sweep("lacking.yaml", ["train.lr=1"])


@pytest.mark.parametrize(
    ("typed", "listed"),
    [
        ("route=2->8,2->10", 'axes.route=["2->8","2->10"]'),
        ("train.lr=1e-3,3e-3", "axes.train.lr=[1e-3,3e-3]"),
        ("train.lr=choice(1e-3,3e-3)", "axes.train.lr=[1e-3,3e-3]"),
        ("sampler.steps=4,8", "sampler_axes.steps=[4,8]"),
        ("seeds=0,1", "seeds=[0,1]"),
        ("seed=0,1", "seeds=[0,1]"),
    ],
)
def test_values_with_commas_are_an_axis(typed: str, listed: str, in_folder: Path) -> None:
    Path("s.yaml").write_text("experiment: tiny\nfixed: {train.lr: 1, route: 1->2}\n")
    _, found, _ = load_sweep("s", [typed])
    _, meant, _ = load_sweep("s", [listed])
    assert found.axes == meant.axes
    assert (found.sampler_axes, found.seeds) == (meant.sampler_axes, meant.seeds)
    assert not {*found.fixed} & {typed.partition("=")[0]}


@pytest.mark.parametrize("where", ["data.path == 'a'", ["rate > 0", "'a' in then.data.path"]])
def test_a_rule_about_a_path_is_refused(where: object, in_folder: Path) -> None:
    Path("s.yaml").write_text(yaml.safe_dump({"experiment": "tiny", "where": where}))
    with pytest.raises(UserError, match=r"where: data.path is no value; list the cells under"):
        load_sweep("s.yaml")


FIXED = ("{train: {steps: 60, lr: 1e-3}}", "{train.steps: 60, train.lr: 1e-3}")


@pytest.mark.parametrize("fixed", FIXED)
def test_what_is_typed_counts_before_what_the_file_fixes(in_folder: Path, fixed: str) -> None:
    def planned(*overrides: str) -> tuple[int, float]:
        _, sweep, experiment = load_sweep("s.yaml", overrides)
        train = expand(sweep, experiment).trials[-1].spec.train
        return train.steps, train.lr

    def write(fixed: str) -> None:
        axes = "axes: {route: [2->8], train: {batch: [4]}}\nvariants:\n  m:\n"
        axes += "    a: {train: {eps: 1e-8}}\n    b: {train.eps: 1e-7, model: DiT-S/2}\n"
        Path("s.yaml").write_text(f"experiment: tiny\nfixed: {fixed}\n{axes}\n")

    write(fixed)
    assert planned() == (60, 1e-3)
    assert planned("train.steps=70", "train.ema=0.9") == (70, 1e-3)
    assert planned("train={lr: 0.5}", "train.clip=3") == (60, 0.5)
    for typed in ("fixed.train.lr=0.5", "fixed.train={lr: 0.5}", "fixed={train.lr: 0.5}"):
        assert planned(typed) == (60, 0.5)
    wrong = {
        ("train.steps=sixty",): r"train.steps: must be a whole number, got 'sixty'",
        ("trian.steps=7",): r"^trian.steps=7: unknown key .* Try train.steps=7$",
        ("train=fast",): "^train: must be a mapping, got 'fast'",
        ("sedes=[0]",): r"^sedes=\[0\]: unknown key 'sedes'. Try seeds=\[0\]",
        ("fixed=7",): "^s.yaml: fixed: must be a mapping, got 7",
        ("routes=[]",): r"^fixed and route both set routes; write one of them$",
        ("train.eps=1e-9",): r"^fixed and variants.m.a both set train.eps; write one of them$",
    }
    for overrides, line in wrong.items():
        with pytest.raises(UserError, match=line):
            planned(*overrides)
    text = "experiment: tiny\nfixed: {rate: 0.5, model: DiT-S/2}\nsampler_axes: {steps: [4, 8]}\n"
    Path("s.yaml").write_text(f"{text}trials: [{{route: 2->8}}]\n")
    assert load_sweep("s", ["model.depth=4"])[1].fixed["model.depth"] == 4
    assert load_sweep("s", ["sampler.rho=6"])[2].sampler["rho"] == 6
    assert load_sweep("s", ["sampler.steps=5"])[1].sampler_axes == {"steps": [5]}
