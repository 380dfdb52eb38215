"""Documents against the code: complete, and without invented names."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from source_tree import expect_none

import dag
import dag.errors
import mesh
from dag.client.compiling import compile_graph
from dag.client.from_ray import RAY_OPTIONS
from dag.run.states import NODE_TRANSITIONS, RUN_TRANSITIONS, STAGE_TRANSITIONS
from dag.spec.document import CodeSpec, GraphDocument, NodeSpec, OutputSpec
from dag.spec.forms import _KNOWN as FORMS
from dag.spec.options import NodeOptions
from dag.spec.plans import plans_of
from dag.spec.spec import parse
from federation.config.sections.section import Section
from mesh.core.reasons import Reason
from mesh.core.task_spec import TRANSITIONS
from mesh.jobs.states import MEMBER_TRANSITIONS, SCHEDULE_TRANSITIONS
from mesh.jobs.states import STAGE_TRANSITIONS as JOB_TRANSITIONS
from mesh.observability.metric_targets import MetricsSnapshot
from mesh.policies.catalogue import POLICIES
from mesh.ray.local import supervision_errors
from mesh.ray.local.agent import agent_errors
from mesh.ray.local.client.actor_group import ActorGroup
from mesh.ray.local.status_values import MeshEventKind
from mesh.ray.user_code import task_context
from mesh.ray.user_code.task_context import TaskContext
from serve_apps import configuration_docs, states_docs
from serve_apps.cli.app import app as terminal
from serve_apps.codes import pages as code_pages
from serve_apps.codes.errors import ERRORS
from serve_apps.gateway_fixtures import GatewayWorld
from serve_apps.requests.errors import INTERNAL, MEANINGS

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md")
    for page in ROOT.glob(pattern)
)


MESH = "docs/mesh"  #: The pages about the local mesh, read as one: a reader looks for a name in all of them.


@cache
def text_of(page: str) -> str:
    if page == MESH:
        return re.sub(r"^# ", "## ", "".join(text_of(f"{MESH}/{name}.md") for name in mesh_pages()), flags=re.MULTILINE)
    return (ROOT / page).read_text(encoding="utf-8")


def mesh_pages() -> list[str]:
    """Return the names of the local mesh's pages, in the order of its README."""
    return ["README", *re.findall(r"^\| \[\w+\]\((\w+)\.md\)", text_of(f"{MESH}/README.md"), flags=re.MULTILINE)]


def test_the_readme_of_the_mesh_lists_all_its_pages():
    assert sorted(mesh_pages()) == sorted(page.stem for page in (ROOT / MESH).glob("*.md"))


