"""Serve's config file, judged by Serve's own schema."""

from __future__ import annotations

import pytest
import yaml
from deployed_federation import written
from ray.serve.schema import ServeDeploySchema

from federation.config.loading import configured_meshes_of, tenants_of
from serve_apps.cli.app import run_command
from serve_apps.configuration.config_file import read_config
from serve_apps.configuration.root_arguments import RootArguments
from serve_apps.deployment.serve_file import COORDINATOR, GATEWAY


@pytest.fixture
def serve_file(tmp_path, capsys):
    """Return a function that runs `serve-config` and gives the parsed file."""

    def run(*options: str, **changed):
        out = tmp_path / "serve.yaml"
        assert run_command(["serve-config", str(written(tmp_path, **changed)), "--out", str(out), "--force", *options]) == 0
        return yaml.safe_load(out.read_text())

    return run


def test_serves_schema_accepts_the_file(serve_file):
    schema = ServeDeploySchema.model_validate(serve_file())
    assert {app.name: app.route_prefix for app in schema.applications} == {GATEWAY: "/", COORDINATOR: None}
    assert (schema.http_options.host, schema.http_options.port, schema.proxy_location.value) == ("127.0.0.1", 8123, "HeadOnly")
    gateway, coordinator = (app.deployments[0] for app in schema.applications)
    assert (gateway.name, gateway.num_replicas, gateway.ray_actor_options.num_cpus) == ("Gateway", 2, 0)
    assert (coordinator.name, coordinator.num_replicas, coordinator.ray_actor_options.num_cpus) == ("Coordinator", 1, 0)


def test_arguments_bring_the_whole_file_to_the_replicas(serve_file, tmp_path):
    for app in serve_file("--secrets-dir", "/run/secrets/mesh")["applications"]:
        arguments = RootArguments.model_validate(app["args"])
        read = read_config(tmp_path / "federation.yaml")
        found = arguments.config()
        assert (tenants_of(found), configured_meshes_of(found), found.root) == (tenants_of(read), configured_meshes_of(read), read.root)
        assert arguments.secrets_dir == "/run/secrets/mesh"


def test_url_of_redis_is_left_out(serve_file):
    file = serve_file(changes=(("storage:", 'redis: {url: "redis://user:hunter2@host:6379/0"}\nstorage:'),))
    assert "hunter2" not in str(file)
    assert "redis" not in file["applications"][0]["args"]["federation_file"]


@pytest.mark.parametrize(
    ("storage", "place"),
    [
        pytest.param("s3://key:hunter2@bucket/values", "storage.url", id="a password in a URL"),
        pytest.param("s3://bucket/values?aws_secret=hunter2", "storage.url", id="an option that is a secret"),
    ],
)
def test_secret_elsewhere_in_the_file_is_refused(tmp_path, capsys, storage, place):
    assert run_command(["serve-config", str(written(tmp_path, storage=storage))]) == 1
    said = capsys.readouterr()
    assert place in said.err
    assert "hunter2" not in said.out + said.err


def test_file_without_a_place_for_values_is_refused(tmp_path, capsys):
    file = written(tmp_path, changes=(('storage: {url: "s3://bucket/values"}\n', ""),))
    assert run_command(["serve-config", str(file)]) == 1
    assert "storage.url: names no place" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--kuberay",), id="a RayService without an image"),
        pytest.param(("--kuberay", "--image", "mesh:1", "--systemd"), id="two forms"),
        pytest.param(("--image", "mesh:1"), id="an image without a RayService"),
        pytest.param(("--ray", "10.0.0.1:6379"), id="a Ray address without units"),
        pytest.param(("--systemd", "--secrets-dir", "/run/secrets"), id="secrets of units"),
    ],
)
def test_options_of_another_form_are_a_wrong_command_line(tmp_path, capsys, options):
    assert run_command(["serve-config", str(written(tmp_path)), *options]) == 2
    assert capsys.readouterr().out == ""


def test_existing_file_is_replaced_only_by_force(tmp_path, capsys):
    out = tmp_path / "serve.yaml"
    out.write_text("mine")
    assert run_command(["serve-config", str(written(tmp_path)), "--out", str(out)]) == 1
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
