"""Hostile texts in errors, reasons and names, which no terminal may obey."""

import importlib
import inspect
import io
import os
import pty
import re
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest
from pydantic import BaseModel

import serve_apps.cli
from serve_apps.cli.app import error_json, error_line
from serve_apps.cli.output import SafeConsole
from serve_apps.cli.render import COLOURS
from serve_apps.gateway_fixtures import NOW_MS, RESEARCH, GatewayWorld, spec_of
from serve_apps.link_fixtures import serving
from serve_apps.requests.auth import issue

CLI = Path(serve_apps.cli.__file__).parent
#: Sets a window's title, clears the screen, moves, overrides the direction; and markup, an emoji and a link of rich's.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202e\u2028[red]:smile:[link=http://evil]x[/link][/]"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202e\u2028[red]:smile:[link=http://evil]x[/link][/]"
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]")
#: Words of the root: a table gives each its color.
STATES = {"state", "after", "before"}


def hostile(kind: typing.Any, name: str = "") -> typing.Any:
    """Return a value of the type with hostile text in every text field."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return hostile(next(part for part in parts if part is not type(None)), name)
    if origin is typing.Annotated:
        return hostile(parts[0], name)
    if origin is typing.Literal:
        return parts[0]
    if origin is list:
        return [hostile(parts[0], name)]
    if origin is dict:
        return {HOSTILE: hostile(parts[1], name)}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_construct(**{field: hostile(value.annotation, field) for field, value in kind.model_fields.items()})
    if kind in (int, float, bool):
        return kind(1)
    return "RUNNING" if name in STATES else HOSTILE


def pictures() -> list[typing.Any]:
    """Return every function that renders an answer."""
    found = []
    for file in sorted(CLI.glob("*render.py")):
        module = importlib.import_module(f"serve_apps.cli.{file.stem}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            hints = {key: hint for key, hint in typing.get_type_hints(function).items() if key != "return"}
            kind = next(iter(hints.values()), None)
            if function.__module__ == module.__name__ and isinstance(kind, type) and issubclass(kind, BaseModel):
                positional = inspect.getfullargspec(function).args[1:]
                rest = [hostile(hints[key]) for key in positional]
                found.append(pytest.param(function, kind, rest, id=name))
    return found


def printed(renderable: typing.Any, width: int = 10_000) -> str:
    console = SafeConsole(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    return typing.cast("io.StringIO", console.file).getvalue()


def test_the_pictures_of_all_commands_are_looked_at():
    names = {each.id for each in pictures()}
    assert names >= {"runs_table", "run_panel", "failure_summary", "meshes_table", "beside_the_table", "stage_picture", "history_table"}


@pytest.mark.parametrize("width", [10_000, 100])
@pytest.mark.parametrize(("picture", "kind", "rest"), pictures())
def test_a_picture_of_hostile_values_holds_no_order(picture, kind, rest, width):
    for state in COLOURS:
        view = hostile(kind)
        if "state" in kind.model_fields:
            view = view.model_copy(update={"state": state})
        drawn = picture(view, *rest)
        for part in drawn if inspect.isgenerator(drawn) else [drawn]:
            if not isinstance(part, (bool, int, list)):
                assert UNPRINTABLE.findall(printed(part, width)) == []


def test_a_hostile_text_is_shown_whole():
    assert printed(error_line(HOSTILE)).strip() == f"error: {SHOWN}"
    assert printed(HOSTILE).strip() == SHOWN
    assert UNPRINTABLE.findall(error_json(ValueError(HOSTILE))) != []  # Its printer has to escape it.


def test_all_that_is_printed_passes_one_place():
    sources = {file.name: file.read_text() for file in CLI.glob("*.py") if file.name != "output.py"}
    around = re.compile(r"rich\.text|rich\.markup|[^e]Console\(|\bprint\(|markup=True|from_markup|typer\.echo\(.*json_")
    allowed = re.compile(r"(console|\)|out|_console)\.print\(|SafeConsole\(")
    found = [
        (name, line) for name, source in sources.items() for line in source.splitlines() if around.search(line) and not allowed.search(line)
    ]
    assert found == []


@pytest.fixture(scope="module")
def address() -> typing.Iterator[tuple[str, str]]:
    """A real server with a run whose error is hostile, and its tenant's key."""
    world = GatewayWorld()
    world.client().submit_spec(spec_of("a", "b", id="night"))
    world.start("night", "a")
    world.fail("night", "a", RuntimeError(HOSTILE), ("b",))
    with serving(world.app) as url:
        yield url, issue(world.keys, RESEARCH, NOW_MS)


@pytest.mark.parametrize("arguments", [["runs"], ["watch", "night"], ["result", "night"], ["explain", "night"]], ids=" ".join)
def test_a_terminal_is_given_no_order_of_a_tenant(address, arguments):
    output = in_terminal([*arguments, "--address", address[0]], address[1])
    assert ("owned" in output) is (arguments[0] != "explain")  # It says why a run is not further, and this one has ended.
    assert "\x1b]0;owned" not in output
    assert "\x1b[2J" not in output
    assert "\x9b" not in output
    assert "\u202e" not in output


def in_terminal(arguments: list[str], key: str) -> str:
    """Return the command's output on a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "SCHEDULEMESH_API_KEY": key, "COLUMNS": "200", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "serve_apps.cli", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as command:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65_536):
                parts.append(part)
        except OSError:  # The command has closed its side.
            pass
        command.wait()
    os.close(ours)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("spec", "headers"),
    [
        (spec_of("a", user="al\x1bice"), {}),
        (spec_of("a", user="al\u202eice"), {}),
        (spec_of("a", id="ni\x1bght"), {}),
        (spec_of("a", id="night\n"), {}),
        (spec_of("a\x07"), {}),
        (spec_of("a", tenant="acme/re\x9bsearch"), {}),
        (spec_of("a", defaults={"mesh": "ea\x1bst"}), {}),
        (spec_of("a", defaults={"labels": {"zone": "a\x1b"}}), {}),
        (spec_of("a", defaults={"labels": {"zo\x1bne": "a"}}), {}),
        (spec_of("a", defaults={"resources": {"t\x1bpu": 1}}), {}),
        (spec_of("a"), {"Idempotency-Key": b"a\x9b"}),
    ],
    ids=lambda value: ascii(value)[-50:],
)
def test_a_name_with_a_control_character_is_refused(spec, headers):
    answer = GatewayWorld().http().post("/v1/runs", json=spec, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["problems"] != []


@pytest.mark.parametrize("path", ["/v1/tenants/acme/research/suspend", "/v1/meshes/east/drain", "/v1/runs/night/cancel"])
def test_a_reason_with_a_control_character_is_refused(path):
    world = GatewayWorld()
    world.client().submit_spec(spec_of("a", id="night"))
    answer = world.http("*").post(path, json={"reason": "a\x1b[2J"})
    assert answer.status_code in (400, 422)
    assert "control character" in answer.text
