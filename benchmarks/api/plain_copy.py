"""The API with one more route that writes the request body to a file, to compare uploads with."""

import os
import tempfile

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quire import settings
from quire.app import App
from quire.web.server import Server, bound, create

#: A path for which the API accepts large bodies.
PATH = "/documents/"


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
