"""The child's side of the link: choice of the replica, and invalid answers."""

import hashlib
import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from federation.dispatch import Claim, NotificationKind
from federation.errors import BatchTooLarge, CallRejected, EpochChanged, LinkRefused, SessionLost, StoreUnavailable
from federation.leases import ROWS_SENT_MAX, HeartbeatReport, QuotaDemand, Session
from federation.link import CODES, HEARTBEAT, LINK_PATH, NOTIFICATIONS, PROOF_HEADER, TERMS, AskTerms, LinkTerms, Report
from federation.snapshot import MeshRecord
from federation.store import http_link
from federation.store.http_link import HttpBlobs, HttpLedger, HttpLink, HttpStageQueue, ask_terms, trusted
from federation.store.report_parts import PARTS_MAX
from mesh.core.ids import FlavorName, MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode, encode
from mesh.stages.messages import NodeStarted, StageEnded

EAST = MeshId("east")
FIRST, SECOND = "http://first.test", "http://second.test"
LINK_TERMS = LinkTerms(heartbeat_ms=500, inline_limit_bytes=4_096, storage_url="file:///objects")
SESSION = Session(mesh=EAST, incarnation=5, ttl_ms=1_000, epoch=1, ledger="l")
RECORD = MeshRecord(mesh=EAST, labels={}, pools=(), cluster="c")
CLAIMED = Claim(stage=StageId("s"), mesh=EAST, incarnation=5, token=9)

Answer = Callable[[httpx.Request], httpx.Response]


