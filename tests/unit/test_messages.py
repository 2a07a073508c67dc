"""The framing of messages between a worker and its children."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.model.outcomes import Lease, Outcome, RunReport
from quire.runtime.child.channel import (
    MAX_MESSAGE,
    BrokenMessage,
    Inbox,
    frame,
    pack,
    printable,
)
from quire.runtime.child.main import _encode

values = st.none() | st.booleans() | st.integers() | st.text()
messages = st.lists(st.dictionaries(st.text(), values | st.lists(values)), max_size=5)


@given(messages, st.integers(1, 64))
def test_messages_arrive_whole_however_the_bytes_are_cut(sent, size):
    stream = b"".join(map(pack, sent))
    inbox = Inbox()
    received = []
    for at in range(0, len(stream), size):
        received += inbox.feed(stream[at : at + size])
    assert received == sent


def test_leases_and_reports_travel_as_lists_and_come_back_equal():
    lease = Lease(1, 2, 3, "parse", '{"a":1}', 1, 3, 0, "default", 5, 0.5, 60.25, True, 1, 8)
    [message] = Inbox().feed(pack({"run": [lease]}))
    assert Lease._make(message["run"][0]) == lease
    ended = RunReport(1, 2, Outcome.DONE)
    assert RunReport._make(json.loads(json.dumps(ended))) == ended
    for each in (ended, ended._replace(outcome=Outcome.TRANSIENT, error='é\0"', retry_after=2.5)):
        assert json.loads(_encode(each, 0.125)) == list(each._replace(duration=0.125))


def test_a_length_beyond_the_limit_is_refused_at_once():
    with pytest.raises(BrokenMessage, match="at most"):
        Inbox().feed(struct.pack(">I", MAX_MESSAGE + 1))


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
def test_what_is_no_object_is_refused(body):
    with pytest.raises(BrokenMessage):
        Inbox().feed(frame(body))


def test_text_is_made_fit_for_a_database():
    assert printable("a\0b\udc80c é") == "a\\0b?c é"