@cache
def sections(page: str, level: str) -> dict[str, str]:
    """Map headings to their text, up to the next heading of this level or a higher one."""
    found = re.findall(rf"^{level} (.+)\n([\s\S]*?)(?=^#{{1,{len(level)}}} |\Z)", text_of(page), flags=re.MULTILINE)
    return dict(found)


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row."""
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n([\s\S]*?)^```", text_of(page), flags=re.MULTILINE)


# -- generated pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "written"),
    [
        pytest.param("docs/configuration.md", configuration_docs.page, id="every key of the federation file"),
        pytest.param("docs/states.md", states_docs.page, id="every state"),
        pytest.param("docs/codes.md", code_pages.page, id="every reason and every error"),
    ],
)
def test_a_generated_page_is_what_the_code_says(page: str, written: Callable[[], str]):
    assert text_of(page) == written(), "run `make docs`"


@pytest.mark.parametrize(
    ("title", "moves"),
    [
        pytest.param("Runs", RUN_TRANSITIONS, id="of runs"),
        pytest.param("Stages", STAGE_TRANSITIONS, id="of stages"),
        pytest.param("Nodes", NODE_TRANSITIONS, id="of nodes"),
        pytest.param("Tasks of a mesh", TRANSITIONS, id="of tasks"),
        pytest.param("Jobs", JOB_TRANSITIONS, id="of jobs"),
        pytest.param("Schedule states of jobs", SCHEDULE_TRANSITIONS, id="of how much of a job has a place"),
        pytest.param("Members of jobs", MEMBER_TRANSITIONS, id="of members of jobs"),
    ],
)
def test_every_state_and_every_move_stands_on_the_page(title: str, moves: dict[Any, frozenset[Any]]):
    section = sections("docs/states.md", "##")[title]
    documented = {cells[0].strip("`"): cells for cells in rows(section)}
    for state, after in moves.items():
        _, meaning, may_become = documented[state.value]
        assert len(meaning) > len("a word")
        assert set(re.findall(r"`(\w+)`", may_become)) == {other.value for other in after}
        drawn = set(re.findall(rf"^    {state.value} --> (\w+)$", section, flags=re.MULTILINE))
        assert drawn == {other.value for other in after}


def test_every_reason_has_its_meaning_on_the_page():
    documented = {cells[0].strip("`"): cells[2] for cells in rows(sections("docs/codes.md", "##")["Reasons"])}
    expect_none([reason.value for reason in Reason if not documented.get(reason.value, "").endswith(".")])


def models(parent: type[Section] = Section) -> Iterator[type[Section]]:
    for model in parent.__subclasses__():
        yield model
        yield from models(model)


def test_every_key_of_the_federation_file_stands_on_its_page():
    text = {cells[0].strip("`") for cells in rows(text_of("docs/configuration.md"))}
    keys = [(model.__name__, field.alias or name) for model in models() for name, field in model.model_fields.items()]
    expect_none([f"{model}: {key}" for model, key in keys if key not in text])


# -- the command line ---------------------------------------------------------------------------------------------------


def commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name), command


COMMANDS = dict(commands(typer.main.get_command(terminal)))


def documented_for(command: tuple[str, ...]) -> str:
    """Return the command's rows and the words of its section about all commands."""
    opening = f"| `schedulemesh {' '.join(command)}"
    for section in sections("docs/terminal.md", "##").values():
        lines = section.splitlines()
        begin = next((index for index, line in enumerate(lines) if re.match(rf"{re.escape(opening)}[ `]", line)), None)
        if begin is not None:
            end = next((index for index in range(begin + 1, len(lines)) if lines[index].startswith("| `schedulemesh ")), len(lines))
            return "\n".join([*lines[begin:end], *(line for line in lines if not line.startswith(("|", "schedulemesh ")))])
    return ""


def test_every_command_and_option_stands_on_the_terminals_page():
    missing = []
    for command, made in COMMANDS.items():
        documented = documented_for(command)
        options = [option for parameter in made.params for option in (*parameter.opts, *parameter.secondary_opts)]
        lacking = [option for option in options if option.startswith("--") and not re.search(rf"`{option}[ `]", documented)]
        missing += [f"`schedulemesh {' '.join(command)}` {option}" for option in (lacking if documented else ["has no row"])]
    expect_none(missing)


