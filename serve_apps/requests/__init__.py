"""Checks and limits that apply to every request.

dependencies      the ports of the gateway                      accepted_runs  recent runs, kept in case the store loses them
auth              API keys to principals or named denials       access         who calls, and what the key covers
limits            limits on body bytes and call rates           errors         errors to HTTP status, code and body
middleware        request ids, metrics, last-resort errors      openapi        OpenAPI: refusals of each operation, link bodies
request_timeouts  time limits for sending a request             problem_json   bodies of errors by RFC 9457
roles             the least role of each route                known_keys     keys that were shown a moment ago
recorded_changes  entries of the log of changes
"""
