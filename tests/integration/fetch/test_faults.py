"""The same faults against the web, Drive, S3, GCS and Azure: one transfer bears them all."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.errors import FetchFailed, Gone, SourceRefused, Stopped
from quire.fetch.items import Fetched, Limits
from quire.fetch.transfer.part_file import note_path
from tests import servers
from tests.clouds import ACCOUNT, KEY, AzureServer, GoogleServer, service_account
from tests.disk import files_up_to
from tests.integration.fetch.fetch_places import (
    CHUNK,
    BucketPlace,
    CloudPlace,
    DrivePlace,
    FakeTime,
    Gate,
    Place,
    WebPlace,
    options,
    pdf,
    put_object,
)
from tests.servers import DriveServer, FileServer, Proxy

SIZE = CHUNK * 4 + 321


@pytest.fixture(params=["web", "drive", "s3", "gs", "az"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A place with one file of five chunks."""
    made: Place
    if request.param == "web":
        with FileServer() as web:
            made = WebPlace(web)
            made.put(pdf(SIZE))
            yield made
    elif request.param == "drive":
        with DriveServer() as drive:
            made = DrivePlace(drive, tmp_path)
            made.put(pdf(SIZE))
            yield made
    elif request.param == "gs":
        with GoogleServer() as google:
            made = CloudPlace(google, "gs", service_account(tmp_path))
            made.put(pdf(SIZE))
            yield made
    elif request.param == "az":
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        with AzureServer() as azure:
            made = CloudPlace(azure, "az")
            made.put(pdf(SIZE))
            yield made
    else:
        moto_url: str = request.getfixturevalue("moto_url")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        host, port = moto_url.removeprefix("http://").split(":")
        with Proxy(host, int(port)) as proxy:
            made = BucketPlace(proxy, moto_url, f"b-{uuid.uuid4().hex[:12]}")
            put_object(moto_url, made.bucket, "", b"")
            made.put(pdf(SIZE))
            yield made


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "scratch" / "one.part"


def test_a_file_comes_in_chunks_and_is_hashed_on_the_way(place: Place, part: Path):
    seen: list[int] = []
    chosen = options()
    fetched = place.source(chosen).fetch(
        place.item(chosen), part, lambda got, total: seen.append(got), lambda: None
    )
    assert part.read_bytes() == pdf(SIZE)
    assert fetched.size == SIZE
    assert fetched.sha256 == hashlib.sha256(pdf(SIZE)).hexdigest()
    assert fetched.md5 == hashlib.md5(pdf(SIZE)).hexdigest()  # noqa: S324
    assert "size" in fetched.checked
    assert "signature" in fetched.checked
    assert seen == sorted(seen)
    assert seen[-1] == SIZE
    starts = [each.range[0] for each in place.server.bytes_asked() if each.range]
    assert starts == [0, CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK]
    assert not note_path(part).exists()


def test_a_server_that_asks_to_wait_is_waited_for(place: Place, part: Path):
    time = FakeTime()
    place.server.faults = [servers.answer(429, retry_after="7")]
    place.fetch(part, options(time))
    assert time.waited == pytest.approx(7)
    assert part.read_bytes() == pdf(SIZE)


def test_five_failures_in_a_row_are_borne_for_each_chunk(place: Place, part: Path):
    time = FakeTime()
    fine = servers.Fault()
    five = [servers.answer(status) for status in (500, 502, 503, 408, 504)]
    place.server.faults = [*five, fine, *five, fine]
    place.fetch(part, options(time))
    assert time.waited == pytest.approx(2 * (2 + 4 + 8 + 16 + 32))
    assert part.read_bytes() == pdf(SIZE)


def test_the_sixth_failure_ends_the_run_and_keeps_what_has_arrived(place: Place, part: Path):
    time = FakeTime()
    chosen = options(time)
    place.server.faults = [servers.Fault()]
    place.server.always = servers.answer(503)
    with pytest.raises(FetchFailed, match=r"HTTP 503 from the server, 6 times in a row. 65,536 of"):
        place.fetch(part, chosen)
    assert time.waited == pytest.approx(62)
    place.server.always = None
    place.server.asked.clear()
    fetched = place.fetch(part, chosen)
    assert fetched.resumed_from == CHUNK
    assert place.server.bytes_asked()[0].range == (CHUNK, 2 * CHUNK - 1)
    assert part.read_bytes() == pdf(SIZE)


