"""Programs in a whole federation: `schedulemesh run` with output and exit code, Ctrl-C, and a program between other nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, TENANT

import dag
from dag.errors import ApiError, RunFailed
from dag.run.states import RunState
from dag.store.remote import Client
from mesh.errors import ProgramFailed
from serve_apps.cli.app import run_command

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A working directory with a script and a module beside it."""
    (tmp_path / "helper.py").write_text("X = 41\n")
    (tmp_path / "train.py").write_text(
        "import sys, helper\nprint('rate', sys.argv[1], helper.X)\nprint('to stderr', file=sys.stderr)\nsys.exit(int(sys.argv[2]))\n"
    )
    return tmp_path


def test_run_prints_the_output_and_exits_as_the_program(folder: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["run", "--state-dir", str(folder), "--tenant", TENANT, "--working-dir", str(home)]
    assert run_command([*options, "--id", "program-fails", "--", "python", "train.py", "0.1", "7"]) == 7
    output = capfd.readouterr()
    assert output.out == "rate 0.1 41\n"
    assert "to stderr\n" in output.err
    assert run_command([*options, "--json", "--", "python", "train.py", "0.2", "0"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {"stream": "stdout", "text": "rate 0.2 41"} in lines
    assert lines[-1]["exit_code"] == 0


def test_ctrl_c_cancels_the_run(client: Client, folder: Path) -> None:
    options = ["run", "--state-dir", str(folder), "--tenant", TENANT, "--id", "program-cancelled", "--no-working-dir"]
    command = [sys.executable, "-m", "serve_apps.cli", *options, "--", "sh", "-c", "echo begun; sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as terminal:
        assert terminal.stdout is not None
        assert terminal.stdout.readline() == "begun\n"
        terminal.send_signal(signal.SIGINT)
        assert terminal.wait(LIMIT_S) == 130
    assert client.run("program-cancelled").wait(LIMIT_S) is RunState.CANCELLED


def test_detach_prints_the_id_only(client: Client, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "--detach", "--no-working-dir", "--state-dir", str(folder), "--tenant", TENANT, "--", "true"]) == 0
    run = client.run(capfd.readouterr().out.strip())
    assert run.result(LIMIT_S) == 0


def test_a_program_stands_between_other_nodes(client: Client, home: Path) -> None:
    rows = dag.bind(len, [1, 2, 3])
    train = dag.program(["python", "train.py", rows, "0"], working_dir=home, after=[rows])
    after = dag.bind(max, train, 5)
    run = client.submit(after, tenant=TENANT)
    assert run.result(LIMIT_S) == 5
    assert [str(line) for line in run.logs("train") if line.stream == "stdout"] == ["rate 3 41"]


def test_a_failed_program_carries_its_exit_code(client: Client) -> None:
    run = client.submit(dag.program("exit 3", name="fails"), tenant=TENANT)
    with pytest.raises(RunFailed, match="exit 3 ended with exit code 3") as failed:
        run.result(LIMIT_S)
    assert isinstance(failed.value.__cause__, ProgramFailed)
    assert failed.value.__cause__.exit_code == 3


def test_a_program_that_cannot_run_is_refused(client: Client, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ApiError, match="no mesh"):
        client.submit(dag.program("true", size=100), tenant=TENANT)
    assert run_command(["run", "--state-dir", str(folder), "--tenant", "acme/nobody", "--", "true"]) == 1
    assert "acme/nobody" in capfd.readouterr().err
    assert run_command(["run", "--state-dir", str(folder), "--working-dir", "/no/such/folder", "--", "true"]) == 1
    assert "/no/such/folder is not there" in capfd.readouterr().err
