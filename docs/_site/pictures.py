"""Hook of the site: formulas as MathML and drawings inline, so that nothing is fetched or run."""

from __future__ import annotations

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parents[1]
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
DRAWING = re.compile(r'<img alt="([^"]*)" src="([\w-]+\.svg)" ?/?>')


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn LaTeX into MathML, and put SVG files into the page, where they follow its colours."""
    content = FORMULA.sub(_mathml, content)
    return DRAWING.sub(_inline, content)


def _mathml(formula: re.Match[str]) -> str:
    latex = html.unescape(formula[2])
    if formula[1] == "span":
        return convert(latex)
    return f'<div class="formula">{convert(latex, display="block")}</div>'


def _inline(image: re.Match[str]) -> str:
    drawing = (DOCS / image[2]).read_text(encoding="utf-8")
    return f'<div class="drawing" role="img" aria-label="{image[1]}">{drawing}</div>'
