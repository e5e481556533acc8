"""[tls] and its tables: layers, defaults of each port, and the sentence for each wrong or missing value."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from broker.config.broker import BrokerConfig, broker_config
from quorum.config.certificates import Certificates
from quorum.config.node import NodeConfig, load_node_config, node_config
from quorum.errors import ConfigError
from quorum.platform.tls import not_after_s, subject_of
from tests.support.certificates import Authority

Sections = dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("pki")
    secret = folder / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 32)
    return Authority(folder / "ours")


def node(authority: Authority, **sections: dict[str, Any]) -> NodeConfig:
    base: dict[str, dict[str, Any]] = {
        "node": {"id": 1, "cluster": "c", "data_dir": "d"},
        "members": {"1": "127.0.0.1:2281"},
        "security": {"peer_secret_file": str(authority.folder.parent / "peer.secret")},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return node_config(base, authority.folder)


def broker(authority: Authority, **sections: dict[str, Any]) -> BrokerConfig:
    base: dict[str, dict[str, Any]] = {
        "broker": {"id": 1, "data_dir": "d"},
        "security": {"peer_secret_file": str(authority.folder.parent / "peer.secret")},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return broker_config(base, authority.folder)


SECURE = {"secure_client": "127.0.0.1:2182"}


def test_a_table_overrides_single_keys_for_one_port(authority: Authority) -> None:
    files = authority.settings("n")
    config = node(
        authority,
        listen=SECURE,
        tls={
            **files,
            "client_auth": "want",
            "admin": {"minimum_version": "1.3"},
            "client": {"client_auth": "none"},
        },
    )
    assert config.tls["client"].certificate_file == authority.folder / "n.pem"
    found = {name: (each.client_auth, each.minimum_version) for name, each in config.tls.items()}
    assert found == {
        "tls": ("want", "1.2"),
        "client": ("none", "1.2"),
        "peer": ("need", "1.2"),
        "admin": ("want", "1.3"),
    }


def test_brokers_ask_clients_for_no_certificate_by_default(authority: Authority) -> None:
    found = {name: each.client_auth for name, each in broker(authority).tls.items()}
    assert found == {
        "tls": "none",
        "ssl": "none",
        "sasl_ssl": "none",
        "broker": "need",
        "admin": "want",
        "quorum": "need",
    }


@pytest.mark.parametrize(
    ("environ", "overrides"),
    [
        ({"QUORATE_TLS_CLIENT_KEY_FILE": "k", "QUORATE_TLS_CLIENT_AUTH": "none"}, {}),
        ({"QUORATE_TLS_KEY_FILE": "other"}, {"tls.client.key_file": "k", "tls.client_auth": "none"}),
        ({"QUORATE_TLS_CLIENT_KEY_FILE": "k", "QUORATE_TLS_CLIENT_CLIENT_AUTH": "none"}, {}),
    ],
)
def test_environment_and_flags_name_tables_too(
    authority: Authority, tmp_path: Path, environ: dict[str, str], overrides: dict[str, object]
) -> None:
    file, secret = tmp_path / "node.toml", authority.folder.parent / "peer.secret"
    file.write_text(
        '[node]\nid = 1\ncluster = "c"\ndata_dir = "d"\n[members]\n1 = "h:1"\n'
        f'[tls]\ncertificate_file = "c"\nkey_file = "file"\n[tls.client]\nkey_file = "mine"\n'
        f'[security]\npeer_secret_file = "{secret}"\n'
    )
    client = load_node_config(file, environ, overrides).tls["client"]
    assert (client.key_file, client.client_auth) == (tmp_path / "k", "none")


ONLY: dict[str, object] = {"enabled_mechanisms": ["OAUTHBEARER"]}
KEYS = "oauthbearer_jwks_endpoint_url"
OPEN = {**ONLY, "plain_without_tls": True}
TOKENS: dict[str, dict[str, object]] = {"listen": {"listeners": ["SASL_PLAINTEXT://h:1"]}}


@pytest.mark.parametrize(
    ("sections", "field", "words"),
    [
        ({"listen": SECURE}, "tls.client.certificate_file", "is not set, and listen.secure_client needs it"),
        ({"listen": {"client": ""}}, "listen.client", "leaves clients no port"),
        ({"listen": {"secure_client": "127.0.0.1:2181"}}, "listen.secure_client", "port of listen.client"),
        ({"security": {"ssl_quorum": True}}, "tls.peer.certificate_file", "security.ssl_quorum needs it"),
        ({"security": {"port_unification": True}}, "tls.peer.certificate_file", "port_unification needs it"),
        ({"security": {"admin_ssl": True}}, "tls.admin.certificate_file", "security.admin_ssl needs it"),
        ({"tls": {"certificate_file": "c.pem"}}, "tls.key_file", "is not set, and tls.certificate_file is"),
        ({"tls": {"key_file": "c.key"}}, "tls.certificate_file", "is not set, and tls.key_file is"),
        ({"tls": {"client_auth": "maybe"}}, "tls.client_auth", "is not none, want or need"),
        ({"tls": {"minimum_version": "1.1"}}, "tls.minimum_version", "is not 1.2 or 1.3"),
        ({"tls": {"peer": {"client_auth": "want"}}}, "tls.peer.client_auth", "always show a certificate"),
        ({"tls": {"klient": {"client_auth": "want"}}}, "tls.klient", "did you mean 'tls.client'"),
        ({"tls": {"client": {"key": "k"}}}, "tls.client.key", "is no known key"),
        ({"listen": {"admin": "10.0.0.1:8181"}}, "listen.admin", "admin_ssl (or admin_behind_proxy)"),
    ],
)
def test_a_wrong_or_half_finished_node_is_refused(
    authority: Authority, sections: Sections, field: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        node(authority, **sections)
    assert caught.value.field == field
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("sections", "field", "words"),
    [
        ({"listen": {"listeners": ["SSL://127.0.0.1:9093"]}}, "tls.ssl.certificate_file", "listen.listeners"),
        ({"listen": {"client": ""}}, "listen.client", "leaves clients no port"),
        ({"listen": {"listeners": ["SASL_PLAINTEXT://h:1"]}}, "sasl.enabled_mechanisms", "no mechanism"),
        ({"sasl": {"enabled_mechanisms": ["PLAIN"]}}, "sasl.enabled_mechanisms", "no listener"),
        ({**TOKENS, "sasl": OPEN}, "sasl.oauthbearer_jwks_endpoint_url", "and OAUTHBEARER needs keys"),
        ({**TOKENS, "sasl": {**OPEN, KEYS: "http://h/keys"}}, f"sasl.{KEYS}", "is not file:///PATH or https"),
        (
            {**TOKENS, "sasl": {**OPEN, KEYS: "https://u:p@h/k"}},
            f"sasl.{KEYS}",
            "is not file:///PATH or https",
        ),
        ({**TOKENS, "sasl": {**OPEN, KEYS: "file:///nowhere/k"}}, f"sasl.{KEYS}", "names no file"),
        ({"sasl": {KEYS: "https://h/keys"}}, f"sasl.{KEYS}", "counts for OAUTHBEARER alone"),
        (
            {"sasl": {"oauthbearer_expected_audience": ["a"]}},
            *("sasl.oauthbearer_expected_audience", "counts for OAUTHBEARER alone"),
        ),
        (
            {"sasl": {"oauthbearer_expected_issuer": "i"}},
            *("sasl.oauthbearer_expected_issuer", "counts for OAUTHBEARER alone"),
        ),
        ({"sasl": {"oauthbearer_sub_claim_name": ""}}, "sasl.oauthbearer_sub_claim_name", "name of a claim"),
        (
            {"listen": {"listeners": ["SASL_PLAINTEXT://h:1"]}, "sasl": {**ONLY, KEYS: "https://h/k"}},
            *("sasl.enabled_mechanisms", "passwords and tokens that everybody on the way can read"),
        ),
        ({"quorum": {"sasl_username": "b"}}, "quorum.sasl_password_file", "and quorum.sasl_username is"),
        ({"quorum": {"sasl_password_file": "/p"}}, "quorum.sasl_username", "quorum.sasl_password_file is"),
        (
            {"quorum": {"sasl_username": "b", "sasl_password_file": "/nowhere/p"}},
            *("quorum.sasl_password_file", "cannot be read"),
        ),
        (
            {"quorum": {"sasl_username": "a:b", "sasl_password_file": "/dev/null"}},
            *("quorum.sasl_username", "is no name of a user"),
        ),
        ({"sasl": {"enabled_mechanisms": ["GSSAPI"]}}, "sasl.enabled_mechanisms", "is no mechanism"),
        (
            {
                "listen": {"listeners": ["SASL_PLAINTEXT://h:1"]},
                "sasl": {"enabled_mechanisms": ["PLAIN"]},
            },
            *("sasl.enabled_mechanisms", "everybody on the way can read"),
        ),
        ({"listen": {"listeners": ["PLAINTEXT://h:1"]}}, "listen.listeners", "is listen.client"),
        ({"listen": {"listeners": ["TLS://h:1"]}}, "listen.listeners", "whose protocol is not known"),
        ({"listen": {"listeners": ["SSL:h:1"]}}, "listen.listeners", "not PROTOCOL://host:port"),
        ({"listen": {"listeners": ["SSL://h"]}}, "listen.listeners", "no host or no port"),
        ({"listen": {"listeners": ["SSL://h:1", "SSL://h:2"]}}, "listen.listeners", "more than once"),
        ({"listen": {"listeners": ["SSL://h:9092"]}}, "listen.listeners SSL", "port of listen.client"),
        (
            {"advertised": {"listeners": ["SSL://h:1"]}},
            "advertised.listeners",
            "which listen.listeners has not",
        ),
        ({"quorum": {"ssl": True}}, "tls.quorum.authorities_file", "is not set, and quorum.ssl needs it"),
        ({"security": {"inter_broker_protocol": "ssl"}}, "security.super_users", "names nobody"),
        ({"security": {"inter_broker_protocol": "tls"}}, "security.inter_broker_protocol", "secret or ssl"),
        ({"security": {"super_users": ["eve"]}}, "security.super_users", "has 'eve'"),
    ],
)
def test_a_wrong_or_half_finished_broker_is_refused(
    authority: Authority, sections: Sections, field: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        broker(authority, **sections)
    assert caught.value.field == field
    assert words in str(caught.value)


def spoil(key: str, path: Path, authority: Authority) -> str:
    """Make a bad file of a kind; returns what is said of it."""
    match key:
        case "missing":
            path.unlink()
            return "No such file"
        case "empty":
            path.write_text("")
            return "holds 0 bytes"
        case "open":
            path.chmod(0o640)
            return "is open to other users of the machine"
        case "folder":
            path.unlink()
            path.mkdir()
            return "is no regular file"
        case "other":
            path.write_bytes(authority.issue("another")[1].read_bytes())
            return "is not the key of the certificate"
        case _:
            path.write_text("no PEM")
            return "in PEM"


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        *(("certificate", kind) for kind in ("missing", "empty", "folder", "text")),
        *(("key", kind) for kind in ("missing", "empty", "open", "other", "text")),
        *(("authorities", kind) for kind in ("missing", "empty", "text")),
    ],
)
def test_a_bad_file_is_refused_and_later_keeps_the_old(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, kind: str
) -> None:
    certificate, key = authority.issue("own")
    files = {"certificate": tmp_path / "c.pem", "key": tmp_path / "c.key", "authorities": tmp_path / "ca.pem"}
    for name, source in (("certificate", certificate), ("key", key), ("authorities", authority.file)):
        files[name].touch(mode=0o600)
        files[name].write_bytes(source.read_bytes())
    settings = {f"{name}_file": str(path) for name, path in files.items()}
    config = node(authority, listen=SECURE, tls=settings)
    loaded = Certificates(config.tls, config.tls_used())
    before = loaded.expiries()
    words = spoil(kind, files[file], authority)
    with caplog.at_level(logging.WARNING, "quorate.tls"):
        loaded.reload()
        loaded.reload()
    # Once a change, not once a minute.
    assert [each.message for each in caplog.records if words in each.message] == [caplog.messages[0]]
    assert "what was read before stays in use" in caplog.text
    assert loaded.expiries() == before
    loaded.dialling("client")()
    with pytest.raises(ConfigError, match=f"tls.client.{file}_file") as caught:
        node(authority, listen=SECURE, tls=settings)
    assert words in str(caught.value)


def test_a_certificate_is_warned_of_before_it_expires(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue("soon", days=29)
    config = node(authority, listen=SECURE, tls=authority.settings("soon"))
    with caplog.at_level(logging.WARNING, "quorate.tls"):
        loaded = Certificates(config.tls, config.tls_used())
        loaded.reload()
    # Once a day.
    (told,) = caplog.messages
    assert "a certificate of tls.client expires in 29.0 days" in told
    authority.issue("soon", days=365)
    caplog.clear()
    loaded.reload()
    assert not [each for each in caplog.records if each.levelno == logging.WARNING]


def test_the_end_of_a_certificate_is_read_from_it(authority: Authority) -> None:
    certificate, _ = authority.issue("timed", days=20_000)
    found = not_after_s(certificate.read_bytes())
    # Beyond 2049, where the form of a time changes.
    assert found is not None
    assert found > 2_600_000_000
    both = certificate.read_bytes() + authority.file.read_bytes()
    assert not_after_s(both) == not_after_s(authority.file.read_bytes())
    assert not_after_s(b"") is None


def named(*parts: list[tuple[x509.ObjectIdentifier, str]]) -> bytes:
    """Return a certificate with this subject, as DER."""
    found = [x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part]) for part in parts]
    name, key, now = x509.Name(found), ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(x509.Name([])).serial_number(7)
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.public_key(key.public_key()).sign(key, SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ([[(NameOID.COMMON_NAME, "alice")]], "CN=alice"),
        (
            [
                [(NameOID.COUNTRY_NAME, "DE")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "B")],
                [(NameOID.LOCALITY_NAME, "L")],
                [(NameOID.ORGANIZATION_NAME, "O, Inc.")],
                [(NameOID.ORGANIZATIONAL_UNIT_NAME, "U")],
                [(NameOID.COMMON_NAME, "alice")],
            ],
            r"CN=alice,OU=U,O=O\, Inc.,L=L,ST=B,C=DE",
        ),
        (
            [[(NameOID.COMMON_NAME, "bob")], [(NameOID.EMAIL_ADDRESS, "bob@x.org")]],
            "1.2.840.113549.1.9.1=#1609626f6240782e6f7267,CN=bob",
        ),
        (
            [
                [(NameOID.DOMAIN_COMPONENT, "org")],
                [(NameOID.USER_ID, "u1")],
                [(NameOID.STREET_ADDRESS, "S 1")],
                [(NameOID.SERIAL_NUMBER, "77")],
            ],
            "2.5.4.5=#13023737,STREET=S 1,UID=u1,DC=org",
        ),
        ([[(NameOID.USER_ID, "z"), (NameOID.COMMON_NAME, "b")]], "CN=b+UID=z"),
        (
            [[(NameOID.ORGANIZATION_NAME, ' lead#\\"+;<>=trail ')]],
            r"O=\ lead\#\\\"\+\;\<\>\=trail\ ",
        ),
        ([[(NameOID.COMMON_NAME, "#hash \u00e9")]], "CN=\\#hash \u00e9"),
        (
            [[(NameOID.COMMON_NAME, "a  b")], [(x509.ObjectIdentifier("1.2.3.4.5"), "own")]],
            "1.2.3.4.5=#0c036f776e,CN=a  b",
        ),
        ([[(x509.ObjectIdentifier("2.999.1"), "v" * 200)]], "2.999.1=#0c81c8" + "76" * 200),
        ([], ""),
    ],
)
def test_subjects_are_written_as_java_does(subject: list[Any], text: str) -> None:
    """The texts were printed by X500Principal.getName of Java 17."""
    assert subject_of(named(*subject)) == text


def test_keys_are_made_for_their_owner_alone(authority: Authority) -> None:
    _, key = authority.issue("private")
    assert os.stat(key).st_mode & 0o777 == 0o600  # noqa: PTH116 - as a person looks
    assert os.stat(authority.folder / "ca.key").st_mode & 0o777 == 0o600  # noqa: PTH116
