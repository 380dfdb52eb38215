"""The log of changes and the use by tenant, user, flavor and day, as operators read them."""

from pathlib import Path

import httpx
from playwright.sync_api import expect

from federation.api_keys import Role
from serve_apps.cli.usage_render import usage_lines
from serve_apps.gateway_fixtures import RESEARCH, RIVAL
from serve_apps.page_fixtures import REPEATED
from serve_apps.schemas.tenants import UsageView

ROWS = "table.changes tbody tr"


def test_changes_show_who_did_what_and_with_which_outcome(open_page):
    page = open_page("#/changes?verb=suspend tenant&who=user:ines")
    row = page.locator(ROWS)
    expect(row).to_have_count(1)
    expect(row).to_contain_text("ines")
    expect(row).to_contain_text("Over budget until the invoice is paid")
    expect(row).to_contain_text("allowed")
    row.get_by_role("link", name="acme/sales").click()
    expect(page.get_by_label("Tenant acme/sales")).to_be_visible()


def test_change_opens_to_all_its_fields(open_page):
    page = open_page("#/changes?outcome=refused&who=user:tomas")
    expect(page.locator(ROWS)).to_contain_text("forbidden")
    page.get_by_role("button", name="resume tenant").click()
    fields = page.locator("tr.open")
    for words in ("POST /v1/tenants/{tenant}/resume", "k-tomas", "10.1.4.7", "req-72"):
        expect(fields).to_contain_text(words)


def test_filters_of_changes_combine_and_are_cleared(open_page):
    page = open_page("#/changes")
    page.get_by_label("Who").select_option("user:tomas")
    expect(page.locator(ROWS)).to_have_count(3)
    page.get_by_label("Verb").select_option("cancel run")
    expect(page.locator(ROWS)).to_have_count(1)
    page.get_by_label("Outcome").select_option("failed")
    expect(page.get_by_text("No change matches these filters.")).to_be_visible()
    page.get_by_role("button", name="Clear filters").first.click()
    page.get_by_label("Since").select_option("1")
    expect(page.locator(ROWS).filter(has_text="cancel run")).to_have_count(1)
    expect(page.locator(ROWS).filter(has_text="Over budget")).to_have_count(0)
    page.get_by_label("Search changes").fill("wrong learning")
    expect(page.locator(ROWS)).to_have_count(1)
    assert "text=wrong" in page.url


def test_change_appears_while_the_page_is_open(screen, open_page):
    page = open_page("#/changes")
    expect(page.locator(".live")).to_be_visible()
    with screen.http as http:
        http.post("/v1/tenants/rival/suspend", json={"reason": "shown at once"}).raise_for_status()
        http.post("/v1/tenants/rival/resume").raise_for_status()
    row = page.locator(ROWS).filter(has_text="shown at once")
    expect(row).to_contain_text("suspend tenant")
    page.get_by_label("Search changes").fill("shown at once")
    expect(page.locator(ROWS)).to_have_count(1)


def test_earlier_changes_are_loaded_on_demand(open_page):
    page = open_page("#/changes?who=user:nightly-bot")
    expect(page.get_by_text("200 changes and more")).to_be_visible()
    page.get_by_role("button", name="Earlier changes").click()
    expect(page.locator(ROWS)).to_have_count(REPEATED)
    expect(page.locator(ROWS).last).to_contain_text("s-0")
    expect(page.get_by_role("button", name="Earlier changes")).to_have_count(0)


