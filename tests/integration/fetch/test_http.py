"""A file on the web: its name, servers of every kind, and the guard of the network."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.errors import BadInput, Damaged, FetchFailed, SourceRefused
from quire.fetch.items import Fetched, Item, Limits, SourceOptions
from quire.fetch.sources.registry import open_source
from quire.fetch.transfer.part_file import note_path
from tests import servers
from tests.integration.fetch.fetch_places import CHUNK, LOOPBACK, FakeTime, options, pdf
from tests.servers import FileServer
from tests.waiting import until

SIZE = CHUNK * 3 + 17


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as made:
        yield made


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "one.part"


def listed(url: str, chosen: SourceOptions) -> Item:
    [page] = open_source(url, chosen).pages(None)
    [item] = page.items
    return item


def fetch(url: str, part: Path, chosen: SourceOptions, item: Item | None = None) -> Fetched:
    source = open_source(url, chosen)
    item = item or listed(url, chosen)
    return source.fetch(item, part, lambda got, total: None, lambda: None)


@pytest.mark.parametrize(
    ("path", "said", "name"),
    [
        ("/a/report.pdf", "", "report.pdf"),
        ("/a/", "", "a"),
        ("/n%C3%A4chste%20Seite.pdf", "", "nächste Seite.pdf"),
        ("/download", 'attachment; filename="Plan \\"B\\".pdf"', 'Plan "B".pdf'),
        ("/download", "attachment; filename=plain.pdf", "plain.pdf"),
        ("/download", "attachment; filename=x; filename*=UTF-8''%E2%82%AC.pdf", "€.pdf"),
        ("/download", 'attachment; filename="../../etc/passwd"', ".._.._etc_passwd"),
    ],
)
def test_a_file_is_named_as_its_server_says(server: FileServer, path: str, said: str, name: str):
    from urllib.parse import unquote

    extra = {"content_disposition": said} if said else {}
    server.put(unquote(path), b"bytes", **extra)
    item = listed(server.url + path, options())
    assert item.name == name
    assert item.size == 5


def test_a_semicolon_is_part_of_the_address(server: FileServer, part: Path):
    url = server.put("/a;b=1/c;d.txt", b"the right one")
    server.put("/a;b=1/c", b"another")
    assert fetch(url + "?x=1;2", part, options()).size == len(b"the right one")
    assert server.asked[-1].path == "/a;b=1/c;d.txt"


def test_a_listing_tells_what_is_needed_to_see_a_change(server: FileServer):
    moment = "Thu, 01 Jan 1970 00:01:40 GMT"
    url = server.put("/a.txt", b"one", last_modified=moment, content_type="text/plain; x=y")
    before = listed(url, options())
    assert (before.mtime, before.media_type, before.size) == (100.0, "text/plain", 3)
    assert before.uri == url
    server.put("/a.txt", b"two")
    assert listed(url, options()).etag != before.etag
    source = open_source(url, options())
    [page] = source.pages(None)
    assert list(source.pages(page.cursor)) == []


@pytest.mark.parametrize(("ranges", "etags"), [(False, True), (False, False), (True, False)])
def test_plain_servers_serve_too(part: Path, ranges: bool, etags: bool):
    with FileServer(ranges=ranges, etags=etags) as server:
        url = server.put("/a.pdf", pdf(SIZE), content_type="application/pdf")
        server.faults = [servers.cut(CHUNK + 100), servers.cut(10)]
        fetched = fetch(url, part, options(FakeTime()))
        assert part.read_bytes() == pdf(SIZE)
        assert fetched.size == SIZE


def test_a_server_without_ranges_that_always_cuts_is_given_up(part: Path):
    with FileServer(ranges=False) as server:
        url = server.put("/a.pdf", pdf(SIZE))
        server.always = servers.cut(2 * CHUNK)
        time = FakeTime()
        with pytest.raises(FetchFailed, match="6 times in a row"):
            fetch(url, part, options(time))
        assert 6 <= len(server.bytes_asked()) <= 8  # those that came further, then six


@pytest.mark.parametrize("ranges", [True, False])
def test_an_empty_file_is_a_file(part: Path, ranges: bool):
    with FileServer(ranges=ranges) as server:
        url = server.put("/empty.txt", b"")
        fetched = fetch(url, part, options())
        assert fetched.size == 0
        assert part.read_bytes() == b""


def swap(server: FileServer, letter: str) -> servers.Fault:
    """Answer once more with the old bytes, then have others."""

    def change(reply: servers.Reply) -> servers.Reply:
        server.put("/a.pdf", pdf(SIZE, letter), repr_digest="")
        return reply

    return servers.Fault(change)


@pytest.mark.parametrize("guards", [True, False], ids=["if-range", "etag only"])
def test_a_change_between_chunks_begins_again(part: Path, guards: bool):
    with FileServer(guards=guards) as server:
        url = server.put("/a.pdf", pdf(SIZE), repr_digest="")
        server.faults = [swap(server, "y")]
        etag = listed(url, options()).etag
        fetch(url, part, options(FakeTime()))
        assert part.read_bytes() == pdf(SIZE, "y")
        if guards:
            assert [each.headers.get("if-range") for each in server.bytes_asked()] == [None, etag]


def test_a_file_that_changes_again_and_again_is_left_for_later(part: Path):
    with FileServer(guards=False) as server:
        url = server.put("/a.pdf", pdf(SIZE), repr_digest="")
        server.faults = [swap(server, "y"), servers.Fault(), swap(server, "z")]
        with pytest.raises(FetchFailed, match="changed while it was read, twice"):
            fetch(url, part, options(FakeTime()))
        assert not part.exists()


def test_a_page_in_the_place_of_a_pdf_is_refused(server: FileServer, part: Path):
    url = server.put("/a.pdf", b"<html>please log in</html>", content_type="application/pdf")
    with pytest.raises(Damaged, match=r"expected application/pdf .* got b'<html>please"):
        fetch(url, part, options())
    assert not part.exists()


def test_a_file_that_turns_out_larger_is_refused_on_the_way(server: FileServer, part: Path):
    url = server.put("/a.pdf", pdf(SIZE))
    item = listed(url, options())._replace(size=None)
    with pytest.raises(SourceRefused, match="larger than the limit"):
        fetch(url, part, options(max_bytes=SIZE - 1), item)
    assert not part.exists()


def test_a_password_in_a_url_is_sent_and_not_kept(server: FileServer, part: Path):
    server.put("/a.pdf", pdf(SIZE))
    url = f"http://ada:secret@127.0.0.1:{server.port}/a.pdf"
    item = listed(url, options())
    assert item.uri == server.url + "/a.pdf"
    fetch(url, part, options(), item)
    assert {each.headers["authorization"] for each in server.asked} == {"Basic YWRhOnNlY3JldA=="}


def test_loopback_is_refused_unless_it_is_allowed(server: FileServer):
    url = server.put("/a.pdf", b"x")
    for place in (url, url.replace("127.0.0.1", "localhost"), url.replace("127.0.0.1", "127.1")):
        with pytest.raises(SourceRefused, match="resolves to a private address"):
            listed(place, SourceOptions())
    assert server.asked == []
    assert "private address" in open_source(url).doctor()[0]
    assert "can be read" in open_source(url, options()).doctor()[0]


def test_a_name_is_looked_up_once_and_that_address_is_used(
    server: FileServer, part: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        if host != "site.test":
            return real(host, port, *rest, **named)
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return real(address, port, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    server.put("/a.pdf", pdf(SIZE))
    url = f"http://site.test:{server.port}/a.pdf"
    assert listed(url, options()).size == SIZE
    with pytest.raises(
        SourceRefused, match=r"site.test: resolves to a private address \(127.0.0.2\)"
    ):
        listed(url, options())
    assert len(asked) == 2
    assert server.asked[0].headers["host"] == f"site.test:{server.port}"


def test_other_schemes_are_not_followed(server: FileServer, part: Path):
    url = server.put("/a.pdf", b"x")
    server.always = servers.redirect("file:///etc/passwd")
    with pytest.raises(SourceRefused, match="redirects to file:"):
        fetch(url, part, options())


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://host:port/"])
def test_what_is_no_url_is_refused(url: str):
    with pytest.raises(BadInput):
        open_source(url)


def test_a_host_that_does_not_answer_is_waited_for(part: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        time = FakeTime()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/a.pdf"
        with pytest.raises(FetchFailed, match="the connection failed"):
            listed(url, options(time))
        assert time.waited == pytest.approx(62)


def test_a_listing_bears_failures_as_a_transfer_does(server: FileServer, tmp_path: Path):
    url = server.put("/a.pdf", b"x")
    server.is_for_bytes = lambda asked: True  # type: ignore[method-assign]
    server.faults = [servers.answer(503), servers.answer(429, retry_after="5")]
    time = FakeTime()
    assert listed(url, options(time)).size == 1
    assert time.waited == pytest.approx(7)


PROGRAM = """
import sys
from pathlib import Path
from quire.fetch.items import Limits, SourceOptions
from quire.fetch.sources.registry import open_source

