"""Claims about REPA: only tokens that ran the block are aligned; the projector stays outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.sweep.plans import tiny
from tests.train.runs import CPU, differing, last_checkpoint, train_until
from tread_lab.config import DataSpec, RouteSpec, RunSpec, UserError, decode
from tread_lab.cost.training import cost
from tread_lab.data import open_data
from tread_lab.evaluate.pretrained import weights_digest
from tread_lab.methods.repa.alignment import (
    GridProjector,
    Projector,
    alignment_loss,
    fresh_projector,
)
from tread_lab.methods.repa.encoder import (
    encoder_digest,
    open_encoder,
    target_images,
)
from tread_lab.methods.repa.spec import RepaSpec
from tread_lab.records.run_folder import RunFolder
from tread_lab.routing import draw_routing, run_blocks
from tread_lab.train.assemble import fresh_network, trained
from tread_lab.train.provenance import fingerprint

REPA = {"encoder": "fashion16-v1", "block": 2, "hidden": 24}
B, N, D, E = 3, 16, 8, 5
SEEN: tuple[Any, ...] = ("image", "decoded")


def features(x_BCHW: Tensor) -> Tensor:
    """An encoder whose features say which place they are of."""
    places = torch.arange(N).float()
    return torch.stack([torch.sin((k + 1) * (places + 1)) for k in range(E)], dim=1).expand(
        B, -1, -1
    )


@torch.no_grad()
@pytest.mark.parametrize("selection", ["random", "bernoulli", "importance"])
@pytest.mark.parametrize("block", [0, 1, 2, 3, 4])
def test_loss_is_mean_cosine_of_run_tokens(block: int, selection: Any) -> None:
    torch.manual_seed(0)
    x, c, projector = torch.randn(B, N, D), torch.zeros(B, D), Projector(D, 7, E)
    route = RouteSpec(start=1, end=3, rate=0.5, selection=selection).resolved(6)
    routing = draw_routing([route], (B, N), "repa")
    assert routing is not None
    leg = routing[0]
    real_BK = torch.ones_like(leg.keep_BK) if leg.real_BK is None else leg.real_BK
    ran: dict[int, Tensor] = {}

    def block_of(l: int) -> Callable[..., Tensor]:
        def run(h: Tensor, *_: Any) -> Tensor:
            ran[l] = torch.tanh(h * (l + 2))
            return ran[l]

        return run

    streams: dict[int, Tensor] = {}
    run_blocks([block_of(l) for l in range(6)], x, c, routing=routing, observe=streams.__setitem__)
    spec = RepaSpec(encoder="fashion16-v1", block=block, weight=0.5)
    found = alignment_loss(spec, projector, streams, features(x), routing)
    for b in range(B):
        places = leg.keep_BK[b].tolist() if 1 <= block <= 3 else range(N)
        cosines = [
            F.cosine_similarity(projector(ran[block][b, k]), features(x)[b, n], dim=0)
            for k, n in enumerate(places)
            if not 1 <= block <= 3 or real_BK[b, k]
        ]
        assert found[b].item() == pytest.approx(-0.5 * torch.stack(cosines).mean().item(), rel=1e-5)


@torch.no_grad()
def test_irepa_is_the_published_convolution_and_norm() -> None:
    """Against a convolution written as sums over neighbours, and z-scores with a mean times 0.6."""
    torch.manual_seed(0)
    h_BND, f_BNE = torch.randn(B, N, D), 3 + torch.randn(B, N, E)
    projector, side = GridProjector(D, E), 4
    padded = F.pad(h_BND.view(B, side, side, D), (0, 0, 1, 1, 1, 1))
    expected = projector.bias + sum(
        padded[:, y : y + side, x : x + side] @ projector.weight[:, :, y, x].T
        for y in range(3)
        for x in range(3)
    )
    torch.testing.assert_close(projector(h_BND), expected.view(B, N, E), atol=1e-5, rtol=0)
    scores = (f_BNE - 0.6 * f_BNE.mean(1, keepdim=True)) / (f_BNE.std(1, keepdim=True) + 1e-6)
    cosine = F.cosine_similarity(expected.view(B, N, E), scores, dim=2).mean(1)
    spec = RepaSpec(encoder="fashion16-v1", block=0, projector="conv", spatial_norm=0.6)
    found = alignment_loss(spec, projector, {0: h_BND}, f_BNE, None)
    torch.testing.assert_close(found, -0.5 * cosine)


def test_convolution_requires_a_whole_grid(tmp_path: Path) -> None:
    irepa = {"encoder": "fashion16-v1", "projector": "conv", "spatial_norm": 0.6}
    with pytest.raises(UserError, match="must be mlp for a block inside a route"):
        tiny(routes=["1->2"], repa={**irepa, "block": 1})
    spec = tiny(steps=2, routes=["1->2"], repa={**irepa, "block": 2})  # where the route ends
    train_until(spec, tmp_path)
    weights = fresh_projector(spec).state_dict().values()
    assert cost(spec).auxiliary == sum(weight.numel() for weight in weights)


def test_projector_is_trained_resumed_not_sampled(tmp_path: Path) -> None:
    spec = tiny(steps=20, routes=["1->2"], repa=REPA)
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    train_until(spec, whole.path)
    train_until(spec, parts.path, 7)
    train_until(spec, parts.path)
    assert differing(whole, parts) == []
    projector, fresh = last_checkpoint(whole).part("projector"), fresh_projector(spec).state_dict()
    assert all(not torch.equal(projector[name], fresh[name]) for name in fresh)
    whole.create(spec)
    network = trained(whole, CPU).network
    assert not any("projector" in name for name in network.state_dict())
    assert cost(spec).auxiliary == sum(weight.numel() for weight in fresh.values())
    assert (
        cost(spec).parameters == sum(p.numel() for p in fresh_network(spec).parameters()) - 64 * 16
    )


def test_the_shipped_encoder_sees_the_right_places() -> None:
    spec = RepaSpec(encoder="fashion16-v1")
    samples = open_data(DataSpec(), "train")
    encoder = open_encoder(spec, samples, CPU, side=8)
    x = samples.pixels(samples.take(torch.arange(2))[0])
    moved = x.clone()
    moved[:, :, 12:, 12:] += 128  # the last quarter of a quarter: tokens of the last two rows
    change = (encoder(moved) - encoder(x)).abs().sum(2)
    assert encoder(x).shape == (2, 64, spec.features)
    assert change.view(2, 8, 8)[:, 7, 7].min() > 0 and change.view(2, 8, 8)[:, :4, :4].max() == 0
    assert open_encoder(spec, samples, CPU, side=4)(x).shape == (2, 16, spec.features)
    for target in SEEN:
        asked = replace(spec, target=target)
        assert torch.equal(target_images(asked, samples, torch.arange(2), CPU), x)


def patch_tokens(folder: Path, images_BCHW: Tensor, side: int) -> Tensor:
    """What transformers' own network says in float64 of images normalised and enlarged to 14 pixels
    a token, without antialias or clamp; its table of positions is resampled with antialias."""
    from transformers import Dinov2Model

    model = Dinov2Model.from_pretrained(folder).double().eval()
    embeddings, options = model.embeddings, {"mode": "bicubic", "align_corners": False}
    table = embeddings.position_embeddings.detach()
    old = round((table.shape[1] - 1) ** 0.5)
    grid = table[:, 1:].mT.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(side, side), antialias=True, **options)
    places = torch.cat([table[:, :1], grid.flatten(2).mT], dim=1)
    embeddings.position_embeddings = torch.nn.Parameter(places)
    mean, deviation = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])  # of ImageNet
    of_channel = [torch.tensor(x).double()[:, None, None] for x in (mean, deviation)]
    x_BCHW = (images_BCHW.double() / 255 - of_channel[0]) / of_channel[1]
    x_BCHW = F.interpolate(x_BCHW, size=(14 * side, 14 * side), **options)
    with torch.no_grad():
        tokens: Tensor = model(x_BCHW).last_hidden_state[:, 1:]
    return tokens.float()


def test_local_dinov2_gives_its_own_features(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6, "patch_size": 14}
    transformers.Dinov2Model(transformers.Dinov2Config(**shape)).save_pretrained(tmp_path)
    samples = open_data(DataSpec(), "train")
    x = samples.pixels(samples.take(torch.arange(2))[0])
    small = RepaSpec(encoder="dinov2-small", path=str(tmp_path))
    for side in (8, 1):  # an image is enlarged to 112 pixels, or made smaller, to 14
        found = open_encoder(small, samples, CPU, side=side)(x)
        expected = patch_tokens(tmp_path, x, side)
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    assert encoder_digest(small) == weights_digest(tmp_path)
    for where, digest in ((str(tmp_path), weights_digest(tmp_path)), ("hub/id", "hub/id")):
        run = decode(RunSpec, {"model": "DiT-4x16x2/2", "repa": {"path": where}})
        assert fingerprint(run, "cpu")["weights repa dinov2-base"] == digest
    with pytest.raises(UserError, match="width must be 768, got 384"):
        open_encoder(RepaSpec(encoder="dinov2-base", path=str(tmp_path)), samples, CPU, side=8)


SHAPE = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("DINOv3ViT", {"patch_size": 16}),  # rotary positions and registers
        ("ViT", {"patch_size": 8, "image_size": 24}),
        ("CLIPVision", {"patch_size": 8, "image_size": 24}),
        ("SiglipVision", {"patch_size": 8, "image_size": 24}),  # no class token
    ],
)
def test_encoder_by_id_gives_its_patch_tokens(
    kind: str, own: dict[str, Any], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, f"{kind}Model")(
        getattr(transformers, f"{kind}Config")(**SHAPE, **own, intermediate_size=48)
    ).eval()
    model.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(image_mean=[0.4] * 3, image_std=[0.2] * 3).save_pretrained(
        tmp_path
    )
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    size = 4 * own["patch_size"]
    x_BCHW = F.interpolate((images / 255 - 0.4) / 0.2, size=(size, size), mode="bicubic")
    moves = {} if kind == "DINOv3ViT" else {"interpolate_pos_encoding": True}
    with torch.no_grad():
        expected = model(x_BCHW, **moves).last_hidden_state[:, -16:]
    spec = RepaSpec(encoder="some/encoder", width=24, path=str(tmp_path))
    found = open_encoder(spec, open_data(DataSpec(), "train"), CPU, side=4)(images)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_encoder_by_id_is_refused_in_one_line(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    samples = open_data(DataSpec(), "train")
    spec = RepaSpec(encoder=str(tmp_path), width=24)
    with pytest.raises(UserError, match=r"must contain a readable config\.json"):
        open_encoder(spec, samples, CPU, side=4)
    config = transformers.BertConfig(**SHAPE, intermediate_size=48, vocab_size=9)
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="must have a patch token for each place, got bert"):
        open_encoder(spec, samples, CPU, side=4)
    with pytest.raises(UserError, match="got None for some/encoder"):
        RepaSpec(encoder="some/encoder")


def test_projector_starts_as_published() -> None:
    torch.manual_seed(0)
    projector = Projector(1152, 2048, 768)
    stds = [float(projector[k].weight.detach().std()) for k in (0, 2, 4)]
    bound = [(2 / (1152 + 2048)) ** 0.5, (2 / 4096) ** 0.5, (2 / (2048 + 768)) ** 0.5]
    assert stds == pytest.approx(bound, rel=0.01)  # .0250, .0221, .0267
    assert all(torch.count_nonzero(projector[k].bias) == 0 for k in (0, 2, 4))


@pytest.mark.parametrize(("depth", "block"), [(12, 3), (24, 7), (28, 7), (2, 1)])
def test_aligned_block_is_repas_by_default(depth: int, block: int) -> None:
    model = {"depth": depth, "width": 16, "heads": 2}
    spec = decode(RunSpec, {"model": model, "repa": {"encoder": "fashion16-v1"}})
    assert spec.repa is not None and spec.repa.block == block
