"""Captured steps: a replay has the bits of a launched step, whatever the run trains."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.engine.runs import CPU, small_run
from tests.engine.tape import Tape
from tread_lab.engine.captured import CapturedStep, CudaGraph, ReplayQueue, Results
from tread_lab.engine.optimizer import make_capturable
from tread_lab.engine.provenance import fingerprint
from tread_lab.engine.trainer import Trainer
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import RunSpec

STEPS = 8


class Tapes:
    """Makes tapes, and keeps them."""

    def __init__(self) -> None:
        self.made: list[Tape] = []

    def __call__(self) -> Tape:
        self.made.append(Tape())
        return self.made[-1]


def state(run: Trainer) -> dict[str, Tensor]:
    """Everything that a checkpoint of the run holds."""
    run.save()
    saved = max(run.folder.checkpoints.glob("step-*"))
    return load_file(saved)


def trained(
    spec: RunSpec, folder: Path, tapes: Tapes | None, steps: range = range(STEPS)
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of the steps and the state after them; without tapes every step is launched."""
    losses = []
    with Trainer(spec, RunFolder(folder), CPU) as run:
        run.resume()
        if tapes is None:
            make_capturable(run.optimizer, CPU)  # the learning rate in fp32 here, too
        else:
            run.capture(tapes)
        for step in steps:
            run.train_step(run.batches.at(step), lr=1e-3 / (step + 1))
            run.log_window()
            losses.append(run.loss)
        run.save()
        return losses, load_file(max(run.folder.checkpoints.glob("step-*")))


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of tensors that have other bits."""
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


TRAIN = {"steps": STEPS, "batch": 8, "ema": {"halflife": 0.3}}
LIGHTNING = {"norm": "rms", "mlp": "swiglu", "rope": True, "init": "official_code"}
SMALL = {"depth": 4, "width": 16, "heads": 2, "patch": 4}
REPA = {"encoder": "fashion16-v1", "block": 2, "hidden": 24}
VISIBLE = {"kind": "mask", "depth": 2, "width": 8, "heads": 2, "fill": "entry"}
SD_DIT = {"kind": "discrimination", "prototypes": 6, "hidden": 12, "bottleneck": 4}
SPECS: dict[str, dict[str, Any]] = {
    "dense": {"routes": []},
    "routed": {"routes": ["1->2"]},
    "clipped": {"train": TRAIN | {"clip": 0.1}},
    "in micro-batches": {"execution": {"micro_batch": 2}},
    "in bf16": {"precision": "bf16"},
    "in fp16": {"precision": "fp16"},
    "rotary": {"model": SMALL | LIGHTNING},
    "scanned": {"model": "Mamba-4x32x4/4", "routes": ["1->2 by rows"]},
    "both": {"loss": "both"},
    "mask": {"routes": ["0->B-1"], "bypass": {"kind": "mask", "depth": 2, "width": 8, "heads": 2}},
    "sprint": {"bypass": {"kind": "sprint", "path_drop": 0.25}},
    "REPA": {"model": SMALL | {"patch": 2}, "repa": REPA},
    "SD-DiT": {"routes": ["0->B-1"], "bypass": VISIBLE, "loss": SD_DIT},
}


@pytest.mark.parametrize("name", SPECS)
def test_replays_have_the_bits_of_launched_steps(name: str, tmp_path: Path) -> None:
    spec, tapes = small_run(**{"train": TRAIN, "routes": ["1->2"]} | SPECS[name]), Tapes()
    losses, launched = trained(spec, tmp_path / "launched", None)
    replayed_losses, replayed = trained(spec, tmp_path / "replayed", tapes)
    assert replayed_losses == losses
    assert differing(launched, replayed) == []
    assert [(tape.launches, tape.replays) for tape in tapes.made] == [(3, 5)]


def test_dense_steps_after_the_routes_have_a_graph_of_their_own(tmp_path: Path) -> None:
    train, steps, tapes = TRAIN | {"steps": 14}, range(14), Tapes()
    spec = small_run(train=train, routes_from=4, routes_until=9)
    losses, launched = trained(spec, tmp_path / "launched", None, steps)
    replayed_losses, replayed = trained(spec, tmp_path / "replayed", tapes, steps)
    assert (replayed_losses, differing(launched, replayed)) == (losses, [])
    assert [(tape.launches, tape.replays) for tape in tapes.made] == [(3, 6), (3, 2)]


def test_the_graphs_of_a_run_go_with_it(tmp_path: Path) -> None:
    """Else a GPU's memory of graphs stays until a collector finds the circle."""
    tapes = Tapes()
    with Trainer(small_run(train=TRAIN), RunFolder(tmp_path), CPU) as run:
        run.capture(tapes)
        run.train_step(run.batches.at(0), lr=1e-3)
    tape = weakref.ref(tapes.made.pop())
    gc.disable()
    try:
        del run
        assert tape() is None
    finally:
        gc.enable()