def test_cli_page_names_only_existing_commands_and_options():
    page = text_of("docs/terminal.md")
    named = {tuple(words.split()) for words in re.findall(r"^\| `schedulemesh ([a-z -]*[a-z])[ `]", page, flags=re.MULTILINE)}
    assert named == set(COMMANDS)
    known = {
        option
        for command in (typer.main.get_command(terminal), *COMMANDS.values())
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert set(re.findall(r"`(--[a-z-]+)", page)) - {"--help"} <= known


def command_lines() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        code = [*blocks(page, "sh"), *re.findall(r"^(?: {4}.*\n)+", text_of(page), flags=re.MULTILINE)]
        found += [(page, line.strip()) for block in code for line in re.findall(r"schedulemesh [a-z][^)|#\n]*", block)]
        found += [(page, line) for line in re.findall(r"`(schedulemesh [a-z]+ [^`A-Z]*)`", text_of(page))]
    return found


def test_every_command_line_in_the_documents_can_be_given():
    wrong = []
    for page, line in command_lines():
        words = shlex.split(line)[1:]
        depth = 2 if tuple(words[:1]) not in COMMANDS else 1
        command = COMMANDS.get(tuple(words[:depth]))
        try:
            if command is None:
                wrong.append(f"{page}: `{line}`: there is no such command")
            else:
                command.make_context("schedulemesh", words[depth:])
        except click.UsageError as refused:
            wrong.append(f"{page}: `{line}`: {refused.message}")
    expect_none(wrong)
    assert command_lines()


# -- HTTP --------------------------------------------------------------------------------------------------------------

OPENAPI = GatewayWorld().app.openapi()
ROUTES = {f"`{method.upper()} {path}`": route for path, methods in OPENAPI["paths"].items() for method, route in methods.items()}


def test_http_page_lists_exactly_the_routes():
    assert set(sections("docs/http.md", "###")) == set(ROUTES)


def test_every_route_parameter_is_documented_at_its_route():
    documented = {route: text.lower() for route, text in sections("docs/http.md", "###").items()}
    named = [(route, each["name"].lower()) for route, made in ROUTES.items() for each in made.get("parameters", []) if each["in"] != "path"]
    expect_none([f"{route}: {name}" for route, name in named if f"`{name}`" not in documented[route]])


def test_every_error_code_stands_with_its_status():
    documented = {code: str(known.status) for code, known in ERRORS.items()}
    own = {meaning.code: str(meaning.status.value) for meaning in (*(meaning for _, meaning in MEANINGS), INTERNAL)}
    assert own.items() <= documented.items()


@pytest.mark.parametrize("model", [GraphDocument, NodeSpec, NodeOptions], ids=lambda model: model.__name__)
def test_every_key_of_a_graph_stands_in_a_table(model: Any):
    text = {key for cells in rows(text_of("docs/http.md")) for key in re.findall(r"`([^`]+)`", cells[0])}
    assert {field.alias or name for name, field in model.model_fields.items()} <= text


def test_every_form_and_small_object_key_is_documented():
    page = text_of("docs/http.md")
    keys = [field.alias or name for model in (OutputSpec, CodeSpec) for name, field in model.model_fields.items()]
    expect_none([key for key in (*FORMS, *keys) if f'"{key}": ' not in page])


def test_the_graphs_on_the_page_about_http_are_accepted():
    graphs = [json.loads(block) for block in blocks("docs/http.md", "json")]
    assert graphs
    for graph in graphs:
        assert set(plans_of(parse(json.dumps(graph).encode()))) == set(graph["nodes"])


# -- Python ------------------------------------------------------------------------------------------------------------


def first_cells() -> set[str]:
    return {documented for cells in rows(text_of("docs/python.md")) for documented in re.findall(r"`([^`]+)`", cells[0])}


def test_every_public_name_has_a_row():
    expect_none([name for name in dag.__all__ if not any(re.match(rf"dag\.{name}\b", documented) for documented in first_cells())])


@pytest.mark.parametrize("kind", [dag.Client, dag.Run], ids=lambda kind: kind.__name__)
def test_every_public_member_has_a_row(kind: type):
    documented = {match[1] for cell in first_cells() if (match := re.match(r"\.(\w+)", cell))}
    expect_none([name for name in vars(kind) if not name.startswith("_") and name not in documented])


def test_documented_parameters_match_the_public_calls():
    calls = {f"dag.{name}": getattr(dag, name) for name in ("submit", "get_run", "connect")}
    calls |= {f".{name}": call for kind in (dag.Client, dag.Run) for name, call in vars(kind).items() if inspect.isfunction(call)}
    documented = [re.fullmatch(r"(\.?[\w.]+)\(([^)]*)\)", cell) for cell in first_cells()]
    wrong = []
    for match in filter(None, documented):
        if match[1] in calls and match[1] != ".submit" and match[1] != ".events":  # Both classes have one; the next test covers these.
            own = [name for name in inspect.signature(calls[match[1]]).parameters if name != "self"]
            wrong += [match[0]] if [name for name in re.split(r",\s*", match[2]) if name not in ("*", "")] != own else []
    expect_none(wrong)


@pytest.mark.parametrize(
    ("call", "cell"),
    [
        pytest.param(dag.Client.submit, ".submit(", id="Client.submit"),
        pytest.param(dag.Client.events, ".events(run", id="Client.events"),
        pytest.param(dag.Run.events, ".events(after", id="Run.events"),
    ],
)
def test_calls_of_the_same_name_have_their_own_parameters(call: Any, cell: str):
    (documented,) = (each for each in first_cells() if each.startswith(cell))
    own = [name for name in inspect.signature(call).parameters if name != "self"]
    assert [name for name in re.split(r",\s*", documented.partition("(")[2].rstrip(")")) if name != "*"] == own


def test_every_option_of_a_node_has_a_row():
    assert {field.name for field in dataclasses.fields(dag.Options)} <= first_cells()


def test_each_option_of_ray_has_a_row_with_what_is_made_of_it():
    rows_of_ray = rows(sections("docs/python.md", "###")["Options of Ray"])
    documented = {cells[0].strip("`"): cells[1].removesuffix(" |") for cells in rows_of_ray if cells[0].startswith("`")}
    assert documented == {
        name: f"honoured as {option.honoured_as}" if option.honoured_as else f"refused: {option.refused_because}"
        for name, option in RAY_OPTIONS.items()
    }


def test_every_client_error_is_documented():
    own = {name for name, kind in vars(dag.errors).items() if isinstance(kind, type) and issubclass(kind, dag.errors.DagError)}
    assert own <= set(re.findall(r"`(\w+)`", sections("docs/python.md", "##")["Errors"]))


def test_python_in_the_documents_compiles():
    for page in PAGES:
        for block in blocks(page, "python"):
            compile(block, page, "exec")


def test_the_graph_of_the_readme_is_one():
    program = re.findall(r"^```python\n([\s\S]*?)^```", sections("README.md", "##")["Fifteen lines of Python"], flags=re.MULTILINE)[0]
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(program, "README.md", "exec"), names)  # noqa: S102  the program that a reader is asked to run
    plans = plans_of(parse(json.dumps(compile_graph(names["graph"](1_000))).encode()))
    assert len(plans) == 9
    hits = [names["throw"](1_000, seed) for seed in range(8)]
    assert 3 < names["estimate"](hits, 1_000) < 3.3


