"""Text to image: a frozen CLIP's tokens stand beside the image's, are never routed, and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.made_data import write_captioned
from tests.stand_ins import write_text_encoder
from tests.train.runs import CPU, differing, evaluate, last_checkpoint, train_until
from tread_lab import draws
from tread_lab.config import RunSpec, decode
from tread_lab.config.evaluation import SamplesSpec
from tread_lab.cost.training import cost
from tread_lab.data import open_data
from tread_lab.methods.text_to_image.captions import CaptionTokens, caption_tokens
from tread_lab.methods.text_to_image.text_encoder import text_encoder_digest
from tread_lab.records.run_folder import RunFolder
from tread_lab.routing import draw_routing
from tread_lab.train.assemble import fresh_network
from tread_lab.train.batches import Batches

N, T, E = 16, 8, 512  # tokens of an image and of a text, width of CLIP-base's
TEXTS = [("a dog", "a wet dog"), ("two cats",), ("an owl at night", "an owl", "a bird")]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("clip")
    write_text_encoder(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty latents with two captions each; two of them are held out."""
    folder = tmp_path_factory.mktemp("data")
    write_captioned(folder, 40)
    return folder


def run_of(data: Path, clip: Path, **changes: Any) -> RunSpec:
    tree = {
        "model": {"depth": 4, "width": 16, "heads": 2, "patch": 2},
        "data": {"source": "latents", "path": str(data), "channels": 4, "size": 8, "classes": 1},
        "captions": {"encoder": "clip-base", "tokens": T, "path": str(clip)},
        "train": {"steps": 4, "batch": 4, "lr": 1e-2, "ema": {"halflife": 0.02}},
        "routes": ["1->2"],
        "precision": "fp32",
        "execution": {"log_every": 1, "checkpoint_every": 100},
    }
    return decode(RunSpec, {**tree, **changes})


def last_hidden_states(clip: Path, texts: list[str]) -> Tensor:
    """What the model itself says in float64 of letters that this test numbers itself."""
    from transformers import CLIPTextModel

    rows = []
    for text in texts:
        ids = [0]
        for word in text.split():
            ids += [2 + ord(letter) - ord("a") for letter in word[:-1]]
            ids += [28 + ord(word[-1]) - ord("a")]
        rows.append([*ids[: T - 1], *[1] * T][:T])
    model = CLIPTextModel.from_pretrained(clip).double().eval()
    with torch.no_grad():
        states: Tensor = model(torch.tensor(rows)).last_hidden_state
    return states


def test_tokens_are_of_a_drawn_caption(clip: Path, tmp_path: Path) -> None:
    spec = decode(RunSpec, {"model": "DiT-S/2", "captions": "clip-base"}).captions
    assert spec is not None and (spec.tokens, spec.width) == (77, 512)
    short = {"encoder": "clip-base", "tokens": T, "path": str(clip)}
    spec = decode(RunSpec, {"model": "DiT-S/2", "captions": short}).captions
    assert spec is not None
    tokens = CaptionTokens(tmp_path, spec, TEXTS)
    assert [*tokens.fill(CPU)] == [7] and [*CaptionTokens(tmp_path, spec, TEXTS).fill(CPU)] == []
    expected = last_hidden_states(clip, [*(text for texts in TEXTS for text in texts), ""])
    ids_B, dropped_B = torch.arange(3).repeat(20), torch.arange(60) % 20 == 7
    drawn = tokens.drawn(ids_B, dropped_B, 0, 5)
    u_B = draws.uniform((60,), 0, 5, "caption")
    for b, sample in enumerate(ids_B.tolist()):
        row = [0, 2, 3][sample] + int(u_B[b] * len(TEXTS[sample]))
        np.testing.assert_allclose(drawn[b], expected[6 if dropped_B[b] else row], atol=2e-3)
    first = tokens.of(torch.tensor([2, 0, 3]))  # 3: no sample has this number
    np.testing.assert_allclose(first, expected[[3, 0, 6]], atol=2e-3)


