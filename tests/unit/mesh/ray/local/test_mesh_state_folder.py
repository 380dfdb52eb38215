"""State folder of a mesh: a failed start removes what it made and nothing else."""

from __future__ import annotations

import pytest

from mesh.errors import RuntimeAdapterError
from mesh.ray.local.store.mesh_folder import MeshFolder


def written(folder):
    """Write the files of a start."""
    (folder.path / "tasks").mkdir(exist_ok=True)
    (folder.path / "tasks" / "t").touch()
    return folder.count_start()


def test_a_failed_start_removes_every_folder_it_made(tmp_path):
    folder = MeshFolder(tmp_path / "a" / "b")
    assert written(folder) == 1
    folder.forget_first()
    folder.unmake()
    assert list(tmp_path.iterdir()) == []


def test_of_a_folder_that_was_there_only_what_came_goes(tmp_path):
    (tmp_path / "notes").write_text("mine")
    folder = MeshFolder(tmp_path)
    written(folder)
    folder.forget_first()
    folder.unmake()
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_of_a_mesh_that_has_started_before_nothing_goes(tmp_path):
    written(MeshFolder(tmp_path / "a"))
    folder = MeshFolder(tmp_path / "a")
    assert written(folder) == 2
    folder.forget_first()
    folder.unmake()
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"tasks", "incarnation"}
    assert MeshFolder(tmp_path / "a").count_start() == 3


def test_a_folder_with_something_of_others_in_it_is_not_removed(tmp_path):
    folder = MeshFolder(tmp_path / "a" / "b")
    (tmp_path / "a" / "theirs").touch()
    folder.unmake()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["theirs"]


def test_an_unusable_folder_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeAdapterError, match="name a folder on the head node"):
        MeshFolder(tmp_path / "file" / "mesh")


def test_a_count_that_is_no_number_is_refused(tmp_path):
    (tmp_path / "incarnation").write_text("many")
    with pytest.raises(RuntimeAdapterError, match="cannot be used"):
        MeshFolder(tmp_path).count_start()
