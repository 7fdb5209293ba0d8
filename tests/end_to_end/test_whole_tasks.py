"""Whole tasks: each is trained, stopped, gone on with, measured at two steps under guidance,
exported, and measured again from its export."""

from __future__ import annotations

import gc
import json
import math
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.data.conftest import members, write_tar
from tests.data.test_folder import names, write_folder
from tests.end_to_end.test_data import small_inception
from tests.made_data import write_captioned
from tests.stand_ins import SCALE, write_autoencoder, write_images, write_text_encoder
from tread_lab import hardware as devices
from tread_lab.cli.main import main
from tread_lab.data.content import sha256
from tread_lab.diffusion import generate
from tread_lab.evaluate import fidelity, references
from tread_lab.evaluate.extraction import SPACES
from tread_lab.records.durable import LogWriter
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_ROUTE, HELDOUT_LOSS, HELDOUT_ROUTED, SIMILARITY
from tread_lab.records.run_folder import RunFolder
from tread_lab.train import device, precision, trainer

STEPS, STOP = 10, 5
COUNT = 40  # samples of each data set
PROBE = {"images": 2, "levels": 2}

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

BACKBONES: dict[str, Any] = {
    "dit": {"backbone": "dit", "heads": 2},
    "lightning": {"norm": "rms", "mlp": "swiglu", "rope": True, "heads": 2},
    "rwkv": {"backbone": "rwkv"},
    "mamba": {"backbone": "mamba", "state": 4},
}
BYPASSES: dict[str, Any] = {
    "route": ({"kind": "route"}, ["1->2"]),
    "v1_sum": ({"kind": "route", "re_entry": "v1_sum"}, ["0->0", "2->2"]),
    "mask": ({"kind": "mask", "depth": 1, "width": 8, "heads": 2}, ["0->B-1"]),
    "mdt": ({"kind": "mdt"}, ["0->1"]),
    "sprint": ({"kind": "sprint", "path_drop": 0.25}, ["1->2"]),
}
LOSSES: dict[str, Any] = {
    "plain": {"loss": "plain"},
    "ensemble": {"loss": {"kind": "ensemble", "form": "code"}},
    "both": {"loss": "both"},
    "discrimination": {
        "loss": {"kind": "discrimination", "prototypes": 6, "hidden": 8, "bottleneck": 4}
    },
    "repa": {"repa": {"encoder": "fashion16-v1", "block": 1, "hidden": 8}},
}
EXECUTIONS: dict[str, Any] = {
    "launched": {"deterministic": True},
    "micro-batches": {"micro_batch": 3},
    "compiled": {"compile": "blocks", "micro_batch": 4},
}
ROUTED: dict[str, Any] = {
    "all": {},
    "first": {"routes_until": STOP - 1},
    "last": {"routes_from": STOP - 1},
}
NAMES = (
    *("backbone", "bypass", "loss", "process", "selection"),
    *("precision", "data", "execution", "routed steps"),
)
TASKS = [  # every setting at least once
    dict(zip(NAMES, row.split()))
    for row in """
dit       route  plain          edm  random     fp32 fashion16   launched      all
lightning sprint repa           flow structured bf16 fashion16   compiled      first
rwkv      mask   ensemble       ddpm rows       fp16 latents     micro-batches last
mamba     v1_sum plain          edm  rows       bf16 shards      launched      first
dit       mdt    both           edm  bernoulli  tf32 folder      micro-batches all
dit       route  ensemble       flow random     bf16 captions    compiled      all
lightning mask   discrimination edm  random     fp32 safetensors launched      first
dit       sprint both           ddpm structured fp16 images      compiled      last
mamba     sprint ensemble       flow rows       fp32 latents     compiled      all
""".strip().splitlines()
]
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def run_tree(task: Mapping[str, str], data: Mapping[str, Any]) -> dict[str, Any]:
    """The run of a task: width 32, depth 4, 16 tokens, ten steps."""
    bypass, routes = BYPASSES[task["bypass"]]
    patch = 4 if data["size"] == 16 else 2
    return {
        "model": {"depth": 4, "width": 32, "patch": patch, **BACKBONES[task["backbone"]]},
        "process": task["process"],
        "bypass": bypass,
        "routes": [f"{route} by {task['selection']}" for route in routes],
        "precision": task["precision"],
        "train": {"steps": STEPS, "batch": 8, "lr": 1e-3, "ema": {"halflife": 0.3}},
        "execution": {"log_every": 1, "checkpoint_every": 2, **EXECUTIONS[task["execution"]]},
        **LOSSES[task["loss"]],
        **ROUTED[task["routed steps"]],
    }


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The data of every layout, and what decodes, encodes and measures them."""
    pytest.importorskip("diffusers")
    pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    labels = np.arange(COUNT) % 7
    latents = rng.normal(size=(COUNT, 4, 8, 8)).astype(np.float16)
    deviations = np.full_like(latents, 0.05)
    images = rng.integers(0, 256, (COUNT, 3, 16, 16), np.uint8)
    write_images(root / "pictures", 100)
    write_autoencoder(root / "vae")
    write_text_encoder(root / "clip")
    write_captioned(root / "captions", COUNT)
    (root / "latents").mkdir()
    np.save(root / "latents" / "moments.npy", np.concatenate([latents, deviations], axis=1))
    np.save(root / "latents" / "labels.npy", labels)
    write_folder(root / "images", names("img", ".png", COUNT), images, labels)
    both = np.concatenate([latents, deviations], axis=1)
    write_folder(root / "folder" / "vae-sd", names("img-mean-std-", ".npy", COUNT), both, labels)
    write_folder(root / "folder" / "images", names("img", ".png", COUNT), images, labels)
    files = members(latents, labels)
    for part, own in enumerate((files[:COUNT], files[COUNT:])):  # two to a sample
        write_tar(root / "shards" / f"part-{part:02d}.tar", own)
    (root / "safetensors").mkdir()
    arrays = {"latents": latents.astype(np.float32), "latents_flip": -latents.astype(np.float32)}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    file = root / "safetensors" / "latents_rank00_shard000.safetensors"
    save_file({**tensors, "labels": torch.from_numpy(labels)}, file)
    statistics = {"mean": torch.zeros(1, 4, 1, 1), "std": torch.ones(1, 4, 1, 1)}
    torch.save(statistics, root / "safetensors" / "latents_stats.pt")
    (root / "inception.pth").write_bytes(b"small")

    def latent(source: str, folder: str = "", **more: Any) -> dict[str, Any]:
        path = str(root / (folder or source))
        shape = {"channels": 4, "size": 8, "classes": 7, "decoder_scale": SCALE, "scale": 1.0}
        return {"data": {"source": source, "path": path, **shape, **more}}

    captions = {"encoder": "clip-base", "tokens": 5, "path": str(root / "clip")}
    pictures = {"source": "images", "path": str(root / "images"), "channels": 3, "size": 16}
    return {
        "root": {"path": root},
        "fashion16": {"data": {"source": "fashion16", "channels": 1, "size": 16}},
        "latents": latent("latents"),
        "shards": latent("shards"),
        "folder": latent("folder"),
        "images": {"data": {**pictures, "classes": 7}},
        "safetensors": latent("safetensors"),
        "captions": {**latent("latents", "captions", classes=1), "captions": captions},
    }


@pytest.fixture
def machine(world: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a group's machine has: weights, a decoder, and a GPU, or its ways of working on a CPU.

    There, batches are pinned by copies that refuse strides which overlap, and blocks are compiled
    by the compiler's own front end.
    """
    root: Path = world["root"]["path"]
    monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(root / "vae"))
    monkeypatch.setenv(fidelity.VARIABLE, str(root / "inception.pth"))
    monkeypatch.setattr(fidelity, "SHA256", sha256(root / "inception.pth"))
    small = replace(SPACES["inception"], open=lambda *_: small_inception)
    monkeypatch.setitem(SPACES, "inception", small)  # type: ignore[arg-type]
    monkeypatch.setattr(references, "WIDTHS", {"pool": 12, "spatial": 6})
    if DEVICE == "cpu":
        work_as_a_gpu(monkeypatch)
    torch._dynamo.reset()
    if not (root / "reference.npz").exists():
        command = f"data reference {root / 'pictures'} {root / 'reference.npz'} --size 16"
        assert main([*command.split(), "--device", DEVICE]) == 0
    gc.collect()
    gc.freeze()  # libraries that a task imports, as the compiler, are no run's memory
    return root


