"""Certificates for the SuperLink of a test network: an authority of its own, and what it signs.

Needs: veilsum

    python certificates.py --out network --host superlink

Writes `authority/ca.crt`, which SuperNodes and `flwr` trust, and `superlink/server.crt` and
`superlink/server.key`, which are the SuperLink's alone. The authority's own key is thrown away:
nobody can sign another certificate with it. They last thirty days. What is there already stays as
it is; in a real deployment the SuperLink has a certificate of an authority that its clients trust
anyway.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY = "authority/ca.crt"
CERTIFICATE, KEY = "superlink/server.crt", "superlink/server.key"
HERE = ("localhost", "127.0.0.1")
"""Names that a SuperLink's own programs call it by."""
_DAYS = 30


def write(out: Path, hosts: Sequence[str]) -> None:
    """Write all three files into a folder, unless they are there.

    Args:
        out: made if there is none.
        hosts: names or addresses that the SuperLink is called by, beside those of `HERE`.
    """
    if all((out / name).exists() for name in (AUTHORITY, CERTIFICATE, KEY)):
        return
    for each in (AUTHORITY, KEY):
        (out / each).parent.mkdir(parents=True, exist_ok=True)
    authority, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    name = _name("veilsum test authority")
    root = (
        _certificate(name, name, authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(_identifier(authority), critical=False)
        .sign(authority, hashes.SHA256())
    )
    names = [_called(each) for each in dict.fromkeys((*hosts, *HERE))]
    server = (
        _certificate(_name(hosts[0]), name, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority, hashes.SHA256())
    )
    (out / AUTHORITY).write_bytes(root.public_bytes(Encoding.PEM))
    (out / CERTIFICATE).write_bytes(server.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor = os.open(out / KEY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=_DAYS))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _called(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder")
    parser.add_argument(
        "--host", action="append", required=True, help="what the SuperLink is called; repeat it"
    )
    given = parser.parse_args(arguments)
    write(given.out, given.host)


if __name__ == "__main__":
    main()
