"""SVG: figures as elements that stand inside a page and follow its theme."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING

from specdec.compare.canvas import styled
from specdec.compare.palette import GRID, INK, SURFACE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def svg(figure: Figure, prefix: str, title: str) -> str:
    """The figure as an element to stand inside a page.

    Text stays text, and ink, grid and background follow the page's theme.

    Args:
        figure: What to draw.
        prefix: Of the ids, which a page may hold only once.
        title: What readers who do not see it are told; plain text that needs no escaping.
    """
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": prefix}), warnings.catch_warnings():
        # The browser's fonts draw the text, so what ours lacks does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(
            file,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    text = file.getvalue()
    text = text[text.index("<svg") :]
    # Its style sheet would hold for the whole page, which has the same rule for figures.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    size = re.compile(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', re.DOTALL)
    text = size.sub(rf'<svg viewBox="\1" role="img" aria-label="{title}">', text, count=1)
    for colour, name in ((INK, "ink"), (GRID, "grid"), (SURFACE, "card")):
        text = re.sub(rf"((?:fill|stroke): ){colour}", rf"\1var(--{name},{colour})", text)
    return text.replace("'DejaVu Sans', sans-serif", "sans-serif")
