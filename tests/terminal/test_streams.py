"""Streams that are closed, full or broken: a run goes on, and no command shows a traceback."""

import subprocess
import sys

import pytest

LINES = """
import sys
from ssedb.terminal.streams import prepare_streams
prepare_streams()
for number in range(3):
    print("x" * 9999, file=sys.stderr)
"""


def shell(line: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which "$@" are Python's arguments."""
    command = ["bash", "-c", line, "bash", sys.executable, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "line", ['"$@" 2>/dev/full', '"$@" 2>&-', '"$@" 2> >(true); exit $?', '"$@"']
)
def test_standard_error_that_takes_nothing_stops_nothing(line):
    done = shell(line, "-c", LINES + "print('end', file=sys.stdout)")
    assert (done.returncode, done.stdout) == (0, "end\n")


def test_standard_error_in_order_shows_everything():
    assert shell('"$@"', "-c", LINES).stderr == f"{'x' * 9999}\n" * 3


@pytest.mark.parametrize("stream", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(stream):
    script = "from ssedb.terminal.streams import prepare_streams\nprepare_streams()\n"
    script += "assert open('/dev/null').fileno() > 2\nprint('to the null device')"
    assert shell(f'"$@" {stream}', "-c", script).returncode == 0


def test_command_without_standard_output_succeeds():
    done = shell('"$@" >&-', "-m", "ssedb", "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_standard_output_on_a_full_disk_is_an_error_of_one_line():
    done = shell('"$@" >/dev/full', "-m", "ssedb", "--version")
    said = "ssedb: a file, or standard output: No space left on device; free some space there\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["doctor", "nowhere"], 2)])
def test_command_whose_reader_has_gone_ends_with_its_own_code(arguments, code):
    done = shell('"$@" > >(true); exit $?', "-m", "ssedb", *arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_command_continues_after_its_reader_has_gone(tmp_path):
    script = f"""
import sys
from ssedb.terminal.streams import prepare_streams
from ssedb import terminal as screen
prepare_streams()
for number in range(3):
    screen.console().print("x" * 99999)
    sys.stdout.flush()
open({str(tmp_path / "end")!r}, "w").close()
"""
    assert shell('"$@" > >(true); exit $?', "-c", script).returncode == 0
    assert (tmp_path / "end").exists()


def test_closed_stream_is_the_null_device_in_other_processes_too():
    child = "import os; os.fstat(1); os.fstat(2)"
    script = "import subprocess, sys\n"
    script += "from ssedb.terminal.streams import prepare_streams\nprepare_streams()\n"
    script += f"sys.exit(subprocess.run([sys.executable, '-c', {child!r}]).returncode)"
    assert shell('"$@" >&- 2>&-', "-c", script).returncode == 0
