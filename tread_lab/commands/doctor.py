"""The doctor command: examine this machine, name the files that users bring, make stand-ins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tread_lab.commands.options import DONE, UNFINISHED, Doctor
from tread_lab.prepare.required_files import REQUIRED, STANDS_IN, absences
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.disk import free_bytes
from tread_lab.sweep.plan.plan import pending_tasks
from tread_lab.sweep.plan.preflight import check_files
from tread_lab.sweep.plan.storage import load_plan
from tread_lab.terminal.console import answer, answers, fitted, say

LEAST_FREE = 2**30  # bytes of a disk, below which it is nearly full


def doctor(options: Doctor) -> int:
    """Examine this machine, and the files of open runs; return the exit code by the worst."""
    if options.stand_ins is not None:
        if options.as_json:
            raise UserError("--stand-ins: prints commands for a shell; leave --json out")
        return _stand_ins(options.stand_ins)
    lab, absent, device = Lab.at(options.root), absences(), "none works"
    wrong: list[UserError] = []
    try:
        lab.check_writable()
        device = Devices.here().kinds[0].name
    except UserError as error:
        wrong.append(error)
    open_runs = lab.of_sweeps(lambda s: check_files(pending_tasks(load_plan(s), lab)), wrong)
    warnings = [*dict.fromkeys(line for lines in open_runs.values() for line in lines)]
    rehearsal = f"{STANDS_IN}; what it gives is for a rehearsal alone, bring the real one"
    warnings += [f"{name}: {rehearsal}" for name, why in absent.items() if why == STANDS_IN]
    if (free := free_bytes(lab)) < LEAST_FREE:
        warnings.append(f"{amount(free)} are free; `tread-lab gc` lists what can go of a lab")
    code = max((error.exit_code for error in wrong), default=UNFINISHED if warnings else DONE)
    if options.as_json:
        tree = {
            "device": device,
            "free_bytes": free,
            "files": {
                name: {
                    **{k: v for k, v in asdict(file).items() if k != "check"},
                    "sha256": file.sha256 or None,
                    "here": None if absent[name] is None else not absent[name],
                    "why_not": absent[name] or None,
                }
                for name, file in REQUIRED.items()
            },
            "wrong": [*map(str, wrong)],
            "warnings": warnings,
            "exit_code": code,
        }
        print(json.dumps(tree, indent=1))
        return code
    show_files(absent)
    answer(f"device: {device}; {amount(free)} free at {lab.root}")
    for line in [*(f"wrong: {e}" for e in wrong), *(f"warning: {w}" for w in warnings)]:
        answer(line)
    if code == DONE:
        say("all well")
    return code


def show_files(absent: Mapping[str, str | None]) -> None:
    """Print where each required file comes from and whether it is here."""
    here = {None: "-", "": "yes", STANDS_IN: "stand-in"}
    heads = ("file", "here", "size", "SHA-256", "purpose", "named by", "from")
    rows = [
        [
            name,
            here.get(absent[name], "no"),
            file.size,
            file.sha256[:12] or "not known",
            file.purpose,
            file.named_by,
            file.origin,
        ]
        for name, file in REQUIRED.items()
    ]
    answers.print(fitted(heads, rows, drop=["purpose", "from"], width=answers.width))
    for name, why in absent.items():
        if why not in (*here, f"{REQUIRED[name].named_by} is not set"):
            answer(f"{name}: {why}")


def _stand_ins(folder: Path) -> int:
    """Make stand-ins and print what can be done with them."""
    from tread_lab.prepare.stand_ins import walk, write_stand_ins

    made = {}
    for name, path in write_stand_ins(folder):
        made[name] = path
        say(f"{path}: made")
    say("random numbers, for a rehearsal alone; run these commands, then bring the real files:")
    print("\n".join(walk(folder, made)))
    return DONE
