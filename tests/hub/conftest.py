"""A Hub of our own on this machine: repositories of a few kilobytes, with its ways of saying no."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class FakeHub:
    """`files` by `org/name/file`; `refusals` by `org/name`: (status, the Hub's own code)."""

    files: dict[str, bytes] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sent: int = 0
    """Bytes of answers."""

    def answer(self, path: str, ranged: str) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of a request for a file, or a part of it."""
        repository, _, rest = path.strip("/").partition("/resolve/")
        file = rest.partition("/")[2]
        self.asked.append(f"{repository}/{file}")
        if repository in self.refusals:
            status, code = self.refusals[repository]
            return status, {"X-Error-Code": code} if code else {}, b""
        if not any(name.startswith(f"{repository}/") for name in self.files):
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        body = self.files.get(f"{repository}/{file}")
        if body is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        if not ranged:
            return 200, {}, body
        first, _, last = ranged.removeprefix("bytes=").partition("-")
        return 206, {}, body[int(first) : int(last) + 1]


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The Hub that huggingface_hub asks in this test."""
    from huggingface_hub import close_session, constants

    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = hub.answer(self.path, self.headers.get("Range", ""))
            self.send_response(status)
            for name, value in (*headers.items(), ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            hub.sent += len(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    close_session()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    _point_to(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield hub
    close_session()
    server.shutdown()
    server.server_close()
    thread.join()


def _point_to(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """huggingface_hub reads its address from the environment when it is imported, and keeps it in these."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")


@pytest.fixture
def no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub at an address where nobody listens."""
    import socket

    from huggingface_hub import close_session, constants

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    close_session()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    _point_to(monkeypatch, f"http://127.0.0.1:{port}")
