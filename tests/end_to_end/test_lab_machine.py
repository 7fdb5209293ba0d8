"""A lab as a state machine: whatever happens to it, its commands give the numbers of an undisturbed
lab or say in one line what is at fault, and nothing outside it changes."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.made_data import normal, write_arrays
from tread_lab.cli import main

pytestmark = pytest.mark.slow
RUN = """
model: {depth: 3, width: 8, heads: 1}
data: {source: latents, path: DATA, channels: 4, size: 8, classes: 3, scale: 1}
train: {steps: 6, batch: 4, lr: 3e-3, warmup: 2, ema: {halflife: 0.1}}
execution: {log_every: 2, checkpoint_every: 2, keep_checkpoints: 9, keep_steps: [2]}
precision: fp32
evaluate: [{heldout_loss: {images: 4, levels: 2}}]
"""
SWEEP = """
experiment: FOLDER/run.yaml
axes: {route: [0->1]}
evaluate: [{heldout_loss: {images: 4, levels: 2}}]
"""
SEARCH = SWEEP.replace("[0->1]", "[1->1, 0->1]")
SEARCH += "baseline: null\nsearch: {sampler: random, trials: 2}\n"
COMMANDS = {
    "train": "train FOLDER/run.yaml --device cpu",
    "sweep": "sweep FOLDER/grid.yaml --device cpu --no-mlflow --executor inline",
    "search": "sweep FOLDER/search.yaml --device cpu --no-mlflow --executor inline",
}
MEASURE = {"grid": "evaluate grid --device cpu", "search": "evaluate search --device cpu"}
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "flip": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}
FILES = ("**/*", "runs/*/checkpoints/*", "runs/*/result.json", "runs/*/evaluations/*/metrics.json")


class Killed(BaseException):
    """The process would have ended here."""


class Said(NamedTuple):
    """The exit code of a command and what it prints."""

    code: int
    out: str
    error: str


def say(folder: Path, command: str, root: Path) -> Said:
    """Run a command in this process."""
    words = [*command.replace("FOLDER", str(folder)).split(), "--root", str(root)]
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = main(words)
    return Said(code, out.getvalue(), error.getvalue())


@contextlib.contextmanager
def killed_at(write: int) -> Iterator[None]:
    """End what runs at the n-th time that it waits for the disk; 0 for never.

    A lock's heartbeat, which writes by the clock in a thread of its own, is not counted.
    """
    fsync, count = os.fsync, iter(range(1, 10**6))

    def counted(number: int) -> None:
        if threading.current_thread() is threading.main_thread() and next(count) == write:
            raise Killed
        fsync(number)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(os, "fsync", counted)
        yield


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_data(folder: Path, seed: int) -> None:
    latents = normal(16, seed)
    write_arrays(folder, latents[:12], heldout=latents[12:], classes=3)


def write_files(folder: Path, data: int, place: str = "data") -> Path:
    """Write the data and the files of settings; return the folder."""
    write_data(folder / place, data)
    (folder / "run.yaml").write_text(RUN.replace("DATA", str(folder / place)))
    for name, text in (("grid", SWEEP), ("search", SEARCH)):
        (folder / f"{name}.yaml").write_text(text.replace("FOLDER", str(folder)))
    return folder


def numbers(lab: Path, command: str, printed: str) -> str:
    """Return what a command has measured: what `train` prints, and the table of a sweep."""
    if command == "train":
        lines = (line.split() for line in printed.splitlines())
        return str([words for words in lines if words[:1] in (["heldout/loss"], ["step"])])
    from tread_lab import open_lab

    name = {"sweep": "grid"}.get(command, command)
    trials = open_lab(lab).sweep(name).trials
    columns = [c for c in ("cell", "state", "heldout/loss", "gap/heldout") if c in trials]
    return str(trials[columns].sort_values("cell").to_csv(index=False))


@functools.cache
def undisturbed(command: str, data: int) -> str:
    """Return the numbers of a command in a fresh lab."""
    with tempfile.TemporaryDirectory() as folder:
        place = write_files(Path(folder), data)
        said = say(place, COMMANDS[command], place / "lab")
        assert said.code == 0, said
        return numbers(place / "lab", command, said.out)


class LabMachine(RuleBasedStateMachine):
    """A lab, its data, and a folder beside them that is nobody's business."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        self.temporary = self.folder / "tmp"
        clone = self.temporary / "tread-lab-dev" / "src"
        clone.mkdir(parents=True)
        (clone / "code.py").write_text("mine")
        os.utime(clone.parent, (0, 0))
        patch.setattr(tempfile, "tempdir", str(self.temporary))
        patch.setattr("tread_lab.sweep.plan.timing.trial_batch", lambda *_: 0)
        patch.setattr("tread_lab.analysis.figures.catalogue.write_figures", lambda *_, **__: [])
        self.beside = contents(self.temporary)
        self.data, self.place, self.moves, self.lab = 0, "data", 0, self.folder / "lab"
        self.at_fault: set[str] = set()  # what a line may name; without any, everything goes well
        self.ends: Sequence[str] = tuple(COMMANDS)  # the commands that are brought to their end
        write_files(self.folder, 0)

    def say(self, command: str, *names: str) -> Said:
        """Run a command; where it fails, a line names what is at fault, or one of `names`."""
        said = say(self.folder, command, self.lab)
        assert "Traceback" not in said.out + said.error, said
        if said.code:
            line = "".join(said.error.split()).rpartition("tread-lab:")[2]
            known = {*self.at_fault, *names}
            assert said.code in (1, 2) and any(name in line for name in known), (said, known)
        return said

    @rule(command=st.sampled_from([*COMMANDS]), kill=st.integers(0, 40))
    def run(self, command: str, kill: int = 0) -> None:
        """Run a command, and end it at one of its writes."""
        with killed_at(kill):
            self.say(COMMANDS[command])

    @rule(sweep=st.sampled_from([*MEASURE]), kill=st.integers(0, 20))
    def evaluate(self, sweep: str, kill: int = 0) -> None:
        """Measure the runs of a sweep that is there, and end it at one of its writes."""
        if (self.lab / "sweeps" / sweep / "plan.json").exists():
            with killed_at(kill):
                self.say(MEASURE[sweep], f"{sweep}:norunhasfinished")

    @rule(yes=st.booleans())
    def collect(self, yes: bool = True) -> None:
        if self.lab.exists():
            before = contents(self.lab)
            self.say("gc --yes" if yes else "gc")
            assert yes or contents(self.lab) == before

    @rule(files=st.sampled_from(FILES), how=st.sampled_from([*DAMAGE]), n=st.integers(0, 60))
    def damage(self, files: str, how: str, n: int = -1) -> None:
        """Damage one file of the lab; of the last checkpoints the newest."""
        found = sorted(p for p in self.lab.glob(files) if p.is_file() and p.stat().st_size > 9)
        if found:
            path = found[n % len(found)]
            path.write_bytes(DAMAGE[how](path.read_bytes()))
            self.at_fault |= {path.name, *path.relative_to(self.lab).parts[1:2]}

    @rule()
    def move(self) -> None:
        if self.lab.exists():
            self.moves += 1
            self.lab = self.lab.rename(self.folder / f"lab-{self.moves}")

    @rule()
    def other_data(self) -> None:
        """Lay other data at the path of the first."""
        self.data = 1 - self.data
        write_data(self.folder / self.place, self.data)
        self.at_fault |= {"data"}

    @rule(data=st.integers(0, 1))
    def other_path(self, data: int = 1) -> None:
        """Name another path in the settings, where equal or other data lie."""
        self.place = "other" if self.place == "data" else "data"
        self.at_fault |= {"data"} if data != self.data else set()
        self.data = data
        write_files(self.folder, data, self.place)

    def teardown(self) -> None:
        """Bring everything to its end: the numbers are those of a fresh lab, or a line says why."""
        try:
            assert contents(self.temporary) == self.beside
            for command in self.ends:
                said = self.say(COMMANDS[command])
                if said.code == 0:
                    found = numbers(self.lab, command, said.out)
                    assert found == undisturbed(command, self.data), (command, said)
            assert contents(self.temporary) == self.beside
        finally:
            self.stack.close()


