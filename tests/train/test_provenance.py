"""What decides a run beside its spec; of code and data, more in test_preflight.py."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from tests.train.runs import small_run
from tread_lab.train import provenance
from tread_lab.train.precision import INDUCTOR
from tread_lab.train.provenance import code_digest, fingerprint, of_nodes

LATER = ({"compile": "blocks"}, {"compile": "none", "deterministic": True})


@pytest.mark.parametrize(
    ("execution", "blocks", "sums"), [(LATER[0], INDUCTOR, "any"), (LATER[1], "eager", "fixed")]
)
def test_fingerprint_names_code_data_and_arithmetic(
    execution: dict[str, object], blocks: str, sums: str
) -> None:
    expected = {"code": code_digest(), "blocks of dit": blocks}
    on_gpu = {"order of sums": sums}
    for device, more in (("cpu", {}), ("cuda", on_gpu)):
        made = fingerprint(small_run(execution=execution), device)
        data = {made.pop("data fashion16"), made.pop("held-out data fashion16")}
        assert len(data) == 2 and made == expected | more


def test_different_arithmetic_has_another_fingerprint() -> None:
    first = small_run(execution={"compile": "none"})
    others = [
        small_run(execution=LATER[0]),
        small_run(execution=LATER[1]),
        small_run(precision="bf16", execution={"compile": "none"}),
        small_run(model="RWKV-4x16/4", routes=[], execution={"compile": "none"}),
    ]
    for one, other in combinations([first, *others], 2):
        assert fingerprint(one, "cuda") != fingerprint(other, "cuda")
    again = small_run(seed=3, routes=[], execution={"compile": "none", "workers": 2})
    assert fingerprint(again, "cuda") == fingerprint(first, "cuda")


def test_fused_scan_is_in_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A CPU, which never has it, says nothing, as before, nor does a driver without a GPU for runs
    on those of its nodes."""
    mamba = small_run(
        model={"backbone": "mamba", "depth": 4, "width": 16, "patch": 4, "state": 4}, routes=[]
    )
    said = list[str | None]()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for kernel in (None, lambda *_: None):
        monkeypatch.setattr(provenance, "fused_scan", lambda kernel=kernel: kernel)
        monkeypatch.setattr(provenance, "_version", lambda package: f"2 of {package}")
        said += [fingerprint(mamba, device).get("selective scan") for device in ("cpu", "cuda")]
        assert "selective scan" not in fingerprint(small_run(), "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "selective scan" not in fingerprint(mamba, "cuda")
    assert said == [None, "torch", None, "mamba_ssm 2 of mamba_ssm"]


def test_nodes_share_code_data_and_weights() -> None:
    kinds = ("data", "held-out data", "captions", "reference", "decoder of", "weights", "plugin")
    shared = {"code": "c0de", **{f"{kind} x": kind for kind in kinds}}
    own = {"blocks of dit": "eager", "order of sums": "any", "decoding of x": "tf32"}
    made = of_nodes(shared | own)
    assert {"package torch", "package numpy"} <= {*made}
    assert {k: v for k, v in made.items() if k in shared or not k.startswith("package ")} == shared
