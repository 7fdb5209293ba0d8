"""Any sweep file, however broken, is a plan or one line that says what is wrong; never a traceback.

`TREAD_LAB_EXAMPLES=100000 pytest tests/test_malformed.py` tries that many of each kind.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tread_lab.config import UserError, encode
from tread_lab.config import load as config
from tread_lab.config import sweep as sweep_file
from tread_lab.config.fields import all_fields
from tread_lab.cost.training import cost
from tread_lab.sweep.expand import expand

EXAMPLES = int(os.environ.get("TREAD_LAB_EXAMPLES", "30"))
TEXTS = [path.read_text() for path in sorted(config.shipped_folder("sweeps").glob("*.yaml"))]
TREES = [yaml.safe_load(text) for text in TEXTS]
FACTS = {"device": {"precisions": ["fp32", "bf16"]}}

OPERATORS = [*"+-*/%<", "//", "**", "==", "!=", ">=", "in", "and", "or", "is", "if"]
ODD = """
0..7 7..0 .. 0.. 2->8 B-4->2 -> 1/6->2/3 1/0->3 = fd@1k fid@0 @ heldout_loss DiT-B/2 DiT-0x0x0/0
Mamba-9x8/2 tiny ? =B-4 =end =1/0 off rate zip then
"""
NAMES = """
route rate zip then seed seeds axes trials where variants fixed baseline evaluate sampler_axes
experiment kind search
"""

often = settings(
    max_examples=EXAMPLES,
    print_blob=False,
    deadline=None,
    database=None,
    derandomize="TREAD_LAB_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)

expressions = st.recursive(
    st.sampled_from(["start", "end", "B", "N", "rate", "train.lr", "seed", "precision", "routes"])
    | st.sampled_from(["0", "-1", "1e308", "9" * 30, "''", "'fp32'", "[]", "()", "model", "x.y"])
    | st.text(max_size=6),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("not {}".format),
        inner.map("-{}".format),
        inner.map("min({}, 2)".format),
        inner.map("{}()".format),
        inner.map("[{}]".format),
    ),
    max_leaves=8,
)
odd = st.sampled_from([*ODD.split(), "0..9 step 0", "\n", "\x00", "\u2028", " " * 300])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 30),
    st.integers(),
    st.sampled_from([2**53, 2**63]),
    st.floats(),
    st.text(max_size=8),
    odd,
    expressions,
    expressions.map("={}".format),
)
names = st.sampled_from([*all_fields(), *NAMES.split()])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(names | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Experiments are read once, and few cells are many."""
    with pytest.MonkeyPatch.context() as patch:
        load = functools.cache(config.load_experiment)
        patch.setattr(config, "load_experiment", lambda name, _: load(name))
        patch.setattr(sweep_file, "MOST_CELLS", 1_000)
        patch.chdir(tmp_path_factory.mktemp("malformed"))
        yield


def check_plan(raw: bytes) -> None:
    """Check that the bytes are a sweep with trials.

    Raises:
        UserError: they are none.
    """
    Path("s.yaml").write_bytes(raw)
    _, sweep, experiment = config.load_sweep("s.yaml")
    found = expand(sweep, experiment, FACTS, lambda spec: float(cost(spec).train_flops))
    assert found.trials and len({trial.run for trial in found.trials}) <= len(found.trials)
    json.dumps(encode([found.trials, found.excluded, found.evaluations]), allow_nan=False)


def is_a_plan_or_one_line(raw: bytes) -> None:
    try:
        check_plan(raw)
    except UserError as error:
        for line in error.args:
            assert line.strip() and line.isprintable() and len(line) < 1100


@st.composite
def changed_trees(draw: st.DrawFn) -> bytes:
    """A shipped sweep with values replaced, taken out, renamed or put in, one or several."""
    tree = json.loads(json.dumps(draw(st.sampled_from(TREES))))
    for _ in range(draw(st.integers(1, 3))):
        _change(draw, tree)
    return yaml.safe_dump(tree, allow_unicode=draw(st.booleans())).encode("utf-8", "surrogatepass")


def _change(draw: st.DrawFn, tree: Any) -> None:
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        inner = [key for key in keys if isinstance(node[key], dict | list) and node[key]]
        if not inner or draw(st.integers(0, 2)) == 0:
            break
        node = node[draw(st.sampled_from(inner))]
    how = draw(st.sampled_from(["replace", "remove", "rename", "insert", "wrap"]))
    key = draw(st.sampled_from(keys)) if keys else None
    if key is None or how == "insert":
        node.update({draw(names | st.text(max_size=6)): draw(values)}) if isinstance(
            node, dict
        ) else node.append(draw(values))
    elif how == "remove":
        del node[key]
    elif how == "rename" and isinstance(node, dict):
        node[draw(names | st.text(max_size=6))] = node.pop(key)
    elif how == "wrap":
        node[key] = draw(st.sampled_from([[node[key]], {"zip": node[key]}, {"": node[key]}]))
    else:
        node[key] = draw(values)


@often
@given(changed_trees())
def test_a_shipped_sweep_with_other_values(raw: bytes) -> None:
    is_a_plan_or_one_line(raw)


@often
@given(st.dictionaries(names | st.text(max_size=6), values, max_size=5))
def test_any_tree(tree: dict[str, Any]) -> None:
    text = yaml.safe_dump({"experiment": "tiny", **tree}, allow_unicode=True)
    is_a_plan_or_one_line(text.encode("utf-8", "surrogatepass"))