class Refused(Tape):
    """A device that captures nothing."""

    def capture(self, work: Any) -> Results:
        raise RuntimeError("operation not permitted when stream is capturing\nat 0x7f")


def test_a_capture_that_fails_leaves_launched_steps_with_their_bits(tmp_path: Path) -> None:
    spec = small_run(train=TRAIN)
    losses, launched = trained(spec, tmp_path / "launched", None)
    with pytest.warns(UserWarning, match=r"\(operation not permitted when stream is capturing\)"):
        found, state = trained(spec, tmp_path / "refused", Refused)  # type: ignore[arg-type]
    assert (found, differing(launched, state)) == (losses, [])


def test_a_replay_gives_results_that_the_next_one_leaves_alone(tmp_path: Path) -> None:
    with Trainer(small_run(), RunFolder(tmp_path), CPU) as run:
        numbers = iter(range(100))
        step = CapturedStep(lambda batch: _results(batch.u_B, next(numbers)), Tape)
        given = [step(run.batches.at(n)) for n in range(6)]
        assert next(numbers) == 4  # the fourth call captured, the last three replayed
    sums = [float(run.batches.at(n).u_B.sum()) for n in range(6)]
    assert [float(loss) for loss, _ in given] == pytest.approx(sums)


def test_four_kinds_of_batch_have_a_graph(tmp_path: Path) -> None:
    with Trainer(small_run(), RunFolder(tmp_path), CPU) as run:
        tapes, batch = Tapes(), run.batches.at(0)
        step = CapturedStep(lambda part: _results(part.u_B, 0), tapes)
        for _ in range(5):
            sums = [float(step(batch.rows(slice(count)))[0]) for count in (1, 2, 3, 4, 5)]
    assert sums == pytest.approx(batch.u_B.cumsum(0)[:5].tolist())
    assert [(tape.launches, tape.replays) for tape in tapes.made] == [(3, 2)] * 4 + [(1, 0)] * 5


def _results(u_B: Tensor, number: int) -> Results:
    return u_B.sum(), None


@pytest.mark.parametrize(
    ("cuda_graph", "device", "form"),
    [
        (True, "cuda", "one CUDA graph"),
        (False, "cuda", "launched kernel by kernel"),
        (True, "cpu", None),
        (False, "cpu", None),
    ],
)
def test_provenance_says_how_a_gpu_is_given_its_steps(
    cuda_graph: bool, device: str, form: str | None
) -> None:
    spec = small_run(execution={"cuda_graph": cuda_graph})
    assert fingerprint(spec, device).get("training step") == form


def test_the_host_is_two_replays_ahead_of_a_gpu_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []

    class Event:
        def __init__(self, blocking: bool) -> None:
            assert blocking
            self.of = f"step {sum('replay' in what for what in happened)}"

        def record(self) -> None:
            happened.append(f"{self.of} is marked")

        def synchronize(self) -> None:
            happened.append(f"wait for {self.of}")

    class Graph:
        def replay(self) -> None:
            happened.append("replay")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    queue: Any = ReplayQueue()
    dense, routed = (CudaGraph(None, None, queue) for _ in range(2))  # type: ignore[arg-type]
    for graph in (dense, routed, dense, dense):
        graph.replay()
    assert [what for what in happened if "marked" not in what] == [
        "replay",
        "replay",
        "replay",
        "wait for step 1",
        "replay",
        "wait for step 2",
    ]


def test_a_run_stopped_amid_replays_goes_on_with_equal_bits(tmp_path: Path) -> None:
    spec = small_run(train=TRAIN)
    losses, whole = trained(spec, tmp_path / "whole", None)
    first, _ = trained(spec, tmp_path / "parts", Tapes(), range(5))
    rest, parts = trained(spec, tmp_path / "parts", Tapes(), range(5, STEPS))
    assert (first + rest, differing(whole, parts)) == (losses, [])
