"""Sampling: the time of a network call in each precision, and what fid@10k costs by it."""

from __future__ import annotations

import torch

from gpu_phases.shared import TINY, Bench
from tread_lab.engine.compiled import compile_blocks
from tread_lab.engine.precision import autocast, matrix_products

CALLS = 79  # Heun, 40 steps
IMAGES = 10_000


def measure(bench: Bench) -> None:
    """Time a call of the dense network for batches of images, eager and compiled."""
    for size in ("S", "B"):
        for precision in ("fp32", "tf32", "bf16") if bench.cuda else ("fp32",):
            for compiled in (False, True) if bench.cuda else (False,):
                for batch in (128, 256, 512) if not bench.small else (4,):
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
