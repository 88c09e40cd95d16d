"""Check the JavaScript of the report with Deno: types (of `// @ts-check` kind) and lint.

Run by `make lint`. The scripts share one scope in the page, so they are checked as one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from ssedb.report.page import SCRIPTS

STATIC = Path(__file__).parents[1] / "ssedb" / "report" / "static"
DENO = Path(sysconfig.get_path("scripts")) / "deno"
CONFIG = {
    "compilerOptions": {
        "checkJs": True,
        "strict": False,  # of untyped code it would only ask for annotations
        "noImplicitOverride": False,
        "lib": ["dom", "dom.iterable", "esnext"],
    },
    "lint": {"rules": {"exclude": ["no-window"]}},  # it is for browsers
}


def main() -> int:
    """Print what is wrong, by file and line; return 1 if anything is."""
    parts = [(STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS]
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "report.js"
        whole.write_text("".join(parts), encoding="utf-8")
        config = Path(folder) / "deno.json"
        config.write_text(json.dumps(CONFIG))
        environment = {"NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1", "DENO_DIR": folder}
        failed = 0
        for verb in ("check", "lint"):
            command = [DENO, verb, "--quiet", "--config", config, whole]
            run = subprocess.run(command, capture_output=True, text=True, env=environment)
            failed |= run.returncode
            if run.returncode:
                print(in_files(run.stdout + run.stderr, parts))
    print("scripts: " + ("see above" if failed else "types and lint are clean"))
    return 1 if failed else 0


def in_files(output: str, parts: list[str]) -> str:
    """Return Deno's output with each place named by its own script and line."""

    def place(found: re.Match[str]) -> str:
        line = int(found[1])
        for name, part in zip(SCRIPTS, parts, strict=True):
            if line <= part.count("\n"):
                return f"ssedb/report/static/{name}:{line}"
            line -= part.count("\n")
        return found[0]

    return re.sub(r"\S*report\.js:(\d+)", place, output)


if __name__ == "__main__":
    sys.exit(main())
