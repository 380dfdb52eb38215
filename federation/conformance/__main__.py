"""`python -m federation.conformance quota FILE.json … [--rules kueue|mesh] [--json]`: run cases and tell which pass.

One line of JSON per case, then `N passed, M failed` (with `--json` as JSON, too). Exit code 0: all passed; 1: some failed, or
there are none; 2: a file could not be read, and the message says where and what to do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import TextIO

from federation.conformance.judging import judge_all, read_cases
from federation.conformance.quota_cases import run_case
from federation.quota.policies import KUEUE, MESH
from mesh.conformance.program import Judge, judge_files

RULES = {"kueue": KUEUE, "mesh": MESH}


def main(arguments: Sequence[str], out: TextIO, errors: TextIO) -> int:
    """Run the files that `arguments` name; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m federation.conformance", description="Run cases against the quota core.")
    parser.add_argument("subject", choices=["quota"], help="what the cases are about")
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE.json",
        help="cases; keys, units, words and an example stand in docs/quota.md, at the end",
    )
    parser.add_argument("--rules", choices=sorted(RULES), default="kueue", help="whose rules; the cases expect Kueue's")
    parser.add_argument("--json", action="store_true", help="write the last line as JSON, too")
    options = parser.parse_args(arguments)
    judge = Judge(read=read_cases, judge=partial(judge_all, run=partial(run_case, RULES[options.rules])))
    return judge_files(options.files, judge, as_json=options.json, out=out, errors=errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
