"""The batch of a step with all its draws, a function of (seed, step), and its way to a device."""

# B batch, N tokens, C channels, H height, W width

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.config.errors import UserError
from tread_lab.config.recipe import ContrastiveLoss
from tread_lab.config.run import RunSpec
from tread_lab.data.source import Samples, redrawn
from tread_lab.routing.select import Routing, dense_routing, draw_routing

THREADS = 2  # that draw and pin the batches of a GPU; one core draws a batch of 256 in 6 to 11 ms


@dataclass(frozen=True)
class Batch:
    """Samples, labels (some dropped to the null class) or condition rows [B, T, E], noise, uniform
    levels and routing; optionally targets of systems, and eps - x of the batch's next sample for a
    contrastive loss."""

    x_BCHW: Tensor
    y_B: Tensor
    noise_BCHW: Tensor
    u_B: Tensor
    routing: Routing | None
    target_BNE: Tensor | None = None
    negative_BCHW: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x_BCHW)

    def rows(self, rows: slice) -> Batch:
        """Return some samples of the global batch."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; copies of a pinned batch are asynchronous."""
        if device.type == "cpu":
            return self
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """Return the batch in page-locked memory.

        Tensors with overlapping elements are made contiguous first.
        """
        return self._each(lambda tensor: tensor.contiguous().pin_memory())

    def used_on(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory of this batch until the work queued on `stream` is done."""

        def record(tensor: Tensor) -> Tensor:
            tensor.record_stream(stream)
            return tensor

        self._each(record)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        routes = tuple(route.each(change) for route in self.routing or ())
        target, negative = (
            None if tensor is None else change(tensor)
            for tensor in (self.target_BNE, self.negative_BCHW)
        )
        return Batch(
            x_BCHW=change(self.x_BCHW),
            y_B=change(self.y_B),
            noise_BCHW=change(self.noise_BCHW),
            u_B=change(self.u_B),
            routing=routes or None,
            target_BNE=target,
            negative_BCHW=negative,
        )


class Batches:
    """Global batches by step: epochs are random orders named by (seed, epoch).

    Runs with a parent have separate draws, equal among them for a seed.

    Args:
        pin: use page-locked memory, for asynchronous copies to a GPU.
        rows: rows of each global batch for this process; all by default.

    Attributes:
        targets: returns cached features of samples by number, if any.
        condition: draws the condition in place of labels, called as condition(ids_B, dropped_B,
            *names of the draw).
    """

    def __init__(
        self, spec: RunSpec, samples: Samples, *, pin: bool = False, rows: slice | None = None
    ) -> None:
        self.spec, self.samples, self.pin, self._rows = spec, samples, pin, rows
        self.targets: Callable[[Tensor], Tensor] | None = None
        self.condition: Callable[..., Tensor] | None = None
        generation = len(spec.ancestors)
        self._name = (spec.seed, *(("stage", generation) if generation else ()))
        size, name = len(samples), self._name
        self._order_of = functools.lru_cache(maxsize=2)(  # a batch may span two epochs
            lambda epoch: draws.permutation(size, *name, "order", epoch)
        )

    def at(self, step: int) -> Batch:
        """Return the batch of step 0, 1, ...; a pure function of the step.

        Raises:
            UserError: a sample is not finite; names it.
        """
        spec, B = self.spec, self.spec.train.batch
        ids_B = self._ids(step)
        x_BCHW, y_B = redrawn(self.samples, ids_B, *self._name, "sample", step)
        finite_B = torch.isfinite(x_BCHW).flatten(1).all(dim=1)
        if not finite_B.all():
            wrong = int(ids_B[~finite_B][0])
            raise UserError(
                f"data: training sample {wrong} must be finite. Try encoding the data again."
            )
        dropped_B = draws.uniform((B,), *self._name, "drop", step) < spec.train.label_drop
        y_B = torch.where(dropped_B, self.samples.classes, y_B)
        if self.condition is not None:
            y_B = self.condition(ids_B, dropped_B, *self._name, step)
        noise_BCHW = draws.normal(tuple(x_BCHW.shape), *self._name, "noise", step)
        contrasts = isinstance(spec.loss, ContrastiveLoss)
        batch = Batch(
            x_BCHW=x_BCHW,
            y_B=y_B,
            noise_BCHW=noise_BCHW,
            u_B=draws.uniform((B,), *self._name, "level", step),
            routing=self._routing(step),
            target_BNE=None if self.targets is None else self.targets(ids_B),
            negative_BCHW=(noise_BCHW - x_BCHW).roll(-1, 0) if contrasts else None,
        )
        if self._rows is not None:  # of draws that are the same for any number of processes
            batch = batch.rows(self._rows)
        return batch.pinned() if self.pin else batch

    def _routing(self, step: int) -> Routing | None:
        """Return the routes of a step while they are on, else what the bypass drops then."""
        spec = self.spec
        routes = next((routes for steps, routes in spec.phases if step in steps), ())
        shape, drop = (spec.train.batch, spec.tokens), spec.bypass.dropped(routed=bool(routes))
        if routes:
            return draw_routing(routes, shape, *self._name, step, path_drop=drop)
        return dense_routing(spec.routes, shape, *self._name, step, path_drop=drop)

    def stream(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield batches of the steps start..stop-1, read ahead by `execution.workers` threads.

        At least `THREADS` for a GPU, so that draws do not delay the host.
        """
        workers = max(self.spec.execution.workers, THREADS if self.pin else 0)
        if workers == 0:
            yield from map(self.at, range(start, stop))
            return
        with ThreadPoolExecutor(workers) as pool:
            ahead = [pool.submit(self.at, s) for s in range(start, min(start + 2 * workers, stop))]
            for step in range(start, stop):
                if step + 2 * workers < stop:
                    ahead.append(pool.submit(self.at, step + 2 * workers))
                yield ahead.pop(0).result()

    def _ids(self, step: int) -> Tensor:
        """Places in the data set of the samples of a step."""
        B, size = self.spec.train.batch, len(self.samples)
        places = torch.arange(step * B, (step + 1) * B)
        ids = torch.empty_like(places)
        for epoch in range(int(places[0]) // size, int(places[-1]) // size + 1):
            inside = places // size == epoch
            ids[inside] = self._order_of(epoch)[places[inside] % size]
        return ids


class Transfer:
    """Copies batches to a device, on a separate stream of a GPU.

    The copy of a step overlaps with the step before it. Requires page-locked memory,
    `Batches(pin=True)`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch on the device; work that is queued from now on waits for the copy.

        A batch that is there already stays where it is.
        """
        if self._stream is None or batch.x_BCHW.is_cuda:
            return batch.to(self.device)
        with torch.cuda.stream(self._stream):
            copy = batch.to(self.device)
        computing = torch.cuda.current_stream(self.device)
        computing.wait_stream(self._stream)
        copy.used_on(computing)
        return copy
