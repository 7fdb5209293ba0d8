"""Claims about batches: pinned whole, once, by the threads that read ahead."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

from tests.engine.runs import small_run
from tread_lab import draws
from tread_lab.engine.assemble import data_of
from tread_lab.engine.batches import Batch, Batches
from tread_lab.specs.run import InitSpec


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_is_pinned_once_with_its_legs_where_it_is_made(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[tuple[int, str]] = []
    main = threading.current_thread().name

    def pin(tensor: Tensor) -> Tensor:
        copy = tensor.clone()
        pinned.append((copy.data_ptr(), threading.current_thread().name))
        return copy

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    execution = {"workers": workers, "micro_batch": 4}
    spec = small_run(routes=["1->1", "2->2"], execution=execution)
    batches = list(Batches(spec, data_of(spec, "train"), pin=True).stream(0, 3))
    here = {tensor.data_ptr() for batch in batches for tensor in _tensors(batch)}
    assert here == {place for place, _ in pinned}
    assert len(pinned) == 3 * (4 + 2)
    assert main not in {name for _, name in pinned}
    part = batches[0].rows(slice(0, 4))
    assert part.to(torch.device("cpu")) is part and len(pinned) == 18


def test_batches_for_the_cpu_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pytest.fail("pinned"))
    spec = small_run()
    assert len(Batches(spec, data_of(spec, "train")).at(0)) == 8


def test_a_batch_goes_to_a_device_whole() -> None:
    spec = small_run(routes=["1->1", "2->2"])
    batch = Batches(spec, data_of(spec, "train")).at(0).to(torch.device("meta"))
    assert [tensor.device.type for tensor in _tensors(batch)] == ["meta"] * 6


def _tensors(batch: Batch) -> list[Tensor]:
    return [batch.x_BCHW, batch.y_B, batch.noise_BCHW, batch.u_B] + [
        leg.keep_BK for leg in batch.routing or ()
    ]


def test_a_grandchild_draws_other_batches_than_its_parent() -> None:
    first = small_run()
    child = replace(first, init_from=InitSpec(run=first))
    grandchild = replace(first, init_from=InitSpec(run=child))
    noises = [
        Batches(spec, data_of(spec, "train")).at(0).noise_BCHW
        for spec in (first, child, grandchild)
    ]
    assert not any(torch.equal(a, b) for a, b in combinations(noises, 2))


def test_every_draw_of_a_step_has_its_name() -> None:
    spec = small_run(seed=5, train={"steps": 6, "batch": 8, "label_drop": 0.5})
    samples = data_of(spec, "train")
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


def test_a_batch_that_spans_epochs_takes_each_sample_once_an_epoch() -> None:
    spec = small_run(seed=5, train={"steps": 6, "batch": 8, "label_drop": 0.0})
    batches = Batches(spec, Few())  # type: ignore[arg-type]
    numbers = [int(y) for step in range(5) for y in batches.at(step).y_B]
    expected = [draws.permutation(5, 5, "order", epoch).tolist() for epoch in range(8)]
    assert numbers == [number for order in expected for number in order]
    assert [int(y) for y in batches.at(1).y_B] == numbers[8:16]


@pytest.mark.parametrize(("workers", "stop"), [(0, 7), (1, 2), (1, 7), (2, 7), (3, 3)])
def test_batches_come_in_order_whoever_reads_them(workers: int, stop: int) -> None:
    execution = {"workers": workers}
    spec = small_run(seed=5, train={"steps": 9, "batch": 4, "label_drop": 0.0}, execution=execution)
    batches = Batches(spec, Few())  # type: ignore[arg-type]
    found = [batch.y_B.tolist() for batch in batches.stream(1, stop)]
    assert found == [batches.at(step).y_B.tolist() for step in range(1, stop)]
