"""Small HTTP servers on loopback, for tests that need a real connection to something other than an upstream."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """Reads requests and writes responses in one piece, and logs nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", "0")))

    def respond(self, status: int, content: bytes, **headers: str) -> None:
        """Send a response. The names in ``headers`` have underscores instead of hyphens."""
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def respond_json(self, status: int, value: Any) -> None:
        self.respond(status, json.dumps(value).encode(), content_type="application/json")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve with ``handler``, and yield the URL without a path."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
