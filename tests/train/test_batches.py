"""Claims about batches: every draw has its name, and any number of readers gives them in order."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.runs import small_run
from tread_lab import draws
from tread_lab.config.run import InitSpec
from tread_lab.data.source import open_data
from tread_lab.train.batches import Batches, Transfer


def test_grandchild_draws_other_batches() -> None:
    first = small_run()
    child = replace(first, init_from=InitSpec(run=first))
    grandchild = replace(first, init_from=InitSpec(run=child))
    noises = [
        Batches(spec, open_data(spec.data, "train")).at(0).noise_BCHW
        for spec in (first, child, grandchild)
    ]
    assert not any(torch.equal(a, b) for a, b in combinations(noises, 2))


def test_draws_are_named_by_step() -> None:
    spec = small_run(seed=5, train={"steps": 6, "batch": 8, "label_drop": 0.5})
    samples = open_data(spec.data, "train")
    for step in (0, 3):
        batch = Batches(spec, samples).at(step)
        order = draws.permutation(len(samples), 5, "order", 0)
        x_BCHW, y_B = samples.take(order[8 * step : 8 * step + 8])
        dropped_B = draws.uniform((8,), 5, "drop", step) < 0.5
        assert torch.equal(batch.x_BCHW, x_BCHW)
        assert torch.equal(batch.y_B, torch.where(dropped_B, 10, y_B)) and dropped_B.any()
        assert torch.equal(batch.noise_BCHW, draws.normal((8, 1, 16, 16), 5, "noise", step))
        assert torch.equal(batch.u_B, draws.uniform((8,), 5, "level", step))


class Few:
    """Five samples whose values are their numbers."""

    shape, classes = (1, 16, 16), 10

    def __len__(self) -> int:
        return 5

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return ids.float()[:, None, None, None].expand(-1, 1, 16, 16), ids


def test_epoch_takes_each_sample_once() -> None:
    spec = small_run(seed=5, train={"steps": 6, "batch": 8, "label_drop": 0.0})
    batches = Batches(spec, Few())  # type: ignore[arg-type]
    numbers = [int(y) for step in range(5) for y in batches.at(step).y_B]
    expected = [draws.permutation(5, 5, "order", epoch).tolist() for epoch in range(8)]
    assert numbers == [number for order in expected for number in order]
    assert [int(y) for y in batches.at(1).y_B] == numbers[8:16]


@pytest.mark.parametrize(("workers", "stop"), [(0, 7), (1, 2), (2, 7), (3, 3)])
def test_batches_come_in_order(workers: int, stop: int) -> None:
    execution = {"workers": workers}
    spec = small_run(seed=5, train={"steps": 9, "batch": 4, "label_drop": 0.0}, execution=execution)
    batches = Batches(spec, Few())  # type: ignore[arg-type]
    found = [batch.y_B.tolist() for batch in batches.stream(1, stop)]
    assert found == [batches.at(step).y_B.tolist() for step in range(1, stop)]


class Redrawn(Few):
    """Samples that are drawn anew in each step; their labels are their numbers."""

    def __init__(self) -> None:
        self.keys: list[tuple[int | str, ...]] = []

    def redraw(self, ids: Tensor, *key: int | str) -> tuple[Tensor, Tensor]:
        self.keys.append(key)
        return self.take(ids)


def test_samples_are_redrawn_by_step() -> None:
    samples, spec = Redrawn(), small_run(seed=5)
    batches = Batches(spec, samples)  # type: ignore[arg-type]
    child = Batches(replace(spec, init_from=InitSpec(run=spec)), samples)  # type: ignore[arg-type]
    for step in (0, 3):
        batches.at(step)
    child.at(3)
    assert samples.keys == [
        (5, "sample", 0), (5, "sample", 3), (5, "stage", 1, "sample", 3)
    ]  # fmt: skip


def test_path_drop_depends_on_routes() -> None:
    """Routes are on in steps 0 to 2."""
    bypass = {"kind": "sprint", "path_drop": 0.25, "dense_path_drop": 0.75}
    spec = small_run(seed=5, routes=["1->2"], routes_until=3, bypass=bypass,
                     train={"steps": 6, "batch": 64})  # fmt: skip
    batches = Batches(spec, Few())  # type: ignore[arg-type]
    for step, share, kept in ((0, 0.25, 8), (2, 0.25, 8), (3, 0.75, 16), (5, 0.75, 16)):
        routing = batches.at(step).routing
        assert routing is not None and routing[0].dropped_B is not None
        dropped_B = draws.uniform((64,), 5, step, "path_drop") < share
        assert torch.equal(routing[0].dropped_B, dropped_B)
        assert routing[0].keep_BK.shape == (64, kept)


def test_targets_follow_the_samples() -> None:
    spec = small_run(seed=5, train={"steps": 6, "batch": 4, "label_drop": 0.5})
    batches = Batches(spec, Few())  # type: ignore[arg-type]
    asked: list[Any] = []

    def condition(ids: Tensor, dropped: Tensor, *key: int | str) -> Tensor:
        asked.append((ids.tolist(), dropped.tolist(), key))
        return ids + 100

    batches.targets, batches.condition = lambda ids: ids + 1000, condition
    batch = batches.at(1)
    ids = [int(k) for epoch in (0, 1) for k in draws.permutation(5, 5, "order", epoch)][4:8]
    dropped = (draws.uniform((4,), 5, "drop", 1) < 0.5).tolist()
    assert asked == [(ids, dropped, (5, 1))]
    assert batch.y_B.tolist() == [k + 100 for k in ids]
    assert batch.target_BNE is not None and batch.target_BNE.tolist() == [k + 1000 for k in ids]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_stream_copies_equal_their_source() -> None:
    device, spec = torch.device("cuda", 0), small_run(routes=["1->1", "2->2"])
    batches, transfer = Batches(spec, open_data(spec.data, "train"), pin=True), Transfer(device)
    for step in range(20):
        batch = batches.at(step)
        copy = transfer(batch)
        torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
        doubled = copy.noise_BCHW * 2
        del copy
        assert torch.equal(doubled.cpu(), batch.noise_BCHW * 2)
