"""`dag.program`: a script with its working directory and packages as a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dag.client.programs import program_node
from dag.client.tasks import Node, named_call
from dag.errors import GraphTypeError, SpecError
from dag.store.working_dir import packed


@named_call
def program(
    command: str | Sequence[Any],
    *,
    working_dir: str | Path | None = None,
    excludes: Sequence[str] = (),
    env_vars: Mapping[str, str] | None = None,
    pip: str | Path | Sequence[str] | None = None,
    size: int = 1,
    strategy: str = "PACK",
    **options: Any,
) -> Node:
    """Return a node that runs a program, as `ray job submit` runs it: `dag.program("python train.py", working_dir=".", num_gpus=1)`.

    Its value is 0; another exit code fails the node. Within the program, `ray.init()` connects to the cluster that it runs in, in the
    placement group of the node.

    Args:
        command: A line for the shell, or the command and its arguments as a list, in which nodes stand for their values.
        working_dir: Folder that is sent along and in which the command runs; None: an empty one.
        excludes: Patterns, as in a `.gitignore`, of what is left out of it.
        env_vars: Further variables of its environment.
        pip: Packages, or the path of a requirements file.
        size: Number of bundles of its placement group. `num_cpus`, `num_gpus`, `memory` and `resources` are the amounts of each.
        strategy: Ray's, for several bundles.
        options: As for `dag.task`.

    Raises:
        GraphTypeError: The command is empty or of a wrong type, or an option is unknown.
        SpecError: The folder is missing or too large, or an option has a wrong value.
    """
    archive = packed(working_dir, excludes=excludes) if working_dir is not None else None
    packages = _packages(pip)
    if packages:
        environment = options.get("runtime_env") or {}
        if "pip" in environment:
            raise GraphTypeError("packages stand in `pip` and in runtime_env['pip']; give one of the two")
        options["runtime_env"] = {**environment, "pip": packages}
    given = {"size": size, "strategy": strategy, **options}
    return program_node(command, archive=archive, env_vars=env_vars, options=given)


def _packages(pip: str | Path | Sequence[str] | None) -> list[str]:
    if pip is None:
        return []
    if not isinstance(pip, (str, Path)):
        return list(pip)
    try:
        lines = Path(pip).expanduser().read_text("utf-8").splitlines()
    except OSError as missing:
        raise SpecError(
            (("", f"requirements file {pip} cannot be read: {missing.strerror}; or give packages, pip=['torch==2.4']"),)
        ) from None
    return [line for line in (each.partition(" #")[0].strip() for each in lines) if line and not line.startswith("#")]
