"""What one block costs for n tokens, by architecture: parameters, MACs, activations."""

# n tokens in a block, d width, h hidden width of the MLP, e channels of a scan, r rank, s state

from __future__ import annotations

from tread_lab.spec.run import ModelSpec

FP32 = 4  # bytes


def block_macs(model: ModelSpec, n: int, *, attention: bool = True) -> int:
    """Multiply-accumulates of a block; elementwise work is not counted, a scan's recurrence is.

    Without `attention` the quadratic term is left out, as some papers do.

    DiT: qkv 3 d^2, projection d^2, MLP 2 d h (SwiGLU 3 d h) per token; attention n^2 d for QK^T and
    again for AV; adaLN 6 d^2 once per image. For h = 4 d: C(n) = 12 n d^2 + 2 n^2 d + 6 d^2.

    RWKV: key, value, receptance, output 4 d^2, channel mixing 2 d h + d^2, Bi-WKV 6 d per token
    (two sums: both directions and the token's own term).

    Mamba: input and output maps 6 d^2; in each direction the step and state maps
    e (r + 2 s) + r e, the convolution 4 e, the scan 4 e s (delta A, delta x B, a h, C h) per token;
    adaLN 3 d^2.

    Args:
        attention: count the 2 n^2 d of attention, which some papers leave out.
    """
    d, h = model.width, model.hidden
    if model.backbone == "rwkv":
        return n * (5 * d * d + 2 * d * h + 6 * d) + 6 * d * d
    if model.backbone == "mamba":
        e, r, s = _mamba(model)
        return n * (3 * d * e + 2 * e * (2 * r + 2 * s + 4 + 4 * s)) + 3 * d * d
    quadratic = 2 * n * n * d if attention else 0
    return n * (4 * d * d + _matrices(model) * d * h) + quadratic + 6 * d * d


def block_parameters(model: ModelSpec) -> int:
    """Trainable parameters of a block; 18 d^2 + 15 d for the published DiT block."""
    d, h = model.width, model.hidden
    if model.backbone == "rwkv":
        spatial, channel = 4 * d * d + 5 * d, d * d + 2 * d * h + 2 * d
        return spatial + channel + 6 * d * d + 6 * d
    if model.backbone == "mamba":
        e, r, s = _mamba(model)
        direction = 5 * e + e * (r + 2 * s) + (r * e + e) + e * s + e
        return 3 * d * e + 2 * direction + 3 * d * d + 3 * d
    hidden_biases = (_matrices(model) - 1) * h
    mlp = _matrices(model) * d * h + hidden_biases + d
    rms = model.norm == "rms"
    norms = 2 * d * rms + model.qk_norm * (d // model.heads) * (2 if rms else 4)
    return (4 * d * d + 4 * d) + mlp + (6 * d * d + 6 * d) + norms


def kept_bytes(model: ModelSpec, n: int, low: int) -> int:
    """Estimate of what a block keeps for the backward pass; matrix operands have `low` bytes.

    DiT: residual stream and normalised values are fp32 (4 d); two modulated inputs, qkv 3,
    attention output, two gated outputs (8 d) and the MLP's hidden layer before and after its
    activation (2 h; SwiGLU 4 h) are low.

    RWKV: residual, norms and the fp32 operands of Bi-WKV (9 d); mixed inputs, gates and outputs
    (14 d) and the hidden layer (2 h) are low.

    Mamba: residual and norm (2 d) and the scan's operands (8 e + 4 s) are fp32; maps in and out
    (10 e + 2 d) are low. The states themselves are computed again.
    """
    d, h = model.width, model.hidden
    if model.backbone == "rwkv":
        return n * (9 * d * FP32 + (14 * d + 2 * h) * low)
    if model.backbone == "mamba":
        e, _, s = _mamba(model)
        return n * ((2 * d + 8 * e + 4 * s) * FP32 + (10 * e + 2 * d) * low)
    wide = 4 if model.mlp == "swiglu" else 2
    return n * (4 * d * FP32 + (8 * d + wide * h) * low)


def _matrices(model: ModelSpec) -> int:
    """Maps of width d x h in the MLP."""
    return 3 if model.mlp == "swiglu" else 2


def _mamba(model: ModelSpec) -> tuple[int, int, int]:
    """(e, r, s): channels 2 d, rank of the steps ceil(d / 16), state."""
    return 2 * model.width, -(-model.width // 16), model.state
