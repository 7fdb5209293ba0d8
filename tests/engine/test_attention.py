"""Attention backends are measured once for a lab and a device, and all its runs follow."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend

from tests.backbones.test_parts import FLASH, Noted
from tests.engine.runs import CPU, small_run, train_until
from tread_lab.backbones.parts import PREFERRED
from tread_lab.engine import attention
from tread_lab.engine.attention import fastest, measured, prefer_attention, shapes_of
from tread_lab.engine.evaluate import evaluate
from tread_lab.records.locks import exclusive
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import HeldoutSpec, RunSpec, decode

WHOLE, KEPT = "16 tokens, 2 heads of 8, float32", "8 tokens, 2 heads of 8, float32"


@pytest.fixture(autouse=True)
def _no_preference() -> Iterator[None]:
    PREFERRED.clear()
    yield
    PREFERRED.clear()


def run_of(choice: str = "measured", **changes: Any) -> RunSpec:
    execution = {"log_every": 2, "checkpoint_every": 100, "attention": choice}
    return small_run(**{"execution": execution} | changes)


def file_in(cache: Path) -> Path:
    (found,) = cache.glob("attention-*.json")
    return found


def content(cache: Path) -> dict[str, str]:
    tree: dict[str, str] = json.loads(file_in(cache).read_text())
    return {name: value for name, value in tree.items() if "tokens" in name}


def decided(cache: Path, choices: dict[str, str]) -> None:
    """Let the lab hold these choices for this device."""
    prefer_attention(run_of(), CPU, cache)
    file_in(cache).write_text(json.dumps(choices))


def test_whoever_comes_first_measures_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    def times(shape: Any, heads: int, device: torch.device) -> dict[str, float]:
        seen.append((shape[0], heads))
        return {"torch": 2.0, "math": 1.0 if shape[0] == 8 else 1.95}

    monkeypatch.setattr(attention, "measured", times)
    prefer_attention(run_of(), CPU, tmp_path)
    assert sorted(seen) == [(8, 2), (16, 2)]
    assert content(tmp_path) == {WHOLE: "torch", KEPT: "math"}
    assert {(8, 8, torch.float32): SDPBackend.MATH} == PREFERRED
    prefer_attention(run_of(routes=[{"start": 1, "end": 1, "rate": 0.75}]), CPU, tmp_path)
    assert sorted(seen) == [(4, 2), (8, 2), (16, 2)]
    assert PREFERRED == {}


def test_a_run_that_leaves_it_to_torch_forgets_an_earlier_one(tmp_path: Path) -> None:
    decided(tmp_path, {WHOLE: "math", KEPT: "math"})
    prefer_attention(run_of(), CPU, tmp_path)
    assert len(PREFERRED) == 2
    prefer_attention(run_of("torch"), CPU, tmp_path)
    assert PREFERRED == {}


def test_it_waits_for_a_process_that_measures(tmp_path: Path) -> None:
    prefer_attention(run_of(), CPU, tmp_path)
    path = file_in(tmp_path)
    path.unlink()
    held, measuring = threading.Event(), path.with_suffix(".lock")

    def other() -> None:
        with exclusive(measuring, "measuring"):
            held.set()
            time.sleep(0.1)
            path.write_text(json.dumps({WHOLE: "math", KEPT: "torch"}))

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    prefer_attention(run_of(), CPU, tmp_path)
    thread.join()
    assert {(16, 8, torch.float32): SDPBackend.MATH} == PREFERRED


def test_backends_are_timed_and_one_that_cannot_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backends = {**attention.BACKENDS["cpu"], "cudnn": SDPBackend.CUDNN_ATTENTION}
    monkeypatch.setattr(attention, "BACKENDS", {"cpu": backends})
    times = measured((16, 8, torch.float32), 2, CPU)
    assert times.keys() == {"torch", "flash", "math"}
    assert all(0 < ms < 10_000 for ms in times.values())


def test_a_pass_goes_through_the_backend_forward_and_back() -> None:
    x_BNE = torch.randn(3, 16, 48, requires_grad=True)
    with Noted() as noted:
        attention._pass(x_BNE, 2, None)
    assert {FLASH, f"{FLASH}_backward"} <= noted.names
    with Noted() as noted:
        attention._pass(x_BNE, 2, SDPBackend.MATH)
    assert FLASH not in noted.names and "_softmax_backward_data" in noted.names


@pytest.mark.parametrize(
    ("ms", "name"),
    [
        ({"torch": 1.0, "flash": 1.0, "cudnn": 0.96}, "torch"),  # within what noise does
        ({"torch": 1.0, "flash": 1.0, "cudnn": 0.94}, "cudnn"),
        ({"torch": 1.0, "flash": 0.9, "cudnn": 0.8}, "cudnn"),
        ({"torch": 1.0, "flash": 0.8, "cudnn": 0.9}, "flash"),
        ({"torch": 2.0, "flash": 1.91, "cudnn": 1.92}, "torch"),
        ({"torch": 1.0}, "torch"),
    ],
)
def test_another_backend_must_be_clearly_faster(ms: dict[str, float], name: str) -> None:
    assert fastest(ms) == name


@pytest.mark.parametrize(
    ("changes", "shapes"),
    [
        ({"routes": []}, {(16, 8, torch.float32)}),
        ({}, {(16, 8, torch.float32), (8, 8, torch.float32)}),
        (
            {"routes": [{"start": 1, "end": 1, "rate": 0.25}, "2->2"], "precision": "bf16"},
            {(n, 8, torch.bfloat16) for n in (16, 12, 8)},
        ),
        # no block sees all tokens in a routed step, but all do in sampling
        ({"routes": ["0->B-1"], "bypass": "mask"}, {(16, 8, torch.float32), (8, 8, torch.float32)}),
        ({"captions": {"tokens": 5}}, {(21, 8, torch.float32), (13, 8, torch.float32)}),
    ],
)
def test_a_run_attends_over_whole_and_kept_tokens(
    changes: dict[str, Any], shapes: set[Any]
) -> None:
    assert shapes_of(run_of(**changes)) == shapes


def test_a_network_without_attention_measures_nothing(tmp_path: Path) -> None:
    prefer_attention(run_of(model="RWKV-4x32/4", routes=[]), CPU, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_training_and_evaluation_attend_as_the_lab_has_decided(tmp_path: Path) -> None:
    spec, folder = run_of(), RunFolder(tmp_path / "runs" / "one")
    folder.create(spec)
    decided(folder.cache, {WHOLE: "math", KEPT: "math"})
    with Noted() as noted:
        train_until(spec, folder.path)
        evaluate(folder, decode(HeldoutSpec, {"images": 8}), CPU)
    assert FLASH not in noted.names
    decided(folder.cache, {WHOLE: "math", KEPT: "flash"})
    with Noted() as noted:
        train_until(spec, tmp_path / "runs" / "two", 2)
    assert FLASH in noted.names
