"""The sources of the browser page against the rest of the project: types, colours, the lock file, what is committed, its size."""

import json
import re
import subprocess

import pytest
from source_tree import ROOT

from serve_apps.browser.page_files import page_files
from serve_apps.gateway_fixtures import GatewayWorld

UI = ROOT / "ui"
TOKENS = (UI / "src" / "tokens.css").read_text()
STATES = ("waiting", "assigned", "running", "succeeded", "failed", "blocked", "skipped", "cancelled")
#: Sizes of all files of the page, as sent; bytes.
PAGE_BYTES_MAX = 60_000


def test_page_reads_only_fields_that_the_api_has():
    schemas = GatewayWorld().app.openapi()["components"]["schemas"]
    problems = []
    for name, base, body in re.findall(
        r"export interface (\w+)(?: extends (\w+))? \{(.*?)\n?\}\n", (UI / "src/api/types.ts").read_text(), re.DOTALL
    ):
        del base
        if name not in schemas:
            continue
        fields = re.findall(r"(?:^|[;{\n])\s*(\w+)\??:", re.sub(r"\{[^{}]*\}", "", body))
        known = schemas[name].get("properties", {}).keys()
        # `ui/src/api/times.ts` adds times as numbers to those that the API has as text.
        wrong = [field for field in fields if not {field, field.removesuffix("_ms"), f"{field.removesuffix('_ms')}_at"} & known]
        problems += [f"{name}.{field}" for field in wrong if f"{field}?:" not in body]
    assert problems == []


def test_page_knows_the_shapes_by_their_names_in_the_api():
    schemas = GatewayWorld().app.openapi()["components"]["schemas"]
    own = {"LogEntry"}  # The API calls it otherwise.
    names = set(re.findall(r"export interface (\w+)", (UI / "src/api/types.ts").read_text()))
    assert sorted(names - schemas.keys() - own) == []


def colours(theme):
    block = re.search(
        r':root(?:\[data-theme="dark"\])? \{(.*?)\}', TOKENS[TOKENS.index("data-theme") - 6 :] if theme == "dark" else TOKENS, re.DOTALL
    )
    assert block is not None
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block.group(1)))


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_have_the_contrast_of_wcag(theme):
    found = colours(theme)
    wanted = dict.fromkeys((*STATES, "line-strong", "mesh-0", "mesh-1", "mesh-2", "mesh-3"), 3.0) | {
        "text": 7.0,
        "muted": 4.5,
        "accent": 4.5,
    }
    grounds = ("bg", "panel", "raised")
    low = {
        f"{name} on {ground}: {contrast(found[name], found[ground]):.2f}"
        for name, least in wanted.items()
        for ground in grounds
        if contrast(found[name], found[ground]) < least
    }
    assert low == set()
    assert contrast(found["on-accent"], found["accent"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_states_have_colours_of_their_own(theme):
    found = colours(theme)
    assert len({found[state] for state in STATES}) == len(STATES)


def test_nothing_built_is_committed():
    tracked = subprocess.run(["git", "ls-files", "ui", "serve_apps/browser"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("this is no checkout of git")
    names = tracked.stdout.split()
    assert [name for name in names if "node_modules" in name or "/built/" in name] == []


def test_lock_file_names_no_registry():
    lock = (UI / "package-lock.json").read_text()
    assert "http" not in re.sub(r'"(?:url|funding)": .*', "", lock)
    packages = json.loads(lock)["packages"]
    assert [name for name, package in packages.items() if name and "integrity" not in package] == []


def test_page_is_small():
    if not page_files():
        pytest.skip("the browser page is not built: `make page`")
    loaded = {name: file for name, file in page_files().items() if not name.removeprefix("assets/").startswith("docs")}
    assert "index.html" in loaded
    assert sum(len(file.gzipped) for file in loaded.values()) <= PAGE_BYTES_MAX


@pytest.mark.parametrize("name", ["index.html", "docs.html"])
def test_script_of_the_page_stands_in_files_of_its_own(name):
    page = page_files().get(name)
    if page is None:
        pytest.skip("the browser page is not built: `make page`")
    text = page.plain.decode()
    assert "<style" not in text
    assert re.findall(r"<script(?![^>]* src=)", text) == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', text) == []
