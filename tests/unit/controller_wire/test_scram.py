"""SCRAM: the RFC's example, a foreign client, both halves, and everything that must fail."""

from __future__ import annotations

import base64
import warnings

import pytest

from controller.wire.scram import ITERATIONS, ScramClient, ScramError, ScramKeys, ScramServer

CLUSTER = "xRk3vYQZT5mUuPjsWbQw1A"
SECRET = "correct horse battery staple, twice"


def run(client: ScramClient, server: ScramServer) -> bool:
    exchange = server.exchange()
    server_first = exchange.answer(client.first())
    client.finish(exchange.answer(client.final(server_first)))
    return exchange.authenticated


def test_the_keys_give_the_example_of_rfc_7677() -> None:
    keys = ScramKeys.derive("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), ITERATIONS)
    auth_message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = keys.proof(auth_message)
    assert base64.b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert (
        base64.b64encode(keys.verifier.signature(auth_message))
        == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert keys.verifier.proves(proof, auth_message)
    assert not keys.verifier.proves(proof[:-1], auth_message)
    assert not keys.verifier.proves(proof, auth_message + b"x")


def test_kafka_pythons_client_passes_the_server() -> None:
    with warnings.catch_warnings():
        # Importing kafka-python uses a deprecated function of importlib.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.net.sasl.scram import ScramClient as KafkaPythonClient
    client = KafkaPythonClient("quorate", SECRET, "SCRAM-SHA-256")
    exchange = ScramServer([SECRET], CLUSTER).exchange()
    client.process_server_first_message(exchange.answer(client.first_message()))
    client.process_server_final_message(exchange.answer(client.final_message()))
    assert exchange.authenticated


def test_both_halves_agree() -> None:
    assert run(ScramClient.of_peer(SECRET, CLUSTER), ScramServer([SECRET], CLUSTER))


def test_any_secret_of_the_server_is_taken() -> None:
    server = ScramServer(["the old secret", SECRET], CLUSTER)
    assert run(ScramClient.of_peer(SECRET, CLUSTER), server)
    assert run(ScramClient.of_peer("the old secret", CLUSTER), server)


def test_another_secret_is_refused_and_not_repeated() -> None:
    exchange = ScramServer([SECRET], CLUSTER).exchange()
    client = ScramClient.of_peer("another secret", CLUSTER)
    final = client.final(exchange.answer(client.first()))
    with pytest.raises(ScramError, match="the client does not know the peer secret") as caught:
        exchange.answer(final)
    assert "another secret" not in str(caught.value)
    assert not exchange.authenticated
    with pytest.raises(ScramError, match="the exchange is over"):
        exchange.answer(client.first())


def test_a_broker_without_the_secret_is_refused() -> None:
    client = ScramClient.of_peer(SECRET, CLUSTER)
    client.final(ScramServer(["guessed"], CLUSTER).exchange().answer(client.first()))
    with pytest.raises(ScramError, match="the broker does not know the secret"):
        client.finish(b"v=" + base64.b64encode(b"x" * 32))


def test_a_broker_of_another_cluster_is_refused() -> None:
    client = ScramClient.of_peer(SECRET, CLUSTER)
    server_first = ScramServer([SECRET], "another").exchange().answer(client.first())
    with pytest.raises(ScramError, match=f"the broker is of cluster 'another', this process of .*{CLUSTER}"):
        client.final(server_first)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n=quorate,r=x",
        b"p=tls-unique,,n=quorate,r=x",
        b"n,,n=quor=ate,r=x",
        b"n,a=other,n=quorate,r=x",
        b"n,,n=admin,r=x",
        b"n,,r=x,n=quorate",
        b"n,,n=quorate",
        b"n,,n=quorate,r=",
        b"n,,n=quorate,r=x,r=y",
        b"n,,\xff",
        b"n,," + b"x" * 5000,
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        ScramServer([SECRET], CLUSTER).exchange().answer(message)


def test_changed_messages_are_refused() -> None:
    for old, new in ((b"c=biws", b"c=eSws"), (b"r=abc", b"r=abd"), (b",p=", b",p=*"), (b",p=", b",q=")):
        exchange = ScramServer([SECRET], CLUSTER).exchange(nonce="xyz")
        client = ScramClient.of_peer(SECRET, CLUSTER, nonce="abc")
        final = client.final(exchange.answer(client.first()))
        with pytest.raises(ScramError):
            exchange.answer(final.replace(old, new))


@pytest.mark.parametrize(
    "server_first",
    [
        b"r=abc,s={salt},i=4096",
        b"r=zzz,s={salt},i=4096",
        b"r=abcxyz,s={salt},i=1",
        b"r=abcxyz,s={salt},i=99999999999",
        b"r=abcxyz,i=4096",
        b"e=other-error",
        b"\xff",
    ],
)
def test_a_bad_answer_of_the_broker_is_refused(server_first: bytes) -> None:
    client = ScramClient.of_peer(SECRET, CLUSTER, nonce="abc")
    with pytest.raises(ScramError):
        client.final(server_first.replace(b"{salt}", base64.b64encode(CLUSTER.encode())))


def test_nothing_prints_a_secret_or_a_key() -> None:
    server = ScramServer([SECRET], CLUSTER)
    printed = repr(server) + repr(server.__dict__) + repr(ScramClient.of_peer(SECRET, CLUSTER).__dict__)
    assert SECRET not in printed
    keys = ScramKeys.derive(SECRET, b"salt", 1)
    assert repr(keys) == "ScramKeys(verifier=ScramVerifier(digest='sha256'))"


def test_an_empty_secret_is_refused() -> None:
    for secrets in ([], [""], [SECRET, ""]):
        with pytest.raises(ValueError, match="anybody"):
            ScramServer(secrets, CLUSTER)
