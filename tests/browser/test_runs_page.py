"""The list of runs: filters, live changes, cancelling many."""

import re

from playwright.sync_api import expect

RUNS = "table.runs tbody tr"


def names(page):
    return page.locator(f"{RUNS} td.main a").all_inner_texts()


def test_runs_are_listed_with_state_nodes_and_reason(open_page):
    page = open_page()
    row = page.locator(RUNS, has=page.get_by_role("link", name="hello-2"))
    expect(row).to_contain_text("FAILED")
    expect(row).to_contain_text("the name is empty")
    expect(page.locator(RUNS, has=page.get_by_role("link", name="report-2"))).to_contain_text("running limit")
    expect(page.locator(RUNS, has=page.get_by_role("link", name="etl-nightly-7"))).to_contain_text("/33 · 1 failed")


def test_filters_stand_in_the_address_and_can_be_cleared(open_page):
    page = open_page()
    expect(page.get_by_role("link", name="hello-2")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("hello")
    page.get_by_label("State", exact=True).select_option("FAILED")
    expect(page.locator(RUNS)).to_have_count(1)
    expect(page).to_have_url(re.compile("text=hello"))
    expect(page).to_have_url(re.compile("state=FAILED"))
    page.reload()
    expect(page.locator(RUNS)).to_have_count(1)
    page.get_by_label("Tenant", exact=True).select_option("acme/sales")
    expect(page.get_by_text("No run matches these filters.")).to_be_visible()
    page.get_by_role("button", name="Clear filters").first.click()
    expect(page.get_by_role("link", name="etl-nightly-7")).to_be_visible()
    page.get_by_label("Mesh", exact=True).select_option("west")
    expect(page.locator(RUNS)).to_have_count(1)


def test_new_and_ended_runs_show_without_a_reload(screen, open_page, submit):
    page = open_page()
    expect(page.locator(".live")).to_be_visible()
    submit("comes-later")
    row = page.locator(RUNS, has=page.get_by_role("link", name="comes-later"))
    expect(row).to_contain_text("PENDING")
    screen.scene.world.start("comes-later", "a")
    expect(row).to_contain_text("RUNNING")
    screen.scene.world.succeed("comes-later", {"a": 1})
    expect(row).to_contain_text("SUCCEEDED")


def test_chosen_runs_are_cancelled_together_with_a_reason(screen, open_page, submit):
    for run in ("bulk-1", "bulk-2", "bulk-3"):
        submit(run)
    page = open_page("#/runs?text=bulk")
    for run in ("bulk-1", "bulk-3"):
        page.get_by_label(f"Choose {run}").check()
    page.get_by_role("button", name="Cancel 2 runs").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("budget is spent")
    dialog.get_by_role("button", name="Cancel 2 runs").click()
    expect(dialog).to_be_hidden()
    screen.scene.coordinator.step(0)
    for run, state in (("bulk-1", "CANCELLED"), ("bulk-2", "WAITING"), ("bulk-3", "CANCELLED")):
        expect(page.locator(RUNS, has=page.get_by_role("link", name=run))).to_contain_text(state)
    with screen.http as http:
        assert http.get("/v1/runs/bulk-3").json()["state"].startswith("CANCELLED")


def test_key_without_runs_is_shown_how_to_submit_one(screen, open_page):
    page = open_page(key=screen.key("rival"))
    expect(page.get_by_text("No runs yet.")).to_be_visible()
