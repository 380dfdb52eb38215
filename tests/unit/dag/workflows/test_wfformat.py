"""Reading of WfFormat: what is accepted, and what each problem says."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from workflow_files import diamond, tasks_of

from dag.errors import CycleError
from dag.workflows.wfformat import WorkflowError, read_workflow, type_of

PLACE = "/workflow/specification/tasks"


def read(workflow: Any):
    return read_workflow(json.dumps(workflow).encode())


def problems(workflow: Any) -> tuple[tuple[str, str], ...]:
    with pytest.raises(WorkflowError) as wrong:
        read_workflow(workflow if isinstance(workflow, bytes) else json.dumps(workflow).encode())
    return wrong.value.problems


def test_a_workflow_has_its_tasks_needs_and_files():
    workflow = read(diamond())
    assert [task.id for task in workflow.tasks] == ["a", "b", "c", "d"]
    assert workflow.tasks[3].needs == (1, 2)
    assert sorted(workflow.values()) == [("a.out", 0, 1), ("a.out", 0, 2), ("b.out", 1, 3), ("c.out", 2, 3)]


def test_plain_and_compressed_files_are_read_alike():
    body = json.dumps(diamond()).encode()
    assert read_workflow(gzip.compress(body)) == read_workflow(body)


@pytest.mark.parametrize(
    "dropped",
    [
        pytest.param(("parents",), id="without parents"),
        pytest.param(("children",), id="without children"),
        pytest.param(("parents", "children"), id="without both lists, by files"),
    ],
)
def test_edges_are_found_from_what_is_there(dropped: tuple[str, ...]):
    workflow = diamond()
    for task in tasks_of(workflow):
        for key in dropped:
            del task[key]
    assert [set(task.needs) for task in read(workflow).tasks] == [set(task.needs) for task in read(diamond()).tasks]


def test_order_of_the_file_is_kept_and_names_may_repeat():
    workflow = diamond()
    tasks_of(workflow).reverse()
    for task in tasks_of(workflow):
        task["name"] = "same"
    found = read(workflow)
    assert [task.id for task in found.tasks] == ["d", "c", "b", "a"]
    assert found.order[0] == 3


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        pytest.param(lambda w: tasks_of(w)[0]["children"].append("e"), f"{PLACE}/0/children/2", "is no task of the workflow", id="no task"),
        pytest.param(
            lambda w: tasks_of(w)[0]["inputFiles"].append("q"), f"{PLACE}/0/inputFiles/0", "is no file of the workflow", id="no file"
        ),
        pytest.param(lambda w: tasks_of(w)[1].update(id="a"), f"{PLACE}/1/id", "'a' is also the id of", id="an id twice"),
        pytest.param(lambda w: tasks_of(w)[1].pop("id"), f"{PLACE}/1", "has no `id`", id="no id"),
        pytest.param(lambda w: tasks_of(w)[1].update(parents="a"), f"{PLACE}/1/parents", "must be a list of ids, got a str", id="no list"),
        pytest.param(
            lambda w: w["workflow"]["execution"]["tasks"].pop(), f"{PLACE}/3", "has no run time; add it to /workflow/exec", id="no run time"
        ),
        pytest.param(
            lambda w: w["workflow"]["execution"]["tasks"][2].update(runtimeInSeconds=-1),
            *("/workflow/execution/tasks/2/runtimeInSeconds", "must be seconds from 0, got -1"),
            id="a negative run time",
        ),
        pytest.param(
            lambda w: w["workflow"]["specification"]["files"][0].update(sizeInBytes="big"),
            *("/workflow/specification/files/0/sizeInBytes", "must be whole bytes from 0, got 'big'"),
            id="a size that is no number",
        ),
        pytest.param(lambda w: w["workflow"].pop("execution"), "/workflow", "there is no object `execution`", id="no execution"),
        pytest.param(
            lambda w: w.update(workflow={"tasks": []}), "/workflow", "the form of WfFormat 1.4 or older; convert it", id="an older form"
        ),
    ],
)
def test_a_problem_has_its_place_and_remedy(change: Any, place: str, words: str):
    workflow = diamond()
    change(workflow)
    assert any(at == place and words in problem for at, problem in problems(workflow)), problems(workflow)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b'{"workflow": ', "line 1, column 14: not JSON", id="half a file"),
        pytest.param(b"[]", "there is no object `workflow`", id="a list"),
        pytest.param(gzip.compress(b"{}")[:-9], "gzip file", id="half a gzip file"),
        pytest.param(b"\x1f\x8bxxxxxxxxxx", "the gzip file is damaged", id="a damaged gzip file"),
        pytest.param(b'{"a": "\xff"}', "byte 7 is not UTF-8", id="no UTF-8"),
    ],
)
def test_a_body_that_is_no_workflow_says_why(body: bytes, words: str):
    assert words in problems(body)[0][1]


def test_a_circle_is_named_task_by_task():
    workflow = diamond()
    tasks_of(workflow)[3]["children"].append("b")
    with pytest.raises(CycleError, match="d → b → d; remove one of these edges"):
        read(workflow)


@pytest.mark.parametrize(
    ("name", "type_name"),
    [
        pytest.param("mProject_ID0000001", "mProject", id="an instance of Pegasus"),
        pytest.param("chr21_map_s_1_sequence_12_ID0000003", "chr21_map_s_1_sequence", id="a number before the instance"),
        pytest.param("NFCORE_RNASEQ.RNASEQ.FASTQC (sample 1)", "FASTQC", id="an instance of Nextflow"),
        pytest.param("blast.part", "blast", id="a dot"),
        pytest.param("12", "12", id="nothing but a number"),
    ],
)
def test_the_type_is_the_name_without_the_instance(name: str, type_name: str):
    assert type_of(name) == type_name
