"""`python -m federation.conformance quota FILE.json … [--rules kueue|mesh] [--json]`: run cases and tell which pass.

One line of JSON per case, then `N passed, M failed` (with `--json` as JSON, too). Exit code 0: all passed; 1: some failed, or
there are none; 2: a file could not be read, and the message says where and what to do.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TextIO

from federation.conformance.fields import CaseError
from federation.conformance.judging import judge_all, read_cases
from federation.conformance.quota_cases import run_case
from federation.quota.policies import KUEUE, MESH

RULES = {"kueue": KUEUE, "mesh": MESH}


def main(arguments: Sequence[str], out: TextIO, errors: TextIO) -> int:
    """Run the files that `arguments` name; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m federation.conformance", description="Run cases against the quota core.")
    parser.add_argument("subject", choices=["quota"], help="what the cases are about")
    parser.add_argument("files", nargs="+", metavar="FILE.json", help="cases, as docs/quota.md describes them")
    parser.add_argument("--rules", choices=sorted(RULES), default="kueue", help="whose rules; the cases expect Kueue's")
    parser.add_argument("--json", action="store_true", help="write the last line as JSON, too")
    options = parser.parse_args(arguments)
    cases = []
    for file in options.files:
        try:
            cases += read_cases(pathlib.Path(file).read_text(encoding="utf-8"))
        except CaseError as wrong:
            errors.write(f"{file}:{wrong}\n")
            return 2
        except (OSError, UnicodeDecodeError) as wrong:
            errors.write(f"{file}:1: cannot be read: {wrong}; name a JSON file in UTF-8\n")
            return 2
    passed = failed = 0
    for verdict in judge_all(cases, partial(run_case, RULES[options.rules])):
        out.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
        passed, failed = passed + verdict.passed, failed + (not verdict.passed)
    out.write(json.dumps({"passed": passed, "failed": failed}) + "\n" if options.json else f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
