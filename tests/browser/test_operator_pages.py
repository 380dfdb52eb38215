"""Tenants, meshes, the queue and events: what an operator sees and does there."""

import json
import re

from playwright.sync_api import expect

from serve_apps.gateway_fixtures import spec_of


def confirm(page, words, reason):
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=words).click()
    expect(dialog).to_be_hidden()


def test_tenants_show_who_borrows_of_whom(open_page):
    page = open_page("#/tenants")
    expect(page.get_by_text("acme/sales borrows 5 cpu of standard from the quota of acme/research")).to_be_visible()
    expect(page.locator(".tenant").filter(has_text="sales")).to_contain_text("5 / 0 +5")
    page.get_by_role("button", name="research").click()
    expect(page.get_by_label("Tenant acme/research")).to_contain_text("Lent")


def test_tenant_is_suspended_and_resumed(open_page):
    page = open_page("#/tenants?tenant=rival")
    page.get_by_role("button", name="Suspend").click()
    confirm(page, "Suspend", "audit")
    panel = page.get_by_label("Tenant rival")
    expect(panel).to_contain_text("Suspended: starts nothing new. audit")
    expect(page.locator(".tenant").filter(has_text="rival")).to_contain_text("suspended")
    panel.get_by_role("button", name="Resume").click()
    expect(panel.get_by_role("button", name="Suspend")).to_be_visible()


def test_mesh_is_drained_and_undrained(open_page):
    page = open_page("#/meshes")
    east, west = page.get_by_label("Mesh east"), page.get_by_label("Mesh west")
    expect(east).to_contain_text("5 / 8")
    west.get_by_role("button", name="Drain").click()
    confirm(page, "Drain", "new kernel")
    expect(west).to_contain_text("draining")
    expect(west).to_contain_text("Drained: new kernel")
    west.get_by_role("button", name="Undrain").click()
    expect(west.get_by_role("button", name="Drain", exact=True)).to_be_visible()
    expect(west).to_contain_text("alive")


def test_queue_says_why_each_stage_waits_and_what_would_help(open_page):
    page = open_page("#/queue")
    row = page.locator("tbody tr").filter(has_text="night.1")
    expect(row).to_contain_text("quota exhausted")
    row.get_by_role("button", name=re.compile("night.1")).click()
    expect(page.locator(".why-open")).to_contain_text("It would start if")
    expect(page.get_by_role("heading", name="Runs held back")).to_be_visible()
    expect(page.locator("tbody tr").filter(has_text="report-2")).to_contain_text("running limit")


def test_what_if_answers_for_tasks_and_for_a_graph(open_page):
    page = open_page("#/queue")
    page.get_by_role("button", name="What if…").click()
    form = page.get_by_label("What if", exact=True)
    form.get_by_label("Tenant").select_option("acme/research")
    form.get_by_label("CPUs").fill("2")
    form.get_by_role("button", name="Ask").click()
    expect(form.get_by_role("status")).to_contain_text("1 node of 2 cpu")
    form.get_by_label("Form").select_option("graph")
    form.get_by_label("Graph (dag/1)").fill(json.dumps({**spec_of("a", "b"), "tenant": "acme/research"}))
    form.get_by_role("button", name="Ask").click()
    expect(form.get_by_role("status")).to_contain_text("2 nodes of 1 cpu")


def test_what_if_names_what_no_mesh_could_run(open_page, problems):
    page = open_page("#/queue?tab=what-if")
    form = page.get_by_label("What if", exact=True)
    form.get_by_label("Tenant").select_option("acme/sales")
    form.get_by_label("GPUs").fill("64")
    form.get_by_role("button", name="Ask").click()
    expect(form.get_by_role("alert")).to_contain_text("no mesh has gpu")
    form.get_by_label("Form").select_option("graph")
    form.get_by_label("Graph (dag/1)").fill('{"spec": "dag/1", "nodes": {"a": {"call": "x"}}, "outputs": {}}')
    form.get_by_role("button", name="Ask").click()
    expect(form.get_by_role("alert")).to_contain_text("nodes")
    assert [problem for problem in problems if "Failed to load resource" not in problem] == []
    problems.clear()


def test_events_come_live_and_can_be_paused(open_page, submit):
    page = open_page("#/events")
    expect(page.locator(".live")).to_be_visible()
    submit("event-1")
    row = page.locator("tbody tr").filter(has_text="event-1")
    expect(row).to_contain_text("PENDING")
    page.get_by_role("button", name="Pause").click()
    submit("event-2")
    page.get_by_role("button", name="1 new event").click()
    expect(page.locator("tbody tr").filter(has_text="event-2")).to_be_visible()
    row.get_by_role("link", name="event-1").click()
    expect(page.get_by_role("heading", name="event-1")).to_be_visible()


def test_history_of_leases_is_listed(open_page):
    page = open_page("#/events/leases")
    expect(page.locator("tbody tr").filter(has_text="acme/sales")).to_contain_text("grant")
