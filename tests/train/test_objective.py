"""Claims about losses: plain, and v1's ensemble in both forms against a reference with loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.train.runs import small_run
from tread_lab.config import EDMSpec, EnsembleLoss, PlainLoss, RouteSpec, decode
from tread_lab.config.errors import UserError
from tread_lab.data.source import open_data
from tread_lab.diffusion import EDM, LossTerms, build_process
from tread_lab.routing import BatchRoute, Routing, draw_routing
from tread_lab.train.batches import Batches
from tread_lab.train.objective import Objective, token_loss

B, C, SIDE, P = 3, 2, 8, 2
N = (SIDE // P) ** 2


def loss_terms() -> LossTerms:
    torch.manual_seed(0)
    x, noise, level = (
        torch.randn(B, C, SIDE, SIDE),
        torch.randn(B, C, SIDE, SIDE),
        torch.rand(B) + 0.2,
    )
    return EDM(EDMSpec()).loss_terms(lambda z, t: torch.tanh(z), x, noise, level)


def routing_of(*routes: str) -> Routing:
    specs = [replace(decode(RouteSpec, route), rate=0.4).resolved(12) for route in routes]
    routing = draw_routing(specs, (B, N), "objective")
    assert routing is not None
    return routing


def patch(x_CHW: Tensor, n: int) -> Tensor:
    row, column = divmod(n, SIDE // P)
    return x_CHW[:, row * P : (row + 1) * P, column * P : (column + 1) * P].reshape(-1)


def reference(seen: LossTerms, routing: Routing, form: str, weight: float, noise: str) -> Tensor:
    """Sample by sample, route by route, patch by patch, as paper and first code say it."""
    losses = []
    for b in range(B):
        sigma_weight, total = float(seen.weight_B[b]), 0.0
        for leg in routing:
            real_K = slice(None) if leg.real_BK is None else leg.real_BK[b]
            kept = set(leg.keep_BK[b, real_K].tolist())
            dsm, mae = [], []
            for n in range(N):
                D, x0 = patch(seen.denoised_BCHW[b], n), patch(seen.clean_BCHW[b], n)
                error = float((D - x0).square().mean())
                if n in kept:
                    dsm.append(error * (1 if noise == "none" else sigma_weight))
                    continue
                target = x0
                if form == "code":
                    z = patch(seen.noisy_BCHW[b], n)
                    target = (z - z.mean()) / (z.var() + 1e-6) ** 0.5
                again = float((D - target).square().mean())
                mae.append(again * (sigma_weight if noise == "both" else 1))
            if form == "equation":
                total += (sum(dsm) + weight * sum(mae)) / N
            else:
                total += sum(dsm) / len(dsm) + weight * sum(mae) / len(mae)
        losses.append(total / len(routing))
    return torch.tensor(losses)


@pytest.mark.parametrize("noise", ["dsm", "both", "none"])
@pytest.mark.parametrize("weight", [0.0, 0.1])
@pytest.mark.parametrize("form", ["equation", "code"])
@pytest.mark.parametrize("routes", [("0->8",), ("0->4", "6->9"), ("0->8 by bernoulli",)])
def test_ensemble_agrees_with_a_reference(
    routes: tuple[str, ...], form: str, weight: float, noise: str
) -> None:
    seen, routing = loss_terms(), routing_of(*routes)
    spec = EnsembleLoss(form=form, weight=weight, noise_weight=noise)  # type: ignore[arg-type]
    found = token_loss(spec, seen, routing, patch=P)
    assert torch.allclose(found, reference(seen, routing, form, weight, noise), rtol=1e-5)


def test_plain_loss_is_the_process_loss() -> None:
    seen = loss_terms()
    expected = seen.weight_B * (seen.denoised_BCHW - seen.clean_BCHW).square().mean(dim=(1, 2, 3))
    assert torch.equal(token_loss(PlainLoss(), seen, routing_of("0->8"), patch=P), expected)
    whole = (BatchRoute(0, 8, torch.arange(N).expand(B, N)),)  # of a dense step with path-drop
    for routing in (None, whole):
        assert torch.equal(token_loss(EnsembleLoss(), seen, routing, patch=P), expected)


def test_sample_without_routed_tokens_is_plain() -> None:
    seen, keep_BN = loss_terms(), torch.arange(N).expand(B, N)
    real_BN = torch.ones(B, N, dtype=torch.bool)
    real_BN[1:, -1] = False  # sample 0 alone keeps all its tokens
    leg = BatchRoute(0, 8, keep_BN, real_BN)
    found = token_loss(EnsembleLoss(form="code", weight=0.1), seen, (leg,), patch=P)
    assert found.isfinite().all()
    assert torch.allclose(found[0], seen.loss()[0], rtol=1e-6)


def test_contrastive_negatives_are_of_the_global_batch() -> None:
    """|v - u|^2 - 0.05 |v - u'|^2 with the next sample's u', whatever the micro-batches."""
    flow = {"process": {"kind": "flow"}, "loss": "contrastive"}
    spec = small_run(routes=[], **flow)
    batch, process = Batches(spec, open_data(spec.data, "train")).at(0), build_process(spec.process)
    network = lambda x, t, *_: torch.tanh(x) + t[:, None, None, None]  # noqa: E731
    objective = Objective(spec, process)
    parts = [objective(network, batch.rows(slice(k, k + 3))) for k in (0, 3, 6)]  # type: ignore[arg-type]
    u = batch.noise_BCHW - batch.x_BCHW
    t_B = process.level(batch.u_B)
    v = network(process.noisy(batch.x_BCHW, batch.noise_BCHW, t_B), t_B)
    expected = [
        (v[k] - u[k]).square().mean() - 0.05 * (v[k] - u[(k + 1) % 8]).square().mean()
        for k in range(8)
    ]
    torch.testing.assert_close(torch.cat(parts), torch.stack(expected))
    for wrong in ({"process": {"kind": "edm"}}, {"train": {"batch": 1}}):
        with pytest.raises(UserError, match="loss: contrastive requires a flow and a batch of 2"):
            small_run(**{**flow, **wrong})
