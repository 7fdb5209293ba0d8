"""How fast are latents made and read, per core, and what does one more run on a machine cost?

    python benchmarks/data.py [--samples 20000] [--seconds 1] [--no-encode] [--json FILE]

Reading: random batches of 256 latents 4x32x32 (fp16) from each kind of store, beside a copy of as
many bytes in memory; then what training takes (fp32, scaled), and whole batches with their noise.
The measure is what DiT-S/2 consumes on an H200 at 40% of its peak: 15.7K latents/s with a route
over seven of twelve blocks. Sharing: processes map one packed copy and read all of it; what each
has for itself is its cost. Making: images cropped, and encoded by a network of the SD autoencoder's
size with random weights. Rates are those of one core: items over the seconds of one thread, so that
a busy machine hardly changes them. The caches of the disk are warm.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from PIL import Image

from tread_lab import draws
from tread_lab.data.source import open_data, open_store
from tread_lab.engine.batches import Batches
from tread_lab.prepare.images import centre_crop
from tread_lab.specs import RunSpec, decode

B, SHAPE = 256, (4, 32, 32)
CONSUMED = 15.7e3  # latents/s, DiT-S/2 routed 2->8 at 40% MFU of an H200
WANTED = 20  # times as fast should the loader be
SD = {  # the SD autoencoder's sizes
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
}
SHARING = """
import sys, time
import numpy as np
from tread_lab.data.source import open_store
store = open_store("latents", __import__("pathlib").Path(sys.argv[1]))
rng = np.random.default_rng(int(sys.argv[2]))
for _ in range(2 * len(store.labels) // 256):
    store.read(rng.integers(0, len(store.labels), 256))
print("ready", flush=True)
sys.stdin.read()
"""


def rate(work: Callable[[int], object], items: int, seconds: float) -> float:
    """Items a second: the best of five stretches, since machines are busy with other things."""
    work(0)
    best, calls = 0.0, 1
    for _ in range(5):
        started, done = time.thread_time(), 0
        while (elapsed := time.thread_time() - started) < seconds / 5 or not done:
            work(calls)
            done, calls = done + 1, calls + 1
        best = max(best, done * items / elapsed)
    return best


def make(folder: Path, samples: int) -> dict[str, Path]:
    """The same latents in every kind of store; those with a file a sample hold at most 2,000."""
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(samples, *SHAPE)).astype(np.float16)
    labels = rng.integers(0, 1000, samples)
    paths = {name: folder / name for name in ("latents", "safetensors", "shards", "folder")}
    for path in paths.values():
        path.mkdir()
    np.save(paths["latents"] / "latents.npy", latents)
    np.save(paths["latents"] / "labels.npy", labels)
    from safetensors.numpy import save_file

    save_file({"latents": latents, "labels": labels}, paths["safetensors"] / "a.safetensors")
    few, names = min(samples, 2000), []
    with tarfile.open(paths["shards"] / "a.tar", "w") as archive:
        for k in range(few):
            buffer = io.BytesIO()
            np.save(buffer, latents[k])
            pair = ((f"{k:08d}.latent.npy", buffer.getvalue()), (f"{k:08d}.cls", b"1"))
            for name, content in pair:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            names.append(f"{k // 1000:05d}/img{k:08d}.npy")
            path = paths["folder"] / names[-1]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(buffer.getvalue())
    rows = [[name, 1] for name in names]
    (paths["folder"] / "dataset.json").write_text(json.dumps({"labels": rows}))
    return paths


def reading(paths: dict[str, Path], seconds: float) -> dict[str, float]:
    """Latents a second on one thread."""
    rng, found = np.random.default_rng(1), {}
    here = np.empty((B, *SHAPE), np.float16)
    there, wide, wider = here.copy(), here.astype(np.float32), here.astype(np.float32)
    found["a copy in memory, fp16"] = rate(lambda k: np.copyto(there, here), B, seconds)
    found["a copy in memory, fp32"] = rate(lambda k: np.copyto(wider, wide), B, seconds)
    for source, path in paths.items():
        store = open_store(source, path)
        ids = rng.integers(0, len(store.labels), (64, B))
        found[f"read, {source}"] = rate(lambda k, s=store, i=ids: s.read(i[k % 64]), B, seconds)  # type: ignore[misc]
    spec = training(paths["latents"])
    samples = open_data(spec.data, "train")
    chosen = torch.from_numpy(rng.integers(0, len(samples), (64, B)))
    found["taken, fp32 and scaled"] = rate(lambda k: samples.take(chosen[k % 64]), B, seconds)
    found["their noise"] = rate(lambda k: draws.normal((B, *SHAPE), 0, "noise", k), B, seconds)
    batches = Batches(spec, samples)
    found["whole batches"] = rate(lambda k: batches.at(k % 70), B, seconds)
    return found


def training(path: Path) -> RunSpec:
    """DiT-S/2 with the paper's route on packed latents."""
    data = {"source": "latents", "path": str(path), "channels": 4, "size": 32, "classes": 1000}
    tree = {"model": "DiT-S/2", "data": {**data, "scale": 0.5}, "routes": ["2->8"]}
    return decode(RunSpec, {**tree, "train": {"batch": B}})


def sharing(path: Path, runs: int = 3) -> dict[str, float]:
    """Memory of processes that have read all of one packed copy, in MB."""
    command = [sys.executable, "-c", SHARING, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen([*command, str(k)], **pipes) for k in range(runs)]  # type: ignore[call-overload]
    for process in processes:
        process.stdout.readline()
    file = os.path.realpath(path / "latents.npy")
    rows = [mapped(process.pid, file) for process in processes]
    for process in processes:
        process.communicate()
    names = ("resident", "of it private")
    return {f"the map of run {k}, {n}": v for k, row in enumerate(rows) for n, v in zip(names, row)}


def mapped(pid: int, file: str) -> tuple[float, float]:
    """Resident and private MB of the mapping of a file in a process."""
    sizes = {"Rss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        word = line.split()[0]
        if "-" in word and not word.endswith(":"):
            inside = line.endswith(file)
        elif inside and word[:-1] in sizes:
            sizes[word[:-1]] += int(line.split()[1])
    return sizes["Rss"] / 1e3, (sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1e3


def making(seconds: float, encode: bool) -> dict[str, float]:
    """Images a second on one thread: reading and cropping to 256, and encoding."""
    y, x = np.mgrid[0:375, 0:500]
    waves = np.stack([np.sin(x / 9), np.cos(y / 7), np.sin((x + y) / 11)], axis=-1)
    noise = np.random.default_rng(0).normal(0, 20, waves.shape)
    buffer = io.BytesIO()
    levels = np.clip(128 + 90 * waves + noise, 0, 255).astype(np.uint8)
    Image.fromarray(levels).save(buffer, "jpeg", quality=90)
    print(f"the image is a JPEG of 500x375, {len(buffer.getvalue()) / 1e3:.0f} kB")

    def crop(k: int) -> None:
        centre_crop(Image.open(io.BytesIO(buffer.getvalue())), 256)

    found = {"read and cropped to 256": rate(crop, 1, seconds)}
    if encode:
        from diffusers import AutoencoderKL

        model = AutoencoderKL(**SD).eval()
        x_BCHW = torch.zeros(1, 3, 256, 256)
        with torch.inference_mode():
            found["encoded at 256, fp32"] = rate(lambda k: model.encode(x_BCHW), 1, seconds)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    parser.add_argument("--no-encode", action="store_true", help="leave the autoencoder out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder), options.samples)
        report["latents/s"] = reading(paths, options.seconds)
        report["MB"] = sharing(paths["latents"])
    report["images/s"] = making(options.seconds, not options.no_encode)
    print(f"{'one core':<32}{'latents/s':>12}{'fp16 MB/s':>12}{'x 15.7K':>10}")
    for name, value in report["latents/s"].items():
        megabytes, ratio = value * 2 * int(np.prod(SHAPE)) / 1e6, value / CONSUMED
        print(f"{name:<32}{value:>12,.0f}{megabytes:>12,.0f}{ratio:>10.1f}")
    print(f"aim: {WANTED} x {CONSUMED:,.0f} = {WANTED * CONSUMED:,.0f} latents/s")
    for unit in ("images/s", "MB"):
        for name, value in report[unit].items():
            print(f"{name:<32}{value:>12,.3g} {unit}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
