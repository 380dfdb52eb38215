"""`python -m federation.conformance quota FILE.json … [--rules kueue|mesh] [--as core|deployed] [--json]`: run cases, report which pass.

The output is one line of JSON per case, then `N passed, M failed` (also as JSON with `--json`). Exit code 0: all passed; 1: some failed,
or there are no cases; 2: a file could not be read, and the message says where and what to do.

With `--as deployed` the cases run on a ledger, child meshes and a planner. The sum is then `N passed, M failed, K not expressible`, and
exit code 1 means that a case differs from Kueue and is not listed as a known difference, or that a listed case passes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import TextIO

import structlog

from federation.conformance.case_stores import NewStore, RedisCases, memory_store
from federation.conformance.deployed_case_runner import report, run_all_deployed
from federation.conformance.deployed_runs import run_deployed
from federation.conformance.known_differences import by_case
from federation.conformance.quota_case_runner import read_cases, run_all
from federation.conformance.quota_cases import run_case
from federation.errors import ConfigError, StoreUnavailable
from federation.quota.policies import KUEUE, MESH
from mesh.conformance.program import CaseRunner, read_files, run_files

RULES = {"kueue": KUEUE, "mesh": MESH}
#: Level of the log: cases preempt work on purpose, and a warning of each would hide the results.
ERRORS_ONLY = 40
CORE, DEPLOYED = "core", "deployed"  # Values of `--as`.


def main(arguments: Sequence[str], out: TextIO, errors: TextIO) -> int:
    """Run the files named in `arguments`; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m federation.conformance", description="Run cases of quota.")
    parser.add_argument("subject", choices=["quota"], help="what the cases are about")
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE.json",
        help="files of cases; docs/quota.md describes keys, units and words at its end, with an example",
    )
    parser.add_argument("--rules", choices=sorted(RULES), default="kueue", help="rules to apply; the cases expect Kueue's")
    parser.add_argument(
        "--as",
        dest="form",
        choices=[CORE, DEPLOYED],
        default=CORE,
        help="what runs: the quota core alone, or a ledger, child meshes and a planner in virtual time; docs/conformance.md says how a "
        "case becomes a federation, and lists the known differences",
    )
    parser.add_argument("--redis", metavar="URL", help=f"with `--as {DEPLOYED}`: keep the ledger on this server; default: in memory")
    parser.add_argument("--json", action="store_true", help="also write the last line as JSON")
    options = parser.parse_args(arguments)
    if options.form == DEPLOYED:
        cases = read_files(options.files, read_cases, errors)
        if cases is None:
            return 2
        try:
            new_store: NewStore = memory_store if options.redis is None else RedisCases(options.redis).store
        except (ConfigError, StoreUnavailable) as refused:
            errors.write(f"--redis {options.redis}: {refused}\n")
            return 2
        results = run_all_deployed(cases, partial(run_deployed, new_store, RULES[options.rules]), by_case())
        return report(results, as_json=options.json, out=out, errors=errors)
    if options.redis is not None:
        parser.error(f"the quota core has no ledger; use --redis together with --as {DEPLOYED}")
    runner = CaseRunner(read=read_cases, judge=partial(run_all, run=partial(run_case, RULES[options.rules])))
    return run_files(options.files, runner, as_json=options.json, out=out, errors=errors)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(ERRORS_ONLY))
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