def test_a_long_wait_gives_the_worker_back(place: Place, part: Path):
    time = FakeTime()
    place.server.faults = [servers.answer(503, retry_after="3600")]
    with pytest.raises(FetchFailed, match="asks to wait 3600 s") as caught:
        place.fetch(part, options(time))
    assert caught.value.retry_after == 3600
    assert time.waited == 0


def test_a_cut_connection_goes_on_behind_what_has_arrived(place: Place, part: Path):
    place.server.faults = [servers.cut(1_000), servers.Fault(), servers.cut(0)]
    place.fetch(part, options(FakeTime()))
    assert part.read_bytes() == pdf(SIZE)
    starts = [each.range[0] for each in place.server.bytes_asked() if each.range]
    assert starts[1] == 1_000


@pytest.mark.parametrize("fault", [servers.stall(100), servers.trickle()], ids=["stall", "trickle"])
def test_the_wall_clock_of_a_chunk_ends_a_slow_one(place: Place, part: Path, fault: servers.Fault):
    place.server.faults = [fault]
    limits = Limits(chunk_bytes=CHUNK, chunk_seconds=0.5)
    place.fetch(part, options(limits=limits))
    assert part.read_bytes() == pdf(SIZE)
    assert len(place.server.bytes_asked()) == 6


def test_a_server_that_always_stalls_is_given_up(place: Place, part: Path):
    place.server.always = servers.stall(0)
    limits = Limits(chunk_bytes=CHUNK, chunk_seconds=0.2)
    begun = time.monotonic()
    with pytest.raises(FetchFailed, match="one chunk took too long, 6 times"):
        place.fetch(part, options(limits=limits))
    assert time.monotonic() - begun < 10


def test_a_stop_is_noticed_while_a_server_stalls(place: Place, part: Path):
    place.server.always = servers.stall(0)
    stop = threading.Event()
    chosen = options()
    item, source = place.item(chosen), place.source(chosen)
    threading.Timer(0.3, stop.set).start()
    begun = time.monotonic()
    with pytest.raises(Stopped):
        source.fetch(item, part, lambda got, total: None, Gate(Stopped("stopped"), stop))
    assert time.monotonic() - begun < 5


def test_a_lie_about_the_length_is_found_and_the_part_removed(place: Place, part: Path):
    place.server.always = servers.shorten(100)
    chosen = options(FakeTime(), limits=Limits(chunk_bytes=1 << 20))
    with pytest.raises(FetchFailed, match=rf"expected {SIZE:,} bytes, got {SIZE - 100:,}"):
        place.fetch(part, chosen)
    assert not part.exists()


def test_damaged_bytes_do_not_pass_their_checksum(place: Place, part: Path):
    place.server.faults = [servers.Fault(), servers.damage()]
    with pytest.raises(FetchFailed, match=r"checksum differs after download \(expected "):
        place.fetch(part, options(FakeTime()))
    assert not part.exists()
    assert not note_path(part).exists()


def test_bytes_of_two_versions_are_never_mixed(place: Place, part: Path):
    def swap(reply: servers.Reply) -> servers.Reply:
        place.put(pdf(SIZE, "z"))
        return reply

    place.server.faults = [servers.Fault(), servers.Fault(swap)]
    try:
        place.fetch(part, options(FakeTime()))
    except FetchFailed:
        assert not part.exists()
    else:
        assert part.read_bytes() == pdf(SIZE, "z")


def test_a_run_that_died_is_gone_on_with(place: Place, part: Path):
    chosen = options(FakeTime())
    item = place.item(chosen)

    def die_in_the_third_chunk(got: int, total: int | None) -> None:
        # Here, and not at the next check: on a busy machine a piece may be a whole chunk.
        if got > 2 * CHUNK:
            raise KeyError("died")

    with pytest.raises(KeyError):
        place.source(chosen).fetch(item, part, die_in_the_third_chunk, lambda: None)
    place.server.asked.clear()
    fetched = place.fetch(part, chosen, item)
    assert fetched.resumed_from == 2 * CHUNK
    assert part.read_bytes() == pdf(SIZE)
    assert fetched.sha256 == hashlib.sha256(pdf(SIZE)).hexdigest()
    assert min(each.range[0] for each in place.server.bytes_asked() if each.range) == 2 * CHUNK


