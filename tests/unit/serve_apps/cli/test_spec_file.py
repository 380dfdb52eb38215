"""Loading of `FILE.json`."""

from pathlib import Path

import pytest

from dag.errors import ApiError
from serve_apps.cli.spec_file import SpecFileError, load_spec, named


def test_a_spec_is_what_stands_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    file.write_text('{"spec": "dag/1", "nodes": {}, "params": {"a": 1}}')
    assert load_spec(file) == {"spec": "dag/1", "nodes": {}, "params": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(b"", "is empty", id="nothing"),
        pytest.param(b'{\n "spec": "dag/1",\n "nodes": {,}\n}', "line 3, column 12", id="broken JSON"),
        pytest.param(b"\xff\xfe", "not UTF-8: byte 0", id="no text"),
        pytest.param(b"[1]", "is not a JSON object", id="a list"),
        pytest.param(b'{"federation": {}}', "has none of `spec`, `nodes` and `outputs`", id="another kind of file"),
        pytest.param(b'{"spec": "dag/1", "params": [1]}', "`params` is not a JSON object", id="parameters without names"),
        pytest.param(b'{"spec": "dag/1", "spec": "dag/1"}', "spec", id="a duplicate key"),
    ],
)
def test_invalid_spec_names_file_and_remedy_in_one_line(tmp_path: Path, text: bytes, words: str) -> None:
    file = tmp_path / "night.json"
    file.write_bytes(text)
    with pytest.raises(SpecFileError) as raised:
        load_spec(file)
    message = str(raised.value)
    assert message.startswith(str(file))
    assert words in message
    assert f"schedulemesh validate {file}" in message
    assert "\n" not in message


def test_folder_or_missing_file_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(SpecFileError, match="is a folder; give a file"):
        load_spec(tmp_path)
    with pytest.raises(SpecFileError, match=r"gone\.json cannot be read: No such file"):
        load_spec(tmp_path / "gone.json")


def test_graph_refused_by_the_root_is_reported_with_its_file() -> None:
    problems = (("/spec", "must be 'dag/1'"),)
    words = "night.json: the submission was refused\n  /spec: must be 'dag/1'"
    with pytest.raises(ApiError) as raised, named(Path("night.json")):
        raise ApiError(422, "the submission was refused", problems, code="invalid_spec")
    assert (str(raised.value), raised.value.status, raised.value.problems) == (words, 422, problems)
    with pytest.raises(ApiError, match=r"^no room$"), named(Path("night.json")):
        raise ApiError(503, "no room", code="store_full")


def test_graph_refused_by_the_root_names_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    file.write_text('{"spec": "dag/1",\n "nodes": {"a": {"call": "m:f",\n  "options": {"num_cpus": 3}}}}')
    problems = (("/nodes/a/options/num_gpus", "is missing"), ("/nodes/a", "east: too small"), ("", "ask for less"))
    with pytest.raises(ApiError) as raised, named(file):
        raise ApiError(422, "refused", problems, code="no_mesh_fits")
    assert str(raised.value).splitlines() == [
        f"{file}: refused",
        f"  {file}:3:3: /nodes/a/options/num_gpus: is missing",
        f"  {file}:2:12: /nodes/a: east: too small",
        "  ask for less",
    ]
