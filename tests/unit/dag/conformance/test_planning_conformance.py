"""`python -m dag.conformance`: cases of planning, and metrics of workflows."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest

from dag.conformance.__main__ import main

SHARED = Path(__file__).parents[5] / "shared"
TOPCUOGLU: dict[str, Any] = {
    "name": "topcuoglu2002-fig2",
    "w": [
        [14, 16, 9],
        [13, 19, 18],
        [11, 13, 19],
        [13, 8, 17],
        [12, 13, 10],
        [13, 16, 9],
        [7, 15, 11],
        [5, 11, 14],
        [18, 12, 20],
        [21, 7, 16],
    ],
    "e": [
        *([0, 1, 18], [0, 2, 12], [0, 3, 9], [0, 4, 11], [0, 5, 14], [1, 7, 19], [1, 8, 16], [2, 6, 23], [3, 7, 27], [3, 8, 23]),
        *([4, 8, 13], [5, 7, 15], [6, 9, 17], [7, 9, 11], [8, 9, 13]),
    ],
    "published": {"HEFT": 80, "CPOP": 86},
    "optimal": 73,
    "ranku": [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667],
    "heft": 80,
    "cpop": 86,
    "peft": 85,
}
MESHES = {"A": {"slots": 1, "speed": 1.0}, "B": {"slots": 1, "speed": 2.0}}


def run(*arguments: object) -> tuple[int, list[str], str]:
    out, errors = io.StringIO(), io.StringIO()
    code = main([str(one) for one in arguments], out, errors)
    return code, out.getvalue().splitlines(), errors.getvalue()


def written(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def planning(folder: Path, *cases: Any) -> tuple[int, list[str], str]:
    return run("planning", written(folder, "cases.json", {"classic": list(cases)}))


def changed(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(TOPCUOGLU), **fields}


def test_the_known_graph_has_its_known_schedules(tmp_path: Path):
    code, lines, _ = planning(tmp_path, TOPCUOGLU)
    ids = [json.loads(line)["id"].partition(": ")[2] for line in lines[:-1]]
    assert (code, ids, lines[-1]) == (0, ["", "infinite-cost processor", "busy processors"], "3 passed, 0 failed")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        pytest.param({"heft": 79}, "heft", id="another makespan of HEFT"),
        pytest.param({"published": {"CPOP": 85}}, "published CPOP", id="another published makespan"),
        pytest.param({"optimal": 81}, "below the optimum", id="an optimum that a schedule undercuts"),
        pytest.param({"ranku": [107.0, *TOPCUOGLU["ranku"][1:]]}, "ranku", id="another rank"),
        pytest.param({"heft_schedule": [[0, 0, 14]] * 10}, "heft_schedule", id="another schedule"),
    ],
)
def test_a_wrong_expectation_fails(tmp_path: Path, fields: dict[str, Any], wrong: str):
    code, lines, _ = planning(tmp_path, changed(**fields))
    result = json.loads(lines[0])
    assert code == 1
    assert not result["passed"]
    assert [key for key in result["expected"] if result["expected"][key] != result["got"][key]] == [wrong]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"w": [[1, 2], [1]]}, "`w` must list run times", id="rows of different length"),
        pytest.param({"e": [[0, 99, 1]]}, "`e`[0] is [0, 99, 1]", id="an edge to no node"),
        pytest.param({"e": [[0, 1, 1], [1, 0, 1]]}, "wait for each other in a circle", id="a circle"),
        pytest.param({"hefft": 80}, "expects hefft, which is not known", id="a misspelt expectation"),
    ],
)
def test_a_broken_case_says_what_is_wrong(tmp_path: Path, fields: dict[str, Any], words: str):
    code, lines, _ = planning(tmp_path, changed(name="broken", **fields), changed(name="sound"))
    assert words in json.loads(lines[0])["got"]["broken"]
    assert (code, lines[-1]) == (1, "1 passed, 1 failed")


def test_the_documented_case_passes(tmp_path: Path):
    page = (Path(__file__).parents[4] / "docs" / "planning.md").read_text(encoding="utf-8")
    cases = json.loads(page.partition("```json\n")[2].partition("```")[0])
    assert run("planning", written(tmp_path, "cases.json", cases))[::2] == (0, "")


def test_a_repeated_name_fails(tmp_path: Path):
    assert "another case has the name" in planning(tmp_path, changed(name="a"), changed(name="a"))[1][1]


def test_a_file_without_cases_names_line_and_form(tmp_path: Path):
    code, lines, errors = run("planning", written(tmp_path, "none.json", '{\n"classic": []}'))
    assert (code, lines) == (2, [])
    assert "none.json:2: there is no list" in errors


def small_workflow() -> dict[str, Any]:
    tasks = [
        {"id": "a", "name": "cut_ID1", "children": ["b", "c"], "parents": [], "inputFiles": ["in"], "outputFiles": ["x"]},
        {"id": "b", "name": "map_ID2", "children": [], "parents": ["a"], "inputFiles": ["x"], "outputFiles": []},
        {"id": "c", "name": "map_ID3", "children": [], "parents": ["a"], "inputFiles": ["x"], "outputFiles": []},
    ]
    files = [{"id": "in", "sizeInBytes": 5}, {"id": "x", "sizeInBytes": 100_000_000}]
    ran = [{"id": task["id"], "runtimeInSeconds": 2.0} for task in tasks]
    return {"schemaVersion": "1.5", "workflow": {"specification": {"tasks": tasks, "files": files}, "execution": {"tasks": ran}}}


def test_a_workflow_becomes_one_object_of_metrics(tmp_path: Path):
    arguments = (written(tmp_path, "w.json", small_workflow()), "--meshes", written(tmp_path, "m.json", MESHES))
    code, lines, _ = run("workflow", *arguments, "--assign", written(tmp_path, "at.json", {"a": "A", "b": "B", "c": "B"}))
    assert (code, len(lines)) == (0, 1)
    assert json.loads(lines[0]) == {
        "tasks": 3,
        "edges": 2,
        "components": 1,
        "levels": 2,
        "width": 2,
        "linear_edges": 0,
        "tasks_after_linear_fusion": 3,
        "cut_edges": 2,
        "transfers_distinct": 1,
        "transfer_bytes_distinct": 100_000_000,
        "hops": 1,
        "stages_mesh_level": 2,
        "lower_bound_s": 2.0,
        "heft_s": 3.0,
        "makespan_s": 3.0,
    }


@pytest.mark.parametrize(
    ("meshes", "assigned", "words"),
    [
        pytest.param({"A": {"slots": 0}}, None, "m.json: /A/slots: must be a whole number from 1, got 0", id="a mesh without slots"),
        pytest.param({"A": {"slot": 1}}, None, "did you mean slots?", id="a misspelt key"),
        pytest.param("{", None, "m.json: line 1, column 2: not JSON", id="no JSON"),
        pytest.param(MESHES, {"a": "A", "b": "A"}, "at.json: task 'c' has no mesh; add it", id="a task without a mesh"),
        pytest.param(MESHES, {"a": "A", "b": "A", "c": "Q"}, "at.json: /c: there is no mesh 'Q'", id="an unknown mesh"),
    ],
)
def test_a_wrong_file_names_file_place_and_remedy(tmp_path: Path, meshes: Any, assigned: Any, words: str):
    options = ["--assign", written(tmp_path, "at.json", assigned)] if assigned is not None else []
    code, lines, errors = run(
        *("workflow", written(tmp_path, "w.json", small_workflow()), "--meshes", written(tmp_path, "m.json", meshes)), *options
    )
    assert (code, lines) == (2, [])
    assert words in errors


def test_a_missing_workflow_is_named(tmp_path: Path):
    assert "there is no such file" in run("workflow", tmp_path / "none.json", "--meshes", written(tmp_path, "m.json", MESHES))[2]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of workflows is not here")
def test_collected_workflows_have_their_known_metrics():
    index = json.loads((SHARED / "workflows" / "INDEX.json").read_text(encoding="utf-8"))
    ratios = []
    for known in index["instances"]:
        if known["tasks"] > 1_000:
            continue
        file = SHARED / "workflows" / f"{known['name']}.json.gz"
        metrics = json.loads(run("workflow", file, "--meshes", SHARED / "workflows" / "INDEX.json")[1][0])
        wanted = {**known, **known["by_type_mesh"], "lower_bound_s": known["ref_lower_bound_s"], "heft_s": known["ref_heft_s"]}
        planned_s = metrics.pop("makespan_s")
        assert metrics == {key: wanted[key] for key in metrics}, known["name"]
        ratios.append(planned_s / metrics["heft_s"])
    assert max(ratios) <= 1
    assert sorted(ratios)[len(ratios) // 2] < 1


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of cases is not here")
def test_collected_cases_pass():
    code, lines, _ = run("planning", SHARED / "conformance" / "planning_cases.json")
    assert (code, lines[-1]) == (0, "24 passed, 0 failed")
