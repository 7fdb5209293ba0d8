"""What decides a run beside its spec; of code and data, more in test_preflight.py."""

from __future__ import annotations

from itertools import combinations

from tests.train.runs import small_run
from tread_lab.train.provenance import fingerprint, of_nodes

LATER = ({"compile": "blocks"}, {"compile": "none", "deterministic": True})


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


def test_nodes_share_code_data_and_weights() -> None:
    kinds = ("data", "held-out data", "captions", "reference", "decoder of", "weights", "plugin")
    shared = {"code": "c0de", **{f"{kind} x": kind for kind in kinds}}
    own = {"blocks of dit": "eager", "order of sums": "any", "decoding of x": "tf32"}
    made = of_nodes(shared | own)
    assert {"package torch", "package numpy"} <= {*made}
    assert {k: v for k, v in made.items() if k in shared or not k.startswith("package ")} == shared
