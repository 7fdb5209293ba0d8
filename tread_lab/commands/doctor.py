"""The doctor command: examine nodes, name the files that users bring, make stand-ins for them."""

from __future__ import annotations

import os
from pathlib import Path

from tread_lab.commands.options import DONE, Doctor
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.sweep.execution.health import Finding, judge, of_driver, question
from tread_lab.sweep.plan.plan import pending_tasks
from tread_lab.sweep.plan.storage import load_plan
from tread_lab.terminal.console import say
from tread_lab.terminal.doctor import doctor_json, show_files, show_findings, show_nodes


def doctor(options: Doctor) -> int:
    """Examine this machine, or every node of the cluster; return the exit code by the worst."""
    if options.stand_ins is not None:
        if options.as_json:
            raise UserError("--stand-ins: prints commands for a shell; leave --json out")
        return _stand_ins(options.stand_ins)
    lab = Lab.at(options.root)
    problems: list[UserError] = []
    plans = lab.of_sweeps(lambda sweep: pending_tasks(load_plan(sweep), lab), problems)
    with question(lab.root, [task for tasks in plans.values() for task in tasks]) as asked:
        name, driver = of_driver(asked)
        nodes = {name: driver}
        if os.environ.get("RAY_ADDRESS"):
            from tread_lab.sweep.execution.ray_probe import nodes_health

            nodes |= nodes_health(asked)
    cells, findings = judge(nodes, driver)
    findings += [Finding(name, "records", str(error), error.exit_code) for error in problems]
    code, absent = max((one.code for one in findings), default=0), driver.absent or {}
    if options.as_json:
        print(doctor_json(cells, absent, findings, code))
        return code
    show_nodes(cells)
    show_files(absent)
    show_findings(findings)
    return code


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
