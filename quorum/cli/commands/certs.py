"""`quorate certs`: makes an authority for a cluster, and certificates that it signs.

Decides what is in them: keys on P-256, one subject CN=NAME, the names that are dialled, good for servers and
clients alike. Keeps nothing but the files. What makes certificates is an extra, imported by these actions
alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from quorum.errors import UsageError, remedy_for_os

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256

HELP = "make an authority for a cluster, and certificates"
DESCRIPTION = """\
Make what the [tls] tables of node.toml and broker.toml name. init makes an authority, DIR/ca.pem and
DIR/ca.key. issue makes a certificate that it signs, DIR/NAME.pem and DIR/NAME.key, for a server that is
dialled by the names --host and for a client alike; its subject is CN=NAME. Keys have mode 0600. ca.key
belongs on no server: whoever has it can be anybody.

issue over a certificate that is there replaces it; servers read it again within a minute, or on SIGHUP."""
EXAMPLES = """\
examples:
  quorate certs init pki
  quorate certs issue pki node-1 --host node-1.example --host 10.0.0.4
  quorate certs issue pki alice --days 30              for a client, which nobody dials
"""

CA_DAYS = 3650
DAYS_MAX = 36_500
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
#: clocks may differ by so much
_CLOCKS_DIFFER = timedelta(minutes=5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser("init", help="make an authority", allow_abbrev=False)
    issue = actions.add_parser("issue", help="make a certificate", allow_abbrev=False)
    for each, days in ((init, CA_DAYS), (issue, 365)):
        each.add_argument("dir", metavar="DIR", type=Path, help="where the files are")
        each.add_argument("--days", type=int, default=days, help=f"how long it is good (default: {days})")
    issue.add_argument("name", metavar="NAME", help="the subject is CN=NAME, the files NAME.pem and NAME.key")
    issue.add_argument(
        "--host",
        metavar="HOST",
        dest="hosts",
        action="append",
        default=[],
        help="a name or an address by which it is dialled; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the files.

    Returns:
        0.
    """
    if importlib.util.find_spec("cryptography") is None:
        raise UsageError("cryptography is not installed", "pip install 'quorate[certs]'")
    if not 1 <= arguments.days <= DAYS_MAX:
        raise UsageError(f"--days {arguments.days} is out of range", f"give 1 to {DAYS_MAX}")
    folder: Path = arguments.dir
    try:
        if arguments.action == "init":
            _init(folder, arguments.days)
        else:
            _issue(folder, arguments.name, arguments.hosts, arguments.days)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}", remedy_for_os(error)) from error
    return 0


def _init(folder: Path, days: int) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
        remedy = "name another folder, or remove ca.pem and ca.key"
        raise UsageError(f"{folder} has an authority already", remedy)
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder("Quorate authority", key, days, is_authority=True)
    certificate = builder.issuer_name(_subject("Quorate authority")).sign(key, _sha256())
    _write(folder, "ca", key, certificate)


def _issue(folder: Path, name: str, hosts: list[str], days: int) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not _NAME.fullmatch(name) or name == "ca":
        raise UsageError(f"{name!r} is no name for a certificate", "give letters, digits, dots and dashes")
    try:
        authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        signer = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except FileNotFoundError as error:
        if not (folder / "ca.pem").exists():
            raise UsageError(f"{folder} has no authority", f"quorate certs init {folder}") from error
        problem = f"{folder} has an authority, ca.pem, and not its key, ca.key, which signs"
        raise UsageError(problem, "put ca.key there, or make another authority in another folder") from error
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{folder} has a damaged authority: {error}", "name the folder of another"
        ) from error
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{folder}/ca.key is of another kind", f"quorate certs init {folder} makes one")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, key, days, is_authority=False).issuer_name(authority.subject)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(usage, critical=False).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    _write(folder, name, key, builder.sign(signer, _sha256()))


def _builder(
    name: str, key: EllipticCurvePrivateKey, days: int, *, is_authority: bool
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _sha256() -> SHA256:
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


def _subject(name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise UsageError(f"--host {host!r} is no name of a host", "give a name or an address") from None
        return x509.DNSName(host)


def _write(folder: Path, name: str, key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """Write both files; each is whole at every moment, and the key is never open to others."""
    from cryptography.hazmat.primitives import serialization as forms

    pem = forms.Encoding.PEM
    secret = key.private_bytes(pem, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    for file, content, mode in (
        (f"{name}.key", secret, 0o600),
        (f"{name}.pem", certificate.public_bytes(pem), 0o644),
    ):
        path, beside = folder / file, folder / f".{file}.new"
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as new:
            new.write(content)
        beside.replace(path)
        print(path)