def work_as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "precisions", lambda _: PRECISIONS)
    monkeypatch.setattr(devices, "CPU", PRECISIONS)
    monkeypatch.setattr(Tensor, "pin_memory", pinned)
    monkeypatch.setattr(trainer, "pins", lambda _: True)
    compile_blocks = precision.compile_blocks
    monkeypatch.setattr(
        precision, "compile_blocks", lambda network: compile_blocks(network, backend="eager")
    )
    monkeypatch.setitem(generate.IMAGES_A_CALL, "cpu", 50)  # calls of one size share their graphs


def pinned(tensor: Tensor) -> Tensor:
    """A copy with the same strides, as pinning makes it; elements that overlap are refused."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


@pytest.fixture
def stopped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SIGTERM comes after the log entry of the fifth step of the first training."""
    write, calls = LogWriter.__call__, iter(range(STEPS * 10))

    def stop(self: LogWriter, step: int, **values: float) -> None:
        write(self, step, **values)
        if next(calls) == STOP - 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(LogWriter, "__call__", stop)


def evaluations(task: Mapping[str, str], reference: Path) -> list[dict[str, Any]]:
    """Two probes and metrics of images under guidance, at a step on the way and at the end."""
    embedded = task["data"] == "fashion16"
    guidance = {
        "route": {"weight": 2, "weak": {"rate": 0.5}},
        "sprint": {"weight": 3, "weak": {"path": "dropped"}},
    }
    samples = {
        "metrics": ["fd"] if embedded else ["fid", "sfid", "is", "precision", "recall", "kid"],
        "count": 100,
        "sampler": {"steps": 2, "guidance": guidance.get(task["bypass"], 2)},
        **({} if embedded else {"reference": str(reference)}),
    }
    named = {"heldout_loss": PROBE, "layer_similarity": PROBE, "samples": samples}
    return [{name: {**spec, "at": [4, "end"]}} for name, spec in named.items()]


