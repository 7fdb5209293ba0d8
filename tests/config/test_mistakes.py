"""Mistakes in a tree: each a line with its dotted path, what is required, and a near miss."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tread_lab.config import GuidanceSpec, ModelSpec, RunSpec, SamplerSpec, UserError
from tread_lab.config import decode as decoded
from tread_lab.config.errors import lookup, suggest
from tread_lab.config.sweep import SweepSpec

BASE = {"model": "DiT-S/2"}
SCAN = {"backbone": "rwkv", "depth": 12, "width": 32}

RUNS: list[tuple[dict[str, Any], str]] = [
    ({"routes": [{"start": 1, "end": 2, "rat": 0.5}]}, "routes[0]: unknown key 'rat', did you"),
    ({"routes": [{"end": 2}]}, "routes[0]: missing key 'start'"),
    ({"train": {"lr": True}}, "train.lr: must be a number, got True"),
    ({"train": {"betas": [0.9, 1]}}, "train.betas[1]: must be in [0, 1), got 1"),
    ({"train": {"betas": [0.9]}}, "train.betas: must be 2 values, got 1"),
    ({"train": {"warmup": 1.5}}, "train.warmup: must be a step or a fraction, got 1.5. Try 30"),
    ({"train": {"ema": {"decay": 0.9, "halflife": 1}}}, "train.ema.decay: has no effect beside a"),
    ({"train": None}, "train: must be a mapping, got nothing"),
    ({"process": {"kind": "ddpn"}}, "process.kind: unknown 'ddpn', did you mean 'ddpm'?"),
    ({"bypass": None}, "bypass: must be a mapping, got nothing"),
    ({"bypass": "sprint", "routes": ["0->2", "4->6"]}, "bypass: sprint requires one route, got 2"),
    ({"bypass": "mask", "routes": ["2->8"]}, "bypass: mask covers the whole network, write route"),
    ({"loss": "discrimination", "routes": ["2->8"]}, "loss: discrimination compares the tokens"),
    ({"repa": {"block": 12}}, "repa.block: must be within blocks 0..11, got 12"),
    ({"init_from": {}}, "init_from: must be either a run or a file"),
    ({"init_from": {"run": BASE, "published_as": "sit"}}, "init_from.published_as: requires a fil"),
    ({"init_from": {"run": {**BASE, "seed": "x"}}}, "init_from.run.seed: must be a whole number"),
    ({"data": {"size": 15}}, "model.patch: must divide data.size (15), got 2"),
    ({"routes": ["2-"]}, "routes[0]: must be a route, got '2-' (a shell takes an unquoted > for a"),
    ({"routes": [{"start": 1.5, "end": 8}]}, "routes[0]: must be a block or a fraction of the dep"),
    ({"routes": [{"start": "b", "end": 8}]}, "routes[0]: must be a position, got 'b'. Try 2, B-4"),
    ({"routes": [{"start": 1, "end": 8, "rate": 0.01}]}, "routes[0].rate: must route a token of 6"),
    ({"model": SCAN, "routes": ["1->8"]}, "routes[0].selection: must keep the rows that a scan re"),
]
MODELS: list[tuple[Any, str]] = [
    ({"depth": 2, "width": 32}, "heads: must divide the width 32, got 0. Try heads=2."),
    ({"depth": 2, "width": 32, "heads": 3}, "heads: must divide the width 32, got 3"),
    ({"depth": 2, "width": 36, "heads": 6, "rope": True}, "rope: must have heads of a multiple of"),
    (
        {"depth": 2, "width": 32, "heads": 2, "rope": True, "relative_bias": True},
        "relative_bias: must be false with rotary positions. Try rope=false.",
    ),
    ({**SCAN, "norm": "rms"}, "norm: requires the backbone dit, got rwkv"),
    ({"depth": 2, "width": 32, "heads": 2, "state": 8}, "state: requires the backbone mamba, got "),
    ("RWKV-210/2", "unknown model 'RWKV-210/2', did you mean 'RWKV-210M/2'?"),
    ("LightningDiT-B/1+qknorm", "LightningDiT-B/1+qknorm: unknown 'qknorm', did you mean 'qk_norm"),
]
OTHERS: list[tuple[type, Any, str]] = [
    (GuidanceSpec, {"weak": {"rate": "0.6-0"}}, "weak.rate: must be a rate, got '0.6-0'. Try 0.5"),
    (GuidanceSpec, {"weak": {"rate": "1->0"}}, "weak.rate.first: must be in [0, 1), got 1"),
    (GuidanceSpec, {"weight": 2, "interval": [2, 1]}, "interval: must be [lowest, highest], got ["),
    (GuidanceSpec, {"weak": {"path": "dropped", "rate": 0.5}}, "weak.path: must be full with a ra"),
    (SamplerSpec, {"sigma_min": 80}, "sigma_min: must be below sigma_max (80), got 80"),
    (SamplerSpec, {"solver": "sde", "last_step": 1}, "last_step: must be in (0, 1), got 1"),
    (SweepSpec, {"experiment": "tiny", "trials": [1]}, "trials[0]: must be a mapping, got 1"),
]
WRONG = [
    *((RunSpec, {**BASE, **tree}, line) for tree, line in RUNS),
    (RunSpec, {}, "missing key 'model'"),
    *((ModelSpec, tree, line) for tree, line in MODELS),
    *OTHERS,
]


@pytest.mark.parametrize(("cls", "tree", "line"), WRONG)
def test_mistake_is_named_by_its_path(cls: type, tree: Any, line: str) -> None:
    with pytest.raises(UserError) as error:
        decoded(cls, tree)
    assert len(error.value.args) == 1 and str(error.value).startswith(line)


def test_all_mistakes_are_named_at_once() -> None:
    train = {"lr": "fast", "ema": {"decay": 2}, "betas": [-1, 1]}
    with pytest.raises(UserError) as error:
        decoded(RunSpec, {"train": train, "seeds": 3, "bypass": "sprint"}, "init_from.run")
    assert error.value.args == (
        "init_from.run: missing key 'model'",
        "init_from.run.train.lr: must be a number, got 'fast'",
        "init_from.run.train.betas[0]: must be in [0, 1), got -1.0",
        "init_from.run.train.betas[1]: must be in [0, 1), got 1.0",
        "init_from.run.train.ema.decay: must be in [0, 1), got 2.0",
        "init_from.run: unknown key 'seeds', did you mean 'seed'?",
    )
    assert pickle.loads(pickle.dumps(error.value)).args == error.value.args
    assert error.value._render_traceback_() == [*error.value.args]
    assert error.value.at("e.yaml").args[0] == "e.yaml: init_from.run: missing key 'model'"


def test_near_name_is_suggested() -> None:
    assert suggest("rat", ["start", "rate"]) == ", did you mean 'rate'?"
    assert suggest("batch_size", ["train.batch", "seed"]) == ", did you mean 'train.batch'?"
    assert suggest("x.lr", ["train.lr"]) == ", did you mean 'train.lr'?"
    assert suggest("x", ["b", "a"]) == " (known: a, b)" and suggest("x", []) == ""
    assert lookup({"a": 1}, "a", "what") == 1
    with pytest.raises(UserError, match=r"^what: unknown 'x' \(known: a, b\)$"):
        lookup({"b": 1, "a": 2}, "x", "what")
