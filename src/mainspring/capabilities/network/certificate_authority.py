"""A certificate authority for one session: its key never leaves this process, and only the sandbox
that has its certificate trusts it."""

from __future__ import annotations

import ssl
import tempfile
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mainspring.capabilities.network.rules import ipv4_address
from mainspring.core.clock import Clock

_BACKDATED = timedelta(days=1)  # for clocks that are behind
# Of a host's certificate: some programs refuse those of more than 398 days.
_VALIDITY = timedelta(days=300)
_MOST_CONTEXTS = 256  # TLS contexts in memory, one for each host


class CertificateAuthority:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Mainspring session")])
        self._certificate = (
            self._sign(self._name, self._key, years=10)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def certificate(self) -> bytes:
        """The certificate, in PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    def write_bundle(self, path: Path, system: bytes | None = None) -> None:
        """Write the certificates that the sandbox trusts: this machine's, and this authority."""
        bundle = system_ca_bundle() if system is None else system
        path.write_bytes(bundle.rstrip() + b"\n" + self.certificate)

    def context(self, host: str) -> ssl.SSLContext:
        """The TLS context for the server side of a connection to `host`."""
        if host not in self._contexts:
            if len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.clear()
            self._contexts[host] = self._new_context(host)
        return self._contexts[host]

    def _new_context(self, host: str) -> ssl.SSLContext:
        address = ipv4_address(host)
        name = x509.DNSName(host) if address is None else x509.IPAddress(IPv4Address(address))
        leaf = (
            self._sign(x509.Name([]), self._leaf_key)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        private = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with tempfile.TemporaryDirectory() as folder:  # OpenSSL only reads files
            file = Path(folder, "leaf.pem")
            file.touch(mode=0o600)
            file.write_bytes(leaf.public_bytes(Encoding.PEM) + private)
            context.load_cert_chain(file)
        return context

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, years: int = 0
    ) -> x509.CertificateBuilder:
        now = self._clock()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + _VALIDITY + timedelta(days=365 * years))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )


def system_ca_bundle() -> bytes:
    """The certificates that this machine trusts, in PEM."""
    place = ssl.get_default_verify_paths().cafile
    if place:  # not set on every system
        return Path(place).read_bytes()
    ca_certs = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(item) for item in ca_certs).encode()


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
