"""What an image metric costs by its parts: the sampler's calls, decoding, writing."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gpu_phases.shared import TINY, Bench
from tread_lab.data.arrays import Parts, write_npz
from tread_lab.data.autoencoder import levels
from tread_lab.train.precision import autocast, compile_blocks, matrix_products

CALLS = 79  # Heun, 40 steps
SD = {  # the sizes of SD's autoencoder; time does not depend on its weights
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
}
IMAGES = 10_000


def measure(bench: Bench) -> None:
    """Time all parts, those of an image first."""
    _decoding(bench)
    _writing(bench)
    _calls(bench)


def _calls(bench: Bench) -> None:
    """Time a call of the dense network, eager and compiled."""
    batch = 4 if bench.small else 256
    for size in ("S", "B"):
        for precision in ("bf16", "tf32", "fp32") if bench.cuda else ("fp32",):
            for compiled in (True, False) if bench.cuda else (False,):
                said = {"model": size, "precision": precision, "compiled": compiled}
                with bench.guarded("sampling", **said, batch=batch):
                    ms = _call(bench, size, precision, compiled, batch)
                    total = IMAGES / batch * CALLS * ms / 1e3
                    bench.say(
                        "sampling", **said, batch=batch, ms_a_call=ms, fid10k_sampling_s=total
                    )


def _call(bench: Bench, size: str, precision: str, compiled: bool, batch: int) -> float:
    spec = bench.spec(
        TINY if bench.small else f"DiT-{size}/2", (), 4, execution={"compile": "none"}
    )
    network = bench.live(spec).network.eval().requires_grad_(False)
    if compiled:
        compile_blocks(network)
    x = torch.randn(batch, 4, 32, 32, device=bench.device)
    t, y = torch.rand(batch, device=bench.device), torch.zeros(batch, device=bench.device).long()
    with torch.no_grad(), matrix_products(precision), autocast(precision, bench.device):
        return bench.milliseconds(lambda: network(x, t, y, None), count=8)


def _decoding(bench: Bench) -> None:
    """Time SD's decoder by arithmetic and layout; by how many levels do pixels move from fp32?"""
    with bench.guarded("part", part="decoding"):
        _decoder(bench)


def _decoder(bench: Bench) -> None:
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    network = AutoencoderKL(**SD).eval().requires_grad_(False).to(bench.device)
    batch, side = (1, 4) if bench.small else (32, 32)
    z_BCHW = torch.randn(batch, 4, side, side, device=bench.device)
    exact_BCHW = _decoded(network, z_BCHW, "fp32", bench.device)
    for layout in (torch.contiguous_format, torch.channels_last):
        network, z_BCHW = network.to(memory_format=layout), z_BCHW.to(memory_format=layout)
        for precision in ("tf32", "bf16", "fp32") if bench.cuda else ("fp32",):
            said = {"part": "decoding", "precision": precision, "layout": str(layout)[6:]}
            with bench.guarded("part", **said):
                decode = partial(_decoded, network, z_BCHW, precision, bench.device)
                moved = (decode().int() - exact_BCHW.int()).abs().max()
                ms = bench.milliseconds(decode, warm=1, count=5)
                _say_part(bench, ms, batch, levels_moved=int(moved), **said)


@torch.inference_mode()
def _decoded(network: nn.Module, z_BCHW: Tensor, precision: str, device: torch.device) -> Tensor:
    with matrix_products(precision), autocast(precision, device):
        return levels(network.decode(z_BCHW).sample.float())


def _writing(bench: Bench) -> None:
    """Time the files of images: batches as they come, and the archive at the end."""
    count, side, batch = (16, 32, 8) if bench.small else (1024, 256, 256)
    images_BCHW = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8)
    with bench.guarded("part", part="writing"), tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        parts = Parts(Path(folder) / "parts", {}, count, batch)
        parts.begin()
        for rows in parts.open_batches():
            parts.write(rows, {"images": images_BCHW.numpy(), "labels": np.zeros(batch, int)})
        pieces = (part["images"].transpose(0, 2, 3, 1) for part in parts.read())
        shape = (count, side, side, 3)
        write_npz(Path(folder) / "samples.npz", {"arr_0": (shape, np.uint8, pieces)})
        _say_part(bench, 1e3 * (time.perf_counter() - started), count, part="writing")


def _say_part(bench: Bench, ms: float, images: int, **said: object) -> None:
    total = IMAGES / images * ms / 1e3
    bench.say("part", **said, images=images, ms_an_image=ms / images, fid10k_s=total)
