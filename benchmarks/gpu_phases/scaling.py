"""The cost of a step against tokens, depth, rate and batch, with the prediction beside it."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpu_phases.shared import Bench
from tread_lab.engine.cost.training import cost

BASE = {"depth": 12, "width": 768, "heads": 12, "patch": 2}
SIDES = {64: 16, 256: 32, 1024: 64, 4096: 128}  # tokens -> side of a latent


def measure(bench: Bench) -> None:
    """Vary one thing at a time around B/2 at 256 tokens, 64 images and a rate of one half."""
    base = {**BASE, "width": 32, "heads": 2, "depth": 8} if bench.small else dict(BASE)
    batch = 2 if bench.small else 64
    for rate in (0.25, 0.5, 0.75, 0.9):
        _pair(bench, "rate", rate, base, batch, rate)
    for depth in (8, 12, 24) if not bench.small else (8,):
        _pair(bench, "depth", depth, {**base, "depth": depth}, batch, 0.5)
    for images in (16, 64, 256) if not bench.small else (2,):
        _pair(bench, "batch", images, base, images, 0.5)
    for tokens, side in SIDES.items():
        if not bench.small or tokens == 64:
            images = max(batch * 256 // tokens, 1) if not bench.small else 2
            _pair(bench, "tokens", tokens, base, images, 0.5, side=side)


def _pair(
    bench: Bench,
    axis: str,
    at: float,
    model: dict[str, Any],
    batch: int,
    rate: float,
    side: int = 32,
) -> None:
    """Time a dense and a routed step, and write their ratio with the predicted one."""
    with bench.guarded("scaling", axis=axis, at=at):
        route, ms = ({"start": 2, "end": "B-4", "rate": rate},), {}
        for kind, routes in (("dense", ()), ("routed", route)):
            run = bench.live(bench.spec(model, routes, batch, side=side))
            one = run.batches.at(0)
            ms[kind] = bench.milliseconds(partial(run.optimise, one, lr=1e-4), count=6)
            del run
        predicted = cost(bench.spec(model, route, batch, side=side)).speedup
        times = {f"{kind} ms": t for kind, t in ms.items()}
        measured = ms["dense"] / ms["routed"]
        bench.say("scaling", axis=axis, at=at, **times, measured=measured, predicted=predicted)