def measured(run: RunFolder) -> dict[tuple[str, int], float]:
    """Every metric on record, by its name without the sample size and by its step."""
    found = {}
    for path in run.path.glob("evaluations/*/metrics.json"):
        record = json.loads(path.read_text())
        for name, value in record["metrics"].items():
            found[re.sub(r"[@\[].*", "", name), record["step"]] = value
    return found


@pytest.mark.task(35, 36, 38, 42, 43, 44, 45, 46, 47, 48, 49, 50, 52)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("task", TASKS, ids=lambda task: "-".join(task.values()))
def test_whole_task_ends_with_every_metric(
    task: dict[str, str],
    machine: Path,
    world: dict[str, dict[str, Any]],
    stopped_once: None,
    in_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(name: str, tree: Mapping[str, Any], code: int = 0) -> None:
        Path(f"{name}.yaml").write_text(json.dumps(tree))
        assert main(["train", f"{name}.yaml", "--device", DEVICE]) == code, capsys.readouterr().err

    (machine / "cache").mkdir(exist_ok=True)
    Path("lab").mkdir()
    Path("lab/cache").symlink_to(machine / "cache")  # a reference is described once for all
    data = world[task["data"]]
    asked = evaluations(task, machine / "reference.npz")
    tree = run_tree(task, data["data"]) | data
    run("task", {**tree, "evaluate": asked}, code=130)
    run("task", {**tree, "evaluate": asked})
    lab = Lab.existing("lab")
    [trained] = lab.runs()
    metrics = measured(trained)
    names = {HELDOUT_LOSS, HELDOUT_ROUTED, GAP_ROUTE, SIMILARITY, *asked[-1]["samples"]["metrics"]}
    assert metrics.keys() == {(name, step) for name in names for step in (4, STEPS)}
    assert [name for name, value in metrics.items() if not math.isfinite(value)] == []
    assert main(["export", trained.name, "out"]) == 0
    tree |= {"init_from": {"file": "out/model.safetensors"}}
    tree |= {"train": {**tree["train"], "steps": 0}, "evaluate": [{"heldout_loss": PROBE}]}
    run("exported", tree)
    [exported] = [folder for folder in lab.runs() if folder.name != trained.name]
    loss = metrics[HELDOUT_LOSS, STEPS]
    assert measured(exported)[HELDOUT_LOSS, 0] == pytest.approx(loss, rel=1e-6)
    assert main(["export", exported.name, "again"]) == 0
