"""`python -m dag.conformance planning FILE.json …` and `python -m dag.conformance workflow FILE.json.gz --meshes MESHES.json`.

`planning` prints one line of JSON per case, then `N passed, M failed` (as JSON with `--json`). Exit code 0: all passed; 1: some failed;
2: a file could not be read, and the message says where and what to do.

`workflow` prints one JSON object with the metrics of a WfFormat file on some meshes. Exit code 0, or 2 as above.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TextIO

from dag.conformance.planning_cases import read_planning_cases, run_planning_cases
from dag.conformance.workflow_report import report_workflow
from mesh.conformance.program import CaseRunner, run_files


def main(arguments: Sequence[str], out: TextIO, errors: TextIO) -> int:
    """Run a command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dag.conformance", description="Check the planner on cases, or plan a workflow.")
    commands = parser.add_subparsers(dest="subject", required=True)
    planning = commands.add_parser("planning", help="cases with known schedules; docs/planning.md describes the files")
    planning.add_argument("files", nargs="+", metavar="FILE.json", help="files of cases")
    planning.add_argument("--json", action="store_true", help="also write the last line as JSON")
    workflow = commands.add_parser("workflow", help="metrics of a WfFormat workflow on some meshes")
    workflow.add_argument("file", metavar="FILE.json.gz", help="WfFormat 1.5, as .json or .json.gz")
    workflow.add_argument("--meshes", required=True, metavar="MESHES.json", help='meshes, like {"A": {"slots": 4, "speed": 1.0}}')
    workflow.add_argument(
        "--assign", metavar="NODE_TO_MESH.json", help="mesh of each task for cuts and stages; default: by the CRC-32 of its type"
    )
    options = parser.parse_args(arguments)
    if options.subject == "workflow":
        return report_workflow(options.file, options.meshes, options.assign, out, errors)
    runner = CaseRunner(read=read_planning_cases, judge=run_planning_cases)
    return run_files(options.files, runner, as_json=options.json, out=out, errors=errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