class Roots:
    """Two roots with given answers that record their requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, httpx.Request]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        root = f"{request.url.scheme}://{request.url.host}"
        self.asked.append((root, request))
        return self.answers[root](request)

    def hosts(self) -> list[str]:
        return [root for root, _ in self.asked]


@pytest.fixture
def roots() -> Roots:
    roots = Roots()
    roots.answers = {FIRST: good, SECOND: good}
    return roots


@pytest.fixture
def link(roots: Roots) -> Iterator[HttpLink]:
    link = HttpLink((FIRST, f"{SECOND}/"), "smm_x", http=httpx.Client(transport=httpx.MockTransport(roots)))
    yield link
    link.close()


def good(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=encode(LINK_TERMS))


def away(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens", request=request)


def error(code: str, status: int = 409, **more: object) -> Answer:
    body = {"code": code, "detail": f"in words: {code}", "problems": [], "request_id": "r", **more}
    return lambda _: httpx.Response(status, json=body)


def test_a_call_is_a_post_to_the_verbs_own_path(link, roots):
    assert ask_terms(link, EAST) == LINK_TERMS
    _, request = roots.asked[0]
    assert (request.method, request.url.path, request.headers["content-type"]) == ("POST", f"{LINK_PATH}/terms", "application/json")
    assert decode(AskTerms, request.content) == AskTerms(mesh=EAST)


def test_highest_session_proof_returns_with_each_call(link, roots):
    proofs = iter(["7.1.aa.l", "6.1.bb.l", "", "no proof at all", "8.1.cc.l", "3.1.dd.other", ""])
    roots.answers[FIRST] = lambda _: httpx.Response(200, content=encode(LINK_TERMS), headers={PROOF_HEADER: next(proofs)})
    for _ in range(7):
        ask_terms(link, EAST)
    sent = [request.headers.get(PROOF_HEADER) for _, request in roots.asked]
    assert sent == [None, "7.1.aa.l", "7.1.aa.l", "7.1.aa.l", "7.1.aa.l", "8.1.cc.l", "3.1.dd.other"]


def test_link_fails_over_and_keeps_the_address_that_answered(link, roots):
    roots.answers[FIRST] = away
    assert [ask_terms(link, EAST), ask_terms(link, EAST)] == [LINK_TERMS, LINK_TERMS]
    assert roots.hosts() == [FIRST, SECOND, SECOND]


def test_each_address_is_tried_once_and_the_next_call_rotates(link, roots):
    roots.answers = {FIRST: away, SECOND: away}
    with pytest.raises(StoreUnavailable, match=r"first\.test: nobody listens; http://second\.test"):
        ask_terms(link, EAST)
    roots.answers = {FIRST: good, SECOND: good}
    ask_terms(link, EAST)
    assert roots.hosts() == [FIRST, SECOND, SECOND]


def test_hanging_addresses_are_tried_within_the_time_limit(roots, monkeypatch):
    passed_s = [0.0]

    def hang(request: httpx.Request) -> httpx.Response:
        passed_s[0] += http_link.CALL_S_MAX / 2
        raise httpx.ReadTimeout("no answer", request=request)

    monkeypatch.setattr(http_link.time, "monotonic", lambda: passed_s[0])
    addresses = tuple(f"http://root{number}.test" for number in range(5))
    roots.answers = dict.fromkeys(addresses, hang)
    link = HttpLink(addresses, "smm_x", http=httpx.Client(transport=httpx.MockTransport(roots)))
    for tried in (0, 1), (2, 3), (4, 0):
        with pytest.raises(StoreUnavailable):
            ask_terms(link, EAST)
        assert roots.hosts()[-2:] == [addresses[number] for number in tried]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda _: httpx.Response(200, content=b""), id="nothing"),
        pytest.param(lambda _: httpx.Response(200, content=b"<html>hello</html>"), id="a page"),
        pytest.param(lambda _: httpx.Response(200, content=b'{"heartbeat_ms": 500'), id="half a document"),
        pytest.param(lambda _: httpx.Response(200, content=encode(LINK_TERMS).replace(b"500", b'"500"')), id="another type"),
        pytest.param(lambda _: httpx.Response(200, content=encode(LINK_TERMS).replace(b"heartbeat_ms", b"pulse")), id="another key"),
        pytest.param(lambda _: httpx.Response(200, content=b"\xff\xfe"), id="no text"),
        pytest.param(lambda _: httpx.Response(200, content=b"[" * 100_000), id="endless nesting"),
        pytest.param(lambda _: httpx.Response(204), id="a success without a body"),
        pytest.param(lambda _: httpx.Response(301, headers={"location": "http://elsewhere.test/"}), id="a redirect"),
        pytest.param(lambda _: httpx.Response(404, json={"detail": "Not Found"}), id="an unknown path"),
        pytest.param(lambda _: httpx.Response(502, content=b"<html>Bad Gateway</html>"), id="a proxy without a root"),
        pytest.param(lambda _: httpx.Response(500, json={"code": None, "detail": None}), id="an invalid error"),
        pytest.param(
            lambda _: httpx.Response(500, json={"code": "internal", "detail": "", "facts": [1]}),
            id="an error of another shape",
        ),
        pytest.param(lambda _: httpx.Response(409, json=[1]), id="a list where an error belongs"),
        pytest.param(error("epoch_changed"), id="a new epoch without its number"),
        pytest.param(error("epoch_changed", facts={"epoch": "soon", "recovery_ms": 1}), id="a new epoch whose number is none"),
        pytest.param(error("epoch_changed", facts=[1]), id="a new epoch with a list of numbers"),
        pytest.param(error("never_heard_of"), id="an unknown code"),
        pytest.param(error("internal", 500), id="a broken root"),
        pytest.param(error("store_unavailable", 503), id="a root without a store"),
        pytest.param(error("too_many_calls", 429), id="a throttled root"),
        pytest.param(away, id="no connection"),
    ],
)
def test_invalid_answer_is_an_unavailable_store(link, roots, answer):
    roots.answers = {FIRST: answer, SECOND: answer}
    with pytest.raises(StoreUnavailable) as gone:
        ask_terms(link, EAST)
    assert not isinstance(gone.value, LinkRefused)
    assert len(str(gone.value)) < 1_000


def test_proxy_error_leads_to_the_next_root(link, roots):
    roots.answers[FIRST] = lambda _: httpx.Response(502, content=b"Bad Gateway")
    assert ask_terms(link, EAST) == LINK_TERMS


@pytest.mark.parametrize("code", ["unauthorized", "wrong_mesh", "malformed_call"])
def test_refusal_gives_its_reason_and_is_not_retried(link, roots, code):
    roots.answers[FIRST] = error(code, 403)
    with pytest.raises(LinkRefused, match=code):
        ask_terms(link, EAST)
    assert roots.hosts() == [FIRST]


@pytest.mark.parametrize(
    ("code", "is_for_good"),
    [("malformed_call", True), ("malformed_json", True), ("body_too_large", True), ("unauthorized", False), ("wrong_mesh", False)],
)
def test_permanent_and_transient_call_errors_differ(link, roots, code, is_for_good):
    roots.answers[FIRST] = error(code, 403)
    with pytest.raises(LinkRefused) as refused:
        ask_terms(link, EAST)
    assert isinstance(refused.value, CallRejected) == is_for_good


@pytest.mark.parametrize("code", CODES)
def test_every_port_error_is_raised_as_its_own_class(link, roots, code):
    roots.answers[FIRST] = error(code, facts={"epoch": 7, "recovery_ms": 30})
    with pytest.raises(CODES[code], match="in words") as raised:
        ask_terms(link, EAST)
    assert type(raised.value) is CODES[code]
    assert roots.hosts() == [FIRST]


def test_a_new_epoch_comes_with_its_number(link, roots):
    roots.answers[FIRST] = error("epoch_changed", facts={"epoch": 7, "recovery_ms": 30})
    with pytest.raises(EpochChanged) as changed:
        ask_terms(link, EAST)
    assert (changed.value.epoch, changed.value.recovery_ms) == (7, 30)


def test_each_verb_waits_as_long_as_it_may_take(link, roots):
    roots.answers[FIRST] = lambda _: httpx.Response(200, content=b'["1-0", []]')
    HttpStageQueue(link, EAST).notifications(EAST, "", 700)
    roots.answers[FIRST] = error("session_lost")
    with pytest.raises(SessionLost):
        HttpLedger(link).heartbeat(SESSION, RECORD, HeartbeatReport(number=1))
    (notifications_s, heartbeat_s) = (request.extensions["timeout"]["read"] for _, request in roots.asked)
    assert (notifications_s, heartbeat_s) == ((NOTIFICATIONS.limit_ms + 700) / 1000, HEARTBEAT.limit_ms / 1000)


class Dripping(httpx.SyncByteStream):
    """Endless body of single bytes."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b" "


