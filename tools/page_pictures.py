"""Draw the pictures of the browser page in docs/pictures, in both themes: `python -m tools.page_pictures [NAME…]`.

They show the scene of the tests of the page, in Chromium, which has to be installed. Colours are reduced to a palette, which makes the
files smaller and changes nothing that can be seen.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

from PIL import Image

from serve_apps.page_fixtures import Scene, entering, running_chromium, scene
from tools.pictures import FOLDER

THEMES = ("light", "dark")
#: Size of the window; wide enough for all columns of a table.
WIDTH, HEIGHT = 1_280, 800
COLOURS = 128
WAIT_MS_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Part of the page, and selectors of what is there when it can be drawn."""

    part: str
    there: tuple[str, ...]
    height: int = HEIGHT


VIEWS = {
    "runs": View(part="#/runs", there=("table.runs tbody tr", ".live"), height=520),
    "graph": View(part="#/runs/etl-nightly-7?node=clean-03", there=(".canvas-frame[data-ready=true]", ".log pre")),
    "timeline": View(part="#/runs/etl-nightly-7/timeline", there=(".canvas-frame[data-ready=true]",), height=620),
    "tenants": View(part="#/tenants?tenant=acme/research", there=(".node-panel .facts",), height=620),
    "usage": View(part="#/usage?by=tenant,user&range=7", there=("tfoot tr",), height=640),
    "changes": View(part="#/changes?since=24", there=("table.changes tbody tr", ".live"), height=620),
}


def draw(browser: Any, served: Scene, name: str, theme: str) -> bytes:
    """Return the picture of a view as PNG."""
    view = VIEWS[name]
    context = browser.new_context(viewport={"width": WIDTH, "height": view.height}, reduced_motion="reduce")
    try:
        context.set_default_timeout(WAIT_MS_MAX)
        context.add_init_script(entering(served.key, theme))
        page = context.new_page()
        page.goto(f"{served.address}/{view.part}")
        for selector in view.there:
            page.wait_for_selector(selector)
        return _reduced(page.screenshot(animations="disabled"))
    finally:
        context.close()


def _reduced(png: bytes) -> bytes:
    """Return the picture with few colours, which suffice for a page."""
    reduced = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    out = io.BytesIO()
    reduced.save(out, "PNG", optimize=True)
    return out.getvalue()


def main(names: list[str]) -> None:
    """Write the pictures with these names; without names, all."""
    unknown = sorted(set(names) - VIEWS.keys())
    if unknown:
        sys.exit(f"unknown picture {', '.join(unknown)}; there are {', '.join(VIEWS)}")
    with scene() as served, running_chromium() as browser:
        for name in names or VIEWS:
            for theme in THEMES:
                picture = FOLDER / f"browser_{name}_{theme}.png"
                picture.write_bytes(draw(browser, served, name, theme))
                print(f"{picture} {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
