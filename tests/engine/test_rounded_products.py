"""bf16 products by fp32 kernels: the numbers of torch's own to the last place, and in fp64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engine.runs import CPU, small_run
from tread_lab.engine import precision, rounded_products
from tread_lab.engine.precision import autocast
from tread_lab.engine.provenance import made_with
from tread_lab.engine.rounded_products import ATTENTION, RoundedProducts, multiplies_bf16

PLACE = 2.0**-8  # half of bf16's last place, relative to the number


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]


def cast(x: Tensor) -> Tensor:
    """The nearest bf16 numbers in fp64."""
    return x.detach().bfloat16().double()


def test_a_linear_map_and_its_gradients_are_rounded_products() -> None:
    x, w, b = tensors((5, 7, 24), (9, 24), (9,))
    with torch.autocast("cpu", torch.bfloat16), RoundedProducts():
        y = F.linear(x, w, b)
    assert y.dtype == torch.bfloat16
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(4)).bfloat16()
    y.backward(g)
    X, W, B, G = (cast(t).flatten(0, -2) if t.ndim > 1 else cast(t) for t in (x, w, b, g))
    for got, exact in (
        (y, X @ W.T + B),
        (x.grad, G @ W),
        (w.grad, G.T @ X),
        (b.grad, G.sum(0)),
    ):
        assert got is not None
        torch.testing.assert_close(got.double().view_as(exact), exact, rtol=PLACE, atol=1e-5)


def test_attention_is_that_of_rounded_queries_keys_and_values() -> None:
    parts = tensors(*[(2, 3, 10, 8)] * 3)
    bias, seen = torch.randn(10, 10), torch.ones(10, 10).tril().bool()
    q, k, v = (cast(t) for t in parts)
    logits = q @ k.mT / 8**0.5
    expected = {
        None: logits,
        "bias": logits + cast(bias),
        "mask": logits.masked_fill(~seen, float("-inf")),
    }
    for kind, mask in ((None, None), ("bias", bias), ("mask", seen)):
        with torch.autocast("cpu", torch.bfloat16), RoundedProducts():
            out = F.scaled_dot_product_attention(*parts, attn_mask=mask)
        exact = expected[kind].softmax(dim=-1) @ v
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.double(), exact, rtol=PLACE, atol=1e-6)


def test_it_is_torchs_own_autocast_up_to_the_order_of_sums() -> None:
    grads = []
    for mode in (RoundedProducts(), torch.enable_grad()):
        x, w, b = tensors((64, 48), (96, 48), (96,))
        with torch.autocast("cpu", torch.bfloat16), mode:
            F.linear(x, w, b).float().square().sum().backward()
        grads.append((x.grad, w.grad, b.grad))
    for ours, theirs in zip(*grads):
        assert ours is not None and theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=2 * PLACE, atol=1e-3 * float(theirs.std()))


def test_nothing_is_rounded_outside_autocast() -> None:
    x, w = tensors((5, 24), (9, 24))
    with RoundedProducts():
        assert torch.equal(F.linear(x, w), x @ w.T)
    with (
        torch.autocast("cpu", torch.bfloat16),
        RoundedProducts(),
        torch.autocast("cpu", enabled=False),
    ):
        assert torch.equal(F.linear(x, w), x @ w.T)


@pytest.mark.parametrize(
    ("own", "rounded"), [(False, [("linear", "attention")]), (True, [("attention",)])]
)
def test_a_cpu_with_bf16_units_uses_them_but_for_attention(
    own: bool, rounded: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's bf16 attention is slow backwards with and without units."""
    monkeypatch.setattr(precision, "multiplies_bf16", lambda: own)
    names = {"linear": F.linear, "attention": F.scaled_dot_product_attention}
    entered = []

    def enter(mode: RoundedProducts) -> None:
        entered.append(tuple(name for name, f in names.items() if f in mode.products))

    monkeypatch.setattr(RoundedProducts, "__enter__", enter)
    monkeypatch.setattr(RoundedProducts, "__exit__", lambda *args: None)
    for kind in ("bf16", "fp32", "fp16"):
        with autocast(kind, CPU):
            pass
    assert entered == rounded


def test_attention_alone_is_rounded_where_linear_maps_have_units() -> None:
    x, w = tensors((5, 24), (9, 24))
    q, k, v = tensors(*[(2, 3, 10, 8)] * 3)
    with torch.autocast("cpu", torch.bfloat16):
        native = F.linear(x, w)
        with RoundedProducts(ATTENTION):
            mixed, attended = F.linear(x, w), F.scaled_dot_product_attention(q, k, v)
    assert torch.equal(mixed, native)
    Q, K, V = (cast(t).float() for t in (q, k, v))
    assert torch.equal(attended, F.scaled_dot_product_attention(Q, K, V).bfloat16())


def test_what_makes_the_products_is_part_of_provenance(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for own in (False, True):
        monkeypatch.setattr(precision, "multiplies_bf16", lambda own=own: own)
        for kind in ("fp32", "bf16"):
            made = made_with(small_run(precision=kind), "cpu")
            found[own, kind] = made.get("products in bf16")
    assert found == {
        (False, "fp32"): None,
        (False, "bf16"): "rounded operands, fp32 kernels",
        (True, "fp32"): None,
        (True, "bf16"): "bf16 kernels, attention of rounded operands by fp32 kernels",
    }
    monkeypatch.setattr(precision, "multiplies_bf16", lambda: False)
    on_a_gpu = made_with(small_run(precision="bf16"), "cuda")
    assert on_a_gpu["products in bf16"] == "bf16 kernels"


def test_units_are_known_by_the_cpus_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, own in (
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_tile": True}, True),
        ({"neon": True, "bf16": True}, True),
    ):
        multiplies_bf16.cache_clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda c=capabilities: c)
        assert rounded_products.multiplies_bf16() is own
    multiplies_bf16.cache_clear()