def test_endless_answer_stops_at_the_time_limit(link, roots, monkeypatch):
    seconds = iter(range(1_000))
    monkeypatch.setattr(http_link.time, "monotonic", lambda: next(seconds) / 4)
    roots.answers = dict.fromkeys((FIRST, SECOND), lambda _: httpx.Response(200, stream=Dripping()))
    with pytest.raises(StoreUnavailable, match="did not end in time"):
        ask_terms(link, EAST)
    assert next(seconds) / 4 <= 3 * TERMS.limit_ms / 1000


def test_an_answer_that_never_ends_ends_with_its_size(link, roots, monkeypatch):
    monkeypatch.setattr(http_link, "ANSWER_BYTES_MAX", 100)
    roots.answers = dict.fromkeys((FIRST, SECOND), lambda _: httpx.Response(200, stream=Dripping()))
    with pytest.raises(StoreUnavailable, match="larger than any"):
        ask_terms(link, EAST)


def test_a_link_that_was_closed_is_a_store_that_does_not_answer(link):
    link.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        ask_terms(link, EAST)


def test_sent_session_leaves_out_its_join_response(link, roots):
    roots.answers[FIRST] = lambda _: httpx.Response(200, content=b"null")
    HttpLedger(link).leave(SESSION)
    assert json.loads(roots.asked[0][1].content)["session"]["response"]["leases"] == []


def test_too_many_demands_are_not_sent(link, roots):
    demand = QuotaDemand(tenant=TenantPath("acme"), flavor=FlavorName("cpu"), slot=ResourceSet.of({"cpu": 1}))
    with pytest.raises(BatchTooLarge):
        HttpLedger(link).heartbeat(SESSION, RECORD, HeartbeatReport(number=1, demands=(demand,) * (ROWS_SENT_MAX + 1)))
    assert roots.asked == []


def test_large_batch_is_sent_in_ordered_parts(link, roots):
    roots.answers[FIRST] = lambda request: httpx.Response(200, content=str(decode(Report, request.content).batch).encode())
    started = tuple(NodeStarted(stage=StageId("s"), node=NodeId(f"n{number}"), attempt=1, started_ms=1) for number in range(1_200))
    queue = HttpStageQueue(link, EAST)
    taken = queue.report(CLAIMED, 3, (*started, StageEnded(stage=StageId("s"))), after=7)
    assert queue.report(CLAIMED, 4, (), after=taken) == 4 * PARTS_MAX
    reports = [decode(Report, request.content) for _, request in roots.asked]
    numbers = [report.batch for report in reports]
    assert numbers == [3 * PARTS_MAX, 3 * PARTS_MAX + 1, 3 * PARTS_MAX + 2, 4 * PARTS_MAX]
    assert [report.after for report in reports] == [7, *numbers[:-1]]
    assert [message for report in reports for message in report.messages] == [*started, StageEnded(stage=StageId("s"))]
    assert all(len(request.content) < 1 << 20 for _, request in roots.asked)


def test_notifications_keep_their_form(link, roots):
    roots.answers[FIRST] = lambda _: httpx.Response(200, content=b'["5-0", [{"kind": "stage", "subject": "s"}]]')
    cursor, (notification,) = HttpStageQueue(link, EAST).notifications(EAST, "4-0", 0)
    assert (cursor, notification.kind, notification.subject) == ("5-0", NotificationKind.STAGE, "s")


def test_blob_with_a_wrong_hash_is_no_answer(link, roots):
    roots.answers[FIRST] = lambda _: httpx.Response(200, content=b"others")
    with pytest.raises(StoreUnavailable, match="do not match the hash"):
        HttpBlobs(link).get(RunId("r"), (hashlib.sha256(b"these").hexdigest(),))


def test_a_blob_that_is_not_there_is_left_out(link, roots):
    roots.answers[FIRST] = error("unknown_blob", 404)
    assert HttpBlobs(link).get(RunId("r"), ("a" * 64,)) == {}


def test_empty_certificate_file_is_an_error(tmp_path):
    assert trusted(None) is True
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in (tmp_path / "ca.pem", tmp_path / "missing.pem"):
        with pytest.raises(StoreUnavailable, match="holds no certificates"):
            trusted(str(file))