# -- the local mesh ----------------------------------------------------------------------------------------------------

#: Members that the agent and the worker of a stage call, not the task's code.
AGENTS_SIDE = {"ask_to_stop", "has_noticed", "facts", "is_used", "use", "unkept_ms"}
FACES = (mesh.ScheduleMesh, mesh.TaskHandle, mesh.JobHandle, ActorGroup, TaskContext)


def cells_of_mesh() -> list[str]:
    """Return the code in the first cells of the page's tables."""
    return [documented for cells in rows(text_of(MESH)) for documented in re.findall(r"`([^`]+)`", cells[0])]


def members_of(face: type) -> Iterator[str]:
    own = {name: None for kind in reversed(face.__mro__) if kind.__module__.startswith("mesh.") for name in vars(kind)}
    return (name for name in own if not name.startswith("_") and not (face is TaskContext and name in AGENTS_SIDE))


@dataclasses.dataclass(frozen=True)
class Parameter:
    """Kind and default of a parameter."""

    goes_by_name: bool
    default: str  #: As written; empty: none.


def documented_parameters(cell: str) -> dict[str, Parameter]:
    """Return the parameters of a cell; `...` stands for more of them."""
    inside = cell.partition("(")[2].removesuffix(")").removesuffix("...")
    call = ast.parse(f"def f({inside}): pass").body[0]
    assert isinstance(call, ast.FunctionDef)
    placed, defaults = [*call.args.posonlyargs, *call.args.args], call.args.defaults
    every = zip([*placed, *call.args.kwonlyargs], [*[None] * (len(placed) - len(defaults)), *defaults, *call.args.kw_defaults], strict=True)
    return {one.arg: Parameter(one in call.args.kwonlyargs, "" if default is None else ast.unparse(default)) for one, default in every}


