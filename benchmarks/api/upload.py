"""Upload rate, compared with a plain copy through the same server.

`python -m benchmarks.api.upload` is that server: the API with one more route, which writes the
request body to a file.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.api.sizes import ApiSizes
from benchmarks.figures import Figure, at_least, percentile
from benchmarks.installation import Backend, Installation
from quire import settings
from quire.app import App
from quire.web.server import Server, bound, create

#: A path for which the API accepts large bodies.
PATH = "/documents/"
PIECE = 1 << 20


def measure(backend: Backend, sizes: ApiSizes) -> Iterator[Figure]:
    """Send random files to both, alternating, so that load affects both alike."""
    speeds: dict[str, list[float]] = {"upload": [], "plain": []}
    with backend.installation() as installation, _serving(installation) as http:
        for turn in range(sizes.upload_rounds + 1):
            for name, path in (
                ("upload", f"/api/documents?name=round-{turn}.bin"),
                ("plain", PATH),
            ):
                spent = _send(http, path, sizes.upload_bytes)
                if turn:  # the first round is a warm-up
                    speeds[name].append(sizes.upload_bytes / 1e6 / spent)
    fast, plain = (percentile(speeds[name], 0.5) for name in ("upload", "plain"))
    size = f"{sizes.upload_bytes >> 20} MiB"
    yield Figure("upload", fast, "MB/s", bare=plain, note=f"{size}, hashed, stored and registered")
    yield Figure("upload, share of a plain copy", fast / plain, "×", target=at_least(0.8))


def _send(http: httpx.Client, path: str, size: int) -> float:
    piece = os.urandom(PIECE)

    def body() -> Iterator[bytes]:
        for n in range(size // PIECE):
            yield n.to_bytes(8, "big") + piece[8:]

    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    began = time.perf_counter()
    answer = http.post(path, content=body(), headers=headers)
    spent = time.perf_counter() - began
    answer.raise_for_status()
    return spent


@contextlib.contextmanager
def _serving(installation: Installation) -> Iterator[httpx.Client]:
    chosen = {
        "HOME": installation.home,
        "DATABASE_URL": installation.url,
        "API_AUTH": "off",
        "API_REQUESTS_PER_MINUTE": 0,
    }
    program = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.api.upload"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **{f"QUIRE_{name}": str(value) for name, value in chosen.items()}},
    )
    try:
        url = (program.stdout.readline() if program.stdout else "").strip()
        with httpx.Client(base_url=url, timeout=60.0) as http:
            yield http
    finally:
        program.terminate()
        program.communicate()


async def plain(request: Request) -> Response:
    """Write the body to a temporary file and fsync it."""
    with tempfile.TemporaryFile(dir=os.environ["QUIRE_HOME"]) as file:
        async for piece in request.stream():
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return Response(status_code=201)


def main() -> None:
    """Serve on a free port and print the URL."""
    app = App(settings.load())
    api = create(app)
    api.router.routes.insert(0, Route(PATH, plain, methods=["POST"]))
    server = Server(api, bound("127.0.0.1", 0))
    print(server.url, flush=True)
    server.serve_until_told()
    app.close()


if __name__ == "__main__":
    main()
