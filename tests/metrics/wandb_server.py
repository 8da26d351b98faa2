"""A W&B server on this machine that takes what is sent to it: just enough for `wandb sync` and online runs.

W&B's own program reads an offline run's file and posts its records here, so what arrives is what
W&B's reader found in the file.
"""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

API_KEY = "a" * 40


class WandbServer:
    """Runs while its context lasts; ``history``, ``summary``, ``config`` and ``files`` are what arrived."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.config: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> WandbServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send W&B here."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": API_KEY}

    @property
    def summary(self) -> dict[str, Any]:
        """The run's final summary."""
        return json.loads(self.files["wandb-summary.json"])

    def answer(self, query: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL query."""
        name, variables = query.get("operationName") or "", query.get("variables") or {}
        if "UpsertBucket" in name:
            self.config = json.loads(variables.get("config") or "{}") or self.config
            project = {"id": "p", "name": "project", "entity": {"id": "e", "name": "entity"}}
            bucket = {"id": "b", "name": variables.get("name"), "displayName": "run", "project": project}
            return {"upsertBucket": {"bucket": {**bucket, "historyLineCount": 0}, "inserted": True}}
        if name == "CreateArtifact":
            artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": {"latestArtifact": {"id": "a"}}}
            return {"createArtifact": {"artifact": artifact}}
        if name == "CreateRunFiles":
            files = [{"name": each, "uploadUrl": f"{self.url}/upload/{each}"} for each in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        if "serverInfo" in query["query"]:
            return {"serverInfo": {"features": []}}
        return {}

    def stream(self, files: dict[str, Any]) -> None:
        """Lines of the run's history."""
        lines = files.get("wandb-history.jsonl", {"content": []})["content"]
        self.history += [json.loads(line) for line in lines]


def _handler(server: WandbServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            body = self._body()
            if self.path.endswith("/graphql"):
                self._reply({"data": server.answer(json.loads(body))})
            else:
                if self.path.endswith("/file_stream"):
                    server.stream(json.loads(body).get("files") or {})
                self._reply({})

        def do_PUT(self) -> None:
            server.files[self.path.removeprefix("/upload/")] = self._body()
            self._reply({})

        def do_GET(self) -> None:
            self._reply({})

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

        def _reply(self, item: dict[str, Any]) -> None:
            body = json.dumps(item).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
