"""The page of a run: graph, timeline, nodes, logs, errors, attempts, cancel and resume."""

import re

import pytest
from patience import eventually
from playwright.sync_api import expect

from mesh.core.ids import RunId
from serve_apps.page_fixtures import LEVELS, PER_LEVEL, PRINTED, end_run

ETL = "#/runs/etl-nightly-7"


def graph_of(page):
    expect(page.locator(".canvas-frame[data-ready=true]")).to_be_visible()
    return page.get_by_role("application")


def test_graph_is_drawn_whole_and_walked_by_keys(open_page):
    page = open_page(ETL)
    graph = graph_of(page)
    expect(graph).to_have_attribute("aria-label", re.compile("33 nodes"))
    expect(page.get_by_label("Nodes by state")).to_contain_text("succeeded")
    graph.focus()
    page.keyboard.press("n")
    expect(page.get_by_label("Node list-files")).to_be_visible()
    page.keyboard.press("n")
    expect(page.get_by_label("Node schema")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#node-panel")).to_have_count(0)


def test_node_found_by_name_is_opened_by_a_click(open_page):
    page = open_page(ETL)
    graph = graph_of(page)
    page.get_by_label("Find node").fill("evaluate")
    expect(page).to_have_url(re.compile("find=evaluate"))
    box = graph.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(middle[0] + 1, middle[1])
    page.mouse.move(*middle)
    expect(graph).to_have_attribute("data-hovered", re.compile("^evaluate"))
    page.mouse.click(*middle)
    expect(page.get_by_label("Node evaluate")).to_be_visible()


def test_node_panel_shows_error_place_and_why_there(open_page):
    page = open_page(ETL)
    page.get_by_role("button", name="First failure").click()
    panel = page.get_by_label("Node clean-03")
    expect(panel).to_contain_text("FAILED")
    expect(panel).to_contain_text("pandas.errors.ParserError")
    expect(panel.get_by_label("Traceback")).to_contain_text('File "etl/clean.py", line 41')
    expect(panel).to_contain_text("LEAST_WAIT east/general")
    panel.get_by_role("button", name="extract-03").click()
    expect(page.get_by_label("Node extract-03")).to_contain_text("SUCCEEDED")


def test_log_comes_in_pages_and_says_how_much_there_is(open_page):
    page = open_page(f"{ETL}?node=clean-03")
    log = page.get_by_label("Lines of the log")
    expect(log).to_contain_text("row 200")
    assert "row 201" not in log.inner_text()
    page.get_by_role("button", name="More lines (200 shown)").click()
    expect(log).to_contain_text(f"row {PRINTED}")
    expect(page.get_by_role("button", name=re.compile("More lines"))).to_have_count(0)


def test_each_attempt_has_its_end_and_its_log(open_page):
    page = open_page(f"{ETL}?node=clean-09")
    panel = page.get_by_label("Node clean-09")
    expect(panel.get_by_label("Lines of the log")).to_have_text(re.compile("try 3"))
    panel.get_by_label("Attempt", exact=True).select_option("1")
    expect(panel).to_contain_text("builtins.OSError")
    expect(panel).to_contain_text("disk full")
    expect(panel.get_by_label("Lines of the log")).to_have_text(re.compile("try 1"))
    panel.get_by_label("Attempt", exact=True).select_option("2")
    expect(panel).to_contain_text("worker lost")
    expect(panel).to_contain_text("Nothing was printed.")


def test_timeline_has_a_bar_for_each_attempt(open_page):
    page = open_page(f"{ETL}/timeline")
    expect(page.get_by_text("28 attempts on 2 meshes")).to_be_visible()
    timeline = page.get_by_role("application")
    box = timeline.bounding_box()
    hit = None
    for x in range(100, int(box["width"]), 12):
        page.mouse.move(box["x"] + x, box["y"] + 40)
        words = page.locator(".tip").inner_text()
        if words:
            hit = x
            break
    assert hit is not None
    assert "attempt 1" in words
    page.mouse.click(box["x"] + hit, box["y"] + 40)
    expect(page.get_by_label(f"Node {words.split(' · ')[0]}")).to_be_visible()


@pytest.mark.parametrize("tab", ["graph", "timeline"])
def test_critical_path_is_named_and_opened(open_page, tab):
    page = open_page(f"{ETL}/{tab}")
    page.get_by_label("Critical path").check()
    path = page.get_by_role("status", name="Critical path")
    expect(path).to_contain_text("3 nodes decided when the run ends")
    path.get_by_role("button", name="list-files").click()
    expect(page.get_by_label("Node list-files")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Critical path").first).to_be_checked()


def test_map_of_a_large_graph_moves_the_view(open_page):
    page = open_page("#/runs/large")
    graph, corner = graph_of(page), page.locator(".minimap")
    before = graph.screenshot()
    box = corner.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 30, box["y"] + box["height"] / 2)
    page.mouse.move(10, 10)
    eventually(lambda: graph.screenshot() != before)
    page.goto(page.url.replace("large", "etl-nightly-7"))
    graph_of(page)
    expect(corner).to_have_count(0)


def test_nodes_are_a_table_with_the_failed_first(open_page):
    page = open_page(f"{ETL}/nodes")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("ParserError")
    page.get_by_label("State", exact=True).select_option("")
    expect(page.get_by_text(re.compile("1.33 of 33"))).to_be_visible()


def test_large_graph_and_long_list_say_how_much_is_shown(open_page):
    page = open_page("#/runs/large")
    expect(graph_of(page)).to_have_attribute("aria-label", re.compile(f"{LEVELS * PER_LEVEL:,} nodes"))
    page.get_by_role("tab", name="Nodes").click()
    expect(page.get_by_text(re.compile("1.100 of 10,000"))).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text(re.compile("101.200 of 10,000"))).to_be_visible()


