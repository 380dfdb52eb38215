"""Error codes of the root, as `code` of its problem details: the status of each, its meaning, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ErrorHelp(NamedTuple):
    """Status, meaning and remedy of an error code."""

    status: int
    meaning: str
    remedy: str


_CORRECT = "Correct the request; `problems` lists what is wrong, with places."
_REPEAT = "Repeat the call after the seconds of `Retry-After`."
_LIST_RUNS = "Compare the name with `schedulemesh runs` or `schedulemesh watch RUN`, and check that the key covers the tenant."
_JOIN_AGAIN = "A mesh does this by itself: it stops the work of the session and joins again."
_SENDS_AGAIN = "A mesh does this by itself: it reads the present state and sends again."

#: Codes in the order of the page, by status.
ERRORS: Mapping[str, ErrorHelp] = {
    "malformed_json": ErrorHelp(400, "The body cannot be read.", "Send valid JSON in UTF-8, whole and not compressed twice."),
    "malformed_request": ErrorHelp(400, "The request cannot be parsed.", "Send HTTP/1.1 with valid headers and a valid address."),
    "unauthorized": ErrorHelp(
        401,
        "The key is missing, unknown, revoked or expired.",
        "Send `Authorization: Bearer KEY`, or set `SCHEDULEMESH_API_KEY`. An admin makes keys: `schedulemesh keys create TENANT`.",
    ),
    "forbidden": ErrorHelp(
        403,
        "The key does not reach the tenant, or the call needs a key of all tenants.",
        "Name a tenant that the key covers (`GET /v1/whoami`), or use another key.",
    ),
    "role_too_low": ErrorHelp(
        403,
        "The role of the key does not include the call; `detail` names the least role.",
        "Use a key of that role; an admin makes one.",
    ),
    "wrong_mesh": ErrorHelp(403, "The call names another mesh than the key's.", "Start the mesh with the key that was made for its name."),
    "forged_receipt": ErrorHelp(
        403, "The call claims a lease that the root has not signed.", "Join again. If the mesh's key may have leaked, revoke it."
    ),
    "unknown_run": ErrorHelp(404, "The key reaches no such run.", _LIST_RUNS),
    "unknown_output": ErrorHelp(404, "The run has no such output, or its value can no longer be read.", _LIST_RUNS),
    "unknown_key": ErrorHelp(404, "There is no such API key within reach.", "Compare the id with `schedulemesh keys ls`."),
    "unknown_signal": ErrorHelp(404, "No node of the run waits for the signal.", "Compare the name with `schedulemesh watch RUN`."),
    "unknown_mesh": ErrorHelp(404, "No mesh of this name was ever known.", "Compare the name with `schedulemesh meshes`."),
    "unknown_blob": ErrorHelp(404, "The run has no such blob.", "Nothing: the work that asked for it has ended."),
    "unknown_stage": ErrorHelp(404, "The run has no such stage.", _LIST_RUNS),
    "unknown_node": ErrorHelp(404, "The run has no such node.", _LIST_RUNS),
    "unknown_array": ErrorHelp(404, "The run has no such array.", _LIST_RUNS),
    "unknown_schedule": ErrorHelp(404, "The key reaches no such schedule.", "Compare the name with `schedulemesh schedule ls`."),
    "unknown_letter": ErrorHelp(404, "There is no such dead letter.", "Compare the id with `schedulemesh dead list`."),
    "unknown_route": ErrorHelp(404, "There is no such route; `/docs` lists all routes.", "Correct the address."),
    "method_not_allowed": ErrorHelp(405, "The route does not take this method.", "Use a method of the header `Allow`."),
    "body_too_slow": ErrorHelp(
        408, "The body did not come within ten seconds, and one more for each 16 KiB.", "Repeat the call over a faster connection."
    ),
    "run_conflict": ErrorHelp(409, "The id exists with another graph.", "Choose another id, or leave it out."),
    "signal_conflict": ErrorHelp(
        409, "The signal was sent with another value before, or its nodes have ended.", "Read what the run got: `schedulemesh watch RUN`."
    ),
    "key_conflict": ErrorHelp(
        409, "The idempotency key was used for another submission.", "Use a new key for each submission, and the same one for its repeats."
    ),
    "not_requeued": ErrorHelp(
        409,
        "The dead letter's run still goes on, or the parts that a new run needs are gone.",
        "Wait for its end, or submit the graph again.",
    ),
    "not_resumed": ErrorHelp(
        409,
        "The run has succeeded or still goes on, its code is gone, or its end is still being carried out.",
        "Wait for its end and repeat the call, or submit the graph again.",
    ),
    "not_removed": ErrorHelp(
        409,
        "The run still goes on, or its end is still being carried out.",
        "Cancel it (`schedulemesh cancel RUN`), wait, and repeat the call.",
    ),
    "run_failed": ErrorHelp(
        409, "The run failed and has no result.", "`schedulemesh result RUN` names the first failure; `schedulemesh resume RUN` goes on."
    ),
    "run_cancelled": ErrorHelp(409, "The run was cancelled and has no result.", "`schedulemesh resume RUN` goes on."),
    "too_many_schedules": ErrorHelp(
        409, "The tenant has as many schedules, or as large ones, as it may have.", "Delete some: `schedulemesh schedule delete NAME`."
    ),
    "schedule_busy": ErrorHelp(409, "Others change the schedule at the same time.", "Repeat the call."),
    **dict.fromkeys(
        ("session_unknown", "session_superseded", "session_expired", "session_lost", "foreign_ledger"),
        ErrorHelp(409, "The session does not belong to this ledger, or no longer.", _JOIN_AGAIN),
    ),
    **dict.fromkeys(
        ("epoch_changed", "holdings_wanted"),
        ErrorHelp(
            409,
            "The ledger may have lost writes: it wants the call under the epoch in `facts` and with all held leases.",
            "A mesh does this by itself: it names what it holds.",
        ),
    ),
    **dict.fromkeys(
        ("lease_lost", "stale_heartbeat", "stale_fence", "earlier_reports_lost"),
        ErrorHelp(409, "The call refers to an outdated lease, heartbeat, fencing token or report; it changed nothing.", _SENDS_AGAIN),
    ),
    "too_many_claims": ErrorHelp(
        409, "The mesh has far more open claims than its leases cover.", "Let the mesh join again; its log has what it claimed."
    ),
    "body_too_large": ErrorHelp(
        413,
        "The body is larger than `body_limit`, or on the link larger than its own limits.",
        "Send data as files and only their addresses in the graph, or raise `body_limit`.",
    ),
    "batch_too_large": ErrorHelp(413, "The call has too many rows.", "Split it."),
    "unsupported_media_type": ErrorHelp(
        415, "The body is not sent as JSON, and a graph neither as columns.", "Send `Content-Type: application/json`."
    ),
    "mesh_misfit": ErrorHelp(
        422,
        "A mesh reports a configuration that the root's file rules out.",
        "Change what `detail` names, on the mesh or in the root's file.",
    ),
    "invalid_spec": ErrorHelp(422, "The graph is wrong, or has nodes that the tenant may not run.", _CORRECT),
    "invalid_parameters": ErrorHelp(
        422, "A parameter in the address or in a header is wrong, or the route knows no such parameter.", _CORRECT
    ),
    "unknown_tenant": ErrorHelp(422, "There is no such tenant.", "Compare the path with `schedulemesh tenants`."),
    "malformed_call": ErrorHelp(422, "The body does not fit the verb of the link.", "Run the same version of the mesh and the root."),
    "future_token": ErrorHelp(422, "The call has a token that no ledger can have issued.", "Let the mesh join again."),
    "invalid_amount": ErrorHelp(422, "An amount is negative, not finite or finer than a ten-thousandth.", _CORRECT),
    "unfit_name": ErrorHelp(
        422, "The name of a tenant, flavor or resource is empty or contains a bar, a control character or an end of line.", "Rename it."
    ),
    "no_mesh_fits": ErrorHelp(
        422,
        "No mesh could ever run a node of the graph.",
        "Change the node, the meshes or the quota by the reasons in `problems`; `wait_for_capacity` accepts it all the same.",
    ),
    "durability_unreachable": ErrorHelp(
        422, "The store cannot reach the requested durability.", "Ask for less durability, or give the store a replica."
    ),
    "too_many_calls": ErrorHelp(
        429, "The key has used up its budget, or the address has sent too many wrong keys.", f"{_REPEAT} `wait` spares repeated questions."
    ),
    "backlog_full": ErrorHelp(429, "The tenant, or one above it, has too many open runs.", f"{_REPEAT} Or raise the tenant's limit."),
    "internal": ErrorHelp(500, "Internal error.", "Report the request id: the root's log has the details under it."),
    "corrupt_value": ErrorHelp(
        502,
        "The bytes of a stored value differ from those that were written.",
        "Check the store of values, then `schedulemesh resume RUN`.",
    ),
    "broken_record": ErrorHelp(502, "A stored record or file cannot be read.", "Report the request id: the root's log names the record."),
    "store_full": ErrorHelp(
        503,
        "The store has hardly any memory left; only submissions are refused.",
        "Delete old runs or give Redis more memory; then repeat.",
    ),
    "root_away": ErrorHelp(503, "No gateway of the root answers yet: it starts, or is being replaced.", _REPEAT),
    "store_unavailable": ErrorHelp(
        503, "The store does not answer; the call may or may not have taken effect.", f"{_REPEAT} That is safe."
    ),
    "ledger_recovering": ErrorHelp(503, "The ledger recovers what is held; it grants nothing new until then.", _REPEAT),
    "ledger_uninitialised": ErrorHelp(503, "There is no ledger in the store.", "Start the root once: `schedulemesh up` makes it."),
    "ledger_unsafe": ErrorHelp(
        503, "The settings of the ledger's server could lose the ledger.", "Change the settings that the root's log names."
    ),
}
