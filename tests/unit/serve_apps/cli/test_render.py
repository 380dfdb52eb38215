"""Rendered views as text."""

import io

import pytest
from rich.console import Console, RenderableType

from dag.run.states import NodeState, RunState, StageState
from mesh.core.clock import clock_time
from serve_apps.cli.app import error_line
from serve_apps.cli.render import (
    COLOURS,
    duration,
    failure_summary,
    letters_table,
    result_summary,
    run_panel,
    runs_table,
    slots_text,
    tenants_table,
)
from serve_apps.cli.waiting_render import queue_picture, stage_picture
from serve_apps.schemas.dead_letters import LettersView, LetterView
from serve_apps.schemas.explanations import StageExplanation
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.queues import QueueView
from serve_apps.schemas.results import NoResultView, OutputView, ResultView
from serve_apps.schemas.runs import (
    BlockedView,
    CheckpointView,
    FailureView,
    GroupView,
    MeshShare,
    ProgressView,
    RunLine,
    RunsView,
    RunView,
    StageView,
)
from serve_apps.schemas.tenants import QuotaView, TenantsView, TenantView

WIDTH = 100
NOW_MS = 1_700_000_090_000
LONG = "a-very-long-name-that-somebody-has-given-to-a-run-of-digits-2026-11-20-and-more"


def text_of(renderable: RenderableType, width: int = WIDTH) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(renderable)
    output = console.file.getvalue()
    assert all(len(line) <= width for line in output.splitlines())
    return output


def amount(value: int) -> Quantity:
    return Quantity(units=value * 10_000, amount=value, text=str(value))


def a_stage(number: int, mesh: str, state: StageState, **fields: object) -> StageView:
    given = {
        "cluster": "c",
        "level": 0,
        "reason": None,
        "detail": "",
        "why_here": "ONLY_FEASIBLE_MESH",
        "slots": 0,
        "width": 1,
        "sent_ms": 0,
    }
    given |= {"started_ms": 0, "ended_ms": 0, "counts": {}, **fields}
    return StageView(id=f"night.{number}", mesh=mesh, state=state.value, **given)


def a_run(**fields: object) -> RunView:
    given = {"id": "night", "tenant": "acme/research", "state": "RUNNING", "created_ms": NOW_MS - 65_000, "outputs": ["report"]}
    given |= {"stages": [], "blocked": [], "meshes": [], "progress": [], "failures": [], "skipped": [], **fields}
    return RunView(**given)


def test_every_state_has_a_colour():
    for states in (RunState, StageState, NodeState):
        assert {state.value for state in states} <= set(COLOURS)


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1.0s"),
        (59_999, "59.9s"),
        (65_000, "1m05s"),
        (3_600_000, "1h00m"),
        (90_000_000, "1d01h"),
        (-5, "0ms"),
    ],
)
def test_a_duration_is_short(span_ms, text):
    assert duration(span_ms) == text


def test_runs_fit_the_width_whatever_their_names():
    lines = [
        RunLine(
            id=LONG,
            tenant="acme/research/vision/detectors/night",
            state="FAILED",
            created_ms=NOW_MS - 10_000,
            ended_ms=NOW_MS - 5_000,
            detail="train: builtins.ValueError: the learning rate is much too large\nTraceback …",
            counts={"SUCCEEDED": 3, "FAILED": 1, "WAITING": 2},
        )
    ]
    text = text_of(runs_table(RunsView(runs=lines), NOW_MS))
    assert "FAILED" in text
    assert "3/6" in text
    assert "1 failed" in text
    assert "5.0s" in text
    assert "Traceback" not in text
    table, _, whys = text.partition("\n\n")
    assert "".join(line.split()[0] for line in table.splitlines()[1:]) == LONG
    assert "the learning rate is much too large" in whys


def a_line(name: str, state: str, **counts: int) -> RunLine:
    return RunLine(id=name, tenant="acme/research", state=state, created_ms=NOW_MS - 1_000, ended_ms=NOW_MS, counts=counts)


