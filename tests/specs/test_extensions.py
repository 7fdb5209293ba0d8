"""Entries of other installed packages: named in specs, imported at need, told apart from ours."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.packages import write_metadata
from tread_lab.records.metric_names import metric_kind
from tread_lab.specs import (
    ModelSpec,
    RouteSpec,
    RunSpec,
    SamplesSpec,
    TrainSpec,
    UserError,
    decode,
    evaluation,
    extensions,
    model,
    routes,
)
from tread_lab.specs.extensions import extensions_of

FACTS = """
from tread_lab.specs.model import Backbone
from tread_lab.specs.metrics import Metric, MetricKind
from tread_lab.specs.routes import Selection
from tread_lab.specs.data import Source

COLUMNS = Selection(unit=lambda side: side, code="our_code:columns")
ODD = Selection(side=3)
PAIRS = Selection(code="our_code:columns")
SHARPNESS = Metric(
    features="any", kind=MetricKind("quality", "higher", label="sharpness"), code="our_code:sharp"
)
POOL = Backbone(options=("heads", "mlp_ratio"), code="our_code:Pool", cost="our_code:COST")
LMDB = Source(latents=True, scaled=False, code="our_code:lmdb")
half = lambda done: 0.5
"""
GROUPS = """
[tread_lab.backbones]
pool = our_facts:POOL
[tread_lab.metrics]
sharpness = our_facts:SHARPNESS
[tread_lab.selections]
columns = our_facts:COLUMNS
odd = our_facts:ODD
[tread_lab.schedules]
half = our_facts:half
[tread_lab.solvers]
midpoint = our_code:Solvers.midpoint
[tread_lab.sources]
lmdb = our_facts:LMDB
"""
RUN = {
    "model": "pool-12x32x2/2",
    "data": {"source": "lmdb", "path": "nowhere"},
    "routes": ["2->8 by columns"],
    "train": {"schedule": "half"},
}

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    def install(groups: str, name: str = "our-tread", version: str = "1.4") -> None:
        write_metadata(tmp_path, groups, name=name, version=version)
        extensions.installed.cache_clear()

    (tmp_path / "our_facts.py").write_text(FACTS)
    (tmp_path / "our_code.py").write_text(
        "def columns(): ...\nclass Solvers: midpoint = object()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield install
    extensions.installed.cache_clear()
    for module in ("our_facts", "our_code"):
        sys.modules.pop(module, None)


def test_a_spec_may_name_the_entries_of_a_package_and_says_which_it_is(install: Install) -> None:
    install(GROUPS)
    spec = decode(RunSpec, RUN)
    assert spec.model.name == "pool-12x32/2" and spec.model.heads == 2
    assert decode(ModelSpec, spec.model.name) == spec.model
    assert [route.routed(64) for route in spec.routes] == [32]
    assert extensions_of(spec) == (
        ("tread_lab.backbones", "pool", "our-tread", "1.4"),
        ("tread_lab.schedules", "half", "our-tread", "1.4"),
        ("tread_lab.selections", "columns", "our-tread", "1.4"),
        ("tread_lab.sources", "lmdb", "our-tread", "1.4"),
    )
    samples = decode(SamplesSpec, {"metrics": ["fd", "sharpness"], "count": 100, "sampler": {}})
    assert extensions_of(samples) == (("tread_lab.metrics", "sharpness", "our-tread", "1.4"),)
    assert extensions_of(decode(RunSpec, {"model": "DiT-S/2", "routes": ["2->8"]})) == ()
    parent = decode(RunSpec, {"model": "DiT-S/2", "train": {"schedule": "half"}})
    routes = ["0->1", "2->8 by columns"]
    child = decode(RunSpec, {"model": "DiT-S/2", "init_from": {"run": parent}, "routes": routes})
    assert [name for _, name, _, _ in extensions_of(child)] == ["half", "columns"]

    @dataclasses.dataclass(frozen=True)
    class Means:
        extension: ClassVar = extensions.Extension("tread_lab.systems", "means", "ours", "1", "")

    assert extensions_of((Means(),)) == (("tread_lab.systems", "means", "ours", "1"),)


def test_what_a_metric_of_a_package_means_is_part_of_its_entry(install: Install) -> None:
    install(GROUPS)
    assert metric_kind("delta/sharpness[x]@1k w=2").sign == -1
    assert metric_kind("sharpest@1k").nature == "neither"


def test_names_are_known_without_importing_the_package(install: Install) -> None:
    install(GROUPS)
    assert decode(TrainSpec, {"schedule": "half"}).schedule == "half"
    with pytest.raises(UserError, match=r"solver: unknown 'midpont', did you mean 'midpoint'"):
        decode(evaluation.SamplerSpec, {"solver": "midpont"})
    assert not {"our_facts", "our_code"} & sys.modules.keys()
    decode(RunSpec, RUN)
    assert "our_facts" in sys.modules and "our_code" not in sys.modules


def test_the_code_of_a_kind_is_a_table_with_the_code_of_extensions(install: Install) -> None:
    install(GROUPS)
    code = routes.SELECTIONS.code({"random": len, "rows": max})
    assert code["rows"] is max
    assert getattr(code["columns"], "__module__") == "our_code"  # noqa: B009
    assert list(code) == ["random", "rows", "columns", "odd"] and len(code) == 4
    solvers = evaluation.SOLVERS.code({"heun": len})
    assert solvers["midpoint"] is sys.modules["our_code"].Solvers.midpoint
    with pytest.raises(KeyError):
        code["diagonal"]
    with pytest.raises(UserError, match=r"'odd' of the package our-tread .* refers to no code"):
        code["odd"]
    with pytest.raises(UserError, match=r"'pool' of the package our-tread 1.4 .* AttributeError"):
        model.BACKBONES.code({}, "cost")["pool"]


POOL = {"backbone": "pool", "depth": 2, "width": 8}


@pytest.mark.parametrize(
    ("model", "routes", "error"),
    [
        ("DiT-S/2", ["2->8 by odd"], "odd needs a grid whose side is a multiple of 3"),
        ("RWKV-S/2", ["2->8 by columns"], "columns tears the rows"),
        (POOL, [], "missing key 'heads'"),
        ({**POOL, "heads": 2, "rope": True}, [], "option of dit"),
        ({**POOL, "heads": 2, "state": 4}, [], "option of mamba"),
        ("pol-S/2", [], "unknown model 'pol-S/2', did you mean 'pool-S/2'"),
    ],
)
def test_what_an_entry_asks_is_checked(
    install: Install, model: object, routes: list[str], error: str
) -> None:
    install(GROUPS)
    with pytest.raises(UserError, match=error):
        decode(RunSpec, {"model": model, "routes": routes})


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ("columns = nowhere:X", "ModuleNotFoundError: No module named 'nowhere'"),
        ("columns = our_facts:X", "AttributeError: module 'our_facts' has no attribute 'X'"),
        ("columns = our_facts:POOL", "our_facts:POOL is no Selection"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it(
    install: Install, groups: str, reason: str
) -> None:
    install(f"[tread_lab.selections]\n{groups}\n")
    assert decode(RouteSpec, "2->8 by rows").selection == "rows"
    with pytest.raises(UserError) as error:
        decode(RunSpec, {"model": "DiT-S/2", "routes": ["2->8 by columns"]})
    line = "tread_lab.selections: 'columns' of the package our-tread 1.4 cannot be used: "
    assert str(error.value) == f"{line}{reason}"


@pytest.mark.parametrize("code", ["@dataclass\nclass", "@dataclass(frozen=True)\nclass"])
def test_the_spec_of_a_system_is_a_frozen_dataclass_of_the_right_kind(
    install: Install, tmp_path: Path, code: str
) -> None:
    (tmp_path / "theirs").mkdir()
    base = "" if "frozen" in code else "(SystemSpec)"
    head = "from dataclasses import dataclass\nfrom tread_lab.specs.systems import SystemSpec\n"
    (tmp_path / "theirs" / "spec.py").write_text(
        f"{head}{code} Other{base}:\n    kind: str = 'o'\n"
    )
    joined = "JoinedBy('theirs', {'bypass': 'Other'})"
    facts = f"from tread_lab.specs.systems import JoinedBy\nOTHER = {joined}\n"
    (tmp_path / "their_facts.py").write_text(facts)
    install("[tread_lab.systems]\nother = their_facts:OTHER\n")
    with pytest.raises(UserError, match="is no frozen dataclass that derives from SystemSpec"):
        decode(RunSpec, {"model": "DiT-S/2", "routes": ["2->8"], "bypass": "o"})


def test_a_broken_system_is_met_by_who_names_it_alone(install: Install) -> None:
    install("[tread_lab.systems]\nbroken = nowhere:X\n")
    run = {"model": "DiT-S/2", "routes": ["2->8"]}
    assert str(decode(RunSpec, {**run, "bypass": {"re_entry": "v1_sum"}}).bypass) == "route v1_sum"
    with pytest.raises(UserError, match=r"^tread_lab.systems: 'broken' of .*: ModuleNotFoundError"):
        decode(RunSpec, {**run, "bypass": "other"})


@pytest.mark.parametrize(
    ("kept", "wrong"),
    [
        ("[[0, 1, 2, 3, 4]], None", "it keeps 5 of 8 tokens; a rate of 0.5 keeps 4"),
        ("[[0, 1, 1, 3]], None", "places must ascend within a sample, none twice"),
        ("[[0, 1, 2, 8]], None", r"a place lies outside 0\.\.7"),
        ("[[-1, 0, 1, 2]], None", r"a place lies outside 0\.\.7"),
        ("[0, 1, 2, 3], None", r"places are int64 \[1, K\], got torch.int64 \[4\]"),
        ("[[0, 1, 2]], [[1, 0, 1]]", r"real_BK is bool \[1, 3\], got torch.int64 \[1, 3\]"),
    ],
)
def test_a_selection_that_keeps_other_tokens_than_it_should_is_refused(
    install: Install, tmp_path: Path, kept: str, wrong: str
) -> None:
    import torch

    from tread_lab.routing.select import select

    keep = f"[x if x is None else torch.tensor(x) for x in ({kept})]"
    code = f"import torch\ndef columns(route, rank_BN):\n    return {keep}\n"
    (tmp_path / "our_code.py").write_text(code)
    install("[tread_lab.selections]\ncolumns = our_facts:PAIRS\n")
    line = f"'columns' of the package our-tread 1.4 cannot be used: {wrong}$"
    with pytest.raises(UserError, match=line):
        select(decode(RouteSpec, "2->8 by columns"), torch.rand(1, 8))


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("float('nan')", "nan is no finite number"),
        ("torch.ones(2)", r"tensor\(\[1., 1.\]\) is no finite number"),
        ("None", "nothing is no finite number"),
    ],
)
def test_a_metric_is_a_finite_number_or_a_line_that_names_its_package(
    install: Install, tmp_path: Path, value: str, wrong: str
) -> None:
    from tread_lab.metrics.features import _number

    code = f"import torch\ndef sharp(compared):\n    return {value}\n"
    (tmp_path / "our_code.py").write_text(code)
    install(GROUPS)
    line = f"'sharpness' of the package our-tread 1.4 cannot be used: {wrong}$"
    with pytest.raises(UserError, match=line):
        _number("sharpness", None)  # type: ignore[arg-type]
    (tmp_path / "our_code.py").write_text(code.replace(value, "torch.ones(1, 1)"))
    sys.modules.pop("our_code")
    assert _number("sharpness", None) == 1.0  # type: ignore[arg-type]


def test_a_name_that_is_built_in_or_added_twice_is_an_error(install: Install) -> None:
    from tread_lab.sweep.plan.preflight import check_extensions

    check_extensions([])
    install("[tread_lab.solvers]\nmidpoint = a:b\n", "first")
    install("[tread_lab.solvers]\nmidpoint = a:b\n", "other")
    for use in (decode, lambda *_: check_extensions([])):  # a plan refuses it though none is used
        with pytest.raises(UserError, match=r"'midpoint' of the package other .* first adds"):
            use(evaluation.SamplerSpec, {"solver": "midpoint"})
    install("[tread_lab.schedules]\nconstant = our_facts:half\n")
    spec = decode(RunSpec, {"model": "DiT-S/2"})
    with pytest.raises(UserError, match=r"'constant' of the package our-tread .* built-in entry"):
        extensions_of(spec)
