"""The documentation as a site: every link and anchor leads somewhere, every page is in the navigation, and nothing comes from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serve_apps.codes.catalogue import codes

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the built site. Strict: a warning about a page or a docstring fails the build."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_code_has_a_page(site: Path) -> None:
    pages = {page.parent.name for page in site.glob("codes/*/index.html")}
    assert pages == codes().keys()
    assert "What to do" in (site / "codes/QUOTA_EXHAUSTED/index.html").read_text(encoding="utf-8")


def test_the_api_is_made_from_docstrings(site: Path) -> None:
    page = (site / "reference/python/index.html").read_text(encoding="utf-8")
    assert 'id="dag.Client.submit"' in page
    assert "the run is stopped" in page or "then it is stopped" in page


def test_linked_files_of_the_repository_are_shown(site: Path) -> None:
    assert "class LeaseLedger" in re.sub(r"<[^>]+>", "", (site / "sources/federation/leases.py/index.html").read_text(encoding="utf-8"))


def test_the_search_knows_the_pages(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    assert {"quota/", "tutorial/", "codes/QUOTA_EXHAUSTED/"} <= {entry["location"] for entry in index["docs"]}


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.findall(
        r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', (site / "quota/index.html").read_text(encoding="utf-8")
    )
    assert [address for address in loaded if "canonical" not in address] == []
