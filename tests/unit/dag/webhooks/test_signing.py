"""Signatures of webhooks, against a vector that another implementation made."""

from __future__ import annotations

import base64

import pytest

from dag.webhooks.signing import WrongSecret, headers_of, keys_in

#: The example of the specification of Standard Webhooks, computed by `openssl dgst -sha256 -mac HMAC`.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT_S, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
OTHER = f"whsec_{base64.b64encode(bytes(32)).decode()}"


def test_signature_is_that_of_other_implementations():
    headers = headers_of(ID, BODY, AT_S, keys_in(SECRET, place="hook.key"))
    assert headers == {"webhook-id": ID, "webhook-timestamp": str(AT_S), "webhook-signature": SIGNATURE}


def test_every_key_signs_while_a_receiver_changes_its_key():
    headers = headers_of(ID, BODY, AT_S, keys_in(f"{OTHER}\n\n{SECRET}\n", place="hook.key"))
    first, second = headers["webhook-signature"].split(" ")
    assert (first == second, second) == (False, SIGNATURE)


def test_message_without_keys_is_not_signed():
    assert headers_of(ID, BODY, AT_S, ()) == {"webhook-id": ID, "webhook-timestamp": str(AT_S)}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(SECRET.removeprefix("whsec_"), id="no prefix"),
        pytest.param("whsec_c2hvcnQ=", id="a short key"),
        pytest.param(f"whsec_{base64.b64encode(bytes(65)).decode()}", id="a long key"),
        pytest.param("whsec_not base64!", id="no base64"),
        pytest.param(f"{SECRET}\npassword", id="one wrong line of two"),
    ],
)
def test_text_that_is_no_key_is_refused_and_not_repeated(text):
    with pytest.raises(WrongSecret, match=r"hook\.key") as refused:
        keys_in(text, place="hook.key")
    assert not [line for line in text.split() if line in str(refused.value)]
