"""What the phases share: the device, where results go, runs on made latents, and clocks."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tread_lab.config import RunSpec, decode
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.device import peak_flops, pick
from tread_lab.train.trainer import Trainer

TINY = {"depth": 4, "width": 32, "heads": 2, "patch": 2}
ROUTE = ({"start": 2, "end": "B-4", "rate": 0.5},)  # the paper's placement
INNER = ({"start": 1, "end": 2, "rate": 0.5},)  # the same in a network of four blocks
COUNT = 2048  # latents that are made


class Bench:
    """One phase under way.

    Attributes:
        small: tiny sizes, so that the script itself can be tried on a CPU.
        peak: dense bf16 FLOP/s of the device by datasheet; `None` if they are not known.
    """

    def __init__(self, phase: str, out: Path, device: str, small: bool) -> None:
        self.phase, self.out, self.small = phase, out, small
        self.device = pick(device)
        self.peak = peak_flops(self.device) if self.cuda else None
        self._data = Path(tempfile.mkdtemp())
        self._noise: dict[tuple[torch.Size, ...], list[torch.Tensor]] = {}
        torch.set_num_threads(1)

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    @property
    def half(self) -> str:
        """The precision that is timed: bf16, and fp32 where the script is tried on a CPU."""
        return "bf16" if self.cuda else "fp32"

    def say(self, what: str, **values: Any) -> None:
        """Write one result."""
        row = {"phase": self.phase, "what": what} | values
        row = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items()}
        print(json.dumps(row), flush=True)
        with (self.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    @contextlib.contextmanager
    def guarded(self, what: str, **names: Any) -> Iterator[None]:
        """Write an error as a result, and go on after it."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.say(what, **names, error=f"{type(error).__name__}: {str(error)[:300]}")

    def spec(
        self, model: Any, routes: Any = (), batch: int = 256, *, side: int = 32, **fields: Any
    ) -> RunSpec:
        """Return a run on made latents of `side` x `side`; ImageNet-256's have 32."""
        data = {"source": "latents", "path": str(self._latents(side)), "scale": 1.0}
        data |= {"channels": 4, "size": side, "classes": 1000}
        train = {"batch": batch} | fields.pop("train", {})
        tree = {"model": model, "data": data, "routes": list(routes), "train": train}
        return decode(RunSpec, {"precision": self.half} | tree | fields)

    def _latents(self, side: int) -> Path:
        """Return a folder of packed latents, made when first asked for."""
        folder = self._data / str(side)
        if not folder.exists():
            folder.mkdir()
            _make_latents(folder, 300 if self.small else COUNT * 32 // max(side, 32), side)
        return folder

    def live(self, spec: RunSpec, folder: Path | None = None) -> Trainer:
        """Return a run away from adaLN-zero, of which most gradients would be zero."""
        where = folder or Path(tempfile.mkdtemp()) / "runs" / "one"  # as a lab has them
        run = Trainer(spec, RunFolder(where), self.device)
        weights = [p for p in run.network.parameters() if p.requires_grad]
        shapes = tuple(p.shape for p in weights)
        if shapes not in self._noise:  # that of XL is drawn once for all variants
            generator = torch.Generator().manual_seed(7)
            self._noise = {shapes: [torch.randn(s, generator=generator) for s in shapes]}
        with torch.no_grad():
            for parameter, noise in zip(weights, self._noise[shapes]):
                parameter.add_(0.02 * noise.to(parameter.device))
        return run

    def milliseconds(
        self, action: Callable[[], object], *, warm: int = 3, count: int = 10
    ) -> float:
        """Return the median time of an action; on a GPU between events, so that nothing waits."""
        for _ in range(warm):
            action()
        if not self.cuda:
            return 1e3 * statistics.median(_timed(action) for _ in range(count))
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            action()
            mark.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks))

    def say_device(self) -> None:
        """Write what is measured, once a folder."""
        results = self.out / "results.jsonl"
        if not (results.exists() and '"what": "device"' in results.read_text()):
            name = torch.cuda.get_device_name() if self.cuda else "cpu"
            versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
            self.say("device", name=name, **versions, peak_TFLOPs=(self.peak or 0.0) / 1e12)

    def wait(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _make_latents(folder: Path, count: int, side: int) -> None:
    """Write random latents of ImageNet's deviation and shape as packed arrays."""
    generator = np.random.default_rng(0)
    latents = 0.93 * generator.standard_normal((count, 4, side, side), dtype=np.float32)
    np.save(folder / "latents.npy", latents.astype(np.float16))
    np.save(folder / "labels.npy", generator.integers(0, 1000, count))
