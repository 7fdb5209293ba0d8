"""The command line answers at once, and every command shows an example that parses."""

from __future__ import annotations

import inspect
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tread_lab.cli.main import COMMANDS, command, main, parse
from tread_lab.cli.options import (
    DONE,
    EXIT_CODES,
    INTERRUPTED,
    UNFINISHED,
)
from tread_lab.config.errors import Unavailable, UserError

HEAVY = ("torch", "ray", "mlflow", "pandas", "numpy", "rich", "matplotlib")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom tread_lab.cli.main import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_sigterm_and_a_warning_are_one_line_each_whatever_catches_exceptions() -> None:
    code = """
import os, signal, sys, time, warnings
from tread_lab.cli import main as cli
def run() -> int:
    warnings.warn("scale differs")
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except BaseException:
        pass
cli.command = {"status": run}.__getitem__
sys.argv = ["tread-lab", "status"]
cli.run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    line = "tread-lab: stopped; run the same command again to continue"
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.split("\n") == ["tread-lab: scale differs", "", line, ""]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_parses(name: str) -> None:
    text, _, example = inspect.cleandoc(command(name).__doc__ or "").partition("\n\nExample: ")
    options = vars(parse(shlex.split(example.removeprefix("tread-lab "))))
    assert options.pop("command") == name and text == f"{COMMANDS[name][1]}."
    assert inspect.signature(command(name)).bind(**options)


def test_help_and_documentation_explain_every_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out.split("exit codes:\n")[1].splitlines()
    assert [tuple(line.split(maxsplit=1)) for line in shown] == [
        (str(code), meaning) for code, meaning in EXIT_CODES.items()
    ]
    page = (Path(__file__).parents[1] / "docs" / "faults.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page
    assert {UserError.exit_code, Unavailable.exit_code, DONE, UNFINISHED, INTERRUPTED} == set(
        EXIT_CODES
    )


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    code = "from tread_lab.cli import main as cli; cli.run()"
    arguments = [sys.executable, "-c", code, "sweep", "--help"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")
