"""The cost of a run as `tread-lab cost` prints it: a table for people, plain values for JSON."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import Any

from tread_lab.config.run import RunSpec
from tread_lab.config.units import amount
from tread_lab.cost.training import Cost, cost


def report(spec: RunSpec) -> dict[str, Any]:
    """Return everything about the cost of `spec` as plain values, for JSON.

    `learn_sigma` repeats parameters and MACs for an output of twice the channels, the convention
    of the original DiT. `resolutions` repeats MACs and speed-up at one, two and four times the
    image's side.
    """
    this, dit = cost(spec), cost(spec, learn_sigma=True)
    return {
        "model": spec.model.name,
        "routes": [f"{route.in_full} at {route.rates}" for route in spec.routes],
        "tokens": spec.tokens,
        "tokens_per_block": list(this.tokens),
        **_sizes(this),
        "learn_sigma": _sizes(dit),
        "speedup": this.speedup,
        "resolutions": [_at_scale(spec, scale) for scale in (1, 2, 4)],
        "train_flops_per_image": this.step.flops,
        "train_flops_per_image_dense": cost(spec.dense()).step.flops,
        "train_images": this.images,
        "train_flops": this.train_flops,
        "weights_bytes": this.weights_bytes,
        "checkpoint_bytes": this.checkpoint_bytes,
        "memory_bytes_estimate": this.memory_bytes,
        "memory_bytes_compiled_estimate": cost(spec, compiled=True).memory_bytes,
    }


def table(spec: RunSpec) -> list[tuple[str, str]]:
    """Return the same for people: (what, value with unit) in reading order."""
    this, compiled = cost(spec), cost(spec, compiled=True).memory_bytes
    named = [f"{route.in_full} at rate {route.rates}" for route in spec.routes]
    routes = ", ".join(named) or "none (dense)"
    rows = [
        ("model", spec.model.name),
        ("routes", routes),
        *([] if str(spec.bypass) == "route" else [("bypass", str(spec.bypass))]),
        ("tokens per block", _runs(this.tokens)),
        (
            "parameters",
            f"{this.parameters:,} ({this.parameters + this.positions:,} with positions)",
        ),
        *([("of them unsampled", f"{this.unsampled:,}")] if this.unsampled else []),
        *([("beside it", f"{this.auxiliary:,} trained, not sampled")] if this.auxiliary else []),
        *([("teacher", f"{this.teacher:,}, an average")] if this.teacher else []),
        ("forward, dense", f"{this.dense.network / 1e9:,.3f} GMAC"),
        ("forward, routed", f"{this.routed.network / 1e9:,.3f} GMAC"),
    ]
    for at in (_at_scale(spec, scale) for scale in (1, 2, 4)):
        rows.append((f"speed-up at {at['tokens']:,} tokens", f"{at['speedup']:.3f}x at most"))
    return [
        *rows,
        ("training", f"{this.step.flops / 1e12:.4g} TFLOP/image"),
        ("training, all", f"{this.images:,} images, {this.train_flops:.3e} FLOP"),
        ("checkpoint", amount(this.checkpoint_bytes)),
        ("device memory", f"about {amount(this.memory_bytes)} at {this.micro_batch} images a pass"),
        *([("with compiled blocks", f"about {amount(compiled)}")] * (compiled < this.memory_bytes)),
    ]


def _sizes(run_cost: Cost) -> dict[str, int]:
    return {
        "parameters": run_cost.parameters,
        "parameters_with_positions": run_cost.parameters + run_cost.positions,
        "parameters_unsampled": run_cost.unsampled,
        "dense_macs": run_cost.dense.network,
        "routed_macs": run_cost.routed.network,
    }


def _at_scale(spec: RunSpec, scale: int) -> dict[str, Any]:
    """Return MACs and speed-up of the same network on images of `scale` times the side."""
    data = dataclasses.replace(spec.data, size=scale * spec.data.size)
    run_cost = cost(dataclasses.replace(spec, data=data, init_from=None))
    tokens = spec.tokens * scale * scale
    macs = {"dense_macs": run_cost.dense.network, "routed_macs": run_cost.routed.network}
    return {"tokens": tokens, **macs, "speedup": run_cost.speedup}


def _runs(tokens: tuple[int, ...]) -> str:
    """Return `2 x 256, 7 x 128, 3 x 256` for tokens block by block."""
    return ", ".join(f"{len(list(equal))} x {n}" for n, equal in groupby(tokens))
