"""Command `top`, on a gateway in this process."""

import io
import json
from itertools import islice

import httpx
import pytest

from dag.errors import ApiError
from dag.store.remote import Client
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import top
from serve_apps.cli.output import SafeConsole
from serve_apps.cli.session import read_view
from serve_apps.cli.top_render import TopView, top_frame
from serve_apps.gateway_fixtures import ACME, GatewayWorld, spec_of, with_mesh


@pytest.fixture
def world(monkeypatch) -> GatewayWorld:
    """A federation whose mesh runs and queues work, as a client of acme sees it in 80 columns."""
    built = GatewayWorld()
    with_mesh(built)
    built.http().post("/v1/runs", json=spec_of("a", id="r", wait_for_capacity=True))
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://root.test")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=built.http(ACME), patience_s=0))
    return built


def frame_of(output: str, title: str) -> list[str]:
    """Return the lines of one part of a frame."""
    lines = output.splitlines()
    rest = lines[lines.index(title) + 1 :]
    return [line.rstrip() for line in (rest[: rest.index("")] if "" in rest else rest)]


def words_of(line: str) -> list[str]:
    return [word for word in line.split() if set(word) - set("━╸╺ ")]


@pytest.mark.parametrize("options", [["--once"], []], ids=["with --once", "in a pipe"])
def test_top_prints_one_frame_of_80_columns(world, capsys, options):
    assert run_command(["top", *options]) == 0
    output = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert max(map(len, output.splitlines())) <= 80
    assert "1 of 1 mesh alive, 0 stages running, 1 waiting, 1 lease" in output.splitlines()[0]
    tenants = frame_of(output, "tenants")
    assert words_of(tenants[0]) == ["tenant", "flavor", "resource", "nominal", "used", "borrowed", "waiting"]
    assert words_of(tenants[1]) == ["acme", "standard", "cpu", "4", "3", "1"]
    assert words_of(tenants[2]) == ["research", "standard", "cpu", "2", "3", "1", "1"]
    assert "acme/research" in frame_of(output, "leases")[1]
    assert words_of(frame_of(output, "queues")[1]) == ["east", "acme/research", "1", "stage", "QUOTA_EXHAUSTED"]
    assert "east" in "".join(frame_of(output, "meshes"))


def test_top_counts_nothing_of_a_tenant_out_of_reach(world, capsys):
    assert run_command(["top", "--once"]) == 0
    assert "rival" not in capsys.readouterr().out


def test_top_as_json_is_one_object(world, capsys):
    assert run_command(["top", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"tenants", "leases", "queue", "meshes"}
    assert [lease["tenant"] for lease in answer["leases"]["leases"]] == ["acme/research"]


def test_rows_that_do_not_fit_are_counted(world, capsys):
    run_command(["top", "--json"])
    view = read_view(TopView, json.loads(capsys.readouterr().out))
    console = SafeConsole(file=io.StringIO(), width=80)
    console.print(top_frame(view, rows=1))
    assert "2 more: `schedulemesh tenants`" in console.file.getvalue()
    assert "research  " not in "".join(frame_of(console.file.getvalue(), "tenants"))


def test_top_of_an_empty_federation_says_so(world, monkeypatch, capsys):
    empty = GatewayWorld()
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=empty.http(ACME), patience_s=0))
    assert run_command(["top", "--once"]) == 0
    output = capsys.readouterr().out
    for words in ("0 of 0 meshes alive", "no leases are held", "nothing waits", "no mesh that this key may use has joined"):
        assert words in output


def test_ctrl_c_ends_the_live_view_with_130(world, monkeypatch, capsys):
    frames = []

    def interrupted(seconds):
        frames.append(seconds)
        if len(frames) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(session, "console_for", lambda: SafeConsole(force_terminal=True, width=80, height=40))
    monkeypatch.setattr(top.time, "sleep", interrupted)
    assert run_command(["top"]) == 130
    assert len(frames) == 2
    assert "acme" in capsys.readouterr().out


def test_a_live_top_outlives_an_absence_of_the_root(world, capsys):
    run_command(["top", "--json"])
    view = read_view(TopView, json.loads(capsys.readouterr().out))
    answers = [view, ApiError(0, "no answer", code="unreachable"), ApiError(0, "no answer", code="unreachable"), view]

    def look():
        answer = answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    shown = list(islice(session.followed(top.lasting(look)), 4))
    assert shown == [(view, False), (view, True), (view, True), (view, False)]
    console = SafeConsole(file=io.StringIO(), width=80)
    for each, is_away in shown:
        console.print(top_frame(each, is_away=is_away))
    assert console.file.getvalue().count("reconnecting") == 2


@pytest.mark.parametrize("before", [0, 1], ids=["at the first look", "later"])
def test_a_refusal_ends_a_live_top(world, capsys, before):
    run_command(["top", "--json"])
    view = read_view(TopView, json.loads(capsys.readouterr().out))
    codes = ["unreachable"] if not before else ["unauthorized"]
    answers = [*[view] * before, *(ApiError(401, "refused", code=code) for code in codes)]

    def look():
        answer = answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    with pytest.raises(ApiError):
        list(islice(session.followed(top.lasting(look)), 3))


def test_a_live_top_shows_that_it_reconnects(world, monkeypatch, capsys):
    http = world.http(ACME)
    is_up = iter([True] * 4 + [False] + [True] * 4)
    get = http.request

    def request(*arguments, **named):
        if not next(is_up):
            raise httpx.ConnectError("refused")
        return get(*arguments, **named)

    def end(_pause_s):
        pauses.append(1)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    pauses = []
    monkeypatch.setattr(http, "request", request)
    monkeypatch.setattr(session, "Client", lambda access: Client(access, http=http, patience_s=600))
    monkeypatch.setattr(SafeConsole, "is_terminal", True)
    monkeypatch.setattr(top.time, "sleep", end)
    run_command(["top"])
    assert "reconnecting" in capsys.readouterr().out
    assert list(is_up) == []