@torch.no_grad()
@pytest.mark.parametrize("selection", ["random", "bernoulli"])
def test_only_image_tokens_are_routed(selection: str) -> None:
    spec = run_of(Path("data"), Path("clip"), routes=[f"1->2 by {selection}"])
    torch.manual_seed(0)
    network = fresh_network(spec)
    for p in network.parameters():  # zeroed modulations would hide every block
        p.copy_(0.2 * torch.randn_like(p))
    x, text = torch.randn(3, 4, 8, 8), torch.randn(3, T, E)
    t, routing = torch.rand(3), draw_routing(spec.routes, (3, N), "text")
    assert routing is not None
    streams: dict[int, Tensor] = {}
    found = network(x, t, text, routing, streams.__setitem__)

    mask_BN = routing[0].mask(N).bool()
    for b in range(3):  # one sample at a time, with the tokens that it keeps and no others
        row = slice(b, b + 1)
        h = network.x_embedder(x[row]) + network.pos_embed
        h = torch.cat([h, network.y_embedder.proj(text[row])], dim=1)
        c = network.t_embedder(t[row])
        runs = torch.cat([~mask_BN[b], torch.ones(T, dtype=torch.bool)])
        for l, block in enumerate(network.blocks):
            kept = runs if l in (1, 2) else torch.ones(N + T, dtype=torch.bool)
            h[:, kept] = block(h[:, kept], c)
            if l == 1 and selection == "random":
                torch.testing.assert_close(streams[1][b], h[0, :N][~mask_BN[b]])
        expected = network._unpatchify(network.final_layer(h[:, :N], c))
        torch.testing.assert_close(found[row], expected)
        torch.testing.assert_close(streams[3][b], h[0, :N])


def test_captioned_run_resumes_bitwise(clip: Path, data: Path, tmp_path: Path) -> None:
    spec = run_of(data, clip)
    train_until(spec, tmp_path / "runs" / "whole")
    train_until(spec, tmp_path / "runs" / "parts", 2)
    train_until(spec, tmp_path / "runs" / "parts")
    whole, parts = (RunFolder(tmp_path / "runs" / name) for name in ("whole", "parts"))
    last = last_checkpoint(whole)
    assert differing(whole, parts) == [] and last.step == last_checkpoint(parts).step == 4
    assert last.part("model")["y_embedder.proj.weight"].shape == (16, E)

    samples = open_data(spec.data, "train")
    batches = Batches(spec, samples)
    batches.condition = caption_tokens(spec.captions, samples, tmp_path / "cache").drawn  # type: ignore[arg-type]
    seen, plain = batches.at(3), Batches(run_of(data, clip, captions=None), samples).at(3)
    assert seen.y_B.shape == (4, T, E) and plain.y_B.shape == (4,)
    assert torch.equal(seen.x_BCHW, plain.x_BCHW) and torch.equal(seen.noise_BCHW, plain.noise_BCHW)


def test_images_are_of_held_out_captions(clip: Path, data: Path, tmp_path: Path) -> None:
    spec = run_of(data, clip)
    folder = RunFolder(tmp_path / "runs" / "run")
    folder.create(spec)
    train_until(spec, folder.path)
    tree = {"count": 6, "sampler": {"steps": 2, "guidance": 2.0}}
    guided = decode(SamplesSpec, tree)
    evaluate(folder, guided, CPU)
    place = folder.evaluation(guided)
    record = place.read()
    assert record is not None and record["captions"]["heldout"] == 2
    assert spec.captions is not None
    assert record["captions"]["encoder"] == text_encoder_digest(spec.captions)
    written = (place.path / "captions.jsonl").read_text().splitlines()
    with np.load(place.path / "samples.npz") as arrays:
        numbers, images = arrays["arr_1"], arrays["arr_0"]
    first = [texts[0] for texts in open_data(spec.data, "heldout").captions()]  # type: ignore[attr-defined]
    assert written == [f'{{"captions": ["{first[number]}"]}}' for number in numbers]
    again = decode(SamplesSpec, {**tree, "sampler": {"steps": 2, "guidance": 1.0}})
    evaluate(folder, again, CPU)
    with np.load(folder.evaluation(again).path / "samples.npz") as arrays:
        assert (arrays["arr_1"] == numbers).all() and (arrays["arr_0"] != images).any()


def test_b2_has_the_parameters_of_table_4() -> None:
    tree = {"model": "DiT-B/2", "captions": "clip-large"}
    latents = {"source": "latents", "channels": 4, "size": 32, "classes": 1}
    found = cost(decode(RunSpec, {**tree, "data": latents}))
    # 130,303,504 of the class-conditional one, less 1001 rows of 768, and a map of 768 x 768
    assert found.parameters == 130_303_504 - 1001 * 768 + 768 * 768 + 768 == 130_125_328
