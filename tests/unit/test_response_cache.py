"""Answers that took long are kept for a time that goes by how long they took."""

from quire.api.response_cache import ResponseCache


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_made_quickly_is_made_anew_and_what_takes_long_is_kept_for_a_while():
    watch = Watch()
    recent = ResponseCache(watch)
    made: list[float] = []

    def make(seconds: float) -> int:
        watch.now += seconds
        made.append(seconds)
        return len(made)

    assert [recent.get("quick", lambda: make(0.01)) for _ in range(2)] == [(1, 0.0), (2, 0.0)]
    assert recent.get("slow", lambda: make(2.0)) == (3, 0.0)
    watch.now += 5.0
    assert recent.get("slow", lambda: make(2.0)) == (3, 5.0)
    assert recent.get("other", lambda: make(0.01)) == (4, 0.0)
    watch.now += 15.01  # ten times as long as it took
    assert recent.get("slow", lambda: make(0.01)) == (5, 0.0)
    assert recent.get("slow", lambda: make(0.01)) == (6, 0.0)
    recent.get("dear", lambda: make(1_000.0))
    watch.now += 59.0
    assert recent.get("dear", lambda: make(1.0)) == (7, 59.0)
    watch.now += 2.0
    assert recent.get("dear", lambda: make(1.0)) == (8, 0.0)


def test_a_failure_is_not_kept():
    recent = ResponseCache()

    def fail() -> None:
        raise ValueError("no")

    for _ in range(2):
        try:
            recent.get("key", fail)
        except ValueError:
            continue
        raise AssertionError("it was kept")