def test_changes_are_filtered_and_opened_by_the_keyboard(open_page):
    page = open_page("#/changes")
    expect(page.locator(ROWS).first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("wrong learning")
    expect(page.locator(ROWS)).to_have_count(1)
    page.get_by_role("button", name="cancel run").focus()
    page.keyboard.press("Enter")
    expect(page.locator("tr.open")).to_contain_text("req-41")
    page.keyboard.press("Enter")
    expect(page.locator("tr.open")).to_have_count(0)


def test_changes_need_an_operator(screen, open_page):
    page = open_page("#/runs", key=screen.key(RESEARCH, Role.SUBMITTER))
    expect(page.get_by_text("acme/research · submitter")).to_be_visible()
    expect(page.get_by_role("link", name="Usage")).to_be_visible()
    expect(page.get_by_role("link", name="Changes")).to_have_count(0)
    page.goto(f"{screen.scene.address}/#/changes")
    expect(page.get_by_text("needs a key with the role operator")).to_be_visible()
    page.goto(f"{screen.scene.address}/#/runs")
    page = open_page("#/runs", key=screen.key(RESEARCH, Role.OPERATOR))
    page.get_by_role("link", name="Changes").click()
    expect(page.locator(ROWS).filter(has_text="train-0411")).to_have_count(1)
    expect(page.locator(ROWS).filter(has_text="Over budget")).to_have_count(0)


def test_changes_say_what_went_wrong_and_go_on(screen, open_page, problems):
    page = open_page("#/runs")
    expect(page.locator("table.runs tbody tr").first).to_be_visible()
    page.route("**/v1/changes*", lambda route: route.fulfill(status=500, json={"title": "Internal error", "detail": "no such log"}))
    page.get_by_role("link", name="Changes").click()
    expect(page.get_by_role("alert")).to_contain_text("no such log")
    page.unroute("**/v1/changes*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(ROWS).first).to_be_visible()
    problems.clear()


def test_empty_log_says_what_will_appear(open_page):
    page = open_page("#/runs")
    page.route("**/v1/changes*", lambda route: route.fulfill(json={"changes": [], "next": 0}))
    page.get_by_role("link", name="Changes").click()
    expect(page.get_by_text("Nobody has changed anything yet.")).to_be_visible()


def test_field_of_a_newer_root_is_shown(open_page):
    page = open_page("#/runs")

    def add(route):
        answer = route.fetch()
        document = answer.json()
        for change in document["changes"]:
            change["approved_by"] = "vera"
        route.fulfill(response=answer, json=document)

    page.route("**/v1/changes*", add)
    page.get_by_role("link", name="Changes").click()
    page.get_by_role("button", name="cancel run").first.click()
    expect(page.locator("tr.open")).to_contain_text("approved_by")


def test_usage_adds_up_by_the_chosen_columns(open_page):
    page = open_page("#/usage")
    rows = page.locator("table.usage tbody tr")
    expect(rows).to_have_count(6)
    page.get_by_role("button", name="User").click()
    expect(rows.filter(has_text="tomas")).to_have_count(2)
    page.get_by_role("button", name="Tenant").click()
    page.get_by_role("button", name="Day").click()
    expect(page.locator("thead")).to_have_text("DayUserResourceShareUsedBorrowedLostUnit")
    page.get_by_label("Tenant", exact=True).select_option("acme/sales")
    expect(rows.filter(has_text="vera")).to_have_count(14)
    expect(rows).to_have_count(14)
    expect(page.locator("tfoot")).to_contain_text("Total")
    page.get_by_label("Days").select_option("today")
    expect(rows).to_have_count(2)


def test_usage_is_saved_as_the_terminal_prints_it(screen, open_page):
    page = open_page("#/usage?by=day,tenant,user,flavor")
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    with screen.http as http:
        asked = httpx.QueryParams({"by": ["day", "tenant", "user", "flavor"]})
        view = UsageView.model_validate(http.get("/v1/usage", params=asked).json())
    lines = Path(saved.value.path()).read_text()
    assert sorted(lines.splitlines()) == sorted(usage_lines(view).splitlines())
    assert saved.value.suggested_filename == f"usage-{view.first}-{view.last}.csv"


def test_viewer_sees_the_usage_of_its_tenant_alone(screen, open_page):
    page = open_page("#/usage?by=user", key=screen.key(RIVAL, Role.VIEWER))
    expect(page.locator("table.usage tbody tr")).to_have_count(2)
    expect(page.locator("table.usage")).to_contain_text("(none)")


def test_unused_days_are_empty(open_page):
    page = open_page("#/runs")
    empty = {"at": "2026-01-31T12:00:00Z", "first": "2026-01-01", "last": "2026-01-31", "rows": [], "total": []}
    page.route("**/v1/usage*", lambda route: route.fulfill(json=empty))
    page.get_by_role("link", name="Usage").click()
    expect(page.get_by_text("Nothing was used from 2026-01-01 to 2026-01-31.")).to_be_visible()
    expect(page.get_by_role("button", name="CSV")).to_be_disabled()
