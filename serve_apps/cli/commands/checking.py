"""Command `validate`: checks a file without starting or contacting anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from dag.errors import SpecError
from dag.spec.json_places import nearest, places_of
from dag.spec.spec import parse
from federation.child.stage_plugins import StagePlugins
from federation.config.models import FederationConfig
from federation.config.sections.meshes import MeshLink
from federation.errors import ConfigError
from federation.file_problems import FileProblem, in_parts
from mesh.core.counting import counted
from mesh.plugins import WASM_SUFFIXES, PluginError
from mesh.policies.catalogue import parts_of
from mesh.ray.plugins.plugin_loading import load_plugin
from serve_apps.cli.output import console_for, print_json
from serve_apps.cli.session import JsonOption
from serve_apps.cli.spec_file import names_spec
from serve_apps.configuration.config_file import read_config, unread


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """Problems and warnings of a file."""

    problems: tuple[FileProblem, ...] = ()
    warnings: tuple[FileProblem, ...] = ()
    described: str = ""  #: Summary, if there are no problems.


def register(app: typer.Typer) -> None:
    app.command()(validate)


def validate(
    file: Annotated[Path, typer.Argument(help="A federation file (.yaml) or a dag/1 spec (.json).", metavar="FILE")],
    as_json: JsonOption = False,
) -> None:
    """Check a file: print every error, then the warnings."""
    checked = _check_spec(file) if names_spec(str(file)) else _check_config(file)
    problems, warnings = checked.problems, checked.warnings
    if as_json:
        described = {"problems": [_for_programs(one) for one in problems], "warnings": [_for_programs(one) for one in warnings]}
        print_json(json.dumps({"file": str(file), "ok": not problems, **described}, indent=2, ensure_ascii=False))
    else:
        out = console_for(stderr=bool(problems))
        last = f"{file}: {counted(len(problems), 'problem')}" if problems else checked.described
        for line in (*map(str, problems), *(f"warning: {warning}" for warning in warnings), last):
            out.print(line, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def _check_config(file: Path) -> _Checked:
    try:
        config = read_config(file)
    except ConfigError as wrong:
        return _Checked(problems=wrong.located, warnings=wrong.warnings)
    problems, unused = _plugins_in(config)
    described = (counted(len(config.clusters), "cluster"), counted(len(config.meshes), "mesh"), counted(len(config.flavors), "flavor"))
    return _Checked(problems=problems, warnings=(*config.warnings, *unused), described=f"{file}: ok, {', '.join(described)}")


def _plugins_in(config: FederationConfig) -> tuple[tuple[FileProblem, ...], tuple[FileProblem, ...]]:
    """Load the WebAssembly plugins, which can do no harm; return problems and warnings. Python is imported by the mesh's process only."""
    problems, warnings = [], []
    for mesh, section in config.meshes.items():
        loaded = []
        for name, source in section.plugins.items() if section.link is not MeshLink.JOINS else ():
            try:
                loaded += [load_plugin(name, source)] if source.endswith(WASM_SUFFIXES) else []
            except PluginError as wrong:
                problems.append(config.problem_at(("meshes", mesh, "plugins", name), str(wrong)))
        try:
            warnings += [config.problem_at(("meshes", mesh, "plugins"), words) for words in StagePlugins(loaded).unused]
        except PluginError as wrong:
            problems.append(config.problem_at(("meshes", mesh, "plugins"), str(wrong)))
        without_score = {plugin.name for plugin in loaded if plugin.score is None}
        for pool, declared in section.pools.items():
            for name in sorted(without_score & {part for _, part in parts_of(declared.policy)}):
                text = f"plugin {name} has no score(); name a plugin that has one, or a built-in policy"
                problems.append(config.problem_at(("meshes", mesh, "pools", pool, "policy"), text))
    return tuple(problems), tuple(warnings)


def _check_spec(file: Path) -> _Checked:
    try:
        body = file.read_bytes()
        spec = parse(body)
    except OSError as refused:
        return _Checked(problems=(unread(file, refused),))
    except SpecError as wrong:
        return _Checked(problems=tuple(sorted(_located(file, body, wrong), key=lambda one: (one.line or 0, one.column or 0, one.place))))
    return _Checked(described=f"{file}: ok, {counted(len(spec.nodes), 'node')}, {counted(len(spec.outputs), 'output')}")


def _located(file: Path, body: bytes, wrong: SpecError) -> Iterator[FileProblem]:
    """Return the problems of a spec with their lines; a file that is not JSON has one problem, where parsing fails."""
    text = body.decode(errors="replace")
    try:
        json.loads(text)
        places, broken = places_of(text), None
    except json.JSONDecodeError as no_json:
        places, broken = {}, (no_json.lineno, no_json.colno)
    except (ValueError, RecursionError):  # JSON that the parser refuses as a whole: nested too deep, numbers too long.
        places, broken = {}, None
    for place, problem in wrong.problems:
        line, column = broken or (nearest(places, place) if place and places else (None, None))
        message, remedy = in_parts(problem)
        yield FileProblem(source=str(file), line=line, column=column, place=place, message=message, remedy=remedy)


def _for_programs(one: FileProblem) -> dict[str, object]:
    """Return the problem as JSON without its file, which stands above."""
    return {name: value for name, value in asdict(one).items() if name != "source"}
