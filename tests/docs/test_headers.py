"""Headers of shipped files are true: each command plans the network, route and cost it states."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.headers import FILES, parameters_when_built, planned, stated, tasks_of
from tests.docs.pages import PAGES, blocks, commands
from tread_lab.engine.cost.training import cost
from tread_lab.specs import UserError

FINETUNE, REPA = (
    next(path for path in FILES if path.stem == stem) for stem in ("finetune", "repa")
)
HOW = "run: python -m tests.docs.headers, and look at what has changed"


def objections(text: str) -> list[str]:
    """What the plans of a file's commands are, where its header says something else."""
    return [
        f"{command.line}\n  says  {command.plan}\n  plans {plan}"
        for command in stated(text)
        if (plan := planned(command.line)) != command.plan
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_header_says_what_its_commands_plan(path: Path) -> None:
    text = path.read_text()
    wrong = objections(text)
    assert stated(text), f"{path.name}: no command in its header"
    assert not wrong, "\n".join([HOW, *wrong])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_command_of_a_header_is_read(path: Path) -> None:
    """None hides in prose, where nobody would compare it with its plan."""
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    named = sum(len(re.findall(r"tread-lab (?:sweep|train)", line)) for line in header)
    assert named == len(stated(path.read_text()))


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("DiT-XL/2 675M", "DiT-XL/2 676M"),
        ("256 tokens", "1024 tokens"),
        ("2->24 (", "2->8 ("),
        ("23 of 28 blocks", "7 of 28 blocks"),
        ("1.716x", "1.145x"),
        ("800720 steps of", "400K steps of"),
        ("75K steps of 1024", "75K steps of 256"),
        ("3.4e20 FLOPs", "2.5e20 FLOPs"),
        ("fid@10k w=2 CFG", "fid@10k w=3 CFG"),
        ("heun 40", "heun 50"),
        ("edm, bf16", "edm, fp32"),
        ("4 runs", "6 runs"),
        ("train.steps=800720", "train.steps=400000"),
        ('["2->B-4"]', '["2->8"]'),
    ],
)
def test_a_number_that_is_wrong_is_objected_to(
    true: str,
    false: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the header of a copy, in its command or in the file itself."""
    text = FINETUNE.read_text()
    assert true in text
    changed = text.replace(true, false)
    said = [line for line in changed.splitlines() if not line.startswith("#")]
    folder = tmp_path_factory.getbasetemp() / f"{hash(tuple(said))}"  # whose plans are kept
    folder.mkdir(exist_ok=True)
    (folder / "finetune.yaml").write_text(changed)
    monkeypatch.chdir(folder)
    assert objections(changed)


def test_a_whole_copy_is_not_objected_to(in_folder: Path) -> None:
    Path("finetune.yaml").write_text(FINETUNE.read_text())
    assert not objections(Path("finetune.yaml").read_text())


@pytest.mark.parametrize("path", [FINETUNE, REPA], ids=lambda path: path.stem)
def test_finetune_and_repa_route_most_of_an_xl(path: Path) -> None:
    at_scale = [s.line for s in stated(path.read_text()) if "xl2_imagenet256" in s.line]
    assert at_scale
    for line in at_scale:
        routed = [task.spec for task in tasks_of(line)[1] if task.spec.routes]
        assert {str(route) for spec in routed for route in spec.routes} == {"2->24"}
        assert {round(cost(spec).speedup, 3) for spec in routed} == {1.716}


def test_finetune_trains_the_epochs_that_it_quotes() -> None:
    """160 and 680 epochs of 1,281,167 images, then 60; quoted guided, so measured guided."""
    at_scale = [s.line for s in stated(FINETUNE.read_text()) if "xl2_imagenet256" in s.line]
    found = []
    for line in at_scale:
        tasks = tasks_of(line)[1]
        found.append(sorted({t.spec.train.steps * t.spec.train.batch / 1_281_167 for t in tasks}))
        weights = {
            e.sampler.guidance.weight for t in tasks for e in t.evaluations if e.kind == "samples"
        }
        assert {1.0, 2.0} <= weights
    assert [[round(epochs) for epochs in run] for run in found] == [[60, 160], [60, 680]]


def test_stated_parameters_are_those_of_the_built_networks() -> None:
    specs = {
        (task.spec.model, task.spec.data, task.spec.bypass): task.spec
        for path in FILES
        for command in stated(path.read_text())
        for task in tasks_of(command.line)[1]
    }
    assert len(specs) >= 8
    for spec in specs.values():
        assert parameters_when_built(spec) == cost(spec).parameters, spec.model.name


def route_ends(tree: Any) -> Iterator[Any]:
    """Every end of a route in a file, as it is written."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "end":
                yield from value if isinstance(value, list) else [value]
            else:
                yield from route_ends(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from route_ends(value)
    elif isinstance(tree, str) and "->" in tree and not re.match(r"0\.?\d*->0|0->0", tree):
        yield tree.partition("->")[2].partition(" by ")[0].strip()


def is_a_rule(end: Any) -> bool:
    """Whether an end means the same place at every depth: counted from the end, or a fraction."""
    return re.fullmatch(r"B-\d+|\d+/\d+|0\.\d+", str(end)) is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_routes_are_rules_in_the_depth_or_the_depth_is_fixed(path: Path) -> None:
    """`2->8` is the recommended route at 12 blocks and a short one at 28."""
    tree = yaml.safe_load(path.read_text())
    numbers = [end for end in route_ends(tree) if not is_a_rule(end)]
    where = tree.get("where", [])
    rules = [where] if isinstance(where, str) else where
    assert not numbers or "model.depth == 12" in rules, numbers
    for command in stated(path.read_text()):
        for end in re.findall(r"--route \S*?->([^\s\"']+)|\bend: ?([^,}\s]+)", command.line):
            assert is_a_rule("".join(end)), command.line


PLANNED = [
    (page, shlex.join(shlex.split(line)))
    for page in PAGES
    for block in blocks(page)
    if not block.language
    for line in commands(block.text)
    if re.match(r"tread-lab (sweep|train) ", line) and page.name != "add_your_own.md"
]  # what that page adds is planned and run by end_to_end/test_extensions.py


@pytest.mark.parametrize(("page", "line"), PLANNED, ids=str)
def test_a_command_of_the_documentation_plans(page: Path, line: str, in_folder: Path) -> None:
    for block in blocks(page):
        named = re.match(r"# (\w+\.yaml)\n", block.text)
        if block.language == "yaml" and (block.title or named):
            Path(block.title or named[1]).write_text(block.text)  # type: ignore[index]
    assert planned(line)


def test_the_grid_of_12_blocks_is_refused_at_28_with_the_reason() -> None:
    line = "tread-lab sweep route_placement.yaml experiment=xl2_imagenet256 data.path=LATENTS"
    with pytest.raises(UserError, match=r"16 miss where: model\.depth == 12"):
        tasks_of(line)
