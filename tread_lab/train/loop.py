"""The training loop, readable top to bottom; stopped anywhere, it resumes with the same draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tread_lab.config.run import RunSpec
from tread_lab.data.deviation import check_deviation
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.optimizer import learning_rates
from tread_lab.train.ranks import Ranks
from tread_lab.train.trainer import Trainer


@dataclass(frozen=True)
class Progress:
    """Where a run stands after an optimizer step; `loss` is the newest logged mean.

    `overflows` counts the steps that fp16 had skipped by then; `seconds` is the training time of
    all attempts that these weights descend from.
    """

    step: int
    steps: int
    loss: float
    overflows: int = 0
    seconds: float = 0.0


class Diverged(Exception):
    """A loss or the weights are not finite any more: a result, not a fault."""


def train(
    spec: RunSpec,
    folder: RunFolder,
    device: torch.device,
    ranks: Ranks | None = None,
) -> Iterator[Progress]:
    """Train from the newest checkpoint to the end, yielding after every optimizer step.

    Closing the iterator saves a checkpoint first; asking again continues from it. Everything random
    is a function of (seed, step), so the two halves equal one uninterrupted run: bitwise on a CPU,
    and on a GPU with `execution.deterministic`.

    Args:
        ranks: the processes that train it together; this one, rank 0, decides.

    Raises:
        Diverged: a loss is not finite; names the first such step, after which nothing is saved.
        UserError: the data have another deviation than expected.
    """
    if ranks is not None and ranks.leads:
        ranks.told(partial(_follow, spec, folder.path))
    with Trainer(spec, folder, device, ranks) as run:
        if run.ranks.leads:
            check_deviation(spec, run.batches.samples)
        rate, saved = learning_rates(spec.train), run.resume()
        if not spec.train.steps:
            saved = run.save()
        if run.step == spec.train.steps:  # ended after the last checkpoint, before the result
            yield _progress(run)
            return
        try:
            for _ in run.prepare():
                yield _progress(run)
            for batch in run.batches.stream(run.step, spec.train.steps):
                if not run.ranks.go_on(run.step):
                    return
                run.train_step(batch, lr=rate(run.step))
                logs = run.due(spec.execution.log_every)
                saves = run.due(spec.execution.checkpoint_every, also=run.keep_steps)
                if (logs or saves) and (wrong := run.not_finite(weights=saves)) is not None:
                    raise Diverged(wrong)
                if logs:
                    run.log_window()
                if saves:
                    saved = run.save()
                yield _progress(run)
        except (Diverged, GeneratorExit) as end:
            if run.step < spec.train.steps:
                run.ranks.stop()
            stopped = isinstance(end, GeneratorExit) and run.step > saved
            if stopped and run.not_finite(weights=True) is None:
                run.save()
            raise


def _follow(spec: RunSpec, path: Path, device: torch.device, ranks: Ranks) -> None:
    """Train beside rank 0 until it stops."""
    for _ in train(spec, RunFolder(path), device, ranks=ranks):
        pass


def _progress(run: Trainer) -> Progress:
    return Progress(run.step, run.spec.train.steps, run.loss, run.overflows, run.seconds)
