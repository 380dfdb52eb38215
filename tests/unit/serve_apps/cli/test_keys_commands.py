"""Commands `keys create`, `keys list`, `keys rotate`, `keys revoke`."""

import json
from types import SimpleNamespace

import pytest

from federation.store.memory.change_log import MemoryChangeLog
from federation.store.memory.key_ring import MemoryKeyRing
from federation.tenants import Tenant, TenantTree
from mesh.core.ids import TenantPath
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import keys
from serve_apps.requests.auth import Denial, Denied, authenticate
from serve_apps.standalone.stack_folder import StackFolder

DAY_MS = 86_400_000


@pytest.fixture
def changes() -> MemoryChangeLog:
    return MemoryChangeLog()


@pytest.fixture
def ring(monkeypatch, changes) -> MemoryKeyRing:
    kept = MemoryKeyRing()
    ledger = SimpleNamespace(snapshot=lambda: SimpleNamespace(tree=TenantTree([Tenant(path=TenantPath("acme"), parent=None)])))
    monkeypatch.setattr(keys, "RedisKeyRing", lambda *_: kept)
    opened = SimpleNamespace(client=None, keys=None, ledger=ledger, changes=changes)
    monkeypatch.setattr(keys, "running_stores", lambda _: opened)
    monkeypatch.setattr(keys, "root_settings", lambda _: SimpleNamespace(configured_meshes=SimpleNamespace(meshes=("east",))))
    return kept


@pytest.fixture
def run(ring, capsys):
    """Return a function that runs a command and gives its JSON."""

    def run(*arguments: str):
        assert run_command([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_keys_are_made_and_listed_as_json(run, capsys):
    made = run("keys", "create", "acme", "--user", "ann", "--role", "submitter", "--expires", "30d")
    assert made["key"].split("_")[1] == made["id"]
    (listed,) = run("keys", "list")["keys"]
    assert run("keys", "ls")["keys"] == [listed]
    assert (listed["id"], listed["tenant"], listed["user"], listed["revoked"]) == (made["id"], "acme", "ann", False)
    assert (listed["role"], listed["used_at"]) == ("submitter", None)
    assert listed["expires_at"] > listed["created_at"]
    assert made["key"] not in json.dumps(listed)


def test_the_list_shows_role_end_and_last_use(ring, run, capsys):
    run("keys", "create", "acme", "--role", "viewer")
    run("keys", "create", "--mesh", "east")
    assert run_command(["keys", "list"]) == 0
    heads, mesh, tenant = capsys.readouterr().out.splitlines()
    assert heads.split() == ["id", "of", "role", "user", "created", "expires", "last", "used", "state"]
    assert "mesh east" in mesh
    assert tenant.split()[1:3] == ["acme", "viewer"]
    assert tenant.split()[-2:] == ["never", "never"]


def test_the_key_expires_when_it_should(ring, run):
    key = ring.find(run("keys", "create", "acme", "--expires", "30d")["id"])
    assert key.expires_ms == key.created_ms + 30 * DAY_MS


def test_a_rotated_key_is_valid_for_the_overlap(ring, run):
    old = run("keys", "create", "acme", "--user", "ann", "--role", "viewer")
    new = run("keys", "rotate", old["id"], "--overlap", "2h")
    found, ended = ring.find(new["id"]), ring.find(old["id"]).expires_ms
    assert (found.tenant, found.user, found.role.value, found.expires_ms) == ("acme", "ann", "viewer", 0)
    assert ended == found.created_ms + 7_200_000
    assert authenticate(f"Bearer {old['key']}", ring.find, ended) == Denied(reason=Denial.EXPIRED)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["create", "acme", "--expires", "soon"], "must be a time like", id="no time"),
        pytest.param(["create", "acme", "--role", "root"], "viewer", id="no role"),
        pytest.param(["create", "--mesh", "east", "--role", "viewer"], "need a tenant", id="a role for a mesh"),
        pytest.param(["create", "acme/none"], "acme/none", id="no tenant"),
        pytest.param(["rotate", "00000000"], "keys list", id="rotating no key"),
        pytest.param(["revoke", "00000000"], "keys list", id="revoking no key"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(ring, capsys, arguments, words):
    assert run_command(["keys", *arguments]) != 0
    assert words in " ".join(capsys.readouterr().err.split())
    assert ring.list() == ()


@pytest.mark.parametrize(("end", "words"), [("revoked", "is revoked"), ("expired", "is expired")])
def test_a_key_that_has_ended_is_not_rotated(ring, run, capsys, end, words):
    key = run("keys", "create", "acme")["id"]
    ring.revoke(key) if end == "revoked" else ring.expire(key, 1)
    assert run_command(["keys", "rotate", key]) == 1
    assert words in capsys.readouterr().err
    assert len(ring.list()) == 1
    assert run_command(["keys", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == end


def test_a_rotated_key_is_not_rotated_again(ring, run, capsys):
    old = run("keys", "create", "acme")["id"]
    new = run("keys", "rotate", old)["id"]
    assert run_command(["keys", "rotate", old]) == 1
    assert f"key {old} was rotated already; rotate its newer key" in " ".join(capsys.readouterr().err.split())
    assert len(ring.list()) == 2
    newest = run("keys", "rotate", new)["id"]
    assert ring.find(newest).expires_ms == 0


@pytest.mark.parametrize("place", ["client.json", "settings/mesh-east.json"])
def test_a_key_of_the_stack_itself_is_not_rotated(ring, run, capsys, tmp_path, place):
    made, other = run("keys", "create", "acme"), run("keys", "create", "acme")
    (tmp_path / "settings").mkdir()
    StackFolder(tmp_path).write("settings.json", {"link": {"key": made["key"]}, "api_key": made["key"]})
    (tmp_path / "settings.json").rename(tmp_path / place)
    (tmp_path / "settings" / "mesh-west.json").write_text('{"link": null}')
    assert run_command(["keys", "rotate", made["id"], "--state-dir", str(tmp_path)]) == 1
    refusal = " ".join(capsys.readouterr().err.split())
    assert f"the running stack uses it ({place})" in refusal
    assert "`schedulemesh down` and `schedulemesh up`" in refusal
    assert ring.find(made["id"]).expires_ms == 0
    assert run("keys", "rotate", other["id"], "--state-dir", str(tmp_path))["id"] != other["id"]


def test_each_change_of_a_key_is_recorded_without_its_secret(run, capsys, changes):
    made = run("keys", "create", "acme", "--user", "ann")
    newer = run("keys", "rotate", made["id"])
    assert run_command(["keys", "revoke", newer["id"]]) == 0
    assert run_command(["keys", "revoke", "00000000"]) == 1
    capsys.readouterr()
    of_mesh = run("keys", "create", "--mesh", "east")
    entries = [entry.change for log in ("acme", "*") for entry in reversed(changes.newest(log, None, 10))]
    assert [(each.operation, each.tenant, each.target, each.outcome.value) for each in entries] == [
        ("schedulemesh keys create", "acme", "", "allowed"),
        ("schedulemesh keys rotate", "acme", made["id"], "allowed"),
        ("schedulemesh keys revoke", "acme", newer["id"], "allowed"),
        ("schedulemesh keys revoke", "*", "00000000", "refused"),
        ("schedulemesh keys create", "*", "", "allowed"),
    ]
    assert [each.details.get("key") for each in entries] == [made["id"], newer["id"], None, None, of_mesh["id"]]
    assert not any(text.split("_", 2)[2] in str(entries) for text in (made["key"], newer["key"], of_mesh["key"]))
