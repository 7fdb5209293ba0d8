"""Compiled blocks: one graph for each length, no break, the same numbers as eager ones."""

from __future__ import annotations

import itertools
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

from tread_lab.config import RunSpec, UserError, decode
from tread_lab.hardware import DeviceFacts, Devices
from tread_lab.records.run_folder import RunFolder
from tread_lab.routing import draw_routing
from tread_lab.sweep.preflight import preflight
from tread_lab.sweep.task import Task
from tread_lab.train.assemble import build_network
from tread_lab.train.precision import (
    EAGER,
    INDUCTOR,
    arithmetic,
    autocast,
    compile_blocks,
    compile_for,
    has_compiler,
)
from tread_lab.train.trainer import Trainer

LIGHTNING = {"norm": "rms", "mlp": "swiglu", "rope": True, "init": "official_code"}
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def spec(model: Any = "DiT-4x32x2/2", routes: Any = ("1->2",), **fields: Any) -> RunSpec:
    return decode(RunSpec, {"model": model, "routes": list(routes), "train": {"batch": 4}} | fields)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


def counting() -> Any:
    """Return a backend that counts its graphs, and whose import takes seconds."""
    from torch._dynamo.testing import CompileCounterWithBackend

    return CompileCounterWithBackend("eager")


def test_rate_sweep_compiles_one_graph_a_length(tmp_path: Path) -> None:
    counter = counting()
    for start, rate in itertools.product((0, 1), (0.25, 0.75)):
        routed = spec(routes=[{"start": start, "end": start + 1, "rate": rate}])
        folder = RunFolder(tmp_path / f"{start} {rate}")
        with Trainer(routed, folder, CPU) as run:
            compile_blocks(run.network, backend=counter)
            run.train_step(run.batches.at(0), lr=1e-3)
            run.save()
        with Trainer(routed, folder, CPU) as run:
            compile_blocks(run.network, backend=counter)
            assert run.resume() == 1
            run.train_step(run.batches.at(1), lr=1e-3)
            with torch.no_grad():  # evaluation: dense, without gradients
                batch = run.batches.at(2)
                run.network(batch.x_BCHW, batch.u_B, batch.y_B, None)
    # all 64 tokens in bf16, in fp32 after a route, and without gradients; 48, 16 kept
    assert counter.frame_count == 5


@pytest.mark.parametrize(
    ("model", "bypass", "precision", "graphs"),
    [
        ("DiT-4x32x2/2", "mask", "bf16", 1),  # no block sees all tokens
        ("DiT-4x32x2/2", "sprint", "fp32", 2),
        ("LightningDiT-4x32x2/2", "route", "bf16", 3),  # the block after the route is in fp32
        ("RWKV-4x32/2", "route", "fp32", 2),
    ],
)
def test_backbone_compiles_without_a_break(
    model: str, bypass: str, precision: str, graphs: int
) -> None:
    routes = {"route": ["1->2 by rows"], "mask": ["0->B-1"], "sprint": ["1->2"]}[bypass]
    changes = {"bypass": {"kind": bypass}, "fp32_block": "j+1/math"}
    run = spec(model, routes, precision=precision, **changes)
    network, counter = build_network(run), counting()
    names = list(network.state_dict())
    compile_blocks(network, backend=counter)
    assert list(network.state_dict()) == names
    routing = draw_routing(run.routes, (4, run.tokens), 0, 0)
    with autocast(precision, CPU):
        out = network(torch.randn(4, 1, 16, 16), torch.rand(4), torch.arange(4), routing)
    out.float().sum().backward()
    assert counter.frame_count == graphs


@pytest.mark.long
@pytest.mark.slow
def test_inductor_equals_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    run = spec({"depth": 2, "width": 16, "heads": 2, **LIGHTNING}, [], precision="fp32")
    eager, compiled = build_network(run), build_network(run)
    compiled.load_state_dict(eager.state_dict())
    compile_blocks(compiled)
    x, t, y = torch.randn(2, 1, 16, 16), torch.rand(2), torch.arange(2)
    outputs = [network(x, t, y, None) for network in (eager, compiled)]
    gradients = []
    for network, out in zip((eager, compiled), outputs):
        out.square().sum().backward()
        gradients.append(network.blocks[0].attn.qkv.weight.grad)
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("missing", ["compiler", "headers"])
def test_compiled_blocks_need_a_compiler(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = [spec(execution={"compile": asked}) for asked in ("auto", "blocks")]
    gpu = Devices((DeviceFacts("cuda", "H100", ("bf16",)),))
    assert arithmetic(runs[0], "cuda") == INDUCTOR and preflight([Task(runs[0])], gpu) == []
    if missing == "compiler":
        monkeypatch.setenv("CC", "/no/compiler")
    else:
        monkeypatch.setattr(sysconfig, "get_path", lambda *names: str(tmp_path))
    has_compiler.cache_clear()
    try:
        assert arithmetic(runs[0], "cuda") == EAGER
        assert preflight([Task(runs[0])], gpu) == []
        with pytest.raises(UserError, match=r"^execution.compile: must be auto or none"):
            preflight([Task(runs[1])], gpu)
        with pytest.warns(UserWarning, match=r"^execution.compile: blocks run eagerly without"):
            compile_for(runs[0], build_network(runs[0]), torch.device("cuda"))
    finally:
        has_compiler.cache_clear()
