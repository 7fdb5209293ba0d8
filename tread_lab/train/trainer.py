"""A training run: its loop, which resumes wherever it stopped; a step, a log entry, checkpoints."""

# B batch, C channels, H height, W width

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tread_lab.config.recipe import outputs
from tread_lab.config.run import RunSpec
from tread_lab.data.deviation import check_deviation
from tread_lab.data.source import open_data
from tread_lab.diffusion import Process, build_process
from tread_lab.records import metric_names
from tread_lab.records.run_folder import RunFolder
from tread_lab.train import checkpoint, posthoc_ema
from tread_lab.train.assemble import fresh_network, initialised, starting_weights
from tread_lab.train.batches import Batch, Batches, Transfer
from tread_lab.train.device import check_precision, pins, use
from tread_lab.train.joining import Joining, Part, systems_of
from tread_lab.train.objective import Objective
from tread_lab.train.optimizer import Ema, learning_rates, optimizers
from tread_lab.train.posthoc_ema import PowerEma
from tread_lab.train.precision import LossScaler, autocast, compile_for, matrix_products
from tread_lab.train.ranks import Ranks

MOST_COMPARED = 16  # samples on which starting weights are compared with zero


@dataclass(frozen=True)
class Progress:
    """Progress of a run after an optimizer step; `loss` is the last logged mean.

    `overflows` counts steps skipped by fp16; `seconds` is the training time of these weights over
    all attempts.
    """

    step: int
    steps: int
    loss: float
    overflows: int = 0
    seconds: float = 0.0


class Diverged(Exception):
    """Loss or weights are no longer finite: a result, not a failure."""


def train(
    spec: RunSpec,
    folder: RunFolder,
    device: torch.device,
    ranks: Ranks | None = None,
    *,
    until: int | None = None,
) -> Iterator[Progress]:
    """Train from the newest checkpoint to the end, yielding after every optimizer step.

    Closing the iterator saves a checkpoint first; calling again continues from it. Everything
    random is a function of (seed, step), so the two halves equal one uninterrupted run: bitwise on
    a CPU, and on a GPU with `execution.deterministic`.

    Args:
        ranks: the processes of the run; this one is rank 0.
        until: an earlier step at which to stop, with a checkpoint.

    Raises:
        Diverged: a loss is not finite; names the first such step; nothing later is saved.
        UserError: the data have an unexpected standard deviation.
    """
    if ranks is not None and ranks.leads:
        ranks.told(partial(_follow, spec, folder.path, until))
    last = spec.train.steps if until is None else until
    with Trainer(spec, folder, device, ranks) as run:
        if run.ranks.leads:
            check_deviation(spec, run.batches.samples)
        rate, saved = learning_rates(spec.train), run.resume()
        if not spec.train.steps:
            saved = run.save()
        if run.step >= last:  # ended after the last checkpoint, before the result
            yield _progress(run)
            return
        try:
            for _ in run.prepare():
                yield _progress(run)
            for batch in run.batches.stream(run.step, last):
                if not run.ranks.go_on(run.step):
                    return
                run.train_step(batch, lr=rate(run.step))
                logs = run.due(spec.execution.log_every)
                saves = run.due(spec.execution.checkpoint_every, also={*run.keep_steps, last})
                if (logs or saves) and (wrong := run.not_finite(weights=saves)) is not None:
                    raise Diverged(wrong)
                if logs:
                    run.log_window()
                if saves:
                    saved = run.save()
                yield _progress(run)
        except (Diverged, GeneratorExit) as end:
            if run.step < last:
                run.ranks.stop()
            stopped = isinstance(end, GeneratorExit) and run.step > saved
            if stopped and run.not_finite(weights=True) is None:
                run.save()
            raise


def _follow(
    spec: RunSpec, path: Path, until: int | None, device: torch.device, ranks: Ranks
) -> None:
    """Train beside rank 0 until it stops."""
    for _ in train(spec, RunFolder(path), device, ranks, until=until):
        pass


