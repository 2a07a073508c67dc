"""The clocks."""

import os
import subprocess
import sys

from quire.clock import FakeClock, SystemClock, boot_id, own_pid_start, pid_start


def test_a_fake_clock_stands_still_until_it_is_moved():
    clock = FakeClock(wall=100.0, lease=5.0)
    assert clock.now() == clock.now() == (100.0, 5.0)
    clock.advance(2.5)
    assert clock.now() == (102.5, 7.5)


def test_a_jump_of_the_wall_clock_leaves_the_lease_clock_alone():
    clock = FakeClock(wall=100.0, lease=5.0)
    clock.jump(-50.0)
    assert clock.now() == (50.0, 5.0)


def test_the_clocks_of_this_machine_go_forward():
    clock = SystemClock()
    first, second = clock.now(), clock.now()
    assert second.lease >= first.lease
    assert first.wall > 1_600_000_000


def test_a_boot_has_one_name():
    assert boot_id() == boot_id() != ""


def test_a_process_has_a_start_that_tells_its_lives_apart():
    if sys.platform != "linux":
        assert pid_start(os.getpid()) == own_pid_start()
        return
    assert pid_start(os.getpid()) == own_pid_start() != ""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert pid_start(ended.pid) == ""
