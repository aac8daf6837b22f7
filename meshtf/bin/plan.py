"""meshtf-plan: predicts the needs and the traffic of a training on a mesh of any size, without devices."""

from __future__ import annotations

import dataclasses
import errno
import functools
import sys
from collections.abc import Callable, Sequence

from absl import flags

from meshtf.bin.layouts.chosen_layout import check_no_search_flags, read_with_layout, search_effort, told_progress
from meshtf.bin.layouts.plan_layouts import LayoutPlanner
from meshtf.bin.shared.configuration_flags import gin_files, mesh_bindings, run_files
from meshtf.bin.shared.output_file import (
    check_can_be_written,
    check_is_no_device,
    check_overwrites_no_configuration,
    check_overwrites_no_input,
)
from meshtf.bin.shared.run_program import run_program
from meshtf.costs import load_machine
from meshtf.files.replaced_file import replace_file
from meshtf.plan_view.html_page import html_page
from meshtf.plan_view.page_data import page_data
from meshtf.plan_view.plan_json import plan_json
from meshtf.plan_view.plan_server import HOST, PlanServer
from meshtf.plan_view.planned_layout import PlannedLayout, Settings
from meshtf.plan_view.terminal import print_comparison, print_summary
from meshtf.train.training import Training
from meshtf_programs.command_lines.plan import PROGRAM, command_line
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.user_paths import user_path

__all__ = ["PROGRAM", "command_line", "main", "run"]

_AS_CONFIGURED = "as configured"
_PORT_IN_USE = "--port={port}: {why}. Give another port, or none, for one that is free."
_NOT_SERVED = "--{flag} has no effect with --serve; leave out one of them"
_NO_PORT = "--port has no effect without --serve"
_NOT_POSSIBLE = "{program}: --compare={label!r} is not possible: {error}"


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Plans, and returns the exit status."""
    return run_program(command_line(), prepare, arguments, has_mesh=False)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, and lowers the training step in every layout that was asked for."""
    _check_output_flags(values)
    machine = None if values.machine is None else load_machine(values.machine)
    of_run, of_flag = run_files(values), gin_files(values)
    read = {"--model_dir": of_run, "--gin_file": of_flag, "--machine": [values.machine] if values.machine else []}
    for flag, paths in read.items():
        check_overwrites_no_input(values.html, flag, paths, given="--html")
    files, parameters = [*of_run, *of_flag], [*values.gin_param, *mesh_bindings(values)]
    chosen = read_with_layout(values, files, parameters)
    check_overwrites_no_configuration(values.html, given="--html")
    if chosen is not None:
        parameters = [*parameters, *chosen.bindings]
        print(chosen, file=sys.stderr if values.json else sys.stdout)
    elif not (values.compare or values.serve):  # which may search, too
        check_no_search_flags(values, "search_operations", "search_seconds")
    with told_progress() as tell:
        effort = search_effort(values, tell)
        planner = LayoutPlanner(files, parameters, values.processes, machine, values.allow_unread_bindings, effort)
        others = planner.compared(values.compare)
    # This comes last, so that gin holds the configuration whose variants a page can request.
    training, first = planner.as_configured(_AS_CONFIGURED)
    layouts = [first if chosen is None else dataclasses.replace(first, search=str(chosen)), *others]
    if values.serve:
        return functools.partial(_serve, _listening(values.port, planner, training), layouts)
    return functools.partial(_write, layouts, values.html, values.json, values.full)


def _check_output_flags(values: flags.FlagValues) -> None:
    """Checks --html, --json, --full, --serve and --port, before anything is planned.

    Raises:
      FlagError: if one of them would have no effect, or the file of --html is a device.
      OSError: if the file of --html cannot be written.
    """
    if useless := [flag for flag in ("html", "json", "full") if values.serve and values[flag].value]:
        raise FlagError(_NOT_SERVED.format(flag=useless[0]))
    if values.port and not values.serve:
        raise FlagError(_NO_PORT)
    check_is_no_device(values.html, "--html")
    check_can_be_written(values.html, "--html")


def _write(layouts: Sequence[PlannedLayout], html: str | None, as_json: bool, full: bool) -> int:
    """Writes the requested output, to standard output and into a file.

    An impossible layout gets a message, and an exit status of its own.
    """
    if as_json:
        print(plan_json(layouts, full=full))
    elif full:
        _print_reports(layouts)
    elif len(layouts) == 1:
        print_summary(layouts[0])
    if len(layouts) > 1 and not as_json:
        print_comparison(layouts)
    if html is not None:
        replace_file(user_path(html), html_page(page_data(layouts[0].headline, layouts)).encode())
    failed = [layout for layout in layouts if layout.report is None]
    for layout in failed:
        print(_NOT_POSSIBLE.format(program=PROGRAM, label=layout.label, error=layout.error), file=sys.stderr)
    return ExitStatus.BAD_CONFIGURATION if failed else ExitStatus.DONE


def _print_reports(layouts: Sequence[PlannedLayout]) -> None:
    for layout in layouts:
        if layout.report is not None:
            print(*([f"{layout.label}:"] if len(layouts) > 1 else []), layout.headline, layout.report, sep="\n")
            print(
                *([] if layout.prediction is None else [layout.prediction]),
                sep="\n",
                end="\n\n" if len(layouts) > 1 else "",
            )


def _listening(port: int, planner: LayoutPlanner, training: Training) -> PlanServer:
    def plan(settings: Settings, tell: Callable[[object], None]) -> PlannedLayout:
        return planner.again(training, settings, tell)

    try:
        return PlanServer(port, plan)
    except OSError as error:
        why = f"it is in use on {HOST}" if error.errno == errno.EADDRINUSE else f"{error.strerror} on {HOST}"
        raise FlagError(_PORT_IN_USE.format(port=port, why=why)) from error


def _serve(server: PlanServer, layouts: Sequence[PlannedLayout]) -> int:
    """Serves the page until it is interrupted, which is its normal end."""
    server.page = html_page(page_data(layouts[0].headline, layouts, plan_again=server.plan_path))
    print(f"{server.address}\nThe page is for this machine alone. Ctrl-C ends it.", flush=True)
    try:
        server.serve()
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