def _progress(run: Trainer) -> Progress:
    return Progress(run.step, run.spec.train.steps, run.loss, run.overflows, run.seconds)


class Trainer:
    """Network, optimizer, EMA and data of a run; `step` optimizer steps are done.

    Each process has the complete state and its own rows of the batches; rank 0 writes the record.

    Attributes:
        loss: last logged mean of the training loss.
        overflows: steps skipped by fp16.
        keep_steps: steps whose checkpoints are not removed.
    """

    def __init__(
        self,
        spec: RunSpec,
        folder: RunFolder,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        check_precision(spec.precision, device)
        self.spec, self.folder, self.device = spec, folder, device
        use(device, deterministic=spec.execution.deterministic)
        self.ranks = ranks or Ranks(device)
        self.network = fresh_network(spec).to(device)
        compile_for(spec, self.network, device)
        samples, rows = open_data(spec.data, "train"), self.ranks.rows(spec.train.batch)
        self.batches = Batches(spec, samples, pin=pins(device), rows=rows)
        self._on_device = Transfer(device)
        process = build_process(spec.process)
        self.parts = self._joined(process)
        trained = {name: module for part in self.parts for name, module in part.trained.items()}
        named = dict(self.network.named_parameters())
        for name, module in trained.items():  # of packages, too: a ModuleDict takes not all names
            named |= {f"{name}.{n}": p for n, p in module.named_parameters()}
        self.trainable = {name: p for name, p in named.items() if p.requires_grad}
        self.optimizers = optimizers(spec.train, self.trainable)
        self.scaler = LossScaler(spec.precision, device)
        self.ema = Ema(self.network, spec.train.ema.at(spec.train.steps))
        self.snapshot_steps = spec.train.ema.snapshot_steps(spec.train.steps)
        kept = posthoc_ema.KEPT if self.snapshot_steps else ()
        self.averages = {f"{length:g}": PowerEma(self.network, length) for length in kept}
        self._stored = {"model": self.network, **trained}
        self._stored |= {name: m for part in self.parts for name, m in part.averaged.items()}
        self.objective = Objective(spec, process, self.parts)
        self.keep_steps = {*spec.execution.keep_steps, *folder.kept_steps()}
        self.step, self.loss, self.overflows, self._lr = 0, math.nan, 0, math.nan
        self._window: list[Tensor] = []
        self._one = torch.ones((), device=device)
        self._gradient_norm: Tensor | None = None
        self._started = self._last_logged = time.perf_counter()
        self._timed_from = 0  # the step at which the clock of the next log entry started
        self._writer = folder.log() if self.ranks.leads else None

    def resume(self) -> int:
        """Load the newest checkpoint, else the weights of `init_from`; return the step."""
        saved = checkpoint.load_latest(self.folder.checkpoints)
        if saved is None:
            self._start_from_elsewhere()
        else:
            self.step, self.loss = saved.step, float(saved.facts["loss"])
            for part, module in self._stored.items():
                module.load_state_dict(saved.part(part))
            self.ema.load(saved.part("ema"))
            for part, average in self.averages.items():
                average.load(saved.part(part))
            checkpoint.load_optimizers(self.optimizers, saved.part("optimizer"))
            self.scaler.load(saved.part("scaler"))
            self.overflows = int(self.scaler.overflows)
            self._window = [loss.to(self.device) for loss in saved.tensors.get("window", ())]
            self._restart_clock(float(saved.facts["seconds"]))
        return self.step

    def prepare(self) -> Iterator[None]:
        """Fill the caches of the run's systems, yielding progress; then start the timer.

        The first run fills a cache for all, so this time is not counted.

        Raises:
            UserError: an encoder cannot be opened, or no space for its features.
        """
        seconds = self.seconds
        if not self.ranks.leads and not self.ranks.go_on(self.step):  # rank 0 fills them
            return
        for _ in itertools.chain.from_iterable(part.prepare() for part in self.parts):
            self._restart_clock(seconds)
            yield
        if self.ranks.leads:
            self.ranks.go_on(self.step)
        self._restart_clock(seconds)

    def _restart_clock(self, seconds: float) -> None:
        """Let `seconds` be the training time up to now."""
        self._last_logged, self._timed_from = time.perf_counter(), self.step
        self._started = self._last_logged - seconds

    def train_step(self, batch: Batch, *, lr: float) -> None:
        """One optimizer step on this process's share of the global batch, in micro-batches."""
        self._lr = lr
        for group in itertools.chain.from_iterable(o.param_groups for o in self.optimizers):
            group["lr"] = lr * group["scale"]
        with matrix_products(self.spec.precision):
            self._window.append(self._backward(batch))
            if self.spec.train.clip is not None:
                self.scaler.unscale(self.optimizers)
                parameters, clip = self.trainable.values(), self.spec.train.clip
                self._gradient_norm = torch.nn.utils.clip_grad_norm_(parameters, clip)
            elif self.due(self.spec.execution.log_every, ahead=1):
                self._gradient_norm = self._total_norm() / self.scaler.scale(self._one)
            skipped = self.scaler.step(self.optimizers)
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            for ema in (self.ema, *self.averages.values()):
                ema.update(self.step + 1, skipped)
            for part in self.parts:
                part.after_step(skipped)
        self.step += 1
        if self.ranks.leads and self.step in self.snapshot_steps:
            state = checkpoint.Checkpoint(self.step, self._averaged(), {})
            checkpoint.save(self.folder.averages, state, keep=len(self.snapshot_steps))

    def _averaged(self) -> dict[str, Tensor]:
        """Return the averages of which snapshots are kept, flat."""
        named = ((part, ema.weights.items()) for part, ema in self.averages.items())
        return {f"{part}/{name}": tensor for part, own in named for name, tensor in own}

    def _backward(self, batch: Batch) -> Tensor:
        """Gradients and mean loss of the global batch; `batch` is this process's share of it."""
        share, whole = len(batch), self.spec.train.batch
        cut = min(self.spec.execution.micro_batch or share, share)
        total = torch.zeros((), device=self.device)
        for start in range(0, share, cut):
            with autocast(self.spec.precision, self.device):
                part = self._on_device(batch.rows(slice(start, min(start + cut, share))))
                loss = self.objective(self.network, part).sum() / whole
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return self.ranks.sum_gradients(self.trainable.values(), total)

    def _total_norm(self) -> Tensor:
        """The norm of all gradients, on the device: nobody waits for it before the log entry."""
        gradients = (p.grad for p in self.trainable.values())
        return torch.nn.utils.get_total_norm([grad for grad in gradients if grad is not None])

    def due(self, every: int, *, also: Collection[int] = (), ahead: int = 0) -> bool:
        """Return whether an action is due: every `every` steps, at steps `also`, and at the end.

        Args:
            ahead: number of steps to look ahead.
        """
        step = self.step + ahead
        return step % every == 0 or step in {*also, self.spec.train.steps}

    def log_window(self) -> None:
        """Log the mean loss since the last entry, the last gradient norm before clipping (none
        after an overflow), and the speed."""
        losses = torch.stack(self._window)
        self.loss, self._window = float(losses.double().mean()), []
        seconds_before, self._last_logged = self._last_logged, time.perf_counter()
        timed, self._timed_from = self.step - self._timed_from, self.step
        rate = timed * self.spec.train.batch / (self._last_logged - seconds_before)
        values = {metric_names.TRAIN_LOSS: self.loss, metric_names.LEARNING_RATE: self._lr}
        values[metric_names.TRAIN_IMAGES_PER_S] = rate
        if self._gradient_norm is not None and math.isfinite(norm := float(self._gradient_norm)):
            values[metric_names.GRADIENT_NORM] = norm
        if self.scaler.enabled:
            self.overflows = int(self.scaler.overflows)
            values[metric_names.OVERFLOWS] = self.overflows
        if self._writer is not None:
            self._writer(self.step, **values)

    def not_finite(self, *, weights: bool) -> str | None:
        """Name the non-finite part: a loss since the last log entry, or the weights; `None` if all
        is finite, and on ranks other than 0.

        Args:
            weights: whether to check the weights and their EMA.
        """
        if not self.ranks.leads:
            return None
        losses = torch.stack(self._window) if self._window else torch.zeros(0)
        if bad := torch.nonzero(~torch.isfinite(losses)).flatten().tolist():
            step = self.step - len(losses) + bad[0] + 1
            return f"training loss {float(losses[bad[0]])} at step {step}"
        tensors = [*self.trainable.values(), *self.ema.weights.values()] if weights else []
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
            return f"weights that are not finite after step {self.step}"
        return None

    def save(self) -> int:
        """Write a checkpoint of the current step; return the step."""
        if self.ranks.leads:
            parts = {part: module.state_dict() for part, module in self._stored.items()}
            parts |= {
                "ema": self.ema.weights,
                "optimizer": checkpoint.flat_optimizers(self.optimizers),
            }
            parts["scaler"] = self.scaler.state()
            tensors = {f"{part}/{n}": x for part, named in parts.items() for n, x in named.items()}
            tensors |= self._averaged()
            if self._window:
                tensors["window"] = torch.stack(self._window)
            facts = {"seconds": repr(self.seconds), "loss": repr(self.loss)}
            state = checkpoint.Checkpoint(self.step, tensors, facts)
            keep, steps = self.spec.execution.keep_checkpoints, self.keep_steps
            checkpoint.save(self.folder.checkpoints, state, keep=keep, keep_steps=steps)
        return self.step

    @property
    def seconds(self) -> float:
        """Training time of this state over all attempts."""
        return time.perf_counter() - self._started

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._writer is not None:
            self._writer.__exit__(*error)

    def _joined(self, process: Process) -> list[Part]:
        """Return what the systems of this run add to its training, initialised from its seed."""
        run = Joining(
            spec=self.spec,
            folder=self.folder,
            device=self.device,
            network=self.network,
            process=process,
            batches=self.batches,
            sum=self.ranks.sum,
        )
        with initialised(self.spec.seed, "systems"):
            parts = [system.part(run) for system in systems_of(self.spec)]
        return [part for part in parts if part is not None]

    def _start_from_elsewhere(self) -> None:
        """Load the weights that this run goes on from, into network and EMA."""
        weights = starting_weights(self.spec, self.folder)
        if weights is not None:
            self.network.load_state_dict({**self.network.state_dict(), **weights})
            self.ema.load({n: p.detach() for n, p in self.network.named_parameters()})
            for part in self.parts:
                part.start()
            start = self.spec.init_from
            if start is not None and start.file is not None and self.spec.condition is None:
                self._compare_with_zero()

    @torch.no_grad()
    def _compare_with_zero(self) -> None:
        """Warn about starting weights that are worse than a network whose output is zero."""
        batch, process = self.batches.at(0), self.objective.process
        few = slice(0, min(self.spec.execution.micro_batch or MOST_COMPARED, MOST_COMPARED))
        part = batch.rows(few).to(self.device)

        def started(x_BCHW: Tensor, t_B: Tensor) -> Tensor:
            out: Tensor = self.network(x_BCHW, t_B, part.y_B, None, None)
            return out

        def zero(x_BCHW: Tensor, t_B: Tensor) -> Tensor:
            return torch.zeros_like(x_BCHW).repeat(1, outputs(self.spec.process), 1, 1)

        level_B = process.level(part.u_B)
        with matrix_products(self.spec.precision), autocast(self.spec.precision, self.device):
            loss, of_zero = (
                float(process.loss_terms(f, part.x_BCHW, part.noise_BCHW, level_B).loss().mean())
                for f in (started, zero)
            )
        if not loss <= of_zero:
            warnings.warn(
                f"init_from.file: the first batch has loss {loss:.3g} with these weights, "
                f"{of_zero:.3g} if the network predicts zero; the weights may be of another"
                " process",
                stacklevel=2,
            )
