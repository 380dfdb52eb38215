"""`schedulemesh join`: its command line and its errors."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from federation.errors import LinkRefused, StoreUnavailable
from federation.link import LinkTerms
from mesh.core.resources import ResourceSet
from mesh.ray.cluster.cluster_token import MODE_VARIABLE
from mesh.ray.plugins.plugin_loading import load_plugins
from serve_apps import child_process
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import joining
from serve_apps.processes.ray_access import check_answers
from serve_apps.processes.settings import ChildSettings

KEY = "smm_00000001_" + "a" * 43
TERMS = LinkTerms(heartbeat_ms=500, inline_limit_bytes=4_096, storage_url="s3://bucket/folder")
CONFIG = """
federation: {name: tests}
root: {cluster: local}
clusters: {local: {nodes: [{cpu: 4}]}}
flavors: {standard: {}}
meshes:
  lab:
    link: joins
    labels: {zone: lab}
    node_labels: {slice: a}
    tenants: [acme]
    warm_runners: 3
    pools: {general: {flavor: standard, capacity: {cpu: 4, memory: 1GiB}}}
tenants: {acme: {}}
"""


@pytest.fixture
def key_file(tmp_path) -> Path:
    file = tmp_path / "lab.key"
    file.touch(mode=0o600)
    file.write_text(f"{KEY}\n")
    return file


@pytest.fixture
def ran(monkeypatch) -> list[ChildSettings]:
    """The records of meshes that ran; the root returns its terms."""
    found: list[ChildSettings] = []
    monkeypatch.setattr(joining, "ask_terms", lambda *_: TERMS)
    monkeypatch.setattr(child_process, "run", lambda settings, _send: found.append(settings))
    monkeypatch.setenv(MODE_VARIABLE, "disabled")
    monkeypatch.setattr(joining, "configure_logging", lambda: None)
    monkeypatch.setattr(joining, "check_answers", lambda *_: None)
    monkeypatch.setattr("serve_apps.processes.ray_access.asks_for_token", lambda _address: True)
    return found


def join(key_file: Path, *more: str, root: str = "https://one:8000,http://two:8000/", mesh: str = "lab", ray: str = "10.0.0.1:6379") -> int:
    return run_command(["join", "--root", root, "--key-file", str(key_file), "--mesh", mesh, "--ray", ray, *more])


def test_a_mesh_of_the_command_line_joins_under_the_roots_terms(key_file, ran):
    pools = ["--pool", "general=standard:cpu=0.5,memory=1GiB", "--pool", "big=a100:gpu=2"]
    more = ["--label", "zone=lab", "--tenant", "acme", "--tenant", "shop", "--node-label", "slice=a", "--warm-runners", "0"]
    assert join(key_file, *pools, *more) == 0
    (settings,) = ran
    assert (settings.link.roots, settings.link.key, settings.store) == (("https://one:8000", "http://two:8000/"), KEY, None)
    assert (settings.heartbeat_ms, settings.inline_limit_bytes, settings.storage_url) == (500, 4_096, "s3://bucket/folder")
    assert (settings.record.mesh, settings.record.labels, settings.record.tenants) == ("lab", {"zone": "lab"}, ("acme", "shop"))
    assert {pool.pool: (pool.flavor, pool.capacity) for pool in settings.record.pools} == {
        "general": ("standard", ResourceSet.of({"cpu": 0.5, "memory": "1GiB"})),
        "big": ("a100", ResourceSet.of({"gpu": 2})),
    }
    assert (settings.node_labels, settings.warm_runners, settings.ray_address) == ({"slice": "a"}, 0, "10.0.0.1:6379")


@pytest.mark.parametrize("asks", [True, False], ids=["it asks for a token", "it asks for none"])
def test_a_cluster_is_entered_as_it_asks(key_file, ran, monkeypatch, capsys, asks):
    monkeypatch.delenv(MODE_VARIABLE)
    monkeypatch.setattr("serve_apps.processes.ray_access.asks_for_token", {"10.0.0.1:6379": asks}.__getitem__)
    assert join(key_file, "--pool", "general=standard:cpu=1") == 0
    assert len(ran) == 1
    assert os.environ[MODE_VARIABLE] == ("token" if asks else "disabled")
    warned = "warning: mesh lab: the Ray cluster at 10.0.0.1:6379 asks for no token" in " ".join(capsys.readouterr().err.split())
    assert warned is not asks


def test_a_mesh_of_a_federation_file_is_as_the_file_says(key_file, ran, tmp_path):
    (tmp_path / "federation.yaml").write_text(CONFIG)
    assert join(key_file, "--config", str(tmp_path / "federation.yaml")) == 0
    (settings,) = ran
    assert (settings.record.labels, settings.record.tenants) == ({"zone": "lab"}, ("acme",))
    assert (settings.node_labels, settings.warm_runners) == ({"slice": "a"}, 3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param([], "needs pools", id="no pool"),
        pytest.param(["--pool", "cpu=8"], "--pool cpu=8: not a pool", id="a pool without its flavor"),
        pytest.param(["--pool", "general=standard:cpu"], "standard:cpu: expected KEY=VALUE, got 'cpu'", id="a resource without its amount"),
        pytest.param(["--pool", "general=standard:cpu=many"], "--pool general=standard:cpu=many: ", id="an invalid amount"),
        pytest.param(["--pool", "general=standard:cpu=1", "--label", "zone"], "KEY=VALUE", id="a label without its value"),
    ],
)
def test_incomplete_mesh_is_reported_before_any_call(key_file, ran, capsys, more, words):
    assert join(key_file, *more) == 1
    assert words in capsys.readouterr().err
    assert ran == []


@pytest.mark.parametrize("root", ["", ",", "one:8000", "ftp://one", "https://one:8000/v1", "https://a b"])
def test_invalid_address_is_reported(key_file, ran, capsys, root):
    assert join(key_file, "--pool", "general=standard:cpu=1", root=root) == 1
    assert "https://HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        pytest.param(KEY, 0o644, "chmod 600", id="open to others"),
        pytest.param("smk_00000001_" + "a" * 43, 0o600, "holds no mesh key", id="a tenant's key"),
        pytest.param("", 0o600, "holds no mesh key", id="an empty file"),
        pytest.param("schlüssel", 0o600, "cannot read the key", id="other letters than keys have"),
    ],
)
def test_invalid_key_file_is_refused_without_showing_it(tmp_path, ran, capsys, text, mode, words):
    file = tmp_path / "key"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    assert join(file, "--pool", "general=standard:cpu=1") == 1
    output = capsys.readouterr().err
    assert words in output
    assert "a" * 43 not in output


def test_missing_file_is_reported(tmp_path, ran, capsys):
    assert join(tmp_path / "missing", "--pool", "general=standard:cpu=1") == 1
    assert "cannot read the key" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [LinkRefused("the root refuses: no such key"), StoreUnavailable("no root answers")], ids=["a refusal", "silence"]
)
def test_a_root_that_does_not_take_the_mesh_ends_the_command(key_file, ran, monkeypatch, capsys, error):
    def refuse(*_: object) -> LinkTerms:
        raise error

    monkeypatch.setattr(joining, "ask_terms", refuse)
    assert join(key_file, "--pool", "general=standard:cpu=1") == 1
    assert str(error) in " ".join(capsys.readouterr().err.split())
    assert ran == []


def test_silent_cluster_is_reported_before_the_root_is_called(key_file, ran, monkeypatch, capsys):
    monkeypatch.setattr(joining, "check_answers", check_answers)
    monkeypatch.setattr(joining, "ask_terms", lambda *_: pytest.fail("nothing is to be asked of the root"))
    assert join(key_file, "--pool", "general=standard:cpu=1", ray="127.0.0.1:1") == 1
    assert "no answer from 127.0.0.1:1 (" in " ".join(capsys.readouterr().err.split())
    assert ran == []


def test_join_asks_the_root_and_shows_its_answer(key_file, ran, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(
        joining, "ask_terms", lambda *arguments: asked.append(arguments[1:]) or replace(TERMS, warnings=("its labels are none",))
    )
    assert join(key_file, "--pool", "general=standard:cpu=1") == 0
    ((mesh, record),) = asked
    assert (mesh, record) == ("lab", ran[0].record)
    assert "warning: mesh lab: its labels are none" in " ".join(capsys.readouterr().err.split())


def test_started_mesh_prints_its_warnings(key_file, ran, monkeypatch, capsys):
    facts = {"mesh": "lab", "cluster": "0123456789abcdef", "pid": 7, "warnings": ("its pools declare 64 cpu",)}
    monkeypatch.setattr(child_process, "run", lambda _settings, send: send(**facts))
    assert join(key_file, "--pool", "general=standard:cpu=64") == 0
    output = capsys.readouterr()
    assert output.out == "lab is up on the Ray cluster 01234567, as process 7; Ctrl-C leaves in good order\n"
    assert "warning: mesh lab: its pools declare 64 cpu" in output.err


def test_file_without_the_mesh_is_reported(key_file, ran, tmp_path, capsys):
    (tmp_path / "federation.yaml").write_text(CONFIG)
    assert join(key_file, "--config", str(tmp_path / "federation.yaml"), mesh="other") == 1
    assert "no mesh 'other'" in capsys.readouterr().err


def test_s13_a_mesh_loads_the_plugins_of_its_own_operator(key_file, ran):
    pools = ["--pool", "general=standard:cpu=1", "--policy", "general=0.7*mine+0.3*binpack"]
    assert join(key_file, *pools, "--plugin", "mine=my.module:Mine", "--plugin", "packed=p.wasm") == 0
    (settings,) = ran
    assert settings.plugins == {"mine": "my.module:Mine", "packed": "p.wasm"}
    assert [pool.policy for pool in settings.record.pools] == ["0.7*mine+0.3*binpack"]


def test_s13_a_file_of_the_operator_names_plugins(key_file, ran, tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(CONFIG.replace("warm_runners: 3", "plugins: {mine: my.module:Mine, packed: p.wasm}"))
    assert join(key_file, "--config", str(file)) == 0
    assert ran[0].plugins == {"mine": "my.module:Mine", "packed": str(tmp_path / "p.wasm")}


def test_s13_plugins_come_from_import_paths_of_the_file(key_file, tmp_path, ran, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(child_process, "run", lambda settings, _send: ran.append(load_plugins(settings.plugins)))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "policies_of_the_lab.py").write_text("def rank(demand, view):\n    return view.free[:, 0]\n")
    file = tmp_path / "lab.yaml"
    file.write_text(CONFIG.replace("warm_runners: 3", "plugins: {mine: policies_of_the_lab:rank}") + "import_paths: [code]\n")
    assert join(key_file, "--config", str(file)) == 0
    assert "mine" in [plugin.name for plugin in ran[0]]
    assert sys.path[0] == str(tmp_path / "code")


def test_a_policy_for_an_unknown_pool_is_refused(key_file, ran, capsys):
    assert join(key_file, "--pool", "general=standard:cpu=1", "--policy", "genral=binpack") == 1
    assert "--policy genral=binpack: no --pool is 'genral'; did you mean general?" in " ".join(capsys.readouterr().err.split())
    assert ran == []
