"""The page at `/`: its headers, its forms, and what stands there before it is built."""

import gzip

import pytest

from serve_apps.browser import page_files
from serve_apps.gateway_fixtures import GatewayWorld


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A small page in place of the built one."""
    (tmp_path / "assets").mkdir()
    for name, text in (("index.html", "<!doctype html>"), ("docs.html", "<!doctype html>"), ("assets/app-1A2B.js", "start()")):
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    files = page_files.page_files(tmp_path)
    monkeypatch.setattr(page_files, "page_files", lambda: files)


@pytest.fixture
def http():
    return GatewayWorld().http(None)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("path", ["/", "/docs"])
def test_page_runs_only_its_own_scripts(http, path):
    page = http.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.usefixtures("built")
def test_page_is_asked_for_again_and_its_files_are_kept(http):
    page, script = http.get("/"), http.get("/assets/app-1A2B.js")
    assert page.headers["cache-control"] == "no-cache"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert http.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304


@pytest.mark.usefixtures("built")
def test_file_is_sent_compressed_or_plain(http):
    packed = http.get("/assets/app-1A2B.js", headers={"Accept-Encoding": "gzip"})
    plain = http.get("/assets/app-1A2B.js", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text == "start()"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("name", ["app-0000.js", "..%2Findex.html", "app-1A2B.js.gz"], ids=["old", "above the folder", "packed form"])
def test_unknown_file_is_not_found(http, name):
    assert http.get(f"/assets/{name}").status_code == 404


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_missing_page_says_how_to_build_it(http, monkeypatch, path):
    monkeypatch.setattr(page_files, "page_files", dict)
    answer = http.get(path)
    assert answer.status_code == 503
    assert "make page" in answer.text
