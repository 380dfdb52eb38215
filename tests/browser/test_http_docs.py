"""`/docs` in Chromium: all routes, from this root alone."""

from __future__ import annotations


def test_docs_show_every_route_and_load_nothing_from_elsewhere(screen, open_page):
    page = open_page("docs")
    page.locator(".opblock").first.wait_for()
    assert page.locator(".opblock").count() == sum(map(len, screen.scene.world.app.openapi()["paths"].values()))
    loaded = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert f"{screen.scene.address}/openapi.json" in loaded
    assert [url for url in loaded if not url.startswith((screen.scene.address, "data:"))] == []
