"""Mathematics in the documentation: TeX between dollars becomes MathML when the site is built.

Every browser since 2023 draws MathML by itself: the pages need no script, no font and no network for it. On GitHub the
same text is drawn, too. An extension of Python-Markdown, which mkdocs.yml names.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as etree
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

INLINE = r"(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<![\s\\])\$(?![\w$])"


def mathml(tex: str, display: bool) -> str:
    r"""TeX as MathML, which keeps the TeX for those who copy it.

    >>> mathml(r"\alpha", display=False)[:40]
    '<math xmlns="http://www.w3.org/1998/Math'
    """
    return str(convert(tex.strip(), display="block" if display else "inline"))


class _Inline(InlineProcessor):
    """Formulas within a sentence."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # type: ignore[override]
        """One formula."""
        return self.md.htmlStash.store(mathml(m[1], display=False)), m.start(0), m.end(0)


class _Display(BlockProcessor):
    """Formulas that stand alone, between two lines of two dollars or in one."""

    def test(self, parent: etree.Element, block: str) -> bool:
        """Whether a block is one."""
        return block.startswith("$$") and block.rstrip().endswith("$$") and len(block.strip()) > 4

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        """Take it from the blocks."""
        tex = blocks.pop(0).strip()[2:-2]
        place = etree.SubElement(parent, "div", {"class": "formula"})
        place.text = self.parser.md.htmlStash.store(mathml(tex, display=True))


class MathExtension(Extension):
    """Both kinds."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Before emphasis, which would take underscores, and behind code, which stays code."""
        md.inlinePatterns.register(_Inline(INLINE, md), "mathml", 185)
        md.parser.blockprocessors.register(_Display(md.parser), "mathml", 85)


def makeExtension(**options: Any) -> MathExtension:
    """What Python-Markdown asks for."""
    return MathExtension(**options)
