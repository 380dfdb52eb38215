"""Codes: none without a meaning and a remedy, and their pages at the root."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from mesh.core.reasons import Reason
from serve_apps.cli.app import app
from serve_apps.codes.catalogue import NOTHING, codes, find
from serve_apps.codes.errors import ERRORS
from serve_apps.codes.pages import html_of, markdown_of
from serve_apps.codes.reasons import NO_ACTION, REMEDIES
from serve_apps.gateway_fixtures import GatewayWorld

WORLD = GatewayWorld()


def test_every_reason_has_a_remedy_or_needs_none():
    assert REMEDIES.keys() | NO_ACTION == set(Reason)
    assert not REMEDIES.keys() & NO_ACTION


def test_every_code_says_what_to_do():
    assert codes().keys() == {reason.value for reason in Reason} | ERRORS.keys()
    assert [code.name for code in codes().values() if not (code.meaning.endswith(".") and code.remedy.endswith("."))] == []
    assert find("QUOTA_FREE").remedy == NOTHING


@pytest.mark.parametrize(
    ("asked", "found"),
    [("quota_exhausted", "QUOTA_EXHAUSTED"), ("Invalid_Spec", "invalid_spec"), ("backlog_full", "backlog_full"), ("BACKLOG_FULL",) * 2],
)
def test_a_code_is_found_in_any_case(asked, found):
    assert find(asked).name == found


class Links(HTMLParser):
    """Text and links of a page; fails on a script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.text += data


def test_every_page_of_the_list_answers_without_a_key():
    page = WORLD.http(None).get("/codes")
    links = [link for link in Links(page.text).links if link.startswith("/codes/")]
    assert len(links) == len(codes())
    for link in links:
        answer = WORLD.http(None).get(link)
        code = find(link.rpartition("/")[2])
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert re.sub(r"`", "", code.remedy) in Links(answer.text).text


def test_an_unknown_code_is_shown_as_text():
    answer = WORLD.http(None).get("/codes/<script>alert(1)<")
    assert answer.status_code == 404
    assert "<script>" not in answer.text
    assert "There is no code <script>alert(1)<." in Links(answer.text).text


def test_pages_show_code_spans():
    code = find("TENANT_SUSPENDED")
    assert "<code>schedulemesh resume TENANT</code>" in html_of(code)
    assert markdown_of(code).startswith("# TENANT_SUSPENDED\n\nA reason that passes")


def test_the_command_prints_a_code():
    shown = CliRunner().invoke(app, ["code", "tenant_suspended"])
    assert shown.exit_code == 0
    assert "what to do: End the suspension: `schedulemesh resume TENANT`." in shown.stdout
    as_json = json.loads(CliRunner().invoke(app, ["code", "TENANT_SUSPENDED", "--json"]).stdout)
    assert as_json["name"] == "TENANT_SUSPENDED"
    assert CliRunner().invoke(app, ["code"]).stdout.split() == list(codes())


def test_a_near_code_is_named():
    refused = CliRunner().invoke(app, ["code", "QUOTA_EXHAUSTD"])
    assert refused.exit_code == 2
    assert "QUOTA_EXHAUSTED" in refused.output