# What happens to a lab, and the command that is then brought to its end.
CASES: dict[str, tuple[str, Sequence[tuple[Any, ...]]]] = {
    "weights that stay are damaged": ("train", [
        ("run", "train"), ("damage", "runs/*/checkpoints/*", "cut"), ("collect",),
        ("damage", "runs/*/evaluations/*/metrics.json", "empty"),
    ]),
    "weights are lost after a collection": ("train", [
        ("run", "train"), ("collect",), ("damage", "runs/*/checkpoints/*", "cut"),
        ("damage", "runs/*/evaluations/*/metrics.json", "empty"),
    ]),
    "a search finds its runs made": ("search", [("run", "sweep"), ("move",), ("collect",)]),
    "other data at the same path": ("train", [("run", "train"), ("other_data",)]),
    "other data at another path": ("sweep", [("run", "sweep"), ("other_path",)]),
    "equal data at another path": ("sweep", [("run", "sweep"), ("other_path", 0)]),
    "other data under a search that was killed": ("search", [
        ("run", "search", 6), ("other_data",)
    ]),
    "an evaluation is killed": ("sweep", [("run", "sweep", 9), ("evaluate", "grid", 2)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_lab_gives_the_numbers_of_a_fresh_one_or_says_what_is_lost(case: str) -> None:
    machine = LabMachine()
    command, events = CASES[case]
    machine.ends = (command,)
    for event, *how in events:
        getattr(machine, event)(*how)
    machine.teardown()


@pytest.mark.timeout(1800)  # of the long seeds
@pytest.mark.fault(
    11,
    survived="the numbers are those of an undisturbed lab, or a line names the file, run, sweep or"
    " data at fault; without any damage there is no such line; nothing beside the lab changes",
)
def test_nothing_that_happens_to_a_lab_changes_a_number_in_silence() -> None:
    examples, steps = (60, 20) if "TREAD_LAB_LONG" in os.environ else (3, 5)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        LabMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize="TREAD_LAB_LONG" not in os.environ,
            deadline=None,
            database=None,
            suppress_health_check=[*HealthCheck],
        ),
    )
