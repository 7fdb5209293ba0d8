"""Claims about batches: pinned whole, once, by the threads that read ahead."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

from tests.engine.runs import small_run
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
    assert all((name == main) == (workers == 0) for _, name in pinned)
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
