"""Programs as nodes: what can be written, both forms of the graph, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import dag
from dag.client.compiling import compile_columns
from dag.client.programs import Archive, program_node
from dag.errors import GraphTypeError, SpecError
from dag.spec.forms import sha256_of
from dag.spec.plans import plans_of, refused_functions
from dag.spec.spec import digest, kept_form, load, parse, parse_columns
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang

ZIP = b"a zip archive"


def node_of(command: Any, **options: Any) -> dag.Node:
    return program_node(command, archive=Archive(ZIP), env_vars={"RATE": "0.1"}, options=options)


def as_json(**program: Any) -> bytes:
    document = {
        "spec": "dag/1",
        "nodes": {"train": {"program": {"command": ["python", "train.py"], **program}}},
        "outputs": {"result": {"$ref": "train"}},
        "blobs": {sha256_of(ZIP): base64.b64encode(ZIP).decode()} if "working_dir" in program else {},
    }
    return json.dumps(document).encode()


def test_both_forms_of_a_program_are_one_graph():
    columns = parse_columns(compile_columns(node_of(["python", "train.py"])).packed())
    document = parse(as_json(working_dir={"$blob": sha256_of(ZIP)}, env_vars={"RATE": "0.1"}))
    assert digest(columns) == digest(document)
    assert columns.blob_bytes() == document.blob_bytes() == {sha256_of(ZIP): ZIP}
    written = columns.columns.as_json()
    assert written["nodes"]["train"]["program"]["command"] == ["python", "train.py"]
    assert digest(parse(json.dumps(written).encode())) == digest(columns)
    assert digest(load(kept_form(columns))) == digest(columns)
    kept = load(kept_form(columns)).nodes["train"].program
    assert kept is not None
    assert kept.env_vars == {"RATE": "0.1"}


def test_a_program_is_a_gang_of_one_bundle_by_default():
    for spec in (parse(as_json()), parse_columns(compile_columns(node_of("python train.py", num_cpus=2)).packed())):
        (plan,) = plans_of(spec).values()
        cpus = 2 if plan.task.function == "program:python train.py" and plan.task.args == ("python train.py",) else 1
        assert plan.task.gang == Gang(size=1, bundle=ResourceSet.of({"cpu": cpus}))
    large = parse_columns(compile_columns(node_of("python train.py", size=3, strategy="SPREAD")).packed())
    (plan,) = plans_of(large).values()
    assert plan.task.gang == Gang(size=3, bundle=ResourceSet.of({"cpu": 1}), strategy="SPREAD")


def test_a_command_may_hold_nodes_and_parameters():
    first = dag.bind(len, [1, 2])
    spec = parse_columns(compile_columns(node_of(["python", "train.py", first, "--n", 3])).packed())
    plan = next(plan for plan in plans_of(spec).values() if plan.task.gang is not None)
    assert plan.task.inputs == ("len",)
    assert plan.task.args == (["python", "train.py", {"$ref": "len"}, "--n", 3],)
    assert plan.task.function == "program:python train.py … --n 3"
    document = json.loads(as_json())
    document["params"] = {"rate": 0.5}
    document["nodes"]["train"]["program"]["command"].append({"$param": "rate"})
    (plan,) = plans_of(parse(json.dumps(document).encode())).values()
    assert plan.task.args == (["python", "train.py", 0.5],)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        pytest.param("python train.py --lr 0.1", "train", id="a script"),
        pytest.param("RATE=1 python3.11 -u src/fit_model.py", "fit_model", id="a script in a folder"),
        pytest.param(["python", "-m", "shop.etl"], "shop.etl", id="a module"),
        pytest.param("./prepare.sh | tee log", "prepare", id="a shell script"),
        pytest.param("echo 'not closed", "echo", id="a line that the shell will refuse"),
        pytest.param(["python"], "python", id="an interpreter alone"),
        pytest.param(["日本"], "program", id="a name without a letter that ids have"),
    ],
)
def test_a_program_is_named_after_its_script(command: Any, name: str):
    assert list(parse_columns(compile_columns(node_of(command)).packed()).nodes) == [name]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param("", "is empty", id="no command"),
        pytest.param([], "is empty", id="an empty list"),
        pytest.param([1, "x"], "is empty", id="a number as the command"),
        pytest.param(None, "takes a command, not None", id="no text"),
        pytest.param(["python", object()], "is no part of a command", id="an object as an argument"),
        pytest.param(["python", True], "True is no part of a command", id="a boolean as an argument"),
    ],
)
def test_a_wrong_command_is_refused_with_a_remedy(command: Any, words: str):
    with pytest.raises(GraphTypeError, match=words):
        node_of(command)


def test_a_wrong_variable_or_option_is_refused():
    with pytest.raises(GraphTypeError, match="env_vars takes text by name, not 'N': 3"):
        program_node("x", archive=None, env_vars={"N": 3}, options={})  # type: ignore[dict-item]
    with pytest.raises(GraphTypeError, match="unknown option 'num_cpu'"):
        node_of("x", num_cpu=1)
    with pytest.raises(GraphTypeError, match="train is a program: submit its node"):
        node_of("python train.py").function("x")


@pytest.mark.parametrize(
    ("node", "place", "words"),
    [
        pytest.param({"program": {"command": " "}}, "/nodes/p/program/command", "must be a line for the shell", id="an empty line"),
        pytest.param({"program": {"command": []}}, "/nodes/p/program/command", "must be a line for the shell", id="an empty list"),
        pytest.param({"program": {}}, "/nodes/p/program/command", "is missing", id="no command"),
        pytest.param({"program": {"command": "a\0b"}}, "/nodes/p/program/command", "zero byte", id="a zero byte"),
        pytest.param({"program": {"command": ["a", [1]]}}, "/nodes/p/program/command", "is no part of a command", id="a list inside"),
        pytest.param({"program": {"command": "a", "dir": 1}}, "/nodes/p/program/dir", "unknown key", id="an unknown key"),
        pytest.param({"program": {"command": "a", "env_vars": {"A B": "c"}}}, "/nodes/p/program/env_vars", "is no variable", id="variable"),
        pytest.param(
            {"program": {"command": "a", "working_dir": {"$blob": "0" * 64}}},
            "/nodes/p/program/working_dir",
            "`blobs` has no",
            id="an archive that did not come along",
        ),
        pytest.param({"program": {"command": ["a", {"$ref": "q"}]}}, "/nodes/p/program/command/1", "there is no node q", id="unknown node"),
        pytest.param({"program": {"command": "a"}, "call": "m:f"}, "/nodes/p", "needs one of `call`, `function`, `program`", id="both"),
        pytest.param(
            {"program": {"command": "a"}, "args": [1]}, "/nodes/p", "`program` takes no `args` or `kwargs`", id="arguments beside it"
        ),
    ],
)
def test_a_wrong_program_is_refused_with_its_place(node: dict[str, Any], place: str, words: str):
    document = {"spec": "dag/1", "nodes": {"p": node}, "outputs": {"r": {"$ref": "p"}}}
    with pytest.raises(SpecError) as wrong:
        parse(json.dumps(document).encode())
    assert any(at == place and words in problem for at, problem in wrong.value.problems), wrong.value.problems


def test_columns_of_a_program_must_agree_with_its_key():
    packed = compile_columns(node_of("python train.py")).packed()
    with pytest.raises(SpecError, match="is not the key of the command"):
        parse_columns(packed.replace(b"program:python train.py", b"program:python trick.py"))


def test_a_program_needs_the_right_to_send_code():
    spec = parse(as_json(working_dir={"$blob": sha256_of(ZIP)}))
    assert refused_functions(spec, ("*:*",), pickled_code=True) == ()
    ((place, words),) = refused_functions(spec, ("*:*",), pickled_code=False)
    assert place == "/nodes/train/program"
    assert "may not run programs, which are code; `pickled_code: true`" in words


def test_packages_come_from_a_list_or_a_file(tmp_path: Path):
    file = tmp_path / "requirements.txt"
    file.write_text("# ours\ntorch==2.4  # for training\n\npandas\n")
    assert dag.program("x", pip=file).settings.runtime_env == {"pip": ["torch==2.4", "pandas"]}
    assert dag.program("x", pip=["a"]).settings.runtime_env == {"pip": ["a"]}
    with pytest.raises(SpecError, match=r"missing\.txt cannot be read"):
        dag.program("x", pip=tmp_path / "missing.txt")
    with pytest.raises(GraphTypeError, match="give one of the two"):
        dag.program("x", pip=["a"], runtime_env={"pip": ["b"]})