options = SourceOptions(allow_networks=("127.0.0.1/32",), limits=Limits(chunk_bytes=65536))
source = open_source(sys.argv[1], options)
[page] = source.pages(None)
source.fetch(page.items[0], Path(sys.argv[2]), lambda got, total: None, lambda: None)
"""


def test_a_process_that_was_killed_is_gone_on_with(server: FileServer, part: Path):
    url = server.put("/a.pdf", pdf(SIZE))
    server.faults = [servers.Fault(), servers.Fault()]
    server.always = servers.stall(50)
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, url, str(part)])
    until(lambda: part.exists() and part.stat().st_size == 2 * CHUNK + 50)
    program.send_signal(signal.SIGKILL)
    program.wait()
    server.always = None
    server.asked.clear()
    fetched = fetch(url, part, options())
    assert fetched.resumed_from == 2 * CHUNK
    assert part.read_bytes() == pdf(SIZE)
    assert not note_path(part).exists()


#: Without bytecode, which would be cut off in the cache of all tests.
LIMITED = (
    "import resource, sys; sys.dont_write_bytecode = True; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))"
)


def test_a_file_that_the_system_does_not_allow_is_said_in_words(server: FileServer, part: Path):
    url = server.put("/a.pdf", pdf(SIZE))
    command = [sys.executable, "-c", LIMITED + PROGRAM, url, str(part)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "the file would be larger than this system allows" in done.stderr
    assert not part.exists()


def test_the_default_limits_are_those_of_the_design():
    limits = Limits()
    assert limits.chunk_bytes == 8 * 1024 * 1024
    assert limits.chunk_seconds == 120
    assert limits.delays == (2, 4, 8, 16, 32)
    assert limits.redirects == 5
    assert LOOPBACK


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path):
    with FileServer() as server:
        secure(server, tmp_path)
        server.put("/a.pdf", b"x")
        url = f"https://127.0.0.1:{server.port}/a.pdf"
        with pytest.raises(SourceRefused, match="certificate is not trusted"):
            listed(url, options(FakeTime()))


def test_the_certificate_is_that_of_the_name_though_the_address_is_used(tmp_path: Path, part: Path):
    with FileServer() as server:
        secure(server, tmp_path)
        server.put("/a.pdf", pdf(SIZE))
        url = f"https://localhost:{server.port}/a.pdf"
        trusting = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "server.pem")}
        command = [sys.executable, "-c", PROGRAM, url, str(part)]
        subprocess.run(command, env=trusting, check=True)
        assert part.read_bytes() == pdf(SIZE)
        # The certificate does not name the address itself.
        command[-2] = url.replace("localhost", "127.0.0.1")
        done = subprocess.run(command, env=trusting, capture_output=True, text=True)
        assert "certificate is not trusted" in done.stderr


def secure(server: FileServer, folder: Path) -> None:
    """Give a server a certificate that it signed itself."""
    import datetime
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(pem, plain, serialization.NoEncryption()) + made.public_bytes(pem)
    (folder / "server.pem").write_bytes(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.encrypt(context)
