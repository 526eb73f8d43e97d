"""The cluster's own certificate authority and certificates, made with the openssl program."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from .shell import run

VALID_DAYS = "365"


class Authority:
    """A certificate authority in a folder; certificates are made once and kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.certificate("ca").exists():
            self._make_authority()
        if not self.service_account_public_key.exists():
            self._make_service_account_key()

    def certificate(self, name: str) -> Path:
        """File of a certificate."""
        return self._folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """File of a private key."""
        return self._folder / f"{name}.key"

    @property
    def service_account_key(self) -> Path:
        """Key that signs service-account tokens."""
        return self.key("service-account")

    @property
    def service_account_public_key(self) -> Path:
        """Key that checks service-account tokens."""
        return self._folder / "service-account.pub"

    def issue(self, name: str, subject: str, alternatives: Sequence[str] = ()) -> None:
        """Make a key and a certificate for clients and servers, unless they exist; names are like ``IP:10.0.0.1``."""
        if self.certificate(name).exists():
            return
        extensions = "extendedKeyUsage=clientAuth,serverAuth\n"
        if alternatives:
            extensions += f"subjectAltName={','.join(alternatives)}\n"
        (self._folder / f"{name}.extensions").write_text(extensions)
        self._make_key(name)
        request = run(["openssl", "req", "-new", "-key", self.key(name), "-subj", subject])
        command: list[str | Path] = ["openssl", "x509", "-req", "-days", VALID_DAYS, "-CAcreateserial"]
        command += ["-CA", self.certificate("ca"), "-CAkey", self.key("ca")]
        command += ["-extfile", self._folder / f"{name}.extensions"]
        certificate = run(command, stdin=request)
        self._publish(name, certificate)

    def kubeconfig(self, name: str, server: str) -> str:
        """A kubeconfig that holds all it needs, so that it can be copied; JSON, which YAML readers accept."""
        credentials = {
            "client-certificate-data": _encoded(self.certificate(name)),
            "client-key-data": _encoded(self.key(name)),
        }
        cluster = {"server": server, "certificate-authority-data": _encoded(self.certificate("ca"))}
        context = {"cluster": "gradientmail-test", "user": name}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "gradientmail-test", "cluster": cluster}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [{"name": "gradientmail-test", "context": context}],
            "current-context": "gradientmail-test",
        }
        return json.dumps(document, indent=1)

    def _make_key(self, name: str) -> None:
        run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.key(name)])

    def _make_authority(self) -> None:
        self._make_key("ca")
        subject = ["-subj", "/CN=gradientmail-test-authority", "-days", VALID_DAYS]
        self._publish("ca", run(["openssl", "req", "-x509", "-new", "-key", self.key("ca"), *subject]))

    def _make_service_account_key(self) -> None:
        run(["openssl", "genrsa", "-out", self.service_account_key, "2048"])
        public = run(["openssl", "rsa", "-in", self.service_account_key, "-pubout"])
        self.service_account_public_key.write_text(public)

    def _publish(self, name: str, certificate: str) -> None:
        """Write the certificate last and at once: its presence means that the key is complete."""
        temporary = self.certificate(name).with_suffix(".new")
        temporary.write_text(certificate)
        temporary.replace(self.certificate(name))


def write_private(file: Path, text: str) -> None:
    """Write a file that nobody but its owner can read."""
    file.touch(mode=0o600)
    file.write_text(text)


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
