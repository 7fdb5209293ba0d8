"""SPRINT's path-drop: kept in the dense finetune, and a branch of guidance at sampling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from tests.sampling.images import drawn
from tests.systems.test_bypasses import MODEL, woken
from tread_lab import draws
from tread_lab.data import open_data
from tread_lab.diffusion import EDM
from tread_lab.engine.batches import Batches
from tread_lab.engine.cost.sampling import call_macs
from tread_lab.engine.objective import token_loss
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import EDMSpec, GuidanceSpec, RunSpec, SamplerSpec, UserError, decode, encode
from tread_lab.specs.guidance import check_guidance, routes_taken
from tread_lab.specs.recipe import EnsembleLoss
from tread_lab.specs.signature import signature

PDG = {"weight": 3, "weak": {"path": "dropped"}}
SPRINT: dict[str, Any] = {"model": MODEL, "routes": ["2->B-3"], "bypass": "sprint"}


def sprint(**changes: Any) -> RunSpec:
    tree = {**SPRINT, "precision": "fp32", "train": {"steps": 8, "batch": 64}, **changes}
    return decode(RunSpec, tree)


def guidance(tree: Any) -> GuidanceSpec:
    return decode(GuidanceSpec, tree)


def parent() -> dict[str, Any]:
    return {"init_from": {"run": encode(sprint())}}


def test_an_old_record_of_a_finetune_reads_as_without_path_drop(tmp_path: Path) -> None:
    tree = encode(sprint(routes_until=0))
    del tree["bypass"]["dense_path_drop"]  # as versions wrote it that trained with 0
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(tree))
    assert encode(RunFolder(tmp_path).spec())["bypass"]["dense_path_drop"] == 0.0
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(encode(sprint())))
    assert RunFolder(tmp_path).spec() == sprint()


def test_only_runs_with_dense_steps_change_their_name() -> None:
    def bypass(run: RunSpec) -> dict[str, Any]:
        return dict(encode(run)["bypass"])

    always = {"kind": "sprint", "path_drop": 0.1, "mask_token": "learned"}
    assert bypass(sprint()) == always
    assert bypass(sprint(routes_until=0)) == {**always, "dense_path_drop": 0.1}
    never = sprint(routes_until=0, bypass={"kind": "sprint", "path_drop": 0})
    assert "dense_path_drop" not in bypass(never)
    bare = sprint(routes_until=0, bypass={"kind": "sprint", "dense_path_drop": 0})
    names = {signature(run) for run in (sprint(routes_until=0), bare, never)}
    assert len(names) == 3
    assert decode(RunSpec, encode(bare)) == bare


def test_a_dense_step_has_the_plain_loss_whatever_the_routes_had() -> None:
    finetune = sprint(routes_until=0, **parent())
    batch = Batches(finetune, open_data(finetune.data, "train")).at(0)
    level_B = torch.full((64,), 0.7)
    terms = EDM(EDMSpec()).loss_terms(lambda x, t: x, batch.x_BCHW, batch.noise_BCHW, level_B)
    found = token_loss(EnsembleLoss(form="code"), terms, batch.routing, patch=finetune.model.patch)
    assert torch.equal(found, terms.loss())


def by_hand(network: Any, z: Tensor, sigma: float, labels: Tensor, *, deep: bool) -> Tensor:
    """EDM's D of SPRINT's network, its second path replaced by the mask token unless `deep`."""
    scale = (sigma**2 + 0.25) ** 0.5
    x = network.x_embedder(z.float() / scale) + network.pos_embed
    c = network.t_embedder(torch.full((len(z),), sigma).log() / 4) + network.y_embedder(labels)
    first, middle, last = network.blocks[:2], network.blocks[2:4], network.blocks[4:]
    for block in first:
        x = block(x, c, None)
    other = x
    if deep:
        for block in middle:
            other = block(other, c, None)
    else:
        other = network.re_enter.mask_token.expand_as(x)
    x = torch.cat([other, x], dim=2) @ network.re_enter.linear.weight.T
    x = x + network.re_enter.linear.bias
    for block in last:
        x = block(x, c, None)
    out = network._unpatchify(network.final_layer(x, c))
    return 0.25 / (sigma**2 + 0.25) * z + sigma * 0.5 / scale * out.double()


@torch.no_grad()
def test_path_drop_guidance_agrees_with_its_formula() -> None:
    """D = D_dropped(null) + w (D(class) - D_dropped(null)); one Euler step from sigma ends at D."""
    spec, sigma = sprint(), 2.0
    network = woken(spec)
    sampler = decode(
        SamplerSpec, {"solver": "euler", "steps": 1, "sigma_max": sigma, "guidance": PDG, "seed": 5}
    )
    routes = routes_taken(spec, sampler.guidance)
    found, labels = drawn(network, sampler, 3, shape=(1, 16, 16), routes=routes, tokens=spec.tokens)
    noise = torch.stack([draws.normal((1, 16, 16), "image", seed) for seed in (5, 6, 7)])
    z = sigma * noise.double()
    strong = by_hand(network, z, sigma, labels, deep=True)
    weak = by_hand(network, z, sigma, torch.full_like(labels, 10), deep=False)
    assert torch.allclose(found.double(), weak + 3 * (strong - weak), atol=2e-4)
    assert not torch.allclose(found.double(), strong, atol=1e-2)


def test_the_weak_branch_runs_no_deep_block_and_costs_so_much_less() -> None:
    spec, N, d = sprint(), 64, 32
    one = 12 * N * d * d + 2 * N * N * d + 6 * d * d
    once = decode(SamplerSpec, {"solver": "euler", "steps": 1})
    with_drop = decode(SamplerSpec, {"solver": "euler", "steps": 1, "guidance": PDG})
    (full,), (both,) = call_macs(spec, once), call_macs(spec, with_drop)
    assert both == 2 * full - 2 * one


def test_a_network_of_one_path_has_none_to_drop() -> None:
    with pytest.raises(UserError, match="path: dropped needs a network of two paths"):
        check_guidance(sprint(bypass="route"), guidance(PDG))
    check_guidance(sprint(), guidance(PDG))


def test_what_is_dropped_has_no_rate() -> None:
    with pytest.raises(UserError, match="leaves no tokens for the rate"):
        guidance({"weight": 3, "weak": {"path": "dropped", "rate": 0.5}})
    with pytest.raises(UserError, match="'droped' is not one of full, dropped"):
        guidance({"weight": 3, "weak": {"path": "droped"}})
