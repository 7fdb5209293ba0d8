"""What this device can do at best: copies, matrix products of the networks' shapes, attention."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_phases.shared import Bench

WIDTHS = {"S": 384, "B": 768, "L": 1024, "XL": 1152}
HEADS = {"S": (6, 64), "B": (12, 64), "XL": (16, 72)}  # heads and their width
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
IMAGES = 256


def measure(bench: Bench) -> None:
    """Measure the ceilings that a step is compared with."""
    size = 1 << (20 if bench.small else 30)
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=bench.device)
    copy = torch.empty_like(source)
    bench.say("copy", TB_s=2 * size / bench.milliseconds(lambda: copy.copy_(source)) / 1e9)
    _products(bench)
    _attention(bench)


def _products(bench: Bench) -> None:
    """The four products of a block, forward and backward, in bf16; one of them in fp32 and tf32."""
    rows = 512 if bench.small else 256 * IMAGES
    for model, D in WIDTHS.items():
        shapes = {"qkv": (3 * D, D), "proj": (D, D), "fc1": (4 * D, D), "fc2": (D, 4 * D)}
        for name, (n, k) in shapes.items():
            x, w, g = (_normal(bench, *s) for s in ((rows, k), (n, k), (rows, n)))
            pairs = {"forward": (x, w.T), "to x": (g, w), "to w": (g.T, x)}
            work = 2 * rows * n * k / 1e9
            times = {p: bench.milliseconds(partial(torch.mm, *ab)) for p, ab in pairs.items()}
            rates = {f"{p} TFLOPs": work / ms for p, ms in times.items()}
            bench.say("product", model=model, rows=rows, layer=name, **rates)
    for tf32 in (False, True) if bench.cuda else ():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        x, w = (_normal(bench, *s).float() for s in ((rows, 768), (3072, 768)))
        rate = 2 * rows * 768 * 3072 / bench.milliseconds(partial(torch.mm, x, w.T)) / 1e9
        precision = "tf32" if tf32 else "fp32"
        bench.say("product", model="B", layer="fc1", precision=precision, TFLOPs=rate)


def _attention(bench: Bench) -> None:
    """Forward and backward pass of attention by every backend, for head sizes and lengths."""
    for model, (H, d) in HEADS.items():
        for N in (256, 192, 128, 64) if not bench.small else (64,):
            for backend in (*BACKENDS, "default"):
                with bench.guarded("attention", model=model, tokens=N, backend=backend):
                    ms = bench.milliseconds(partial(_attend, bench, N, H, d, backend))
                    bench.say("attention", model=model, tokens=N, backend=backend, ms=ms)


def _attend(bench: Bench, N: int, H: int, d: int, backend: str) -> Tensor:
    B = 2 if bench.small else IMAGES
    x = _normal(bench, B, N, 3 * H * d).requires_grad_()
    q, k, v = (part.view(B, N, H, d).transpose(1, 2) for part in x.chunk(3, dim=2))
    if backend == "default":
        out = F.scaled_dot_product_attention(q, k, v)
    else:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            out = F.scaled_dot_product_attention(q, k, v)
    (gradient,) = torch.autograd.grad(out, x, out.detach())
    return gradient


def _normal(bench: Bench, *shape: int) -> Tensor:
    dtype = torch.bfloat16 if bench.cuda else torch.float32
    return torch.randn(shape, device=bench.device, dtype=dtype)
