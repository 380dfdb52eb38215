"""Laws of the link's verbs: any input is valid or refused by name, and values arrive unchanged."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.leases import Acquired, Granted, Lease, LeaseRefused, LedgerResponse, LookAgain, Session
from federation.link import ACQUIRE, CODES, JOIN, VERBS, Join, LinkError, named_error
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.http_link import _error_in
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath, is_fit_name
from mesh.core.printable import check_printable
from mesh.core.reasons import Reason
from mesh.core.resources import AMOUNT_MAX, ResourceSet
from mesh.core.wire import decode, encode
from mesh.errors import MeshError
from serve_apps.link.calls import read_call

EAST = MeshId("east")
NAMES = st.text(min_size=1, max_size=30)


def is_printable(name: str) -> bool:
    try:
        return check_printable(name) == name
    except ValueError:
        return False


FIT = NAMES.filter(is_fit_name)
PRINTABLE = NAMES.filter(is_printable)
TOKENS = st.integers(0, AMOUNT_MAX)
AMOUNTS = st.dictionaries(FIT, TOKENS, max_size=3).map(ResourceSet)
KEYS = st.sampled_from(
    ["record", "mesh", "session", "heartbeat_report", "demands", "claims", "limit", "cursor", "seen", "labels", "messages"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | NAMES, inner, max_size=4),
    max_leaves=20,
)
PROBLEMS = st.fixed_dictionaries({}, optional={"code": JSON, "detail": JSON, "facts": JSON}) | JSON
RECORDS = st.builds(
    MeshRecord,
    mesh=st.just(EAST),
    labels=st.dictionaries(PRINTABLE, PRINTABLE, max_size=4),
    pools=st.lists(
        st.builds(PoolRecord, pool=PRINTABLE.map(PoolName), flavor=PRINTABLE.map(FlavorName), capacity=AMOUNTS, used=AMOUNTS)
    ).map(tuple),
    cluster=PRINTABLE,
    tenants=st.lists(PRINTABLE, max_size=3).map(tuple),
    cluster_answers=st.booleans(),
    waiting_for_ray=st.integers(0, 2**20),
    outside_group=st.integers(0, 2**20),
)
LEASES = st.builds(
    Lease,
    tenant=FIT.map(TenantPath),
    mesh=st.just(EAST),
    flavor=FIT.map(FlavorName),
    held=AMOUNTS,
    target=AMOUNTS,
    token=TOKENS,
    version=TOKENS,
    priority=st.integers(-100, 100),
    shrink_ms=st.none() | TOKENS,
    victims=st.lists(TOKENS, max_size=3).map(tuple),
    receipt=NAMES,
)
RESPONSES = st.builds(
    LedgerResponse, epoch=TOKENS, recovery_ms=TOKENS, mark=TOKENS, others_wait=st.booleans(), leases=st.lists(LEASES, max_size=3).map(tuple)
)
ANSWERS = st.one_of(
    st.builds(Granted, slots=TOKENS),
    st.just(LookAgain()),
    st.builds(
        LeaseRefused,
        reason=st.sampled_from(Reason),
        tenant=NAMES.map(TenantPath),
        flavor=NAMES.map(FlavorName),
        resource=NAMES,
        wanted=TOKENS,
        available=st.integers(-AMOUNT_MAX, AMOUNT_MAX),
    ),
)


@pytest.mark.parametrize("verb", VERBS, ids=[verb.name for verb in VERBS])
@settings(max_examples=40)
@given(said=JSON)
def test_any_json_is_taken_or_refused_by_name(verb, said):
    try:
        taken = read_call(verb, json.dumps(said).encode(), EAST)
    except MeshError:
        return  # By name: any other error fails the test.
    assert isinstance(taken, verb.asked)


@settings(max_examples=100)
@given(body=st.binary(max_size=200))
def test_any_bytes_are_refused_by_name(body):
    with pytest.raises(MeshError):
        read_call(JOIN, body, EAST)


@settings(max_examples=50)
@given(asked=st.builds(Join, record=RECORDS, adopt=TOKENS, seen=TOKENS))
def test_what_is_asked_arrives_as_it_was_meant(asked):
    assert read_call(JOIN, encode(asked), EAST) == asked


@settings(max_examples=50)
@given(answered=st.builds(Acquired, answers=st.lists(ANSWERS, max_size=4).map(tuple), response=RESPONSES))
def test_what_is_answered_arrives_as_it_was_meant(answered):
    assert decode(ACQUIRE.answered, encode(answered, ACQUIRE.answered)) == answered


@settings(max_examples=50)
@given(
    session=st.builds(
        Session, mesh=st.just(EAST), incarnation=TOKENS, ttl_ms=TOKENS, epoch=TOKENS, ledger=NAMES, mark=TOKENS, response=RESPONSES
    )
)
def test_a_session_arrives_with_the_values_of_its_join(session):
    arrived = decode(JOIN.answered, encode(session, JOIN.answered))
    assert (arrived, arrived.response) == (session, session.response)


@settings(max_examples=100)
@given(status=st.integers(100, 599), body=st.binary(max_size=100) | PROBLEMS.map(lambda value: json.dumps(value).encode()))
def test_any_answer_that_is_no_success_is_some_error(status, body):
    assert isinstance(_error_in(status, body), Exception)


@settings(max_examples=100)
@given(code=st.sampled_from(sorted(CODES)) | NAMES, facts=st.dictionaries(st.sampled_from(["epoch", "recovery_ms", "more"]), TOKENS))
def test_any_code_is_an_error_of_the_ports_or_none(code, facts):
    error = named_error(LinkError(code=code, message="in words", facts=facts))
    assert error is None or isinstance(error, CODES[code])
