"""Which engines of SQLite are safe to write a WAL with from several processes."""

import pytest

from quire.store.db.sqlite import is_wal_safe, sqlite_module


@pytest.mark.parametrize(
    ("version", "is_safe"),
    [
        ((3, 7, 0), False),
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 44, 9), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 0), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), False),
        ((3, 52, 1), True),
        ((3, 53, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_an_engine_with_the_fix_is_safe_and_one_without_is_not(version, is_safe):
    assert is_wal_safe(version) is is_safe


def test_the_engine_in_use_has_a_version():
    assert sqlite_module().sqlite_version_info >= (3, 38, 0)