def own_parameters(call: Any) -> dict[str, Parameter]:
    kept = inspect.signature(call).parameters.values()
    wanted = [one for one in kept if one.name not in ("self", "cls") and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    shown = {one.name: "" if one.default is one.empty else ast.unparse(ast.parse(repr(one.default), mode="eval")) for one in wanted}
    return {one.name: Parameter(one.kind is one.KEYWORD_ONLY, shown[one.name]) for one in wanted}


def test_every_public_mesh_name_is_documented():
    expect_none([name for name in mesh.__all__ if not re.search(rf"\b{name}\b", text_of(MESH))])


def test_every_mesh_member_row_has_parameters_and_defaults():
    documented, wrong = cells_of_mesh(), []
    for face, name in [(kind, name) for kind in FACES for name in members_of(kind)]:
        cells = [cell for cell in documented if re.match(rf"(ScheduleMesh)?\.{name}\b", cell)]
        if not cells:
            wrong.append(f"`{face.__name__}.{name}` has no row")
        elif not has_its_parameters(getattr(face, name), [cell for cell in cells if "(" in cell]):
            wrong.append(f"`{face.__name__}.{name}` has other parameters or defaults: {own_parameters(getattr(face, name))}")
    expect_none(wrong)


def has_its_parameters(member: Any, calls: list[str]) -> bool:
    """Return whether a cell shows the member's parameters, or some and `...`; a cell without any stands for all."""
    if not callable(member) or not calls:
        return True
    own = own_parameters(member)
    parts = [documented_parameters(cell).items() <= own.items() for cell in calls if "..." in cell]
    return any(parts) or own in [documented_parameters(cell) for cell in calls if "..." not in cell]


@pytest.mark.parametrize(
    ("call", "heading"),
    [
        pytest.param(mesh.ScheduleMesh.start, "Start, find, stop", id="of start"),
        pytest.param(mesh.ScheduleMesh.submit_task, "Tasks", id="of submit_task"),
    ],
)
def test_every_option_of_a_long_call_has_a_row(call: Any, heading: str):
    documented = {name for cells in rows(sections(MESH, "##")[heading]) for name in re.findall(r"`(\w+)`", cells[0])}
    assert set(own_parameters(call)) <= documented


def numbers_of(settings: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from numbers_of(value, f"{above}{field.name}.")
        else:
            yield above + field.name, value


@pytest.mark.parametrize(
    ("settings", "heading"),
    [
        pytest.param(mesh.SchedulerSettings(), "Settings", id="of the scheduler"),
        pytest.param(mesh.DriverSettings(), "Settings", id="of the driver"),
        pytest.param(mesh.JobSettings(), "Jobs", id="of jobs"),
        pytest.param(mesh.GroupPoolSpec(), "Pools and placement groups", id="of a pool's placement groups"),
    ],
)
def test_every_setting_of_the_mesh_has_a_row_with_its_default(settings: Any, heading: str):
    documented = {cells[0].strip("`"): cells[1].strip("`") for cells in rows(sections(MESH, "##")[heading])}
    for name, value in numbers_of(settings):
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        assert documented[name] in ({shown, f"{value:g}"} if isinstance(value, float) else {shown, "none"}), name


def test_documented_policies_are_exactly_the_existing_ones():
    documented = {name for cells in rows(sections(MESH, "##")["Where a task goes"]) for name in re.findall(r"`(\w+)`", cells[0])}
    assert documented == set(POLICIES)


def test_every_metric_of_the_mesh_has_a_row():
    documented = {cells[0].strip("`").partition("{")[0] for cells in rows(sections(MESH, "##")["Metrics, charts and the tuner"])}
    own = {field.name.removesuffix("_ms") for field in dataclasses.fields(MetricsSnapshot)}
    assert {name for name in documented if re.fullmatch(r"\w+_(p\d+|rate|count|fragmentation|gap)", name)} <= own
    assert len(documented & own) == 6


def test_every_kind_of_event_of_the_mesh_has_a_row():
    documented = {cells[0].strip("`") for cells in rows(sections(MESH, "##")["Metrics, charts and the tuner"])}
    assert {kind.value for kind in MeshEventKind} <= documented


def test_every_mesh_error_is_documented():
    modules = (supervision_errors, agent_errors, task_context)
    kinds = (kind for module in modules for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__)
    own = {kind.__name__ for kind in kinds if issubclass(kind, BaseException)}
    page = text_of(MESH)
    expect_none([name for name in own - {"SupervisionError", "NothingHosted"} if f"`{name}`" not in page])


# -- operating, and all pages ------------------------------------------------------------------------------------------


def test_documented_metrics_are_exactly_the_existing_ones():
    with GatewayWorld().http("*") as http:
        http.get("/healthz")
        scraped = set(re.findall(r"^# TYPE (\w+) ", http.get("/metrics").text, flags=re.MULTILINE))
    documented = {cells[0].strip("`") for cells in rows(sections("docs/operating.md", "##")["Metrics"])} - {"name", "---"}
    assert documented >= scraped
    assert all(name.startswith("schedulemesh_") for name in scraped)
    source = (ROOT / "serve_apps" / "telemetry" / "metrics.py").read_text(encoding="utf-8")
    made = set(re.findall(r'"(schedulemesh_\w+)"', source))
    assert {re.sub(r"_(total|seconds)$", "", name) for name in documented} == made


@cache
def slugs(page: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_protection_is_shown_by_a_test_that_is_there():
    table = [cells for cells in rows(sections("docs/security.md", "##")["What is protected from whom"]) if cells[0] not in ("asset", "---")]
    assert table
    for cells in table:
        named = re.findall(r"\[[^]]+\]\(\.\./(tests/[^)]+)\) `(\w+)`", cells[-1])
        assert named, cells[0]
        for file, test in named:
            assert re.search(rf"^(async )?def {test}\(", text_of(file), flags=re.MULTILINE), f"{file} has no {test}"


def leads_somewhere(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = ((ROOT / page).parent / path if path else ROOT / page).resolve()
    is_there = target.exists() and target.is_relative_to(ROOT)
    return is_there and (not anchor or anchor in slugs(target.relative_to(ROOT).as_posix()))


def test_every_link_leads_somewhere():
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)) if not re.match(r"[a-z]+:", link)]
    assert links
    expect_none([f"{page}: {link}" for page, link in links if not leads_somewhere(page, link)])


def test_every_file_that_is_named_is_there():
    folders = "configs|examples|tests|docs|dag|mesh|federation|serve_apps|simulator|benchmarks"
    form = re.compile(rf"(?<![\w/.])((?:{folders})/[\w/.-]+\.(?:py|md|yaml|json|lua))")
    named = [(page, file) for page in PAGES for file in form.findall(text_of(page))]
    assert named
    missing = [(page, file) for page, file in named if not any((folder / file).exists() for folder in (ROOT, (ROOT / page).parent))]
    expect_none([f"{page}: {file}" for page, file in missing])


def test_every_decision_is_listed():
    listed = set(re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", text_of("docs/adr/README.md")))
    assert listed == {file.name for file in (ROOT / "docs" / "adr").glob("0*.md")}


def test_each_question_of_contributing_leads_to_its_files():
    table = [
        cells
        for cells in rows(sections("CONTRIBUTING.md", "##")["Find your way: ten questions, ten searches"])
        if "`git " in "".join(cells)
    ]
    assert len(table) == 10
    wrong = []
    for question, *rest in table:
        code = re.findall(r"`([^`]+)`", " ".join(rest))
        searches = [shlex.split(each) for each in code if each.startswith("git ")]
        found = "".join(subprocess.run(search, cwd=ROOT, check=False, capture_output=True, text=True).stdout for search in searches)
        wrong += [f"{question}: {file}" for file in code if re.fullmatch(r"[\w/]+\.(py|lua)", file) and file not in found]
    expect_none(wrong)


def test_the_glossary_links_each_name_to_its_definition():
    links = re.findall(r"\[`(\w+)`\]\(\.\./([\w/]+\.py)\)", text_of("docs/glossary.md"))
    assert links
    expect_none([f"{file}: {name}" for name, file in links if not re.search(rf"^(class|def) {name}\b", text_of(file), flags=re.MULTILINE)])
