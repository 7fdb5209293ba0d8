"""Wrong data by commands: each command that meets a fault says it in one line, and none trains."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import members, write_tar
from tests.made_data import normal, write_arrays
from tread_lab.cli.main import main

STATISTICS = {"mean": [0.0] * 4, "deviation": [0.025] * 4}


def shards(folder: Path, *, odd: tuple[int, ...] = (4, 8, 8), label: int = 0) -> None:
    """Forty latents 4x8x8 in a tar, of three classes; the tenth has another shape or label."""
    latents, labels = [*normal()], [k % 3 for k in range(40)]
    latents[9], labels[9] = np.zeros(odd, np.float16), label
    write_tar(folder / "a.tar", members(latents, labels))


def cut(folder: Path) -> None:
    shards(folder)
    content = (folder / "a.tar").read_bytes()
    (folder / "a.tar").write_bytes(content[:20_000])


def uncaptioned(folder: Path) -> None:
    write_arrays(folder, normal(), classes=3)
    (folder / "captions.jsonl").write_text('{"captions": ["a"]}\n' * 39 + '{"captions": []}\n')


def of_other_data(folder: Path) -> None:
    write_arrays(folder, normal(), classes=3)
    (folder / "statistics.json").write_text(json.dumps(STATISTICS))


TRAIN = (
    "train tiny train.steps=1 train.warmup=0 --device cpu model={{depth: 2, width: 16, heads: 2}}"
    " data={{source: {source}, path: set, channels: 4, size: 8, classes: 3, scale: 1{more}}}"
    " evaluate=[{{heldout_loss: {{images: 2}}}}]"
)


def train(source: str, more: str = "") -> str:
    return TRAIN.format(source=source, more=more)


VERIFY, PACK = "data verify set --classes 3", "data pack set packed"
FAULTS: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "truncated tar": (
        cut,
        (VERIFY, PACK, train("shards")),
        "a.tar: it is damaged or no uncompressed tar (unexpected end of data)",
    ),
    "wrong shape in a tar": (
        lambda folder: shards(folder, odd=(4, 8, 4)),
        (VERIFY, PACK, train("shards")),
        "must hold floats [C, H, W] as others, got float16 [4, 8, 4]",
    ),
    "wrong shape": (
        lambda folder: write_arrays(folder, normal()[..., 0], classes=3),
        (VERIFY, train("latents")),
        "must hold latents of floats in 4 dimensions, many samples, got float16 [40, 4, 8]",
    ),
    "label out of range": (
        lambda folder: shards(folder, label=7),
        (VERIFY,),
        "labels: must be in 0..2, got others in 1 samples (9)",
    ),
    "label out of the spec": (
        lambda folder: shards(folder, label=7),
        (train("shards"),),
        "data.classes: must fit the data, got 3: the labels in",
    ),
    "missing caption": (uncaptioned, (VERIFY,), "with a caption of sample 39"),
    "statistics of other data": (
        of_other_data,
        (train("latents", ", normalise: true"),),
        "data: the standard deviation seen by the network must be near 0.5 (EDM's sigma_data), got",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_data_fault_is_one_line(
    fault: str, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, commands, expected = FAULTS[fault]
    make(in_folder / "set")
    for command in commands:
        words = command.split(" ") if command.startswith("data ") else words_of(command)
        assert main(words) in (1, 2)
        told = capsys.readouterr()
        lines = (told.out + told.err).splitlines()
        assert sum(expected in line for line in lines) == 1
        assert "Traceback" not in told.err
        assert not list(in_folder.glob("lab/runs/*/checkpoints/*"))


def words_of(command: str) -> list[str]:
    """Split a command at the blanks that stand in no braces."""
    words, depth = [""], 0
    for letter in command:
        depth += (letter in "{[") - (letter in "}]")
        if letter == " " and not depth:
            words.append("")
        else:
            words[-1] += letter
    return words
