"""The training objective: loss_B from a forward pass and the routing of its tokens."""

# B batch, N tokens, C channels, H height, W width, p patch side, P elements of a patch

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tread_lab.config.recipe import ContrastiveLoss, EnsembleLoss, Loss
from tread_lab.config.run import RunSpec
from tread_lab.diffusion import LossTerms, Process
from tread_lab.routing.run_blocks import Observer
from tread_lab.routing.select import BatchRoute, Routing
from tread_lab.train.batches import Batch
from tread_lab.train.joining import ForwardPass, Part


class Objective:
    """The loss of every sample of a batch, including the terms of all systems."""

    def __init__(self, spec: RunSpec, process: Process, parts: Sequence[Part] = ()) -> None:
        self.spec, self.process, self.parts = spec, process, parts

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """loss_B of the forward passes of `model`, called as model(x, t, y, routing, observe)."""
        streams: dict[int, Tensor] = {}
        observe = streams.__setitem__ if any(part.observes for part in self.parts) else None
        terms = self._terms(model, batch, batch.routing, observe)
        loss_B = token_loss(self.spec.loss, terms, batch.routing, patch=self.spec.model.patch)
        if isinstance(self.spec.loss, ContrastiveLoss):
            assert terms.velocity_BCHW is not None and batch.negative_BCHW is not None
            apart_BCHW = (terms.velocity_BCHW - batch.negative_BCHW).square()
            loss_B = loss_B - self.spec.loss.weight * apart_BCHW.mean(dim=(1, 2, 3))
        done = ForwardPass(batch, streams, lambda other: self._terms(model, batch, other, None))
        for part in self.parts:
            loss_B = part.loss(loss_B, done)
        return loss_B

    def _terms(
        self, model: nn.Module, batch: Batch, routing: Routing | None, observe: Observer | None
    ) -> LossTerms:
        """Return what one forward pass under `routing` says about the batch."""

        def network(x_BCHW: Tensor, t_B: Tensor) -> Tensor:
            return model(x_BCHW, t_B, batch.y_B, routing, observe)

        level_B = self.process.level(batch.u_B)
        return self.process.loss_terms(network, batch.x_BCHW, batch.noise_BCHW, level_B)


def token_loss(spec: Loss, terms: LossTerms, routing: Routing | None, *, patch: int) -> Tensor:
    """Return loss_B of `terms`: plain over all tokens, or the ensemble over `routing`.

    A pass without routes has the plain loss.
    """
    N = terms.clean_BCHW[0, 0].numel() // patch**2
    routes = [route for route in routing or () if not route.whole(N)]
    if not routes or not isinstance(spec, EnsembleLoss):
        return terms.loss()
    return torch.stack([_route_loss(spec, terms, route, patch) for route in routes]).mean(dim=0)


def patches(x_BCHW: Tensor, p: int) -> Tensor:
    """Return x_BNP: patches in raster order, the order of tokens."""
    B, C, H, W = x_BCHW.shape
    x = x_BCHW.view(B, C, H // p, p, W // p, p)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(B, (H // p) * (W // p), C * p * p)


def _route_loss(spec: EnsembleLoss, terms: LossTerms, route: BatchRoute, p: int) -> Tensor:
    """L_dsm + lambda L_mae of one route (TREAD v1); m_BN is 1 where a token is routed."""
    dsm_BN, mae_BN = _dsm(spec, terms, p), _mae(spec, terms, p)
    m_BN = route.mask(dsm_BN.shape[1])
    dsm_B, mae_B = ((1 - m_BN) * dsm_BN).sum(dim=1), (m_BN * mae_BN).sum(dim=1)
    if spec.form == "equation":
        return (dsm_B + spec.weight * mae_B) / m_BN.shape[1]
    routed_B = m_BN.sum(dim=1)
    mae_B = mae_B / routed_B.clamp(min=1)  # a Bernoulli draw may route no token
    return dsm_B / (m_BN.shape[1] - routed_B) + spec.weight * mae_B


def _dsm(spec: EnsembleLoss, terms: LossTerms, p: int) -> Tensor:
    """Return the denoising error of every patch, a mean over its elements."""
    if spec.noise_weight == "none":
        return _error(terms.denoised_BCHW, terms.clean_BCHW, p)
    return terms.weight_B[:, None] * patches(terms.error_BCHW, p).mean(dim=2)


def _mae(spec: EnsembleLoss, terms: LossTerms, p: int) -> Tensor:
    """Return the reconstruction error of every patch, a mean over its elements."""
    weight_B1 = terms.weight_B[:, None] if spec.noise_weight == "both" else 1.0
    if spec.form == "equation":
        return weight_B1 * _error(terms.denoised_BCHW, terms.clean_BCHW, p)
    target_BNP = patches(terms.noisy_BCHW, p)
    variance_BN1 = target_BNP.var(dim=2, keepdim=True) + 1e-6  # unbiased, as in the first code
    target_BNP = (target_BNP - target_BNP.mean(dim=2, keepdim=True)) / variance_BN1.sqrt()
    return weight_B1 * (patches(terms.denoised_BCHW, p) - target_BNP).square().mean(dim=2)


def _error(a_BCHW: Tensor, b_BCHW: Tensor, p: int) -> Tensor:
    return patches((a_BCHW - b_BCHW).square(), p).mean(dim=2)
