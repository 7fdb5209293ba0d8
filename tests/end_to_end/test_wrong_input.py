"""Every mistake of a user is one line that says what, where and what to do; nothing is written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tread_lab.cli.main import main

PLAN = "--plan --device cpu"
ROUTES = "experiment: tiny\naxes: {route: {start: 0..2, end: 5}}\n"
RATE = "experiment: tiny\naxes: {rate: [0.5]}\n"
EARLY, RANGES = "stop_early: ", ". Try [1e-3, 3e-3] or 1e-4..1e-2 log."


def axis(values: str) -> str:
    return f"experiment: tiny\naxes: {{train.lr: {values}}}\n"


# command, what each line says (`|` between lines), text of s.yaml
OWN: list[tuple[str, ...]] = [
    ("train tiny trian.steps=3", "trian.steps=3: unknown key 'trian.steps'. Try train.steps=3"),
    ("train tiny train.step=3", "train.step: no such field, did you mean 'train.steps'?"),
    (
        "train tinny",
        "experiment: must be here or in experiments/, got 'tinny', did you mean 'tiny'?",
    ),
    ("train tiny --route '2->12'", "routes[0]: must be within blocks 0..11 of the network, got 2"),
    ("train tiny --route '8->2'", "routes[0]: must start before its end, got 8->2. Try 2->8."),
    ("train tiny --route '2->6' --route '5->8'", "routes[1]: must start after block 6"),
    ("train tiny --route 2-8", "routes[0]: must be a route, got '2-8'. Try '2->8'."),
    ("train tiny --route '2->8' --rate 1.0", "--rate: must be in [0, 1), got 1"),
    ("train tiny --rate 0.5", '--rate: must have a route, got none. Try --route "2->8".'),
    ("train tiny train.lr=fast", "train.lr: must be a number, got 'fast'"),
    ("train tiny train=fast", "train: must be a mapping, got 'fast'. Try train.steps=400000."),
    ("train tiny model.patch=3", "model.patch: must divide data.size (16), got 3"),
    ("train tiny precision=fp8", "precision: must be one of fp32, tf32, bf16, fp16, got 'fp8'"),
    ("train tiny steps", "steps: must be key=value. Try train.steps=VALUE."),
    (
        "train tiny --device gpu",
        "--device: must be cpu, cuda or cuda:N, got gpu. Try --device cuda",
    ),
    ("train tiny sampler.steps=1e8", "sampler.steps: must be in [1, 10000], got 100000000"),
    ("train s2_imagenet256", "data.path: must be the folder or file of the data, got none. Try"),
    ("sweep route_placment.yaml", "did you mean 'route_placement'?"),
    (f"sweep s.yaml {PLAN}", "s.yaml line 1: must be valid YAML", "experiment: [tiny\nseeds: 3"),
    (f"sweep s.yaml {PLAN}", "s.yaml: must be `key: value` lines, got 3", "3"),
    (f"sweep s.yaml {PLAN}", "line 3: must be valid YAML, got dup", "seeds: 0\nseeds: 1"),
    (f"sweep s.yaml {PLAN}", "s.yaml: unknown key 'seed', did you mean", ROUTES + "seed: [0]"),
    (
        f"sweep s.yaml {PLAN}",
        "axes.route.start: must be a range from low to high",
        ROUTES.replace("0..2", "3..1"),
    ),
    (f"sweep s.yaml {PLAN}", "axes at start=6, end=5: ro", ROUTES.replace("0..2", "0..9")),
    (f"sweep s.yaml {PLAN}", "axes.route: must be a route, got '2-8'", "axes: {route: [2-8]}"),
    (f"sweep s.yaml {PLAN}", "unknown name 'strat', did you mean 'st", ROUTES + "where: strat > 1"),
    (
        f"sweep s.yaml {PLAN}",
        "must compare fields and numbers, got",
        ROUTES + "where: __import__('os')",
    ),
    (f"sweep s.yaml {PLAN}", "where: must keep at least one cell", ROUTES + "where: start > 9"),
    (f"sweep s.yaml {PLAN}", "axes.spend: requires `match`. Try match: tr", "axes: {spend: [1]}"),
    (
        f"sweep s.yaml {PLAN}",
        "s.yaml: unknown key 'seds'|precision: must be one|train.epochs: no such field, did you"
        " mean 'train.steps'|axes.trian.lr: no such field, did you mean 'train.lr'",
        "axes: {trian.lr: [1]}\nfixed: {train: {epochs: 3}, precision: fp8}\nseds: 1",
    ),
    ("sweep route_placement evaluate=[fid10k] --plan", "unknown evaluation 'fid10k', did you mean"),
    ("sweep placement_search search.objectives=[heldot/loss]", "did you mean 'heldout/loss'?"),
    (
        "sweep route_placement --name ../x",
        "name: must be letters, digits, '-', '_', '+' and '.', got '../x'. Try --name",
    ),
    ("sweep route_placement --gpus 1.5", "--gpus: must be a share of one GPU (at most 1) or whole"),
    ("cost --model DiT-Z/2", "unknown model 'DiT-Z/2', did you mean 'DiT-S/2'?"),
    ("figures placement", "--root: must be the folder of a lab, got"),
    ("data stats . --source shard", "did you mean 'shards'?"),
]
HABITS: list[tuple[str, ...]] = [
    # Hydra
    ("sweep tiny -m train.lr=1e-3,3e-3", "-m: unknown argument. Try the same without it"),
    ("sweep tiny +train.lr=1e-3", "+train.lr=1e-3: must not begin with +. Try train.lr=1e-3."),
    ("sweep tiny ++seed=1", "++seed=1: must not begin with +. Try seed=1."),
    ("sweep tiny ~train.clip", "~train.clip: must not begin with ~. Try train.clip=null."),
    ("sweep tiny --config-name x", "--config-name: unknown argument. Try the file alone"),
    ("sweep tiny hydra.run.dir=x", "hydra.run.dir=x: unknown key 'hydra.run.dir'. Try --root F"),
    ("sweep tiny 'train.lr=interval(1e-4,1e-2)'", "Try 'axes.train.lr=1e-4..1e-2 linear 5'"),
    ("sweep tiny train.lr=1e-3:1e-2", "got '1e-3:1e-2'. Try 'axes.train.lr=1e-3..1e-2 log 5'"),
    ("train tiny train.lr=1e-3,3e-3", "must be one value, got 2. Try tread-lab sweep tiny train"),
    # W&B
    (
        "sweep s.yaml",
        "experiment: must be a base run, got none|'method'. Try search: {sampler: tpe, trials: 20}."
        "|'metric'. Try search: {objectives: [gap/heldout]}.|'parameters'. Try axes: {",
        "method: bayes\nmetric: {name: loss}\nparameters: {lr: {values: [0.1]}}",
    ),
    ("sweep s.yaml", RANGES, axis("{min: 1e-4, max: 1e-2}")),
    (
        "sweep s.yaml",
        "Try stop_early: {grace: 100, reduction: 3}.",
        RATE + "early_terminate: {type: hyperband}",
    ),
    ("sweep tiny --count 20", "--count: unknown argument. Try search.trials=20."),
    (
        "train tiny wandb.project=x",
        "unknown key 'wandb.project'. Try --tracker wandb, with WANDB_PROJECT=",
    ),
    # Optuna
    ("sweep tiny n_trials=20", "n_trials=20: unknown key 'n_trials'. Try search.trials=20"),
    ("sweep s.yaml", "Try train.lr: 1e-4..1e-2 linear 5", axis("'suggest_float(1e-4, 1e-2)'")),
    (
        "sweep s.yaml",
        "Try objectives: [gap/heldout], whose",
        RATE + "search: {direction: minimize}",
    ),
    ("sweep s.yaml", "Try startup: 8.", RATE + "search: {n_startup_trials: 5}"),
    ("sweep s.yaml", "must be one of tpe, gp, random", RATE + "search: {sampler: TPESampler}"),
    # Ray Tune
    (
        "sweep tiny num_samples=20",
        "unknown key 'num_samples'. Try search.trials=20",
    ),
    ("sweep s.yaml", "Try train.lr: 1e-4..1e-2 log 5", axis("'tune.loguniform(1e-4, 1e-2)'")),
    ("sweep s.yaml", "Try train.lr: [8, 16]", axis("'tune.choice([8, 16])'")),
    ("sweep s.yaml", RANGES, axis("{grid_search: [8, 16]}")),
    (
        "sweep s.yaml",
        "unknown key 'scheduler'. Try stop_early: {grace: 100, redu",
        RATE + "scheduler: a",
    ),
    ("sweep s.yaml", "Try grace: 100, in optimizer steps.", RATE + EARLY + "{grace_period: 5}"),
    ("sweep s.yaml", "stop_early: must be asha, null or {grace: 1", RATE + EARLY + "hyperband"),
    (
        "sweep s.yaml",
        "Try sampler: tpe.|Try objectives: [gap/heldout].",
        RATE + "search: {method: a, metric: b}",
    ),
    ("sweep tiny time_budget_s=3600", "unknown key 'time_budget_s'. Try hours=1"),
    # training scripts
    ("train tiny --lr 1e-3", "--lr: unknown argument. Try train.lr=1e-3."),
    ("train tiny --fp16", "--fp16: unknown argument. Try precision=fp16."),
    ("train tiny --num_train_epochs 3", "--num_train_epochs: unknown argument. Try train.steps="),
    ("train tiny --resume", "--resume: unknown argument. Try the same command, which continues."),
    ("sweep tiny --dry-run", "--dry-run: unknown argument. Try --plan."),
    ("sweep tiny batch_size=8", "batch_size=8: unknown key 'batch_size'. Try train.batch=8"),
    ("train tiny train.mixed_precision=bf16", "no such field, did you mean 'precision'?"),
    ("train tiny train.schedule=cosine", "unknown schedule 'cosine' (known: constant,"),
    ("train tiny sampler.guidance_scale=4", "unknown key 'guidance_scale', did you mean 'guidanc"),
]


@pytest.mark.task(31)
@pytest.mark.parametrize("case", [*OWN, *HABITS], ids=lambda case: " ".join(case[::2])[:60])
def test_mistake_is_one_line(
    case: tuple[str, ...], in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, said, *text = case
    for written in text:
        own = "experiment" in written or written[0] not in "acfs"
        Path("s.yaml").write_text(written if own else f"experiment: tiny\n{written}")
    before = sorted(in_folder.rglob("*"))
    assert main(shlex.split(command)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("tread-lab: ") for line in lines)
    for line, part in zip(lines, said.split("|"), strict=True):
        assert part in line
    assert sorted(in_folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["sweep route_placement", "train tiny", "evaluate abc fd@1k"])
def test_one_of_several_processes_is_refused(
    command: str,
    in_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(shlex.split(command)) == 2
    assert "WORLD_SIZE: must be 1, got 2" in capsys.readouterr().err
    assert not list(in_folder.rglob("*"))
