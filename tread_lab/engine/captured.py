"""The training step as one CUDA graph: a GPU replays it, and the host launches nothing.

Where blocks are small the host needs longer to launch the kernels of a step than a GPU to run them.
"""

from __future__ import annotations

import functools
import warnings
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tread_lab.engine.batches import Batch
from tread_lab.specs.errors import first_line
from tread_lab.specs.run import RunSpec

WARM = 3  # launched steps before a capture: they compile, allocate, and choose kernels
AHEAD = 2  # replays that the host queues before it waits: each holds a batch on the device
KINDS = 4  # kinds of batch that have a graph: dense and routed steps, and spare ones

LAUNCHED, CAPTURED = "launched kernel by kernel", "one CUDA graph"

Results = tuple[Tensor, Tensor | None]  # the loss of a step and the norm of its gradient
Work = Callable[[], Results]


def step_form(spec: RunSpec, device_type: str) -> str | None:
    """Return how a GPU is given a training step, as provenance names it; `None` for a CPU."""
    if device_type != "cuda":
        return None
    return CAPTURED if spec.execution.cuda_graph else LAUNCHED


class Graph(Protocol):
    """Work that a device can do again, on the same memory."""

    def launch(self, work: Work) -> Results:
        """Do the work, as it will be captured."""

    def capture(self, work: Work) -> Results:
        """Note the work without doing it; returns where each replay leaves its results."""

    def replay(self) -> None:
        """Do the noted work."""


class ReplayQueue:
    """Replays that a GPU has not ended: launching costs the host nothing, so that it would queue
    all steps up to the next entry of the log, each with its batch."""

    def __init__(self) -> None:
        self._ends: deque[torch.cuda.Event] = deque()

    def join(self) -> None:
        """Take the replay that was just launched; wait until at most `AHEAD` are under way."""
        end = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        end.record()
        self._ends.append(end)
        if len(self._ends) > AHEAD:
            self._ends.popleft().synchronize()


class CudaGraph:
    """A graph of torch's; launched work runs on the stream that captures it.

    Args:
        pool: the memory of graphs that never run at the same time.
        queue: of all their replays.
    """

    def __init__(self, stream: torch.cuda.Stream, pool: Any, queue: ReplayQueue) -> None:
        self._stream, self._pool, self._queue = stream, pool, queue
        self._graph = torch.cuda.CUDAGraph()

    def launch(self, work: Work) -> Results:
        computing = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            results = work()
        computing.wait_stream(self._stream)
        return results

    def capture(self, work: Work) -> Results:
        # Threads that read data pin memory meanwhile, which a capture of all threads would forbid.
        threads = "thread_local"
        with torch.cuda.graph(self._graph, self._pool, self._stream, capture_error_mode=threads):
            return work()

    def replay(self) -> None:
        self._graph.replay()
        self._queue.join()


def cuda_graphs(device: torch.device) -> Callable[[], CudaGraph]:
    """Return what makes graphs for one GPU that share a stream and the memory of their results."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return functools.partial(CudaGraph, stream, torch.cuda.graph_pool_handle(), ReplayQueue())


@dataclass
class _Kind:
    """Steps whose batches have equal shapes: they share memory for the batch and one graph."""

    batch: Batch
    graph: Graph
    launches: int = 0
    results: Results | None = None
    refused: bool = False  # a capture failed: its steps are launched, with equal bits


class CapturedStep:
    """A training step that is launched at first, then captured, then replayed.

    A batch is copied to where the graph reads it. A kind of batch beyond the first `KINDS` is
    launched, as with a selection that keeps another number of tokens in every step.

    Args:
        work: carries out the step of a batch that is on the device; returns its loss and the norm
            of its gradient. It may change tensors in place, and nothing else: a replay runs no
            Python.
        new_graph: makes an empty graph.
    """

    def __init__(self, work: Callable[[Batch], Results], new_graph: Callable[[], Graph]) -> None:
        self._work, self._new_graph = work, new_graph
        self._kinds: dict[Hashable, _Kind] = {}

    def __call__(self, batch: Batch) -> Results:
        """Carry out the step of a batch on the device; returns its loss and gradient norm."""
        kind = self._kinds.get(key := _shape(batch))
        if kind is None and len(self._kinds) == KINDS:
            return self._new_graph().launch(lambda: self._work(batch))
        if kind is None:
            kind = self._kinds[key] = _Kind(batch.copy(), self._new_graph())
        else:
            kind.batch.copy_(batch)
        held = kind.batch
        if kind.results is None and kind.launches >= WARM and not kind.refused:
            self._capture(kind)
        if kind.results is None:
            kind.launches += 1
            return kind.graph.launch(lambda: self._work(held))
        kind.graph.replay()
        loss, norm = kind.results
        return loss.clone(), None if norm is None else norm.clone()

    def _capture(self, kind: _Kind) -> None:
        try:
            kind.results = kind.graph.capture(lambda: self._work(kind.batch))
        except RuntimeError as error:
            kind.refused = True
            warnings.warn(
                f"a CUDA graph of the step fails ({first_line(error)}); it is launched kernel by"
                " kernel, which changes no number",
                stacklevel=3,
            )


def _shape(batch: Batch) -> Hashable:
    """Return what two batches have in common that run the same kernels."""
    tensors = tuple((tensor.shape, tensor.dtype) for tensor in batch.tensors())
    routes = tuple(
        (route.start, route.end, route.real_BK is None, route.dropped_B is None)
        for route in batch.routing or ()
    )
    return tensors, routes, batch.target_BNE is None
