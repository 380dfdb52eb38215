"""Errors as a terminal and programs are told them. Loads next to nothing: every command may end so."""

from __future__ import annotations

import json
import re

from rich.console import RenderableType

from mesh.errors import MeshError
from serve_apps.cli.output import Text


def error_line(message: str) -> RenderableType:
    """An error as one clear statement."""
    return Text.assemble(("error: ", "bold red"), message)


def error_json(error: MeshError) -> str:
    """An error for programs: `code` is the root's own, or the name of its type; `problems` are those of what was refused."""
    code = getattr(error, "code", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
    problems = [{"place": place, "problem": problem} for place, problem in getattr(error, "problems", ())]
    return json.dumps({"error": {"code": code, "message": str(error), "problems": problems}}, indent=2, ensure_ascii=False)
