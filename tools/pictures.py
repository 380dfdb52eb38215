"""Draw the pictures of docs/pictures: `python -m tools.pictures`.

A picture shows what the terminal prints. `NAME.json` holds the views that the root returned during `make demo`; the product's own
renderers print them, and rich exports the result as `NAME.svg`. The same views give the same picture, so a test compares them.
"""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

from rich.terminal_theme import TerminalTheme

from serve_apps.cli.output import SafeConsole, Text
from serve_apps.cli.render import run_panel, tenants_table
from serve_apps.schemas.runs import RunView
from serve_apps.schemas.tenants import TenantsView

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
#: Columns of the drawn terminal.
WIDTH = 100

#: As GitHub's dark theme; the text has a contrast of at least 4.5 to the background.
# fmt: off
THEME = TerminalTheme(
    background=(13, 17, 23),
    foreground=(230, 237, 243),
    normal=[
        (72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196),
    ],
    bright=[
        (139, 148, 158), (255, 161, 152), (86, 211, 100), (227, 179, 65), (121, 192, 255), (210, 168, 255), (86, 212, 221), (255, 255, 255),
    ],
)
# fmt: on

#: Space around the text, in the units of the picture.
MARGIN = 22
#: Unlike rich's own format: no web fonts, since a picture in a page may load nothing, and no window frame.
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 @width @height" role="img">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
<rect x="1" y="1" width="@inner_width" height="@inner_height" rx="10" fill="#0d1117" stroke="#30363d" stroke-width="2"/>
<g transform="translate(@margin, @margin)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def watch_svg() -> str:
    """Return the picture of `schedulemesh watch` and `schedulemesh tenants`, at one moment of the demo."""
    recorded = json.loads((FOLDER / "watch.json").read_text(encoding="utf-8"))
    run = RunView.model_validate(recorded["run"])
    console = SafeConsole(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor", legacy_windows=False)
    console.print(Text(f"$ schedulemesh watch {run.id}", style="bright_black"))
    console.print(run_panel(run, recorded["now_ms"]))
    console.print()
    console.print(Text("$ schedulemesh tenants", style="bright_black"))
    console.print(tenants_table(TenantsView.model_validate(recorded["tenants"])))
    return _sized(console.export_svg(theme=THEME, code_format=FORMAT, unique_id="watch"))


def _sized(svg: str) -> str:
    """Fill in the size of the picture: that of the text, which rich knows only while it exports, and the margins."""
    (text,) = re.findall(r'clip-terminal"><rect width="([\d.]+)" height="([\d.]+)"', svg)
    width, height = (math.ceil(float(size)) + 2 * MARGIN for size in text)
    sizes = {"@width": width, "@height": height, "@inner_width": width - 2, "@inner_height": height - 2, "@margin": MARGIN}
    return re.sub(r"@\w+", lambda name: str(sizes[name[0]]), svg)


def main() -> None:
    """Write all pictures."""
    picture = FOLDER / "watch.svg"
    picture.write_text(watch_svg(), encoding="utf-8")
    print(picture)


if __name__ == "__main__":
    main()
