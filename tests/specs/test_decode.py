"""Claims about strict decoding: round trips, dotted paths, suggestions."""

from __future__ import annotations

import dataclasses

import pytest

from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.specs.evaluation import SamplesSpec, decode_evaluations

BASE = {"model": "DiT-S/2"}


def test_encode_then_decode_is_the_identity() -> None:
    spec = decode(RunSpec, {**BASE, "routes": ["2->B-4"], "train": {"ema": 0.99, "clip": 1.0}})
    assert decode(RunSpec, encode(spec)) == spec
    evaluations = decode_evaluations(["heldout_loss", "layer_similarity", "fd@1k"])
    again = [{e["kind"]: {k: v for k, v in e.items() if k != "kind"}} for e in encode(evaluations)]
    assert decode_evaluations(again) == evaluations


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({**BASE, "sed": 1}, "unknown key 'sed', did you mean 'seed'?"),
        ({**BASE, "train": {"batchh": 1}}, "train: unknown key 'batchh', did you mean 'batch'?"),
        ({**BASE, "routes": [{"start": 1, "end": 2, "rat": 0.5}]}, "routes[0]: unknown key 'rat'"),
        ({**BASE, "train": {"betas": [0.9]}}, "train.betas: expected 2 values, got 1"),
        ({**BASE, "train": {"betas": [0.9, 0.99, 0.5]}}, "train.betas: expected 2 values, got 3"),
        ({**BASE, "train": {"lr": True}}, "train.lr: expected a number, got True"),
        ({**BASE, "train": {"steps": 1.5}}, "train.steps: expected a whole number, got 1.5"),
        ({**BASE, "train": {"steps": True}}, "train.steps: expected a whole number, got True"),
        ({**BASE, "train": None}, "train: expected a mapping, got nothing"),
        ({**BASE, "process": {"kind": "ddpn"}}, "process: unknown kind 'ddpn', did you mean"),
        ({}, "missing key 'model'"),
        ({"model": {"depth": 2, "width": 30, "heads": 4}}, "model: heads: 4 does not divide"),
    ],
)
def test_a_mistake_is_named_by_its_dotted_path(tree: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        decode(RunSpec, tree)
    assert str(error.value).startswith(message)


def test_specs_are_frozen() -> None:
    spec = decode(RunSpec, BASE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.seed = 3  # type: ignore[misc]


def test_metrics_that_share_images_are_one_evaluation() -> None:
    specs = decode_evaluations(["fd@1k", "kid@1k", "fd@2000", {"samples": {"count": 64}}])
    samples = [(s.metrics, s.count) for s in specs if isinstance(s, SamplesSpec)]
    assert samples == [(("fd", "kid"), 1000), (("fd",), 2000), ((), 64)]
