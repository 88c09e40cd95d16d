"""Check the links of every Markdown file of the repository: files and headings exist.

Run by `make lint`. Links to other hosts are left alone, so that the check needs no network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!`)\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.S | re.M)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as hosts and the site make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.*?) *$", text, re.M)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in plain}


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    text = FENCE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
    for number, line in enumerate(text.splitlines(), start=1):
        for path, anchor in LINK.findall(line):
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                found.append(f"{page.relative_to(ROOT)}:{number}: there is no {path}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                found.append(f"{page.relative_to(ROOT)}:{number}: {path} has no heading #{anchor}")
    return found


def main() -> int:
    """Print the broken links; return 1 if there are any."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for name in listed.stdout.split() for line in broken(ROOT / name)]
    print("\n".join(lines) or "links: all lead somewhere")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
