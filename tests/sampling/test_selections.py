"""Sparse guidance under every selection: one batched pass, cost that is defined, no torn scans."""

from __future__ import annotations

import pytest
import torch

from tread_lab.diffusion import build_process
from tread_lab.engine.assemble import build_network
from tread_lab.engine.cost.sampling import sample_flops
from tread_lab.sampling.guidance import Branch, predictions
from tread_lab.sampling.image_routes import ImageRoutes
from tread_lab.specs import DataSpec, RunSpec, SamplerSpec, UserError, decode
from tread_lab.specs.guidance import routes_taken

DATA = DataSpec(source="latents", channels=2, size=8, classes=5)
SELECTIONS = [("DiT-4x16x2/1", s) for s in ("random", "rows", "structured", "bernoulli")]
SELECTIONS += [("RWKV-4x16/1", "rows"), ("Mamba-4x16/1", "rows")]


def run(model: str, selection: str) -> RunSpec:
    route = {"start": 1, "end": 2, "selection": selection}
    tree = {"model": model, "routes": [route], "data": DATA}
    spec = decode(RunSpec, tree)
    return decode(RunSpec, {**tree, "model": {**vars(spec.model), "init": "official_code"}})


@pytest.mark.parametrize(("model", "selection"), SELECTIONS)
@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.25, 0.75)])
def test_branches_together_are_branches_alone(
    model: str, selection: str, rates: tuple[float, float]
) -> None:
    spec = run(model, selection)
    network = build_network(spec).requires_grad_(False)
    process, images = (
        build_process(spec.process),
        ImageRoutes(spec.routes, spec.tokens, range(3), torch.device("cpu")),
    )
    z, level_B = torch.randn(3, 2, 8, 8), torch.full((3,), 0.7)
    labels = (torch.tensor([0, 1, 2]), torch.full((3,), 5))
    branches = [Branch(1.0, network, y, images.routing(r, 0)) for y, r in zip(labels, rates)]
    for branch, out in zip(branches, predictions(process, branches, z, level_B)):
        (alone,) = predictions(process, [branch], z, level_B)
        torch.testing.assert_close(out, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("model", "selection"), SELECTIONS)
def test_a_rate_that_fades_to_nothing_has_a_cost(model: str, selection: str) -> None:
    """On the way to 0 a rate routes less than one row: those calls are dense."""
    guidance = {"weight": 2, "strong": {"rate": 0}, "weak": {"rate": "0.6->0"}}
    sampler = decode(SamplerSpec, {"steps": 12, "guidance": guidance})
    spec = run(model, selection)
    assert 0 < sample_flops(spec, sampler) < 2 * 2 * (2 * 12 - 1) * 10**9


def test_a_scan_keeps_its_rows_at_inference() -> None:
    spec = decode(RunSpec, {"model": "RWKV-4x16/1", "data": DATA})
    guidance = {"weight": 2, "weak": {"rate": 0.5}, "routes": ["1->2"]}
    sampler = decode(SamplerSpec, {"guidance": guidance})
    with pytest.raises(UserError, match=r"guidance: routes\[0\].selection: random tears the rows"):
        routes_taken(spec, sampler.guidance)