def test_nodes_that_failed_or_never_ran_do_not_count_as_done():
    lines = [
        a_line("bad", "FAILED", FAILED=1),
        a_line("half", "FAILED", SUCCEEDED=1, FAILED=1, SKIPPED=2),
        a_line("good", "SUCCEEDED", SUCCEEDED=2),
    ]
    table, _, below = text_of(runs_table(RunsView(runs=lines), NOW_MS)).partition("\n\n")
    assert [line.split()[3] for line in table.splitlines()[1:]] == ["0/1", "1/4", "2/2"]
    assert [line.rstrip() for line in below.splitlines()] == ["bad: 1 failed", "half: 1 failed; 2 skipped"]


def test_watched_run_shows_succeeded_and_other_ends():
    stage = a_stage(1, "east", StageState.ENDED, counts={"FAILED": 1, "SKIPPED": 2, "SUCCEEDED": 1})
    shares = [MeshShare(mesh=mesh, stages=1, slots=0, counts={"FAILED": 1}) for mesh in ("east", "west")]
    text = text_of(run_panel(a_run(state="FAILED", stages=[stage], meshes=shares), NOW_MS))
    for words in ("1/4", "1 failed", "2 skipped", "tasks by mesh: east 0/1  west 0/1"):
        assert words in text


def lines_of(*stages: StageView) -> list[str]:
    """Return the stage table of a watched run, one line each."""
    return text_of(run_panel(a_run(stages=list(stages)), NOW_MS)).splitlines()[-len(stages) :]


def test_preempted_stage_shows_its_preemption_reason():
    fields = {"reason": "QUOTA_RECLAIMED", "slots": 2, "started_ms": NOW_MS, "why_here": "MOST_HEADROOM east/general"}
    (lines,) = lines_of(a_stage(1, "east", StageState.STOPPED, **fields))
    assert lines.split() == ["1", "east", "STOPPED", "2", "preempted:", "QUOTA_RECLAIMED"]


def test_unstarted_stage_is_returned_and_a_silent_one_lost():
    taken = a_stage(1, "east", StageState.STOPPED, reason="TENANT_SUSPENDED")
    lost = a_stage(2, "west", StageState.LOST, reason="LEASE_EXPIRED", started_ms=NOW_MS)
    assert [line.split()[3:] for line in lines_of(taken, lost)] == [["recalled:", "TENANT_SUSPENDED"], ["lost:", "LEASE_EXPIRED"]]


def test_replanned_stages_and_unused_meshes_are_hidden():
    stages = [
        a_stage(1, "east", StageState.STOPPED, reason="QUOTA_RECLAIMED", sent_ms=NOW_MS, started_ms=NOW_MS),
        a_stage(2, "west", StageState.ENDED, counts={"SUCCEEDED": 3}, sent_ms=NOW_MS, started_ms=NOW_MS),
        a_stage(3, "north", StageState.ENDED),
        a_stage(4, "south", StageState.ENDED, sent_ms=NOW_MS, started_ms=NOW_MS, ended_ms=NOW_MS),  # Its nodes run again after a resume.
    ]
    shares = [MeshShare(mesh=mesh, stages=1, slots=0, counts=counts) for mesh, counts in (("east", {}), ("west", {"SUCCEEDED": 3}))]
    text = text_of(run_panel(a_run(stages=stages, meshes=shares), NOW_MS))
    assert [line.split()[1] for line in text.splitlines()[-2:]] == ["east", "west"]
    assert not {"north", "south"} & set(text.split())
    assert "by mesh:" not in text


def test_only_what_is_a_fault_is_red():
    stages = [
        a_stage(1, "east", StageState.STOPPED, reason="QUOTA_RECLAIMED", started_ms=NOW_MS),
        a_stage(2, "east", StageState.RUNNING, counts={"SUCCEEDED": 1, "RUNNING": 1}, slots=1, started_ms=NOW_MS),
        a_stage(3, "west", StageState.LOST, reason="LEASE_EXPIRED", started_ms=NOW_MS),
    ]
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(run_panel(a_run(stages=stages), NOW_MS))
    red, bright_red = "\x1b[31m", "\x1b[91m"
    *calm, lost = console.file.getvalue().splitlines()[-3:]
    assert red in lost
    assert not [line for line in calm if red in line or bright_red in line]


