"""A batch on its device has the same numbers, and a GPU copies it beside its computation."""

from __future__ import annotations

import pytest
import torch

from tests.engine.runs import CPU, small_run
from tread_lab.data.source import open_data
from tread_lab.engine.batches import Batches
from tread_lab.engine.transfer import Transfer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def test_a_batch_of_the_cpu_is_where_it_is() -> None:
    spec = small_run()
    batch = Batches(spec, open_data(spec.data, "train")).at(0)
    assert Transfer(CPU)(batch) is batch


@cuda
def test_copies_on_a_stream_of_their_own_have_the_same_numbers() -> None:
    device, spec = torch.device("cuda", 0), small_run(routes=["1->1", "2->2"])
    batches, transfer = Batches(spec, open_data(spec.data, "train"), pin=True), Transfer(device)
    for step in range(20):
        batch = batches.at(step)
        copy = transfer(batch)
        torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
        doubled = copy.noise_BCHW * 2
        del copy
        assert torch.equal(doubled.cpu(), batch.noise_BCHW * 2)
