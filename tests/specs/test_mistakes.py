"""Mistakes in a tree: each a line with its dotted path, what is required, and a near miss."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tread_lab.specs import DataSpec, GuidanceSpec, ModelSpec, RunSpec, SamplerSpec, UserError
from tread_lab.specs import decode as decoded
from tread_lab.specs.errors import Mistakes, Unavailable, first_line, lookup, shown, suggest
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.recipe import EmaSpec
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.sweep import SearchSpec, StopEarlySpec, SweepSpec

BASE = {"model": "DiT-S/2"}
SCAN = {"backbone": "rwkv", "depth": 12, "width": 32}

RUNS: list[tuple[dict[str, Any], str]] = [
    ({"sed": 1}, "unknown key 'sed', did you mean 'seed'?"),
    ({"train": {"batchh": 1}}, "train: unknown key 'batchh', did you mean 'batch'?"),
    ({"train": {"learning_rate": 1}}, "train: unknown key 'learning_rate', did you mean 'lr'?"),
    ({"routes": [{"start": 1, "end": 2, "rat": 0.5}]}, "routes[0]: unknown key 'rat', did you"),
    ({"routes": [{"end": 2}]}, "routes[0]: missing key 'start'"),
    ({"train": {"lr": True}}, "train.lr: must be a number, got True"),
    ({"train": {"lr": float("inf")}}, "train.lr: must be a finite number, got inf"),
    ({"train": {"lr": "1e-3:1e-2"}}, "train.lr: must be a number, got '1e-3:1e-2'. Try 'axes.trai"),
    ({"train": {"batch": 2.5}}, "train.batch: must be a whole number, got 2.5"),
    ({"train": {"batch": 0}}, "train.batch: must be at least 1, got 0"),
    ({"train": {"betas": [0.9, 1]}}, "train.betas[1]: must be in [0, 1), got 1"),
    ({"train": {"betas": [0.9]}}, "train.betas: must be 2 values, got 1"),
    ({"train": {"label_drop": 1.5}}, "train.label_drop: must be in [0, 1], got 1.5"),
    ({"train": {"warmup": 1.5}}, "train.warmup: must be a step or a fraction, got 1.5. Try 30"),
    ({"train": {"schedule": "cosine"}}, "train.schedule: unknown schedule 'cosine' (known: const"),
    ({"train": {"ema": {"decay": 0.9, "halflife": 1}}}, "train.ema.decay: has no effect beside a"),
    ({"train": {"ema": [0.9]}}, "train.ema: must be a mapping, got [0.9]"),
    ({"train": None}, "train: must be a mapping, got nothing"),
    ({"seed": -1}, "seed: must be at least 0, got -1"),
    ({"precision": "fp8"}, "precision: must be one of fp32, tf32, bf16, fp16, got 'fp8'"),
    ({"process": {"kind": "ddpn"}}, "process: unknown kind 'ddpn', did you mean 'ddpm'?"),
    ({"bypass": None}, "bypass: must be a mapping or a kind, got nothing"),
    ({"bypass": "rout"}, "bypass: unknown kind 'rout', did you mean 'route'?"),
    ({"bypass": "sprint", "routes": ["0->2", "4->6"]}, "bypass: sprint requires one route, got 2"),
    ({"bypass": "mask", "routes": ["2->8"]}, "bypass: mask covers the whole network, write route"),
    ({"loss": "discrimination", "routes": ["2->8"]}, "loss: discrimination compares the tokens"),
    ({"loss": {"kind": "ensemble", "weight": -1}}, "loss.weight: must be at least 0, got -1"),
    ({"repa": {"block": 12}}, "repa.block: must be within blocks 0..11, got 12"),
    ({"init_from": {}}, "init_from: must be either a run or a file"),
    ({"init_from": {"run": BASE, "published_as": "sit"}}, "init_from.published_as: requires a fil"),
    ({"init_from": {"run": {**BASE, "seed": "x"}}}, "init_from.run.seed: must be a whole number"),
    ({"data": {"size": 15}}, "model.patch: must divide data.size (15), got 2"),
    ({"data": {"source": "shard"}}, "data.source: unknown source 'shard', did you mean 'shards'?"),
    ({"routes": ["2-8"]}, "routes[0]: must be a route, got '2-8'. Try '2->8'."),
    ({"routes": ["2-"]}, "routes[0]: must be a route, got '2-' (a shell takes an unquoted > for a"),
    ({"routes": ["-1->3"]}, "routes[0]: must be within blocks 0..11 of the network, got -1->3"),
    ({"routes": ["8->2"]}, "routes[0]: must start before its end, got 8->2. Try 2->8."),
    ({"routes": ["2->6", "6->8"]}, "routes[1]: must start after block 6, where the route before"),
    ({"routes": [{"start": 1.5, "end": 8}]}, "routes[0]: must be a block or a fraction of the dep"),
    ({"routes": [{"start": "b", "end": 8}]}, "routes[0]: must be a position, got 'b'. Try 2, B-4"),
    ({"routes": [{"start": 1, "end": 8, "rate": 1}]}, "routes[0].rate: must be in [0, 1), got 1"),
    ({"routes": [{"start": 1, "end": 8, "rate": 0.01}]}, "routes[0].rate: must route a token of 6"),
    ({"routes": ["1->8 by row"]}, "routes[0].selection: unknown selection 'row', did you mean 'ro"),
    ({"model": SCAN, "routes": ["1->8"]}, "routes[0].selection: must keep the rows that a scan re"),
]
MODELS: list[tuple[Any, str]] = [
    ({"depth": 2, "width": 30, "heads": 2}, "width: must be a multiple of 4, for 2-D positions"),
    ({"depth": 2, "width": 32}, "heads: must divide the width. Try heads=2."),
    ({"depth": 2, "width": 32, "heads": 3}, "heads: must divide the width 32, got 3"),
    ({"depth": 10_001, "width": 32, "heads": 2}, "depth: must be in [1, 10000], got 10001"),
    ({"depth": 2, "width": 36, "heads": 6, "rope": True}, "rope: must have heads of a multiple of"),
    (
        {"depth": 2, "width": 32, "heads": 2, "rope": True, "relative_bias": True},
        "relative_bias: must be false with rotary positions. Try rope=false.",
    ),
    ({**SCAN, "norm": "rms"}, "norm: requires the backbone dit, got rwkv"),
    ({"depth": 2, "width": 32, "heads": 2, "state": 8}, "state: requires the backbone mamba, got "),
    ("LightningDiT-XXL/1", "unknown model 'LightningDiT-XXL/1', did you mean 'LightningDiT-XL/1'?"),
    ("RWKV-210/2", "unknown model 'RWKV-210/2', did you mean 'RWKV-210M/2'?"),
    ("DIT-B/2", "unknown model 'DIT-B/2', did you mean 'DiT-B/2'?"),
    ("LightningDiT-B/1+qknorm", "LightningDiT-B/1+qknorm: unknown 'qknorm', did you mean 'qk_norm"),
    ("transformer", "unknown model 'transformer'; write e.g. DiT-B/2, RWKV-S/2 or Mamba-12x32/2"),
]
OTHERS: list[tuple[type, Any, str]] = [
    (GuidanceSpec, {"wieght": 2}, "unknown key 'wieght', did you mean 'weight'?"),
    (GuidanceSpec, "two", "weight: must be a number, got 'two'"),
    (GuidanceSpec, {"weak": {"rate": "0.6-0"}}, "weak.rate: must be a rate, got '0.6-0'. Try 0.5"),
    (GuidanceSpec, {"weak": {"rate": True}}, "weak.rate: must be a rate, got True"),
    (GuidanceSpec, {"weak": {"rate": "1->0"}}, "weak.rate.first: must be in [0, 1), got 1"),
    (GuidanceSpec, {"weight": 2, "interval": [2, 1]}, "interval: must be [lowest, highest], got ["),
    (GuidanceSpec, {"weak": {"path": "dropped", "rate": 0.5}}, "weak.path: must be full with a ra"),
    (SamplerSpec, {"steps": 10_001}, "steps: must be in [1, 10000], got 10001"),
    (SamplerSpec, {"sigma_min": 80}, "sigma_min: must be below sigma_max (80), got 80"),
    (SamplerSpec, {"solver": "sde", "last_step": 1}, "last_step: must be in (0, 1), got 1"),
    (DataSpec, {"scale": 0}, "scale: must be positive, got 0"),
    (RouteSpec, 5, "must be a route, got 5. Try '2->8'."),
    (SearchSpec, {"trials": 0}, "trials: must be at least 1, got 0"),
    (StopEarlySpec, {"reduction": 1}, "reduction: must be at least 2, got 1"),
    (SweepSpec, {"experiment": None, "hours": 0}, "hours: must be positive, got 0"),
    (SweepSpec, {"experiment": 3}, "experiment: must be a text, got 3"),
    (SweepSpec, {"experiment": None, "trials": [1]}, "trials[0]: must be a mapping, got 1"),
]
EVALUATIONS: list[tuple[Any, str]] = [
    (["fd@1k at 0"], "evaluate[0].samples: must be a step, got '0'. Try 250, 50% or end."),
    (["heldout_loss at "], "evaluate[0].heldout_loss: must be a step, got ''. Try 250, 50%"),
    ([{"heldout_loss": {"at": 5, "step": 5}}], "evaluate[0].heldout_loss: `at` and `step` say the"),
    ([{"heldout_loss": {"step": True}}], "evaluate[0].heldout_loss.step: must be"),
    (["a at 5"], "evaluate[0]: unknown evaluation 'a' (known: "),
    ("fd@1k", "evaluate: must be a list, got 'fd@1k'. Try [heldout_loss"),
    ([{"a": {}, "b": {}}], "evaluate[0]: must be a name or {name: options}, got {'a': {}, 'b': {"),
    ([{"samples": {"sampler": 5}}], "evaluate[0].samples: must be a mapping, got 5"),
    (["fd@0"], "evaluate[0].samples.count: must be at least 1, got 0"),
    (["precision@99"], "evaluate[0].samples.count: must be at least 100 for precision, got 99"),
    (["fidd@1k"], "evaluate[0].samples.metrics[0]: unknown metric 'fidd', did you mean 'fid'?"),
]
WRONG = [
    *((RunSpec, {**BASE, **tree}, line) for tree, line in RUNS),
    (RunSpec, {}, "missing key 'model'"),
    *((ModelSpec, tree, line) for tree, line in MODELS),
    *OTHERS,
]


@pytest.mark.parametrize(("cls", "tree", "line"), WRONG)
def test_a_mistake_is_named_by_its_dotted_path(cls: type, tree: Any, line: str) -> None:
    with pytest.raises(UserError) as error:
        decoded(cls, tree)
    assert len(error.value.args) == 1 and str(error.value).startswith(line)


@pytest.mark.parametrize(("items", "line"), EVALUATIONS)
def test_a_mistake_in_an_evaluation_has_its_place(items: Any, line: str) -> None:
    with pytest.raises(UserError) as error:
        decode_evaluations(items)
    assert str(error.value).startswith(line)


def test_all_mistakes_of_a_tree_are_named_at_once() -> None:
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


def test_mistakes_are_collected_and_other_errors_are_not() -> None:
    found = Mistakes()
    found.check()
    for line in ("a", "b", "a"):
        with found:
            raise UserError(line)
    with pytest.raises(UserError, match=r"^a; b$"):
        found.check()
    with pytest.raises(KeyError), found:
        raise KeyError


def test_a_line_is_printable_and_has_at_most_a_thousand_characters() -> None:
    assert str(UserError("a\nb\x00")) == "a\\nb\\x00"
    assert str(UserError("x" * 1001)) == "x" * 1000 + "..."
    assert (UserError("x").exit_code, Unavailable("x").exit_code) == (2, 3)
    assert (first_line(ValueError("\n one\ntwo")), first_line(ValueError())) == (
        "one", "ValueError"
    )  # fmt: skip
    assert (shown(None), shown("x" * 59)) == ("nothing", "'" + "x" * 56 + "...")


def test_a_near_name_is_suggested_else_all_are_listed() -> None:
    assert suggest("rat", ["start", "rate"]) == ", did you mean 'rate'?"
    assert suggest("batch_size", ["train.batch", "seed"]) == ", did you mean 'train.batch'?"
    assert suggest("x.lr", ["train.lr"]) == ", did you mean 'train.lr'?"
    assert suggest("x", ["b", "a"]) == " (known: a, b)" and suggest("x", []) == ""
    assert lookup({"a": 1}, "a", "what") == 1
    with pytest.raises(UserError, match=r"^what: unknown 'x' \(known: a, b\)$"):
        lookup({"b": 1, "a": 2}, "x", "what")


def test_what_is_decoded_already_is_the_same_object() -> None:
    spec = decoded(RunSpec, BASE)
    assert decoded(RunSpec, spec) is spec
    assert decoded(RunSpec, {**BASE, "train": spec.train}).train is spec.train
    assert decoded(EmaSpec, 0.5) == EmaSpec(decay=0.5)
