"""From run folders to the page."""

from __future__ import annotations

import time
from pathlib import Path

from ssedb.compare.results import load_runs
from ssedb.compare.tables import said_of_logs
from ssedb.report.data import collect
from ssedb.report.page import Page, refuse_to_overwrite
from ssedb.runs.files import require_writable
from ssedb.runs.progress import Progress, silent
from ssedb.terminal import plural


def make_report(
    runs: tuple[Path, ...],
    out: Path,
    *,
    single_file: bool = False,
    episodes: int = 12,
    title: str = "",
    device: str = "auto",
    progress: Progress = silent,
) -> Path:
    """Write a page of every run below some folders; return its index.

    Args:
        runs: folders that hold runs, at any depth.
        out: folder of the page, or its file.
        single_file: whether everything goes into one HTML file.
        episodes: most agents that run an episode for the explorer.
        title: of the page; the folders' names unless given.
        device: auto, cpu, cuda or cuda:N.
        progress: the display; silent unless given.
    """
    target = out if single_file and out.suffix == ".html" else out / "index.html"
    refuse_to_overwrite(target)  # before the long work
    require_writable(target)
    page = build_page(runs, episodes, title, device, progress)
    return page.write_file(target) if single_file else page.write_folder(out)


def build_page(
    folders: tuple[Path, ...],
    episodes: int,
    title: str = "",
    device: str = "auto",
    progress: Progress = silent,
) -> Page:
    """Read the runs, and run an episode of some of their agents."""
    runs = load_runs(*folders)
    for line in (plural(len(runs), "run"), *said_of_logs(runs)):
        progress.note(line)
    base = folders[0] if len(folders) == 1 else Path.cwd()
    title = title or f"ssedb: {', '.join(folder.resolve().name for folder in folders)}"
    page = Page(collect(runs, title, base))
    page.data["made"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if episodes:
        from ssedb.report.explorer import add_episodes

        for complaint in add_episodes(page, runs, episodes, device, progress):
            progress.note(complaint)
    return page
