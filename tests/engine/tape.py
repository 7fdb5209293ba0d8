"""A stand-in for a CUDA graph on a CPU: it notes torch's operations and does them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tread_lab.engine.captured import Results, Work


class Tape(TorchDispatchMode):
    """Operations with the tensors that they read and wrote; a replay runs no Python of the step.

    As in a CUDA graph, numbers that were no tensors are constants, every result has its place for
    good, a capture leaves nothing changed, and no operation may bring a number to the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches, self.replays = 0, 0
        self._operations: list[tuple[Any, Sequence[Any], Mapping[str, Any], Any]] = []
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def launch(self, work: Work) -> Results:
        self.launches += 1
        return work()

    def capture(self, work: Work) -> Results:
        with self:
            results = work()
        with torch.no_grad():
            for tensor, numbers in reversed(self._before.values()):  # views after what they show
                tensor.copy_(numbers)
        return results

    def replay(self) -> None:
        self.replays += 1
        with torch.no_grad():
            for func, args, kwargs, noted in self._operations:
                for place, result in zip(tree_leaves(noted), tree_leaves(func(*args, **kwargs))):
                    if isinstance(place, Tensor) and place.data_ptr() != result.data_ptr():
                        place.copy_(result)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host waits for a number"
        if func._schema.is_mutable:  # type: ignore[attr-defined]
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, Tensor):
                    self._before.setdefault(id(tensor), (tensor, tensor.clone()))
        result = func(*args, **kwargs)
        self._operations.append((func, args, kwargs, result))
        return result
