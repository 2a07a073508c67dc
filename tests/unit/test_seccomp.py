"""The filter of system calls, run by an interpreter: so also that of machines we do not have."""

from __future__ import annotations

import errno
import struct

import pytest

from quire.sandbox import seccomp

KILL, ALLOW = 0x80000000, 0x7FFF0000
REFUSED, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
PID = 4711
#: What the kernel calls each machine, and the numbers that a taken-over parser would want, as
#: `asm/unistd_64.h` and `asm-generic/unistd.h` have them.
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
WANTED = {
    "x86_64": {
        "socket": 41, "connect": 42, "socketpair": 53, "fork": 57, "vfork": 58, "execve": 59,
        "kill": 62, "rename": 82, "mkdir": 83, "unlink": 87, "chmod": 90, "ptrace": 101,
        "setuid": 105, "mount": 165, "tkill": 200, "unlinkat": 263, "unshare": 272,
        "perf_event_open": 298, "setns": 308, "process_vm_readv": 310, "memfd_create": 319,
        "bpf": 321, "execveat": 322, "userfaultfd": 323, "pidfd_send_signal": 424,
        "io_uring_setup": 425, "pidfd_open": 434, "openat2": 437,
    },
    "aarch64": {
        "mkdirat": 34, "unlinkat": 35, "mount": 40, "fchmodat": 53, "unshare": 97, "ptrace": 117,
        "kill": 129, "tkill": 130, "setuid": 146, "socket": 198, "socketpair": 199,
        "connect": 203, "execve": 221, "perf_event_open": 241, "setns": 268,
        "process_vm_readv": 270, "renameat2": 276, "memfd_create": 279, "bpf": 280,
        "execveat": 281, "userfaultfd": 282, "pidfd_send_signal": 424, "io_uring_setup": 425,
        "pidfd_open": 434, "openat2": 437,
    },
}  # fmt: skip
#: Arguments decide: number, arguments that are allowed, arguments that are not.
BY_ARGUMENT = {
    "x86_64": {"clone": 56, "ioctl": 16, "prctl": 157, "prlimit": 302, "tgkill": 234},
    "aarch64": {"clone": 220, "ioctl": 29, "prctl": 167, "prlimit": 261, "tgkill": 131},
}
ARGUMENTS = {
    "clone": ((0x00010000,), (0x11,)),  # a thread, a process
    "ioctl": ((0, 0x5401), (0, 0x5412)),  # is it a terminal, type into one
    "prctl": ((15,), (22,)),  # name a thread, change the filter
    "prlimit": ((0, 7, 0), (0, 7, 0x7F00_0000_0000)),  # ask, set
    "tgkill": ((PID,), (1,)),
}


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter of a machine says of a call, as the kernel runs it."""
    program = seccomp._program(seccomp._MACHINES[machine], PID)
    given = (*arguments, *[0] * (6 - len(arguments)))
    told = AUDIT[machine] if audit is None else audit
    data = struct.pack("<IIQ6Q", number, told, 0, *given)
    steps = list(struct.iter_unpack("HBBI", program))
    at = value = 0
    while True:
        operation, yes, no, operand = steps[at]
        at += 1
        if operation == 0x06:
            return int(operand)
        if operation == 0x20:
            [value] = struct.unpack_from("<I", data, operand)
            continue
        holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}
        at += yes if holds[operation] else no


@pytest.mark.parametrize("machine", AUDIT)
def test_what_is_listed_is_allowed_and_nothing_else(machine: str):
    allowed = set(seccomp.allowed(machine).values())
    special = set(BY_ARGUMENT[machine].values())
    assert not allowed & {*WANTED[machine].values(), *special}
    for number in range(700):
        if number not in special:
            expected = ALLOW if number in allowed else REFUSED if number <= 462 else UNKNOWN
            # The flags of clone3 cannot be seen; libraries fall back to clone.
            expected = UNKNOWN if number == 435 else expected
            assert verdict(machine, number) == expected, number


@pytest.mark.parametrize("machine", AUDIT)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_some_calls_are_allowed_for_what_they_ask_only(machine: str, name: str):
    number, (good, bad) = BY_ARGUMENT[machine][name], ARGUMENTS[name]
    assert verdict(machine, number, *good) == ALLOW
    assert verdict(machine, number, *bad) == REFUSED


@pytest.mark.parametrize("machine", AUDIT)
def test_calls_by_the_conventions_of_another_machine_end_the_box(machine: str):
    for audit in (*AUDIT.values(), 0x40000003, 0x40000028):  # also 32 bits of both
        if audit != AUDIT[machine]:
            assert verdict(machine, 0, audit=audit) == KILL


def test_the_other_convention_of_x86_64_is_not_known():
    """x32 marks its numbers by a bit, and has the same name for the machine."""
    for number in {*WANTED["x86_64"].values(), *seccomp.allowed("x86_64").values()}:
        assert verdict("x86_64", number | 0x40000000) == UNKNOWN
