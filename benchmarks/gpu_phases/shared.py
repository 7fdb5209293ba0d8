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
from importlib.metadata import version
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
        route: of the runs that have one.
        peak: dense bf16 FLOP/s of the device by datasheet; `None` if they are not known.
    """

    def __init__(self, phase: str, out: Path, device: str, *, small: bool) -> None:
        self.phase, self.out, self.small = phase, out, small
        self.device, self.route = pick(device), INNER if small else ROUTE
        self.cuda = self.device.type == "cuda"
        self.peak = peak_flops(self.device) if self.cuda else None
        self._data = Path(tempfile.mkdtemp())
        torch.set_num_threads(1)

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
        """Write an error as a result, and go on after it; small ones are raised."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.say(what, **names, error=f"{type(error).__name__}: {str(error)[:300]}")
            if self.small:
                raise

    def spec(
        self, model: Any, routes: Any = (), batch: int = 256, *, side: int = 32, **fields: Any
    ) -> RunSpec:
        """Return a run on made latents of `side` x `side`; ImageNet-256's have 32.

        Args:
            model: `S` is DiT-S/2; a small bench has a tiny network and batch in its place.
        """
        model = f"DiT-{model}/2" if isinstance(model, str) else model
        if self.small:
            model, batch = TINY, 4
        data = {"source": "latents", "path": str(self._latents(side)), "scale": 1.0}
        data |= {"channels": 4, "size": side, "classes": 1000}
        train = {"batch": batch} | fields.pop("train", {})
        compiled = {"compile": "blocks" if self.cuda else "none"}
        execution = compiled | fields.pop("execution", {})
        tree = {"model": model, "data": data, "routes": list(routes), "train": train}
        tree |= {"precision": self.half, "execution": execution}
        return decode(RunSpec, tree | fields)

    def _latents(self, side: int) -> Path:
        """Return a folder of packed latents of ImageNet's deviation, made when first asked for."""
        folder = self._data / str(side)
        if not folder.exists():
            folder.mkdir()
            count = 300 if self.small else COUNT * 32 // max(side, 32)
            generator, shape = np.random.default_rng(0), (count, 4, side, side)
            latents = 0.93 * generator.standard_normal(shape, dtype=np.float32)
            np.save(folder / "latents.npy", latents.astype(np.float16))
            np.save(folder / "labels.npy", generator.integers(0, 1000, count))
        return folder

    def live(self, spec: RunSpec, folder: Path | None = None) -> Trainer:
        """Return a run away from adaLN-zero, of which most gradients would be zero."""
        where = folder or Path(tempfile.mkdtemp()) / "runs" / "one"  # as a lab has them
        run = Trainer(spec, RunFolder(where), self.device)
        torch.manual_seed(7)
        with torch.no_grad():
            for parameter in run.network.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        return run

    def milliseconds(
        self, action: Callable[[], object], *, warm: int = 3, count: int = 10
    ) -> float:
        """Return the median time of an action; on a GPU between events, so that nothing waits."""
        for _ in range(warm):
            action()
        if not self.cuda:
            return 1e3 * statistics.median(self.seconds(action) for _ in range(count))
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            action()
            mark.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks))

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the time of an action, once the device has done what it asked for."""
        started = time.perf_counter()
        action()
        self.wait()
        return time.perf_counter() - started

    def say_device(self) -> None:
        """Write what is measured, once a folder."""
        results = self.out / "results.jsonl"
        if not (results.exists() and '"what": "device"' in results.read_text()):
            name = torch.cuda.get_device_name() if self.cuda else "cpu"
            versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
            versions |= {"cudnn": torch.backends.cudnn.version(), "triton": version("triton")}
            self.say("device", name=name, **versions, peak_TFLOPs=(self.peak or 0.0) / 1e12)

    def wait(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()
