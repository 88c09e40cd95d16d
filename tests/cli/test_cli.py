"""The command beside folders without permission, and beside one named like the package."""

import ctypes
import os
import re
import subprocess
import sys

from tests.helpers import run_ssedb


def test_folder_without_permission_is_named_in_one_line(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "open").mkdir()
    closed.chmod(0)
    for args in (
        ["train", "--out", "closed/run"],
        ["train", "--resume", "closed/run"],
        ["eval", "closed/run"],
        ["stats", "closed/run"],
        ["report", "open", "--out", "closed/report", "--episodes", "0"],
    ):
        result = run_ssedb(*args, cwd=tmp_path, preexec_fn=obey_permissions)
        assert result.returncode == 2
        assert re.fullmatch(
            r"ssedb: closed/\S+: no permission; choose a path that you may use\n", result.stderr
        )
    closed.chmod(0o700)


def obey_permissions() -> None:
    """Give up what lets root read and write everything."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert libc.prctl(24, capability, 0, 0, 0) == 0, os.strerror(
                ctypes.get_errno()
            )  # PR_CAPBSET_DROP


def test_cli_beside_a_folder_named_like_the_package_works(tmp_path):
    (tmp_path / "ssedb").mkdir()  # a clone, seen from beside it
    subprocess.run(
        [sys.executable, "-c", "import ssedb; ssedb.make_bonus"], cwd=tmp_path, check=True
    )
