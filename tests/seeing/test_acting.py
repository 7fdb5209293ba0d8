"""Acting from the page in a real browser, by keyboard: it ends as it does from the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page
from tests.faults.drivers import DONE, FAILED, Driver, Zygote, eventually, reached
from tests.seeing.conftest import TOKENS, needs_chromium, served
from tests.synthetic import small, write_sweep
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder

pytestmark = [pytest.mark.slow, needs_chromium]

SWEEP = """
question: Does the page act as the terminal does?
experiment: tiny
fixed:
  model: {{depth: 4, width: 16}}
  train: {{steps: {steps}, batch: 4}}
  execution: {{log_every: 20, checkpoint_every: {steps}}}
baseline: null
axes: {{train.lr: {rates}}}
evaluate: [{{heldout_loss: {{images: 32, levels: 4}}}}]
"""
MANY = 100_000  # steps, of which a stop leaves most undone
LONG = 900  # seconds that a sweep may take on a busy machine
QUIET = "from tests.faults.tricks import *\nwithout_extras()\n"
BOTH = (0.001, 0.002)
RAISE = """
def broken(original, run, *args, **options):
    if run.spec.train.lr == 0.002:
        raise RuntimeError("a broken part")
    return original(run, *args, **options)
wrap("tread_lab.engine.trainer:Trainer.train_step", broken)
"""
SWEPT = ("sweep", "acting.yaml", "--no-mlflow", "--executor", "inline")
FOCUSED = "document.activeElement.textContent"


def start(
    zygote: Zygote, folder: Path, steps: int, prelude: str = "", rates: tuple[float, ...] = (0.001,)
) -> Driver:
    folder.mkdir()
    (folder / "acting.yaml").write_text(SWEEP.format(steps=steps, rates=list(rates)))
    return zygote.start(folder, *SWEPT, out=folder / "driver.txt", prelude=QUIET + prelude)


def records(folder: Path) -> dict[str, Any]:
    """How each run of a sweep stands: its state, how its attempts ended, what people asked."""
    lab = Lab(folder / "lab")
    sweep = lab.sweep("acting")
    runs = {trial.run: lab.run(trial.run) for trial in sweep.plan().trials}
    return {
        "sweep": [remark.event for remark in sweep.remarks.read()],
        **{
            name: (
                run.state(),
                [attempt.ended for attempt in run.attempts.read()],
                [(remark.event, remark.text) for remark in run.remarks.read()],
            )
            for name, run in runs.items()
        },
    }


def press(page: Page, *keys: str) -> None:
    for key in keys:
        text, code = {"Enter": ("\r", 13), "Escape": ("", 27)}[key]
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, **named)


def perform(page: Page, button: str, text: str = "") -> None:
    """Do what a button asks for, by keyboard: it opens the dialog, Enter in it confirms."""
    page.wait(f"document.querySelector({button!r})", LONG)
    page.js(f"document.querySelector({button!r}).focus()")
    press(page, "Enter")
    page.wait("document.querySelector('#dialog').open")
    if text:
        page.js("document.querySelector('#written').focus()")
        page.call("Input.insertText", text=text)
    page.js("document.querySelector('#dialog .does').focus()")
    press(page, "Enter")
    page.wait(
        "!document.querySelector('#dialog').open && document.querySelector('#said').innerText"
    )


def running(folder: Path) -> RunFolder:
    """The first run of a sweep that is at work, once it has logged some steps."""
    lab, found = Lab(folder / "lab"), list[RunFolder]()

    def begun() -> bool:
        found[:] = [run for run in lab.runs() if run.locked]
        return bool(found)

    eventually(begun, LONG)
    reached(found[0], 20)
    return found[0]


def test_a_stop_from_the_page_ends_as_from_the_terminal(
    tmp_path: Path, page: Page, zygote: Zygote
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with start(zygote, theirs, MANY) as driver:
        running(theirs)
        assert zygote.run(theirs, "stop", "acting", "--why", "too long").returncode == DONE
        code = driver.wait(LONG)
    with start(zygote, ours, MANY) as driver, served(Lab(ours / "lab")) as url:
        running(ours)
        page.open(f"{url}#sweep=acting&token={TOKENS[url]}")
        perform(page, "#acts [data-act=stop]", "too long")
        assert driver.wait(LONG) == code
        assert page.errors == []
    assert records(ours) == records(theirs)


def test_a_retry_from_the_page_ends_as_from_the_terminal(
    tmp_path: Path, page: Page, zygote: Zygote
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with start(zygote, theirs, 40, RAISE, BOTH) as driver:
        assert driver.wait(LONG) == FAILED
    with start(zygote, ours, 40, RAISE, BOTH) as driver:
        assert driver.wait(LONG) == FAILED
    again = zygote.run(theirs, *SWEPT, "--retry-failed", prelude=QUIET)
    assert again.returncode == DONE, again.stderr
    with served(Lab(ours / "lab")) as url:
        page.open(f"{url}#sweep=acting&token={TOKENS[url]}")
        perform(page, "#acts [data-act=failed]")
        assert "runs it again; it writes" in page.text("#said")
        left = ", ".join(f"#acts [data-act={act}]" for act in ("failed", "open", "stop"))
        page.wait(f"!document.querySelector('{left}')", LONG)
        assert page.errors == []
    assert records(ours) == records(theirs)


def test_what_is_said_stands_on_the_page_and_a_refusal_in_the_dialog(
    tmp_path: Path, page: Page
) -> None:
    lab = write_sweep(tmp_path, small())
    with served(lab) as url:
        page.open(f"{url}#sweep=placement&token={TOKENS[url]}")
        page.wait("document.querySelector('#panel .numbers')")
        assert "token" not in page.js("location.href")  # a link that is copied has none
        perform(page, "#panel [data-act=note]", "looks good")
        page.wait("document.querySelector('#panel .note')?.innerText.startsWith('looks good')")
        assert page.js(FOCUSED).startswith("note")  # the button has the focus again
        perform(page, "#acts [data-act=tag]", "paper b2")
        page.wait("document.querySelectorAll('#acts .tags li').length === 2")
        page.js("document.querySelector('#acts .tags button').focus()")
        press(page, "Enter")
        page.wait("document.querySelectorAll('#acts .tags li').length === 1")
        assert lab.sweep("placement").remarks.tags == ["b2"]
        page.click("#acts [data-act=tag]")
        page.js("document.querySelector('#written').focus()")
        page.call("Input.insertText", text="a,b")
        press(page, "Enter")
        page.wait("document.querySelector('#dialog .reason').innerText.startsWith(\"tag 'a,b'\")")
        press(page, "Escape")
        page.wait("!document.querySelector('#dialog').open")
        assert lab.sweep("placement").remarks.tags == ["b2"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_page_without_the_token_shows_no_act(tmp_path: Path, page: Page, host: str) -> None:
    with served(write_sweep(tmp_path, small()), host=host) as url:
        page.open(url.replace("0.0.0.0", "127.0.0.1"))
        page.wait("document.querySelector('#panel .numbers')")
        assert page.js("document.querySelectorAll('[data-act]').length") == 0
        assert "tread-lab dashboard" in page.text("#acts")
