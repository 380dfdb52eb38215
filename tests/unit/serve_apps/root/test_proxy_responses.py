"""Answers of the proxy without a gateway behind it, with a stand-in for Serve's proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import uvicorn.config
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.importer import import_from_string

from serve_apps.requests.request_timeouts import BodyTimeout, HeaderTimeout
from serve_apps.root.proxy_responses import CODE, AbsentRoot, middlewares
from serve_apps.schemas.errors import ProblemDetails


def asked(answer: Response | None, path: str = "/v1/runs/night") -> httpx.Response:
    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if answer is not None:
            await answer(scope, receive, send)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(AbsentRoot(proxy)), base_url="http://root") as http:
            return await http.get(path)

    return asyncio.run(ask())


ABSENT = [
    pytest.param(PlainTextResponse("Path '/v1/runs/night' not found. Ping http://.../-/routes for available routes.", 404), id="no route"),
    pytest.param(PlainTextResponse("no replicas", 503), id="no replica"),
    pytest.param(None, id="the replica died with the request"),
]


@pytest.mark.parametrize("answer", ABSENT)
def test_a_proxy_without_a_gateway_says_when_to_come_again(answer: Response | None) -> None:
    sent = asked(answer)
    assert (sent.status_code, sent.headers["Retry-After"]) == (503, "1")
    assert ProblemDetails.model_validate(sent.json()).code == CODE


PASSED_ON: list[Any] = [
    pytest.param(JSONResponse({"code": "unknown_run"}, 404), "/v1/runs/night", id="a run that does not exist"),
    pytest.param(JSONResponse({"code": "store_unavailable"}, 503), "/v1/runs/night", id="a store that is away"),
    pytest.param(PlainTextResponse("ray_up 1"), "/metrics", id="metrics"),
    pytest.param(PlainTextResponse("Route table is not populated yet.", 503), "/-/healthz", id="Serve about itself"),
]


@pytest.mark.parametrize(("answer", "path"), PASSED_ON)
def test_the_answer_of_a_gateway_is_passed_on(answer: Response, path: str) -> None:
    sent = asked(answer, path)
    assert (sent.status_code, sent.content, "Retry-After" in sent.headers) == (answer.status_code, answer.body, False)


def test_serve_is_given_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.config, "HTTP_PROTOCOLS", dict(uvicorn.config.HTTP_PROTOCOLS))
    assert [layer.cls for layer in middlewares()] == [AbsentRoot, BodyTimeout]
    assert import_from_string(uvicorn.config.HTTP_PROTOCOLS["auto"]) is HeaderTimeout