def test_dead_letter_keeps_its_name_on_a_narrow_terminal():
    name = "digits-0a1b2c3d4e5f60718293a4b5c6d7e8f9:train"
    letter = LetterView(
        letter=name,
        run=name.partition(":")[0],
        node="train",
        tenant="acme/research/vision",
        stage="s",
        mesh="east",
        reason="USER_ERROR",
        type="builtins.ValueError",
        message="the learning rate is much too large for this model",
        attempts=4,
        retries_used=3,
        losses=0,
        kills=0,
        at_ms=NOW_MS,
    )
    assert name in text_of(letters_table(LettersView(letters=[letter])), width=80)


def test_run_as_json_counts_succeeded_failed_and_skipped():
    line = a_line("half", "FAILED", SUCCEEDED=1, FAILED=1, SKIPPED=2).model_dump()
    assert (line["nodes_total"], line["nodes_succeeded"], line["nodes_failed"], line["nodes_skipped"]) == (4, 1, 1, 2)


def test_empty_run_list_says_what_to_do():
    assert "schedulemesh submit" in text_of(runs_table(RunsView(runs=[]), NOW_MS))


def test_a_run_shows_stages_with_progress_and_reasons():
    stages = [
        a_stage(1, "east", StageState.RUNNING, slots=2, counts={"SUCCEEDED": 2, "RUNNING": 2}),
        a_stage(
            2, "west", StageState.QUEUED, reason="QUOTA_EXHAUSTED", detail="acme/research has 2 cpu, all in use", counts={"ASSIGNED": 3}
        ),
    ]
    shares = [
        MeshShare(mesh="east", stages=1, slots=2, counts={"SUCCEEDED": 2}),
        MeshShare(mesh="west", stages=1, slots=0, counts={"ASSIGNED": 3}),
    ]
    text = text_of(run_panel(a_run(stages=stages, meshes=shares, counts={"SUCCEEDED": 2, "RUNNING": 2, "ASSIGNED": 3}), NOW_MS))
    for words in (
        "night",
        "1m05s",
        "2 SUCCEEDED",
        "QUEUED",
        "QUOTA_EXHAUSTED",
        "2/4",
        "0/3",
        "ONLY_FEASIBLE_MESH",
        "tasks by mesh: east 2/2  west 0/3",
    ):
        assert words in text


def test_running_stage_shows_its_slots_of_the_usable_ones():
    assert slots_text("RUNNING", 1, 2) == "1 of 2"
    assert slots_text("RUNNING", 2, 2) == "2"
    assert slots_text("SUCCEEDED", 1, 2) == "1"
    assert slots_text("QUEUED", 0, 2) == ""
    narrow = a_stage(1, "east", StageState.RUNNING, slots=1, width=4)
    assert "1 of 4" in text_of(run_panel(a_run(stages=[narrow]), NOW_MS))


def test_several_levers_are_all_needed_and_one_is_not_marked():
    stage = {
        "stage": "night.1",
        "run": "night",
        "tenant": "acme",
        "user": "",
        "mesh": "east",
        "state": "QUEUED",
        "detail": "",
        "why_here": "",
    }
    change = {"lever": "free", "tenant": "acme", "flavor": "standard", "resource": "cpu", "amount": amount(1), "words": "1 cpu came free"}
    for changes, words in (([change], "it would start if\n"), ([change, change], "it would start if all of these were true\n")):
        view = StageExplanation(**stage, reason="QUOTA_EXHAUSTED", nodes=1, slot={}, position=1, tenant_position=1, changes=changes)
        text = "\n".join(line.rstrip() for line in text_of(stage_picture(view, NOW_MS)).splitlines())
        assert words in text
        assert "not known yet" in text


def test_explained_victims_stop_or_give_slots_back():
    about = {"user": "", "detail": "", "reason": None, "why_here": "", "nodes": 4, "slot": {}, "position": 1, "tenant_position": 1}
    victim = {"mesh": "west", "tenant": "acme/batch", "flavor": "standard", "amounts": {}, "reason": "QUOTA_RECLAIMED"}
    of = {"stage": "night.1", "run": "night", "tenant": "acme", "mesh": "east", "state": "QUEUED"}
    for stages, shrinking, words in ((["a.1"], [], "a.1 would stop"), ([], ["b.1"], "b.1 would give slots back")):
        view = StageExplanation(**about, **of, victims=[{**victim, "stages": stages, "shrinking": shrinking}])
        assert f"QUOTA_RECLAIMED: {words}" in text_of(stage_picture(view, NOW_MS))


