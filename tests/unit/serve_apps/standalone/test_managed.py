"""Managed processes of a few lines, judged by their output."""

from __future__ import annotations

import os
import textwrap

import pytest

from mesh.errors import RuntimeAdapterError
from serve_apps.standalone.managed import LOG_LINES_SHOWN, ManagedProcess

READY_S = 60.0
#: Sleeps until it is stopped; prints its input first.
STAYS = """
import signal, sys
{before}
sys.stdout.write('READY {{"a": 1}}\\n')
sys.stdout.flush()
signal.pause()
"""


@pytest.fixture
def spawn(tmp_path):
    """Start a process from its source; all end with the test."""
    started = []

    def start(source, **environment):
        (tmp_path / "part.py").write_text(textwrap.dedent(source))
        (tmp_path / "settings.json").write_text("{}")
        environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        process = ManagedProcess("part", "part", tmp_path / "settings.json", tmp_path / "logs" / "part.log", environment=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def test_process_is_ready_when_it_says_so_and_facts_are_kept(spawn):
    process = spawn(STAYS.format(before=""))
    assert process.wait_ready(READY_S) == {"a": 1}
    assert process.facts == {"a": 1}
    assert process.alive()


def test_output_before_readiness_is_skipped(spawn):
    process = spawn(STAYS.format(before="sys.stdout.write('hello\\n\\nworld\\n')"))
    assert process.wait_ready(READY_S) == {"a": 1}


def test_process_gets_the_settings_file_and_the_environment(spawn, tmp_path):
    process = spawn(
        """
        import json, os, sys
        print("READY " + json.dumps({"args": sys.argv[1:], "word": os.environ["WORD"], "path": "PATH" in os.environ}))
        """,
        WORD="yes",
    )
    assert process.wait_ready(READY_S) == {"args": [str(tmp_path / "settings.json")], "word": "yes", "path": True}


def test_early_exit_is_reported_with_the_end_of_the_log(spawn):
    process = spawn("raise SystemExit('\\n'.join(f'line {number}' for number in range(100)))")
    with pytest.raises(RuntimeAdapterError, match="part ended before it was ready") as raised:
        process.wait_ready(READY_S)
    assert str(raised.value).endswith("line 99")
    assert f"line {100 - LOG_LINES_SHOWN}\n" in str(raised.value)
    assert f"line {100 - LOG_LINES_SHOWN - 1}\n" not in str(raised.value)


def test_process_that_is_not_ready_in_time_is_an_error(spawn):
    process = spawn("import signal; signal.pause()")
    with pytest.raises(RuntimeAdapterError, match="part was not ready within 0 s"):
        process.wait_ready(0.05)
    assert process.alive()


def test_the_log_of_an_earlier_life_is_kept(spawn):
    for word in ("first", "second"):
        process = spawn(STAYS.format(before=f"sys.stderr.write('{word}\\n')"))
        process.wait_ready(READY_S)
        process.stop(READY_S)
    assert process.log.read_text().splitlines() == ["first", "second"]


def test_process_stops_on_request(spawn):
    process = spawn(STAYS.format(before="signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))"))
    process.wait_ready(READY_S)
    process.stop(READY_S)
    assert not process.alive()


def test_unstoppable_process_is_killed_with_its_children(spawn, tmp_path):
    os.mkfifo(tmp_path / "held")
    process = spawn(
        f"""
        import signal, subprocess, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sh", "-c", "exec sleep 600 > '{tmp_path}/held'"])
        print("READY {{}}", flush=True)
        signal.pause()
        """
    )
    process.wait_ready(READY_S)
    with (tmp_path / "held").open("rb") as held:  # Waits until the process below writes to it, if only in principle.
        process.stop(0.01)
        assert not process.alive()
        assert held.read() == b""  # Ends when the holder of the other side is gone.


def test_process_leads_its_own_session(spawn):
    process = spawn(STAYS.format(before=""))
    process.wait_ready(READY_S)
    assert os.getsid(process.pid) == process.pid


def test_stopping_and_killing_again_is_harmless(spawn):
    process = spawn(STAYS.format(before=""))
    process.wait_ready(READY_S)
    process.kill()
    process.kill()
    process.stop(READY_S)
    process.ask_to_stop()
    assert not process.alive()
