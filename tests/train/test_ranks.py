"""Claims about runs of several processes: they equal one, and end when one of theirs dies."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.runs import CPU, evaluate, lab_with_a_run, last_checkpoint, small_run, train_until
from tread_lab.config import RunSpec, SamplesSpec, UserError, decode
from tread_lab.evaluate.measuring import measuring
from tread_lab.records import metric_names
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import ProcessLost, kind_of
from tread_lab.train.checkpoint import save
from tread_lab.train.ranks import Processes, Ranks
from tread_lab.train.trainer import train

MASK = {"kind": "mask", "depth": 1, "width": 8, "heads": 2}
CODE = {"kind": "ensemble", "form": "code", "weight": 0.1}
HEAD = {"kind": "discrimination", "prototypes": 8, "hidden": 12, "bottleneck": 4}
REPA = {"encoder": "fashion16-v1", "block": 2, "hidden": 24}
RUNS: dict[str, dict[str, Any]] = {
    "dense, clipped": {"routes": [], "train": {"clip": 0.5}},
    "padded, dense at the end": {"routes": ["1->1 by bernoulli"], "routes_until": 3},
    "mdt": {"model": "MDT-4x16x2/4", "routes": ["0->B-3"], "bypass": "mdt", "loss": "both"},
    "sprint, repa": {"routes": ["1->2"], "bypass": "sprint", "repa": REPA},
    "maskdit": {"routes": ["0->B-1"], "bypass": MASK, "loss": CODE},
    "sd_dit": {"routes": ["0->B-1"], "bypass": {**MASK, "fill": "entry"}, "loss": HEAD},
    "ensemble by its equation, flow": {"loss": {**CODE, "form": "equation"}, "process": "flow"},
}

DRAWN = decode(SamplesSpec, {"metrics": ["fd"], "count": 202, "sampler": {"steps": 2}})


def run(steps: int, **changes: Any) -> RunSpec:
    recipe = {"steps": steps, "batch": 8, "lr": 1e-3, "ema": {"halflife": 0.3}}
    execution = {"log_every": 1, "checkpoint_every": 100, "micro_batch": 3}
    return small_run(
        **{"execution": execution, **changes, "train": recipe | changes.get("train", {})}
    )


def trained(ranks: Ranks, spec: RunSpec, path: Path, until: int | None = None) -> list[float]:
    """The losses after training to the end, or up to a stop."""
    train_until(spec, path, until, ranks=ranks)
    entries = RunFolder(path).entries()
    return [entry.value for entry in entries if entry.key == metric_names.TRAIN_LOSS]


class TestTogether:
    """One process, and two that stay for all of its tests; beside them none joins by itself."""

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
        return lab_with_a_run(tmp_path_factory.mktemp("lab")).run_of(small_run())

    @pytest.fixture(scope="class")
    def opened(self, folder: RunFolder) -> Iterator[tuple[Ranks, Ranks]]:
        before = dict(os.environ)
        with Processes().open(CPU) as one, Processes(2).open(CPU) as two:
            assert dict(os.environ) == before
            assert (one.count, two.count, two.leads) == (1, 2, True)
            yield one, two

    @pytest.fixture
    def one(self, opened: tuple[Ranks, Ranks]) -> Ranks:
        return opened[0]

    @pytest.fixture
    def two(self, opened: tuple[Ranks, Ranks]) -> Ranks:
        return opened[1]

    @pytest.mark.parametrize("name", RUNS)
    def test_system_loses_as_in_one_process(
        self, name: str, one: Ranks, two: Ranks, tmp_path: Path
    ) -> None:
        spec = run(4, **RUNS[name])
        alone, together = (trained(r, spec, tmp_path / str(r.count)) for r in (one, two))
        assert len(alone) == 4 and together == pytest.approx(alone, rel=1e-6)

    def test_run_resumes_with_another_process_count(
        self, one: Ranks, two: Ranks, tmp_path: Path
    ) -> None:
        spec = run(6, **RUNS["sd_dit"])
        whole = trained(one, spec, tmp_path / "whole")
        for first, then in ((one, two), (two, one)):
            folder = tmp_path / str(first.count)
            assert len(trained(first, spec, folder, until=3)) == 3
            assert trained(then, spec, folder) == pytest.approx(whole, rel=1e-6)
            trained(two, spec, folder, until=6)  # is stopped where nothing is left to train
        with pytest.raises(
            UserError,
            match=r"^train\.batch: .* processes \(2\), got 7$",
        ):
            two.rows(7)

    def test_processes_draw_the_images_of_one(
        self,
        one: Ranks,
        two: Ranks,
        folder: RunFolder,
        tmp_path: Path,
    ) -> None:
        """Four batches of two processes, the last one short; stopped after each, and gone on with.
        With weights that are no numbers the error is that of one process."""
        alone = measured(folder, one)
        for batches in (1, 2, 1):
            with closing(measuring(folder, DRAWN, CPU, cache=folder.cache, ranks=two)) as some:
                for _ in range(batches):
                    next(some)
        assert measured(folder, two) == alone
        broken = RunFolder(shutil.copytree(folder.path, tmp_path / "run"))
        last = last_checkpoint(broken)
        wrong = {name: x * math.nan for name, x in last.tensors.items()}
        save(broken.checkpoints, replace(last, tensors=wrong), keep=1)
        with pytest.raises(UserError, match="an image is not finite"):
            measured(broken, two)


def measured(folder: RunFolder, ranks: Ranks) -> tuple[dict[str, float], bytes]:
    """Metrics and images of an evaluation; it is removed."""
    metrics = evaluate(folder, DRAWN, CPU, cache=folder.cache, ranks=ranks)
    place = folder.evaluation(DRAWN).path
    images = (place / "samples.npz").read_bytes()
    shutil.rmtree(place)
    return metrics, images


def children() -> set[int]:
    """The processes that this thread has started and that live."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in listed.split()}


def threads(device: torch.device, ranks: Ranks) -> float:
    """The threads of all processes."""
    return float(ranks.sum(torch.tensor(float(torch.get_num_threads()))))


def test_killed_process_ends_the_attempt(tmp_path: Path) -> None:
    before = children()
    torch.set_num_threads(5)  # more than there are cores
    with pytest.raises(ProcessLost, match=r"^rank 1 of the run is lost: .* code -9$") as lost:
        with Processes(2).open(CPU) as ranks:
            (other,) = children() - before
            ranks.told(threads)
            assert threads(CPU, ranks) == 10
            for progress in train(run(1000), RunFolder(tmp_path), CPU, ranks=ranks):
                if progress.step == 3:
                    os.kill(other, signal.SIGKILL)
    assert kind_of(lost.value) == "died"
    assert len(trained(Ranks(CPU), run(2), tmp_path / "next")) == 2  # one process, as before
