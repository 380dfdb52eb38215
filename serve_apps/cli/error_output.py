"""Errors as one line or as JSON. Imports almost nothing, because every command may end in an error."""

from __future__ import annotations

import json
import re

from rich.console import RenderableType

from mesh.errors import MeshError
from serve_apps.cli.output import Text


def error_line(message: str) -> RenderableType:
    """Format an error as one line."""
    return Text.assemble(("error: ", "bold red"), message)


def error_json(error: MeshError) -> str:
    """Format an error as JSON: `code` is the root's code or the error's type, `problems` are the root's problems."""
    code = getattr(error, "code", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
    problems = [{"place": place, "problem": problem} for place, problem in getattr(error, "problems", ())]
    return json.dumps({"error": {"code": code, "message": str(error), "problems": problems}}, indent=2, ensure_ascii=False)
