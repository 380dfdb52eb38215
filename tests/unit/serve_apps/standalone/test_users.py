"""Cluster users are tested before any start, with the environment that their nodes get."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from federation.config.loading import FederationConfig, load_config
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster import run_as
from serve_apps.standalone.own_clusters import users_of

KEYS = ("SCHEDULEMESH_API_KEY", "SCHEDULEMESH_REDIS_URL")
#: Prints the shell's variables that reach the process, and whether its user's own packages count.
LOOK = f"import os, sys; sys.exit(' '.join([*sorted({set(KEYS)!r} & set(os.environ)), f'user site {{not sys.flags.no_user_site}}']))"


@pytest.fixture
def config(tmp_path: Path) -> FederationConfig:
    """The tenants' cluster belongs to the user of the test, so no root is needed."""
    text = f"""
federation: {{name: walls}}
root: {{cluster: control}}
storage: {{url: "{(tmp_path / "values").as_uri()}"}}
clusters:
  control: {{nodes: [{{cpu: 1}}], object_store: 80MiB}}
  tenants: {{nodes: [{{cpu: 2}}], object_store: 80MiB, user: {pwd.getpwuid(os.geteuid()).pw_name}}}
flavors: {{standard: {{}}}}
meshes:
  east: {{cluster: tenants, pools: {{general: {{flavor: standard, capacity: {{cpu: 2}}}}}}}}
tenants:
  acme: {{quotas: {{standard: {{cpu: {{nominal: 2}}}}}}, pickled_code: true}}
"""
    return load_config(text, source="walls.yaml")


def test_the_try_of_a_user_gets_no_keys(config: FederationConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setattr(run_as, "_LOOK", LOOK)
    with pytest.raises(RuntimeAdapterError, match=r"clusters\.tenants\.user.*user site False") as raised:
        users_of(config)
    assert [name for name in KEYS if name in str(raised.value)] == []


def test_a_user_that_reaches_everything_is_found(config: FederationConfig) -> None:
    assert {name: user.uid for name, user in users_of(config).items()} == {"control": os.geteuid(), "tenants": os.geteuid()}