def test_a_running_stage_shows_that_it_may_grow():
    about = {"user": "", "detail": "", "reason": None, "why_here": "", "nodes": 4, "slot": {}, "slots": 1, "width": 2}
    view = StageExplanation(**about, stage="night.1", run="night", tenant="acme", mesh="east", state="RUNNING")
    assert "it grows when room and quota come" in text_of(stage_picture(view, NOW_MS))


def test_a_run_shows_progress_and_checkpoints():
    checkpoint = CheckpointView(attempt=1, number=3, saved_ms=NOW_MS - 2_000, size_bytes=10)
    progress = [
        ProgressView(node="train", progress=0.4, checkpoint=checkpoint),
        ProgressView(node="eval", progress=1, checkpoint=None),
        ProgressView(node="tune", progress=None, checkpoint=checkpoint),
    ]
    text = text_of(run_panel(a_run(progress=progress), NOW_MS))
    for line in ("train: 40%, checkpoint 2.0s ago", "eval: 100%", "tune: checkpoint 2.0s ago"):
        assert line in text


def test_a_watched_run_has_a_line_for_each_name_of_nodes():
    groups = [
        GroupView(name="train", is_array=False, total=100, counts={"SUCCEEDED": 37, "FAILED": 1, "RUNNING": 4}, part=0),
        GroupView(name="load", is_array=False, total=1, counts={"SUCCEEDED": 1}, part=0),
    ]
    lines = [line.rstrip() for line in text_of(run_panel(a_run(groups=groups), NOW_MS), 80).splitlines()]
    assert lines[-2:] == ["train  37/100  1 failed, 4 running", "load      1/1"]
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, legacy_windows=False)
    console.print(run_panel(a_run(groups=groups), NOW_MS))
    drawn = console.file.getvalue().splitlines()
    assert drawn[-2].rstrip() == "train  37/100  #####-----------  1 failed, 4 running"
    assert max(map(len, drawn)) <= 80


def test_a_watched_run_shows_a_dozen_bars_and_counts_the_rest():
    groups = [GroupView(name=f"n{number}x", is_array=False, total=1, counts={"WAITING": 1}, part=0) for number in range(20)]
    text = text_of(run_panel(a_run(groups=groups), NOW_MS))
    assert ("n11x" in text, "n12x" in text, "and 8 more names of nodes" in text) == (True, False, True)


def test_a_running_run_shows_when_it_ends():
    assert "ends about -" in text_of(run_panel(a_run(), NOW_MS))
    text = text_of(run_panel(a_run(estimated_end_ms=NOW_MS + 65_000), NOW_MS))
    assert f"ends about {clock_time(NOW_MS + 65_000)}, in 1m05s" in text
    assert "ends" not in text_of(run_panel(a_run(state="SUCCEEDED"), NOW_MS))


def test_a_run_shows_what_is_blocked_failed_and_skipped():
    blocked = [BlockedView(reason="LABEL_MISMATCH", detail="east: zone=moon is required", count=7, nodes=["a", "b"])]
    failures = [FailureView(node="train", attempt=1, mesh="east", reason="USER_ERROR", type="builtins.ValueError", message="[bad] lr")]
    text = text_of(run_panel(a_run(state="FAILED", blocked=blocked, failures=failures, counts={"SKIPPED": 4}), NOW_MS))
    assert "blocked LABEL_MISMATCH: 7 (a, b …): east: zone=moon is required" in text
    assert "failed train on east: builtins.ValueError: [bad] lr" in text
    assert "skipped because of another failure: 4" in text


def test_result_shows_json_and_where_the_rest_is():
    json_output = OutputView(encoding="json", sha256="s", size_bytes=9, href="/x", inline=True, value={"accuracy": 0.97})
    pickled = OutputView(encoding="pickle", sha256="s", size_bytes=12_345, href="/y", inline=True, data="AA==")
    text = text_of(result_summary(ResultView(id="night", state="SUCCEEDED", outputs={"scores": json_output, "model": pickled})))
    assert '"accuracy": 0.97' in text
    assert "model: 12,345 bytes of pickled Python" in text


