"""Copies of batches to a device, beside what it computes."""

from __future__ import annotations

import torch

from tread_lab.engine.batches import Batch


class Transfer:
    """Copies batches to a device; a GPU has a stream for it.

    The host queues steps ahead of a GPU, so the copy of a step runs while the step before it is
    computed. It needs page-locked memory, which `Batches(pin=True)` gives.
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
