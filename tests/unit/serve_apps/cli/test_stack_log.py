"""Log of a stack: every line is kept with its time, in foreground and background."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from serve_apps.cli.stack_log import FILE, StackLog, without_time

STAMPED = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
#: Logs a line as a process whose output is already the file, as `up` starts it in the background.
BACKGROUND = """
import sys
from pathlib import Path
from rich.console import Console
from serve_apps.cli.stack_log import StackLog
log = StackLog(Console())
log.attach(Path(sys.argv[1]))
log.say("mesh east [gpu]: joined")
log.write("timestamp='now' event='away'\\n")
"""


def test_foreground_log_is_plain_and_kept_with_times(tmp_path: Path, capsys) -> None:
    log = StackLog(Console(width=10))
    log.say("before")
    log.attach(tmp_path)
    log.say("mesh east [gpu]: joined")
    log.write("timestamp='now' event='away'\n")
    log.close()
    output = capsys.readouterr()
    assert output.out == "before\nmesh east [gpu]: joined\n"
    assert output.err == "timestamp='now' event='away'\n"
    kept = (tmp_path / FILE).read_text()
    assert re.fullmatch(STAMPED + r"mesh east \[gpu\]: joined\ntimestamp='now' event='away'\n", kept)


def test_the_log_of_an_earlier_stack_is_begun_anew(tmp_path: Path, capsys) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text("earlier\n")
    log = StackLog(Console())
    log.attach(tmp_path)
    log.close()
    assert (tmp_path / FILE).read_text() == ""


def test_background_log_keeps_each_line_once_with_its_time(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    with (tmp_path / FILE).open("wb") as sink:
        subprocess.run([sys.executable, "-c", BACKGROUND, str(tmp_path)], check=True, stdout=sink, stderr=subprocess.STDOUT)
    kept = (tmp_path / FILE).read_text().splitlines()
    assert sorted(map(without_time, kept)) == ["mesh east [gpu]: joined", "timestamp='now' event='away'"]
    assert sum(bool(re.match(STAMPED, line)) for line in kept) == 1