def test_array_is_one_box_with_its_elements_counted(open_page):
    page = open_page("#/runs/array?node=double")
    panel = page.get_by_label("Node double")
    expect(panel).to_contain_text("600 of 1,000 elements, in 10 parts")
    expect(page.get_by_label("Nodes by state")).to_contain_text("running 1")


def test_change_of_a_node_shows_as_it_happens(screen, open_page):
    page = open_page(f"{ETL}/events")
    rows = page.locator("tbody tr")
    expect(rows.first).to_be_visible()
    end_run(screen.scene.world, "etl-nightly-7", "clean-08")
    expect(rows.filter(has_text="clean-08").filter(has_text="SUCCEEDED")).to_be_visible()
    page.get_by_role("tab", name="Graph").click()
    expect(page.get_by_label("Nodes by state")).to_contain_text("succeeded 22")


def test_run_is_cancelled_after_a_question(screen, open_page, submit):
    submit("to-cancel")
    page = open_page("#/runs/to-cancel")
    page.get_by_role("button", name="Cancel run").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Keep as it is").click()
    expect(dialog).to_be_hidden()
    with screen.http as http:
        assert http.get("/v1/runs/to-cancel").json()["state"] == "PENDING"
    page.get_by_role("button", name="Cancel run").click()
    dialog.get_by_role("button", name="Cancel run").click()
    expect(dialog).to_be_hidden()
    screen.scene.coordinator.step(0)
    expect(page.locator(".run-head .badge")).to_contain_text("CANCELLED")


@pytest.mark.parametrize("node", ["", "?node=a"], ids=["head", "panel of the failed node"])
def test_failed_run_is_resumed(screen, open_page, submit, node):
    run = submit(f"to-resume{len(node)}")
    screen.scene.world.start(run, "a")
    screen.scene.world.fail(run, "a", ValueError("no disk"))
    assert screen.scene.world.runs.settle(RunId(run))
    page = open_page(f"#/runs/{run}{node}")
    place = page.get_by_label("Node a") if node else page.locator(".run-head")
    place.get_by_role("button", name=re.compile("Resume|Run again")).click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Resume|Run again")).click()
    expect(page.locator(".run-head .badge")).to_contain_text("RUNNING")
    expect(page.locator(".run-head").get_by_role("button", name="Cancel run")).to_be_visible()
