"""The page is usable with a keyboard alone, with a screen reader, in both themes, on a phone, while the root is away."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

PAGES = {
    "runs": ("#/runs", "table.runs tbody tr"),
    "graph": ("#/runs/etl-nightly-7", ".canvas-frame[data-ready=true]"),
    "node": ("#/runs/etl-nightly-7?node=clean-03", ".log pre"),
    "timeline": ("#/runs/etl-nightly-7/timeline", ".canvas-frame[data-ready=true]"),
    "nodes": ("#/runs/etl-nightly-7/nodes", "tbody tr"),
    "tenants": ("#/tenants?tenant=acme/research", ".tree"),
    "meshes": ("#/meshes", ".card"),
    "queue": ("#/queue?tab=what-if", "tbody tr"),
    "events": ("#/events", ".live"),
    "leases": ("#/events/leases", "tbody tr"),
    "usage": ("#/usage?by=day,tenant,user,flavor", "tfoot tr"),
    "changes": ("#/changes", "tbody tr"),
}
WIDTHS = (1_280, 768, 390)
#: axe names these of an impact; lesser ones are advice.
SERIOUS = ("serious", "critical")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_have_no_serious_fault_of_access(screen, open_page, theme, width):
    page = open_page(key="", theme=theme, width=width)
    expect(page.get_by_label("API key")).to_be_visible()
    faults = serious_faults(page, "sign-in")
    page.evaluate("key => sessionStorage.setItem('schedulemesh.key', key)", screen.scene.key)
    page.reload()
    for name, (part, there) in PAGES.items():
        page.goto(f"{screen.scene.address}/{part}")
        expect(page.locator(there).first).to_be_visible()
        faults += serious_faults(page, name)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            faults.append(f"{name}: wider than the screen")
    assert faults == []


def serious_faults(page, name):
    found = Axe().run(page).response["violations"]
    return [f"{name}: {each['id']} at {each['nodes'][0]['target']}" for each in found if each["impact"] in SERIOUS]


def test_everything_is_reached_by_the_keyboard(screen, open_page):
    page = open_page(key="")
    page.get_by_label("API key").press_sequentially(screen.scene.key, delay=0)
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="etl-nightly-7")).to_be_visible()
    page.evaluate("document.activeElement.blur()")
    tab_to(page, "Skip to content")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("etl")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    tab_to(page, "etl-nightly-7")
    page.keyboard.press("Enter")
    expect(page.locator(".canvas-frame[data-ready=true]")).to_be_visible()
    tab_to(page, "Graph of etl-nightly-7")
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "node-panel"
    page.keyboard.press("Escape")
    expect(page.locator("#node-panel")).to_have_count(0)
    tab_to(page, "Cancel run", shift=True)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert page.evaluate("document.activeElement.textContent") == "Cancel run"


def tab_to(page, name, *, shift=False):
    """Press Tab until the focused element has this name; fail where the focus cannot be seen."""
    words = "(at => at.getAttribute('aria-label') || at.textContent)(document.activeElement)"
    for _ in range(60):
        page.keyboard.press("Shift+Tab" if shift else "Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if page.evaluate(words).strip().startswith(name):
            return
    raise AssertionError(f"no Tab reaches {name}")


def test_page_says_that_it_reconnects_and_goes_on(open_page, problems):
    page = open_page("#/tenants")
    expect(page.locator(".tree")).to_be_visible()
    page.context.set_offline(True)
    expect(page.get_by_text("Reconnecting: The root does not answer.")).to_be_visible()
    expect(page.locator(".tree")).to_be_visible()
    expect(page.locator(".stale")).to_contain_text("Not up to date")
    page.context.set_offline(False)
    expect(page.get_by_text("Reconnecting")).to_have_count(0)
    expect(page.locator(".stale")).to_have_count(0)
    problems.clear()


def test_page_shows_that_it_loads_and_what_went_wrong(open_page, problems):
    page = open_page("#/events")
    loading = page.get_by_role("status", name="Loading meshes")
    shown = []

    def fail(route):
        expect(loading).to_be_visible()
        shown.append(route.request.url)
        route.fulfill(status=500, json={"title": "Internal error", "detail": "the ledger has no such version"})

    page.route("**/v1/meshes*", fail)
    page.get_by_role("link", name="Meshes").click()
    expect(page.get_by_role("alert")).to_contain_text("the ledger has no such version")
    assert shown
    page.unroute("**/v1/meshes*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_label("Mesh east")).to_be_visible()
    problems.clear()


def test_unknown_part_of_the_page_leads_back(open_page):
    page = open_page("#/nowhere")
    page.get_by_role("link", name="All runs", exact=True).click()
    expect(page.get_by_role("link", name="etl-nightly-7")).to_be_visible()
