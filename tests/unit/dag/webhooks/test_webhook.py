"""Runs that a webhook concerns, and the message about one."""

from __future__ import annotations

import json

import pytest

from dag.run.runs import RunSummary
from dag.run.states import RunState
from dag.webhooks.webhook import Webhook, message_of
from mesh.core.ids import RunId, TenantPath


def run(state=RunState.FAILED, tenant="acme/lab", ended_ms=1_700_000_000_000) -> RunSummary:
    return RunSummary(
        run=RunId("night"), tenant=TenantPath(tenant), state=state, created_ms=1, ended_ms=ended_ms, reason=None, detail="", counts={}
    )


@pytest.mark.parametrize(
    ("tenant", "concerned"),
    [("*", True), ("acme", True), ("acme/lab", True), ("acme/lab/east", False), ("acme/la", False), ("other", False)],
)
def test_webhook_concerns_a_tenant_and_all_below_it(tenant, concerned):
    assert Webhook(name="ops", url="https://hooks.example", tenant=tenant).concerns(run()) is concerned


@pytest.mark.parametrize("state", RunState)
def test_webhook_concerns_the_ends_that_it_names(state):
    ends = {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}
    assert Webhook(name="ops", url="https://hooks.example").concerns(run(state)) is (state in ends)
    only = Webhook(name="ops", url="https://hooks.example", events=(RunState.FAILED,))
    assert only.concerns(run(state)) is (state is RunState.FAILED)


def test_message_has_the_form_of_standard_webhooks():
    body = json.loads(message_of(Webhook(name="ops", url="https://hooks.example"), run(), {"id": "night"}).body)
    assert body == {"type": "run.failed", "timestamp": "2023-11-14T22:13:20.000Z", "data": {"id": "night"}}


def test_id_of_a_message_names_one_end_for_one_receiver():
    ops, pager = (Webhook(name=name, url="https://hooks.example") for name in ("ops", "pager"))
    first = message_of(ops, run(), {"detail": "one"}).id
    assert first == message_of(ops, run(), {"detail": "read again"}).id
    others = [
        message_of(pager, run(), {}).id,
        message_of(ops, run(RunState.SUCCEEDED), {}).id,
        message_of(ops, run(ended_ms=1_700_000_000_001), {}).id,
    ]
    assert len({first, *others}) == 4
