"""A registry on loopback as Docker knows it: images of no layers, by tag and by digest."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


class FakeRegistry:
    """Use as a context manager. `push` puts an image under a name and tag."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, bytes]] = {}
        """media type and bytes by path"""
        self.seen: list[str] = []
        """method and path of every request"""

    def __enter__(self) -> "FakeRegistry":
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.registry = self
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def push(self, name: str, tag: str, note: str = "") -> str:
        """An index of one platform's image. The note makes it another one. Returns its digest."""
        config = {"mediaType": CONFIG, "digest": _digest(b"{}"), "size": 2}
        image = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []}
        digest, size = self._hold(name, MANIFEST, image)
        platform = {"architecture": "amd64", "os": "linux"}
        entry = {"mediaType": MANIFEST, "digest": digest, "size": size, "platform": platform}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        digest, _size = self._hold(name, INDEX, {**index, "annotations": {"note": note}})
        self.held[f"/v2/{name}/manifests/{tag}"] = self.held[f"/v2/{name}/manifests/{digest}"]
        return digest

    def _hold(self, name: str, media_type: str, what: dict[str, Any]) -> tuple[str, int]:
        data = json.dumps(what, indent=3).encode()
        self.held[f"/v2/{name}/manifests/{_digest(data)}"] = (media_type, data)
        return _digest(data), len(data)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: FakeRegistry


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        assert isinstance(self.server, Server)
        registry = self.server.registry
        registry.seen.append(f"{self.command} {self.path}")
        missing = ("application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
        kind, data = registry.held.get(self.path, missing)
        self.send_response(200 if self.path in registry.held else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", _digest(data))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
