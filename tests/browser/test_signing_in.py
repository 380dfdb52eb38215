"""Rights of a key on the browser page, and limits on its loads and calls."""

import httpx
from playwright.sync_api import expect

from federation.api_keys import Role
from serve_apps.gateway_fixtures import RESEARCH, RIVAL
from serve_apps.requests.auth import id_of
from serve_apps.requests.known_keys import KEPT_MS


def test_page_asks_for_a_key_and_keeps_it_in_the_tab(screen, open_page):
    page = open_page(key="")
    page.get_by_label("API key").fill(f" {screen.scene.key} ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="etl-nightly-7")).to_be_visible()
    assert screen.scene.key not in page.url
    assert page.evaluate("JSON.stringify(localStorage)").find(screen.scene.key) == -1
    page.reload()
    expect(page.get_by_role("link", name="etl-nightly-7")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_unknown_key_is_refused_in_words(open_page, problems):
    page = open_page(key="")
    page.get_by_label("API key").fill("smk_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("The root does not know this key.")
    assert [problem for problem in problems if "401" not in problem] == []
    problems.clear()


def test_revoked_key_signs_the_tab_out(screen, open_page, problems):
    page = open_page("#/tenants", key=(key := screen.key()))
    expect(page.get_by_text("acme/research · viewer")).to_be_visible()
    assert screen.scene.world.keys.revoke(id_of(key))
    screen.scene.world.clock.advance(KEPT_MS)
    expect(page.get_by_label("API key")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("API key")
    assert [problem for problem in problems if "401" not in problem] == []
    problems.clear()


def test_viewer_sees_its_tenant_alone_and_no_buttons(screen, open_page):
    page = open_page(key=screen.key(RESEARCH, Role.VIEWER))
    expect(page.get_by_text("acme/research · viewer")).to_be_visible()
    expect(page.get_by_role("link", name="etl-nightly-7")).to_be_visible()
    expect(page.get_by_role("link", name="report-1")).to_have_count(0)
    expect(page.get_by_label("Choose all open runs")).to_be_disabled()
    expect(page.get_by_label("Choose etl-nightly-7")).to_have_count(0)
    for part, heading, buttons in (
        ("#/runs/etl-nightly-7", "etl-nightly-7", ("Cancel run",)),
        ("#/runs/hello-2", "hello-2", ("Resume run",)),
        ("#/tenants?tenant=acme/research", "Tenants", ("Suspend", "Drain")),
        ("#/meshes", "Meshes", ("Drain", "Undrain")),
    ):
        page.goto(f"{screen.scene.address}/{part}")
        expect(page.get_by_role("heading", name=heading, exact=True).first).to_be_visible()
        for button in buttons:
            expect(page.get_by_role("button", name=button, exact=True)).to_have_count(0)


def test_other_tenants_run_is_not_there(screen, open_page, problems):
    page = open_page("#/runs/etl-nightly-7", key=screen.key(RIVAL, Role.OPERATOR))
    expect(page.get_by_text("There is no run etl-nightly-7.")).to_be_visible()
    assert [problem for problem in problems if "404" not in problem] == []
    problems.clear()


def test_foreign_script_and_style_do_not_run(screen, open_page, problems):
    page = open_page()
    expect(page.get_by_role("link", name="etl-nightly-7")).to_be_visible()
    page.evaluate(
        """() => {
            for (const [tag, fields] of [["script", {textContent: "window.inline = 1"}], ["script", {src: "https://cdn.test/a.js"}],
                    ["iframe", {src: "https://other.test/"}], ["img", {src: "https://other.test/a.png"}]])
                document.body.append(Object.assign(document.createElement(tag), fields));
        }"""
    )
    assert page.evaluate("fetch('https://other.test/').then(() => 'sent', () => 'refused')") == "refused"
    assert page.evaluate("window.inline === undefined")
    assert len([problem for problem in problems if "Content Security Policy" in problem]) >= 4
    problems.clear()


def test_page_of_a_foreign_origin_can_neither_frame_nor_call(screen, open_page, problems):
    page = open_page(key="")
    foreign = page.context.new_page()
    address = screen.scene.address
    foreign.route("https://evil.test/", lambda route: route.fulfill(body=f"<iframe src='{address}/'></iframe>", content_type="text/html"))
    foreign.goto("https://evil.test/")
    assert foreign.evaluate(f"fetch('{address}/v1/runs').then(() => 'read', () => 'refused')") == "refused"
    asked = (
        f"fetch('{address}/v1/runs/etl-nightly-7/cancel', {{method: 'POST', credentials: 'include'}}).then(() => 'read', () => 'refused')"
    )
    assert foreign.evaluate(asked) == "refused"
    assert all("SMK" not in frame.content() and frame.locator("#page *").count() == 0 for frame in foreign.frames[1:])
    with screen.http as http:
        assert http.get("/v1/runs/etl-nightly-7").json()["state"] == "RUNNING"
    problems.clear()


def test_root_allows_no_foreign_origin(screen):
    asked = {"Origin": "https://evil.test", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    answer = httpx.options(f"{screen.scene.address}/v1/runs", headers=asked)
    assert "access-control-allow-origin" not in answer.headers