def no_result(detail: str, **fields: object) -> NoResultView:
    named = {"type": "urn:x", "title": "Run failed", "status": 409, "detail": detail, "code": "run_failed"}
    return NoResultView.model_validate({**named, "id": "night", "state": "FAILED", **fields})


def test_a_failure_shows_the_users_own_traceback():
    failure = FailureView(
        node="train", attempt=2, mesh="east", reason="USER_ERROR", type="t", message="m", traceback="File x.py, line 3\nt: m"
    )
    view = no_result("the run failed: m", failures=[failure])
    text = text_of(failure_summary(view))
    assert "train (attempt 2 on east): USER_ERROR" in text
    assert "File x.py, line 3" in text


def test_nodes_with_the_same_failure_are_listed_once():
    late = [
        FailureView(node=f"n{number}", attempt=1, mesh=None, reason="WAITED_TOO_LONG", type="t", message="waited longer than 5s")
        for number in range(7)
    ]
    other = FailureView(node="m", attempt=1, mesh=None, reason="USER_ERROR", type="t", message="bad")
    view = no_result("the run failed", failures=[*late, other])
    text = text_of(failure_summary(view))
    assert "n0 and 6 more (attempt 1): WAITED_TOO_LONG" in text
    assert text.count("waited longer than 5s") == 1
    assert "m (attempt 1): USER_ERROR" in text


def test_tenants_stand_below_their_parents_with_what_they_have():
    quota = QuotaView(
        flavor="standard",
        resource="cpu",
        nominal=amount(2),
        used=amount(3),
        borrowed=amount(1),
        available=amount(0),
        potential=amount(4),
        borrowing_limit=None,
        lending_limit=None,
    )
    tree = [("acme", None), ("acme/research", "acme"), ("acme/research/vision", "acme/research")]
    tenants = [TenantView(tenant=path, parent=parent, quotas=[quota], pickled_code=False, functions=[]) for path, parent in tree]
    text = text_of(tenants_table(TenantsView(at_ms=0, tenants=tenants))).splitlines()
    assert text[0].split() == ["tenant", "flavor", "resource", "nominal", "used", "borrowed", "available"]
    assert [line[:12].rstrip() for line in text[1:4]] == ["acme", "  research", "    vision"]
    assert "include the tenants below" in " ".join(text[4:])
    assert text[1].split()[-4:] == ["2", "3", "1", "0"]


def test_a_tenant_without_its_parent_in_view_has_its_whole_path():
    tenants = [TenantView(tenant="acme/research", parent="acme", quotas=[], pickled_code=False, functions=[])]
    assert "acme/research" in text_of(tenants_table(TenantsView(at_ms=0, tenants=tenants)))


def test_tenant_below_another_parent_shows_its_whole_path():
    tree = [
        ("acme", None),
        ("acme/lab", "acme"),
        ("acme/lab/vision", "acme/ops"),
        ("acme/lab/vision/a", "acme/lab/vision"),
        ("acme/ops", "acme"),
    ]
    tenants = [TenantView(tenant=path, parent=parent, quotas=[], pickled_code=False, functions=[]) for path, parent in tree]
    text = text_of(tenants_table(TenantsView(at_ms=0, tenants=tenants))).splitlines()
    assert [line.rstrip() for line in text[1:6]] == ["acme", "  lab", "  ops", "    acme/lab/vision", "      a"]


def test_an_error_keeps_brackets_that_look_like_markup():
    assert text_of(error_line("node [red] is wrong")).strip() == "error: node [red] is wrong"


def test_pickled_result_shows_how_to_read_it():
    output = OutputView(encoding="pickle", sha256="0" * 64, size_bytes=9, href="/v1/runs/night/result/a", inline=False)
    text = text_of(result_summary(ResultView(id="night", state="SUCCEEDED", outputs={"a": output})), width=200)
    assert "`dag.get_run('night').result()`" in text


def test_queue_says_how_many_stages_it_does_not_show():
    text = text_of(queue_picture(QueueView(tenant="*", waiting=[], cut_short={"east": 1, "west": 12})))
    assert "east: 1 more stage behind the first 1 000 of its queue, not shown" in text
    assert "west: 12 more stages behind the first 1 000 of its queue, not shown" in text
