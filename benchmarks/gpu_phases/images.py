"""What an image metric costs: FID@10K of S/2 end to end by part, and a call of the sampler."""

from __future__ import annotations

import collections
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from gpu_phases.shared import Bench
from tests.stand_ins import write_stand_ins
from tread_lab.config import decode
from tread_lab.config.data import SD_SCALE
from tread_lab.config.evaluation import SamplesSpec
from tread_lab.data.arrays import Parts
from tread_lab.data.autoencoder import VARIABLE
from tread_lab.data.content import sha256
from tread_lab.evaluate import drawing, fidelity, measuring
from tread_lab.evaluate.extraction import Extraction
from tread_lab.evaluate.features import Scorer
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.train.precision import autocast, matrix_products
from tread_lab.train.trainer import train

SD = {  # the sizes of SD's autoencoder; time does not depend on its weights
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
}
PARTS = {  # part -> where the function is that does it; drawing holds decoding
    "drawing": (drawing.Drawing, "draw"),
    "decoding": (drawing, "pixels"),
    "writing": (Parts, "write"),  # beside drawing
    "features": (Extraction, "__call__"),
    "distance": (Scorer, "scores"),
    "archive": (measuring, "write_samples"),
}


def fid(bench: Bench) -> None:
    """Time the FID of 10,000 images of S/2, with stand-ins for what its user brings."""
    count = 100 if bench.small else 10_000
    with bench.guarded("fid"), tempfile.TemporaryDirectory() as folder:
        made = write_stand_ins(Path(folder) / "made")
        if not bench.small:
            from diffusers import AutoencoderKL

            decoder = AutoencoderKL(**SD, scaling_factor=SD_SCALE, sample_size=256)
            decoder.save_pretrained(made[VARIABLE])
        fidelity.SHA256 = sha256(made[fidelity.VARIABLE])
        os.environ.update({name: str(path) for name, path in made.items()})
        spec = bench.spec("S", bench.route, train={"steps": 2})
        spec = replace(spec, data=replace(spec.data, decoder_scale=SD_SCALE))
        run = Lab.at(Path(folder) / "lab").run_of(spec)
        run.create(spec)
        collections.deque(train(spec, run, bench.device), maxlen=0)
        run.finish(RunState.COMPLETED, step=2)
        tree = {"metrics": ["fid"], "count": count, "reference": "imagenet256"}
        tree |= {"sampler": {"steps": 2 if bench.small else 40, "precision": bench.half}}
        evaluation = decode(SamplesSpec, tree)
        spent: dict[str, float] = collections.defaultdict(float)
        with contextlib.ExitStack() as patches:
            for part, (owner, name) in PARTS.items():
                timed = _timed(bench, getattr(owner, name), part, spent)
                patches.enter_context(mock.patch.object(owner, name, timed))
            measured = measuring.measuring(run, evaluation, bench.device)
            whole = bench.seconds(lambda: collections.deque(measured, maxlen=0))
        parts = {f"{part} s": seconds for part, seconds in spent.items()}
        rate = count / max(spent["decoding"], 1e-9)
        bench.say("fid", model="S", images=count, s=whole, **parts, decoded_images_s=rate)


def _timed(
    bench: Bench, function: Callable[..., Any], part: str, spent: dict[str, float]
) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        drives = threading.current_thread() is threading.main_thread()
        started = time.perf_counter()
        found = function(*arguments, **options)
        if drives:  # the thread that writes has nothing to wait for
            bench.wait()
        spent[part] += time.perf_counter() - started
        return found

    return timed


def sampler_call(bench: Bench) -> None:
    """Time a call of the dense B/2 on a batch of images."""
    with bench.guarded("sampling"), bench.live(bench.spec("B")) as run:
        network, batch = run.network.eval().requires_grad_(False), 4 if bench.small else 256
        x = torch.randn(batch, 4, 32, 32, device=bench.device)
        t = torch.rand(batch, device=bench.device)
        y = torch.zeros(batch, dtype=torch.long, device=bench.device)
        with torch.no_grad(), matrix_products(bench.half), autocast(bench.half, bench.device):
            ms = bench.milliseconds(lambda: network(x, t, y, None), count=8)
        bench.say("sampling", model="B", precision=bench.half, batch=batch, ms_a_call=ms)
