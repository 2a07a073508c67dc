"""A server that only writes what it is sent to a file: what an upload is compared with."""

import os
import sys
import tempfile
from typing import Any

from fastapi import FastAPI

from quire.api.tailing import Tail
from quire.store.engine import Database
from quire.web.server import Server, bound


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """Write a body to a file, flush it, and forget it."""
    with tempfile.TemporaryFile(dir=sys.argv[1]) as file:
        while True:
            message = await receive()
            file.write(message.get("body", b""))
            if not message.get("more_body"):
                break
        file.flush()
        os.fsync(file.fileno())
    await send(
        {"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Serve on a free port, which is printed."""
    api = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    api.state.tail = Tail(Database.open("sqlite:///unused.db"), 1)
    api.mount("/", plain)
    server = Server(api, bound("127.0.0.1", 0))
    print(server.url, flush=True)
    server.serve_until_told()


if __name__ == "__main__":
    main()
