"""What is asked without a file is the sweep file that one would have written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from tread_lab.cli import main
from tread_lab.config.asked import sweep_name, sweep_text
from tread_lab.config.load import asked_file, load_sweep
from tread_lab.specs import UserError
from tread_lab.specs.expansion import expand
from tread_lab.sweep.plan import timing

# What is typed -> the name of the sweep, and the file that one would write.
ASKED = {
    # texts need no quotes, one value is fixed
    "route=2->8,2->10 train.lr=1e-3,3e-3 train.steps=20 seeds=0..2": (
        "tiny-route-lr",
        "fixed: {train: {steps: 20}}\n"
        "axes: {route: [2->8, 2->10], train.lr: [0.001, 0.003]}\n"
        "seeds: [0, 1, 2]",
    ),
    # a sweep file's ranges, Hydra's range, and `where`
    "route.start=0..3 route.end=range(4,9,2) 'where=start + 1 < end' rate=0.75": (
        "tiny-start-end",
        "axes: {route: {start: 0..3, end: [4, 6, 8]}, rate: [0.75]}\nwhere: start + 1 < end",
    ),
    # lists are one value
    "'routes=[2->8,9->10],[]' seeds=3 'evaluate=heldout_loss,fd@1k at 50%'": (
        "tiny-routes",
        "axes: {routes: [[2->8, 9->10], []]}\nseeds: [3]\nevaluate: [heldout_loss, fd@1k at 50%]",
    ),
    # settings of the sampler, a choice, another baseline
    "'route=choice(2->8,2->9 by rows)' sampler.steps=4,8 baseline.rate=0 evaluate=fd@1k": (
        "tiny-route-steps",
        "axes: {route: [2->8, 2->9 by rows]}\n"
        "sampler_axes: {steps: [4, 8]}\nbaseline: {rate: 0}\nevaluate: [fd@1k]",
    ),
    # a search, and one over Hydra's intervals
    "route.start=1 route.end=4..9 search.sampler=random search.trials=3": (
        "tiny-end",
        "axes: {route.start: [1], route.end: 4..9}\nsearch: {sampler: random, trials: 3}",
    ),
    "route=2->8 'train.lr=tag(log, interval(1e-3, 1e-2))' search.sampler=random": (
        "tiny-lr",
        "fixed: {route: 2->8}\naxes: {train.lr: 0.001..0.01 log}\nsearch: {sampler: random}",
    ),
    # an axis by its key of sweep files
    "route=2->8 axes.train.lr=1e-3,3e-3": (
        "tiny-lr",
        "fixed: {route: 2->8}\naxes: {train.lr: [0.001, 0.003]}",
    ),
    # a variation of the base alone
    "route=2->8 match=train_flops": ("tiny-route", "fixed: {route: 2->8}\nmatch: train_flops"),
}


def planned(name: str, words: list[str]) -> tuple[object, ...]:
    """Everything that decides a plan but what names it."""
    _, sweep, experiment = load_sweep(name, words)
    found = expand(sweep, experiment, price=lambda run: run.train.steps)
    return found, sweep.search, sweep.match, experiment


@pytest.mark.parametrize("typed", ASKED)
def test_what_is_asked_plans_the_runs_of_its_file_and_of_the_file_that_is_printed(
    typed: str, in_folder: Path
) -> None:
    (name, written), words = ASKED[typed], shlex.split(typed)
    assert load_sweep("tiny", words)[0] == name
    Path("written.yaml").write_text(f"experiment: tiny\n{written}\n")
    tree = asked_file("tiny", words)
    assert tree is not None
    Path("printed.yaml").write_text(sweep_text(tree[1], ["tiny", *words]))
    asked = planned("tiny", words)
    assert asked == planned("written.yaml", []) == planned("printed.yaml", [])


def test_the_plan_of_what_is_asked_prints_its_file_alone(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "trial_batch", lambda *_: 0)  # nothing is timed
    words = ["sweep", "tiny", "route=2->8,2->9", "evaluate=[]", "--device", "cpu"]
    assert main([*words, "--budget", "trials=1", "--plan"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == (
        "# tread-lab sweep tiny 'route=2->8,2->9' 'evaluate=[]' budget.trials=1"
    )
    assert list(yaml.safe_load(out).items()) == [
        ("question", "What does route change in tiny?"),
        ("experiment", "tiny"),
        ("axes", {"route": ["2->8", "2->9"]}),
        ("evaluate", []),
        ("budget", {"trials": 1}),
    ]
    assert "tiny-route: What does route change in tiny?" in err


def test_a_name_is_that_of_a_file_and_at_most_60_characters_long() -> None:
    tree = {"experiment": "x/my own.yaml", "axes": {"train.lr": [1, 2], "b": [3]}}
    assert sweep_name(tree) == "my_own-lr"
    assert sweep_name({"experiment": "x" * 59, "fixed": {"rate": 1}}) == "x" * 59 + "-"


def test_paths_of_data_are_those_of_the_folder_where_one_asks(in_folder: Path) -> None:
    _, sweep, _ = load_sweep("tiny", ["data.path=../x", "train.lr=1,2"])
    assert sweep.fixed == {"data.path": str(in_folder / ".." / "x")}
    _, sweep, _ = load_sweep("tiny", ["data.path=x,/y"])
    assert sweep.axes == {"data.path": [str(in_folder / "x"), "/y"]}


def test_a_sweep_file_is_asked_nothing(in_folder: Path) -> None:
    Path("from_defaults.yaml").write_text("defaults: [base, _self_]\nseeds: [1]\n")
    Path("base.yaml").write_text("experiment: tiny\n")
    assert asked_file("route_placement", ["seeds=[3]"]) is None
    assert asked_file("from_defaults.yaml", ["seeds=[3]"]) is None
    Path("lacking.yaml").write_text("axes: {rate: [0]}\n")  # a sweep file without its experiment
    assert asked_file("lacking.yaml", ["train.lr=1,2"]) is None
    assert asked_file("tiny_flow", ["train.lr=1,2"]) is not None  # an experiment with defaults


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "tiny is an experiment: say what varies, e.g. 'route=2->8,2->10'"),
        (["rout=2->8,2->9"], "rout: neither a run nor a sweep has it, did you mean 'route'?"),
        (["sedes=0..2"], "sedes: neither a run nor a sweep has it, did you mean 'seeds'?"),
        (["seed=1,2"], "seed: write seeds=0,1 or seeds=0..4, which baselines have, too"),
        (
            ["route=2->8", "route=2->9"],
            "route=2->9: route is given twice; write route=a,b for an axis",
        ),
        (["~route"], "~route: write route=a,b, or one value"),
        (["route=glob(2*)"], "route=glob(2*): write route=a,b, or one value"),
        (["train.lr=1,2", "axes=[]"], "axes: train.lr stands in it already; write one"),
        (
            ["train.lr=1,2", "axes.train.lr=3,4"],
            "axes.train.lr: train.lr is given already; write one of both",
        ),
        (["axes=[]", "axes.rate=1"], "axes.rate: axes is given whole already; write one of both"),
        (["route"], "'route' is not an override; write key=value"),
        (
            ["route={start: 2->3}"],
            "'route={start: 2->3}': the value of route cannot be read; quote each text in it, as in"
            " 'route={start: 2->3}'",
        ),
    ],
)
def test_a_mistake_is_one_line(words: list[str], line: str) -> None:
    with pytest.raises(UserError) as error:
        load_sweep("tiny", words)
    assert str(error.value) == line