def test_what_a_run_left_is_not_used_for_other_bytes(place: Place, part: Path):
    chosen = options(FakeTime())
    place.server.faults = [servers.Fault(), servers.Fault()]
    place.server.always = servers.answer(500)
    with pytest.raises(FetchFailed):
        place.fetch(part, chosen)
    place.server.always = None
    place.put(pdf(SIZE, "z"))
    fetched = place.fetch(part, chosen)
    assert part.read_bytes() == pdf(SIZE, "z")
    assert fetched.sha256 == hashlib.sha256(pdf(SIZE, "z")).hexdigest()


def test_a_redirect_to_a_private_address_is_refused(place: Place, part: Path):
    port = place.server.port
    place.server.always = servers.redirect(f"http://127.0.0.2:{port}/secret")
    with pytest.raises(SourceRefused, match=r"resolves to a private address \(127.0.0.2\)"):
        place.fetch(part, options())


def test_redirects_end(place: Place, part: Path):
    place.server.always = servers.redirect("?alt=media")
    with pytest.raises(SourceRefused, match="more than 5 redirects"):
        place.fetch(part, options())


def test_a_redirect_elsewhere_goes_without_credentials(place: Place, part: Path):
    with FileServer() as other:
        content = pdf(SIZE)
        elsewhere = other.put("/elsewhere.pdf", content)
        chosen = options()
        item = place.item(chosen)
        place.server.always = servers.redirect(elsewhere)
        place.fetch(part, chosen, item)
        assert part.read_bytes() == content
        assert all("authorization" not in each.headers for each in other.asked)


def test_a_file_that_is_gone_is_not_asked_for_again(place: Place, part: Path):
    place.server.always = servers.answer(404)
    with pytest.raises(Gone, match="HTTP 404"):
        place.fetch(part, options())
    assert len(place.server.bytes_asked()) == 1


def test_a_refusal_is_final(place: Place, part: Path):
    place.server.always = servers.answer(403)
    with pytest.raises(SourceRefused, match="access denied"):
        place.fetch(part, options())
    assert len(place.server.bytes_asked()) == 1


@pytest.mark.parametrize("reason", ["rateLimitExceeded", "userRateLimitExceeded"])
def test_a_rate_limit_of_google_is_waited_for(place: Place, part: Path, reason: str):
    time = FakeTime()
    place.server.faults = [servers.rate_limit(reason), servers.rate_limit(reason)]
    place.fetch(part, options(time))
    assert time.waited == pytest.approx(6)
    assert part.read_bytes() == pdf(SIZE)


def test_a_full_disk_in_mid_download_is_said_and_leaves_nothing(place: Place, part: Path):
    with (
        files_up_to(CHUNK + 100),
        pytest.raises(FetchFailed, match=r"cannot be written to .*The partial file was removed"),
    ):
        place.fetch(part, options())
    assert list(part.parent.iterdir()) == []


def test_a_file_above_the_limit_is_refused_before_a_byte_is_asked_for(place: Place, part: Path):
    chosen = options(max_bytes=SIZE - 1)
    with pytest.raises(SourceRefused, match="larger than the limit"):
        place.fetch(part, chosen)
    assert place.server.bytes_asked() == []


def test_all_in_all_a_transfer_has_an_end(place: Place, part: Path):
    time = FakeTime()
    limits = Limits(chunk_bytes=CHUNK, total_seconds=30)
    place.server.always = servers.answer(500)
    with pytest.raises(FetchFailed, match="took longer than the limit"):
        place.fetch(part, options(time, limits=limits))


def test_a_worker_that_was_given_up_cannot_spoil_the_bytes_of_its_heir(place: Place, part: Path):
    """The first run stands still in mid-chunk while a second one brings the whole file."""
    chosen = options()
    item = place.item(chosen)
    heir: list[Fetched] = []

    def progress(got: int, total: int | None) -> None:
        if got > CHUNK and not heir:
            heir.append(place.fetch(part, chosen, item))

    place.source(chosen).fetch(item, part, progress, lambda: None)
    assert heir[0].sha256 == hashlib.sha256(pdf(SIZE)).hexdigest()
    assert part.read_bytes() == pdf(SIZE)


def test_a_stop_is_noticed_while_a_failure_is_waited_for(place: Place, part: Path):
    place.server.always = servers.answer(429, retry_after="100")
    stop = threading.Event()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        stop.set()

    chosen = options(wait=wait)
    item = place.item(chosen)
    with pytest.raises(Stopped):
        gate = Gate(Stopped("stopped"), stop)
        place.source(chosen).fetch(item, part, lambda got, total: None, gate)
    assert waits == [0.25]
