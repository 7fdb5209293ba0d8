"""A sweep becomes one batch file for Slurm: checked, quoted, kept in the lab, submitted."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.sweeps import SMALL
from tests.four_sweeps import same_as_stored
from tread_lab.cli import main, parse
from tread_lab.commands.submit import _seconds
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.sweep.plan.devices import Devices

ASKED = ("--nodes=2", "--gpus=8", "--time=12:00:00")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose name every shell would take apart, with the small sweep."""
    folder = tmp_path / "my 'own' $HOME 50%"
    folder.mkdir()
    (folder / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `sbatch` that writes down what it got and answers with a number."""
    told, program = tmp_path / "told.json", tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"json.dump(sys.argv[1:], open({str(told)!r}, 'w'))\nprint('12;cluster')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return told


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The batch file that a dry run prints."""
    assert main(["submit", "slurm", "small.yaml", "--dry-run", *words]) == 0
    return capsys.readouterr().out


def in_bash(text: str, expression: str) -> list[str]:
    """What bash makes of the variables of a batch file."""
    head = text.partition("set -u")[0]
    code = f'{head}\nprintf "%s\\0" {expression}'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def called(text: str, name: str, *words: object, **variables: object) -> str:
    """What a function of a batch file prints."""
    found = re.search(rf"^{name}\(\).*?^}}", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    given = "\n".join(f"{key}={shlex.quote(str(value))}" for key, value in variables.items())
    code = f"{given}\n{found[0]}\n{name} {' '.join(map(str, words))}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_port_that_another_job_has_is_passed_over(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, *ASKED)
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert int(called(text, "free_port", taken, python=sys.executable)) > taken


@pytest.mark.parametrize(
    ("failures", "node", "code", "tries"), [(1, 0, 0, 2), (99, 0, 5, 9), (99, 1, 0, 9)]
)
def test_a_start_of_ray_that_takes_too_long_is_tried_again(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    failures: int,
    node: int,
    code: int,
    tries: int,
) -> None:
    """A cold disk may exceed Ray's half minute; a cluster without its head is lost."""
    python, log = place / "python", place / "tries"
    python.write_text(
        '#!/bin/bash\n[ "$1" = -m ] || exit 1\necho >>tries\n'
        f"(($(wc -l <tries) > {failures})) || exit 5\n"
    )
    python.chmod(0o755)
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        variables = {"SLURM_JOB_ID": 1, "SLURM_NODEID": node, "cores": 1, "gpus": 0, "patience": 60}
        variables |= {"host": "127.0.0.1", "port": head.getsockname()[1], "python": python}
        said = called(printed(capsys, *ASKED), "node", "; echo $?", **variables)
    assert (said, log.read_text().count("\n")) == (str(code), tries)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("runs/a/checkpoints/step-00000010-0.safetensors", True),
        ("runs/a/evaluations/b/parts/0.npz", True),
        ("runs/a/result.json", True),
        ("runs/a/log.jsonl", False),
        ("sweeps/small/time_left", False),
    ],
)
def test_what_a_job_leaves_for_the_next_one_is_its_progress(
    written: str, kept: bool, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, begun, path = (place / "lab" / x for x in ("sweeps/small/slurm.sbatch", "begun", written))
    for each in (file, begun, path):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    os.utime(begun, (1e9, 1e9))
    text = printed(capsys, *ASKED)
    assert called(text, "progress", file=file, begun=begun) == (str(path) if kept else "")
    os.utime(path, (1e9 - 9, 1e9 - 9))  # by an earlier job
    assert called(text, "progress", file=file, begun=begun) == ""


QUESTION = 'question="Who\'s $HOME, `id`?"'
ASKED_OTHERWISE = {
    "nodes with GPUs, words for sbatch": (
        *(*ASKED, "--root=/lab", "--name=named"),
        *("--", "--partition", "gpu", "--comment=a b"),
    ),
    "nodes without, jobs that follow": (
        *("--gpus=0", "--time=90", "--processes=4", "--resubmit", "--margin=5000"),
    ),
    "words that every shell takes apart": (
        *(*ASKED, QUESTION, "--budget=hours=2", "--budget", "trials=9"),
    ),
}


def test_the_head_of_a_batch_file_has_the_options_of_the_job_and_of_its_driver(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = list[str]()
    for title, words in ASKED_OTHERWISE.items():
        head = printed(capsys, *words).partition("# What follows")[0]
        head = head.replace(sys.executable, "PYTHON").replace(str(place.parent), "PLACE")
        lines += [f"===== {title}", head]
    same_as_stored(Path(__file__).parent / "stored" / "submit.txt", "\n".join(lines))
    assert not (place / "lab").exists()


def test_no_step_is_timed_here_for_a_sweep_that_is_matched_in_seconds(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Devices, "time", lambda *asked, **more: pytest.fail("timed"))
    assert printed(capsys, "--gpus=0", "--time=90", "match=train_seconds")


def test_quotes_and_spaces_survive(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *ASKED, QUESTION)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    words = in_bash(text, '"${sweep[@]}"')
    assert words[:3] == ["sweep", f"{place}/small.yaml", QUESTION]
    assert parse(words).overrides == [QUESTION]  # the driver understands its words
    assert in_bash(text, '"$python" "$file"') == [
        sys.executable,
        f"{place}/lab/sweeps/small/slurm.sbatch",
    ]


def test_the_file_is_kept_in_the_lab_and_submitted(
    place: Path, sbatch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place / "lab/sweeps/small/slurm.sbatch"
    assert main(["submit", "slurm", "small.yaml", *ASKED]) == 0
    assert json.loads(sbatch.read_text()) == ["--parsable", str(file)]
    said = capsys.readouterr().out
    assert "12: small on 2 nodes, 12:00:00 at a time" in said and "slurm-12.out" in said
    assert Lab(place / "lab").sweeps() == []  # it is planned when it runs
    file.write_text("edited")
    assert main(["submit", "slurm", "small.yaml", *ASKED]) == 0
    assert file.with_name("slurm.sbatch.former").read_text() == "edited"
    assert file.read_text().startswith("#!/bin/bash\n")


def test_what_sbatch_refuses_is_one_line(
    place: Path, sbatch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = sbatch.parent / "bin" / "sbatch"
    program.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n")
    assert main(["submit", "slurm", "small.yaml", *ASKED]) == 2
    assert capsys.readouterr().err.startswith("tread-lab: sbatch: error: invalid partition; ")
    program.unlink()
    monkeypatch.setenv("PATH", str(program.parent))
    assert main(["submit", "slurm", "small.yaml", *ASKED]) == 3
    assert capsys.readouterr().err.startswith("tread-lab: no `sbatch` on PATH: ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["axis.route=1"], "unknown key 'axis'"),
        (["where=start > nothing"], "nothing"),
        (["--gpus-per-run=12"], "a run needs 12 CPU cores and 12 GPUs, and a node has"),
        (["--gpus=0", "--processes=12", "--cores=8"], "a node has 8 and 0"),
        (["--gpus-per-run=3"], "train.batch: 4 images are no equal shares for 3 devices"),
        (["--budget=hour=2"], "budget: unknown key 'hour', did you mean 'hours'?"),
        (["--budget=hours=0"], "budget: hours: must be positive"),
        (["fixed.init_from=ffff"], "no run 'ffff' in "),
        (["stop_early={kind: median, grace: 5000}"], "stop_early: no run is judged: grace is 5000"),
        (["--tracker=wandb"], "--tracker wandb: `pip install tread-lab[wandb]` brings"),
        (["--no-mlflow", "--tracker=mlflow"], "--no-mlflow, --tracker mlflow: leave one out"),
        (["--time=noon"], "--time: 'noon' is no time of Slurm's"),
        (["--time=5:00"], "--margin: 300 s of 300 s"),
        (["--", "gpu"], "'gpu': after `--` come options of sbatch"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(
    place: Path,
    sbatch: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    line: str,
) -> None:
    monkeypatch.setattr("tread_lab.tracking.trackers.find_spec", lambda name: None)
    assert main(["submit", "slurm", "small.yaml", *ASKED, *words]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
    assert not sbatch.exists() and not (place / "lab").exists()


def test_times_are_read_as_slurm_reads_them() -> None:
    times = {"90": 5400, "1:30": 90, "12:00:00": 43200, "2-0": 172800, "1-2:30": 95400}
    assert {text: _seconds(text) for text in times} == times
    with pytest.raises(UserError, match="is no time of Slurm's"):
        _seconds("")
