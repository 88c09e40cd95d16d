"""What is printed: literally what was given, and readable in a narrow terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from rich.table import Table

from ssedb import cli, terminal
from ssedb.compare.tables import Table as StatsTable
from ssedb.noises import list_noises
from ssedb.sweep.display import Display
from ssedb.sweep.grid import read_grid
from tests.helpers import run_ssedb
from tests.sweep.grids import TOY, write_grid
from tests.toy import ROOMS_FLAGS as FLAGS

ONE = ["--set", "seed=0", "noise=none", "bonus=none", "--jobs", "1", "--device", "cpu"]
"""One run of a grid."""
HOSTILE = "a b [red]x[/b] :key:"
"""A name that markup, emoji codes and a shell would each take apart."""


def in_terminal(columns: int, *args: str, **kwargs) -> list[str]:
    """Run the command in a terminal so wide; return its lines, each frame of a bar too."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "ssedb", *args]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=env, **kwargs
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            shown += os.read(leader, 65536)
        except OSError:
            break
    os.close(leader)
    assert process.wait() == 0, shown.decode()
    text = re.sub(r"\x1b\[[\d;]*m", "", shown.decode())  # colours
    text = re.sub(r"\x1b\[\??[\d;]*[a-zA-Z]", "\r", text)
    return [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def test_names_with_brackets_and_colons_are_printed_literally(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", *FLAGS, "--out", HOSTILE]) == 0
    said = capsys.readouterr().out
    assert f"run folder   {HOSTILE}\n" in said
    assert f"watch it     ssedb eval '{HOSTILE}' --episodes 5 --video\n" in said
    assert f"tensorboard --logdir '{HOSTILE}/tb'\n" in said
    assert cli.main(["stats", HOSTILE, "--no-figures"]) == 0
    assert f"written to {HOSTILE}/stats: " in capsys.readouterr().out


def test_console_prints_brackets_and_colons_literally(capsys):
    terminal.console().print(f"in {HOSTILE}", soft_wrap=True)
    assert capsys.readouterr().out == f"in {HOSTILE}\n"


def test_notes_of_a_live_display_are_literal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    from ssedb.runs.progress import console

    with console() as shown:
        shown.note(f"{HOSTILE} is damaged")
        shown.phase(f"looking at {HOSTILE}")
    with Display(read_grid(write_grid(tmp_path)).runs, 0) as shown:
        shown.note(f"FAILED {HOSTILE}")
    said = capsys.readouterr().err
    for text in (f"{HOSTILE} is damaged", f"looking at {HOSTILE}", f"FAILED {HOSTILE}"):
        assert text in said


def test_bar_in_sixty_columns_shows_whole_words(tmp_path):
    lines = in_terminal(60, "train", *FLAGS, "--out", "run", cwd=tmp_path)
    assert max(map(len, lines)) <= 60
    assert not [line for line in lines if "…" in line]
    assert "a random agent looks around for 32 steps" in lines
    bars = [
        re.sub(r"\s+", " ", line) for line in lines if line.startswith(("exploring", "learning"))
    ]
    assert any(re.match(r"learning \d+/", bar) for bar in bars)
    assert bars[-1].startswith("exploring ━━━━━━━━━━ 100% 64/64 steps left 0:00:00")


@pytest.mark.parametrize("what", ["bonuses", "noises", "envs"])
def test_lists_fit_into_sixty_columns(what):
    lines = in_terminal(60, "list", what)
    assert max(map(len, lines)) <= 60
    assert not [line for line in lines if "…" in line]
    words = {word for line in lines for word in line.split()}
    assert {"bonuses": {"random-features", "disagreement", "28,154,528", "representation"}}.get(
        what, set()
    ) <= words


def cut_words(printed: str, words: str) -> list[str]:
    return [word for word in words.split() if word not in printed]


def test_table_at_any_width_keeps_its_words_whole(capsys):
    cells = [
        "db-ensemble",
        "0.128 [0.057, 0.197]",
        "0.872 [0.820, 0.924]",
        "a perfectly ordinary sentence",
    ]
    for width in (30, 40, 50, 60, 80, 120):
        table = StatsTable(
            "All tasks together", ["method", "iqm", "optimality gap", "meaning"], [cells] * 2
        )
        table.show(terminal.console(width=width))
        printed = capsys.readouterr().out
        assert cut_words(printed, " ".join([*cells, "optimality gap"])) == [], width
        assert max(map(len, printed.splitlines())) <= width
        assert ("┃" in printed) == (width >= 50)  # rows of a table, or a paragraph each


def test_table_with_room_is_printed_whole(capsys):
    table = Table("a", "b")
    table.add_row("one two", "three")
    terminal.print_table(table, terminal.console(width=80))
    assert "│ one two │ three │" in capsys.readouterr().out


def test_pipe_gets_a_line_for_a_line():
    lines = run_ssedb("list", "noises").stdout.splitlines()
    assert len(lines) == len(list_noises())
    assert lines[1] == (
        "clouds         Bright blobs that drift over the picture in Brownian motion, "
        "round the edges"
    )


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale without UTF-8, in which Python does not help itself."""


def test_paths_need_not_be_ascii_in_any_locale(tmp_path):
    grid = TOY.replace('name = "toy"', "name = 'my [läufe]'").replace("steps = 96", "steps = 32")
    write_grid(tmp_path, grid).rename(tmp_path / "größe.toml")
    for args, said in (
        (["sweep", "größe.toml", *ONE], "tables       ssedb stats 'runs/my [läufe]'"),
        (
            ["stats", "runs/my [läufe]", "--no-figures"],
            "written to runs/my [läufe]/stats: tables.md",
        ),
        (
            ["report", "runs", "--out", "bücher", "--episodes", "0"],
            "open in a browser  bücher/index.html",
        ),
    ):
        result = run_ssedb(*args, cwd=tmp_path, env={**os.environ, **ASCII}, encoding="utf-8")
        assert (result.returncode, said in result.stdout) == (0, True), result.stderr
    assert "# runs/my [läufe]" in (tmp_path / "runs/my [läufe]/stats/tables.md").read_text(
        encoding="utf-8"
    )


def test_letter_that_the_terminal_lacks_does_not_end_a_command(tmp_path):
    strict = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "1"}
    result = run_ssedb("list", "größe", env=strict)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "what='gr\\xf6\\xdfe': use one of" in result.stderr


def test_path_that_is_no_text_is_refused():
    result = run_ssedb("stats", os.fsdecode(b"r\xe9sultats"), env={**os.environ, "PYTHONUTF8": "1"})
    assert result.returncode == 2
    assert (
        result.stderr == "ssedb: 'r\\udce9sultats' is no utf-8 text; give the path another name\n"
    )


def test_plural_of_one_is_singular():
    counts = [terminal.plural(count, "run") for count in (0, 1, 2, 1024)]
    assert counts == ["0 runs", "1 run", "2 runs", "1,024 runs"]
