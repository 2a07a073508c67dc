"""The system calls that a boxed process may make; every other one fails with EPERM.

A list of what is allowed, not of what is refused: the kernel gains dangerous calls (io_uring opens
sockets without `socket`) faster than a list of refusals follows. What opens sockets, starts or
inspects processes, changes files, credentials or namespaces is not on it. Calls that this list is
too old to know fail with ENOSYS, on which libraries fall back to older ones.
"""

import ctypes
import errno
import os
import platform
import struct
from typing import NamedTuple

#: Name → number on x86-64 and on aarch64, where many older calls do not exist.
_ALLOWED = """
read:0/63 write:1/64 close:3/57 fstat:5/80 lseek:8/62 mmap:9/222 munmap:11/215 mprotect:10/226
futex:202/98 brk:12/214 madvise:28/233 mremap:25/216 pread64:17/67 openat:257/56 newfstatat:262/79
readv:19/65 preadv:295/69 preadv2:327/286 writev:20/66 close_range:436/436 dup:32/23 dup2:33/-
dup3:292/24 fcntl:72/25 open:2/- stat:4/- lstat:6/- statx:332/291 statfs:137/43 fstatfs:138/44
access:21/- faccessat:269/48 faccessat2:439/439 readlink:89/- readlinkat:267/78 getcwd:79/17
getdents64:217/61 fadvise64:221/223 poll:7/- ppoll:271/73 select:23/- pselect6:270/72
epoll_create1:291/20 epoll_ctl:233/21 epoll_wait:232/- epoll_pwait:281/22 eventfd2:290/19
pipe2:293/59 mincore:27/232 membarrier:324/283 get_mempolicy:239/236
set_robust_list:273/99 get_robust_list:274/100 rseq:334/293 set_tid_address:218/96 gettid:186/178
getpid:39/172 getppid:110/173 getuid:102/174 geteuid:107/175 getgid:104/176 getegid:108/177
getpgrp:111/- getpgid:121/155 getgroups:115/158 sched_yield:24/124 sched_getaffinity:204/123
sched_getparam:143/121 sched_getscheduler:145/120 sched_get_priority_max:146/125
sched_get_priority_min:147/126 getcpu:309/168 getpriority:140/141 rt_sigaction:13/134
rt_sigprocmask:14/135 rt_sigreturn:15/139 rt_sigpending:127/136 rt_sigtimedwait:128/137
sigaltstack:131/132 restart_syscall:219/128 exit:60/93 exit_group:231/94 clock_gettime:228/113
clock_getres:229/114 clock_nanosleep:230/115 nanosleep:35/101 gettimeofday:96/169 time:201/-
times:100/153 getrusage:98/165 sysinfo:99/179 uname:63/160 getrandom:318/278 arch_prctl:158/-
getrlimit:97/163
"""
_LAST_KNOWN = 462  # higher numbers are newer than this list

_CLONE_THREAD = 0x00010000
_TERMINAL_QUESTION, _CLOSE_ON_EXEC, _NON_BLOCKING = 0x5401, 0x5451, 0x5421  # of ioctl
_SET_NAME, _GET_NAME, _NAME_MEMORY = 15, 16, 0x53564D41  # of prctl

_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_SET_MODE_FILTER, _NO_NEW_PRIVILEGES, _SECCOMP = 2, 38, 22


class _Machine(NamedTuple):
    column: int  # of _ALLOWED
    audit: int  # what the kernel calls this architecture
    clone: int
    clone3: int
    ioctl: int
    prctl: int
    prlimit: int
    tgkill: int


_MACHINES = {
    "x86_64": _Machine(0, 0xC000003E, 56, 435, 16, 157, 302, 234),
    "aarch64": _Machine(1, 0xC00000B7, 220, 435, 29, 167, 261, 131),
}


def is_supported() -> bool:
    """Tell whether this kernel filters system calls, and the list knows this architecture."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        return False
    # A filter at address 0 is a bad address to a kernel that has filters.
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_SECCOMP, _SET_MODE_FILTER, 0, 0, 0)
    return ctypes.get_errno() == errno.EFAULT


def restrict() -> None:
    """Filter the system calls of this thread and those it starts, for ever."""
    program = _program(_MACHINES[platform.machine()], os.getpid())
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    pointer = ctypes.create_string_buffer(header, len(header))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if library.prctl(_SECCOMP, _SET_MODE_FILTER, ctypes.byref(pointer), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp filter")


def allowed(machine: str) -> dict[str, int]:
    """Return the system calls that are allowed with any argument."""
    column = _MACHINES[machine].column
    listed = (each.partition(":") for each in _ALLOWED.split())
    found = {name: numbers.split("/")[column] for name, _, numbers in listed}
    return {name: int(number) for name, number in found.items() if number != "-"}


def _program(machine: _Machine, pid: int) -> bytes:
    """Assemble the filter; each condition is followed by what is done where it holds."""
    refused, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    name = next(each for each, known in _MACHINES.items() if known is machine)
    code = [_load(_ARCH_AT), *_unless(_EQUAL, machine.audit, _KILL), _load(_NUMBER_AT)]
    for number in allowed(name).values():
        code += _when(_EQUAL, number, _ALLOW)
    code += _when(_EQUAL, machine.clone3, unknown)  # its flags cannot be seen: use clone
    code += _when(_AT_LEAST, _LAST_KNOWN + 1, unknown)
    arguments = {
        machine.clone: [_argument(0), *_when(_ANY_BIT, _CLONE_THREAD, _ALLOW)],
        machine.ioctl: _one_of(1, _TERMINAL_QUESTION, _CLOSE_ON_EXEC, _NON_BLOCKING),
        machine.prctl: _one_of(0, _SET_NAME, _GET_NAME, _NAME_MEMORY),
        machine.tgkill: _one_of(0, pid),  # a process may end itself
        machine.prlimit: [  # asking, not setting: there is no new limit
            _argument(2), *_unless(_EQUAL, 0, refused),
            _load(_ARGUMENTS_AT + 20), *_when(_EQUAL, 0, _ALLOW),
        ],
    }  # fmt: skip
    for number, checks in arguments.items():
        body = [*checks, _return(refused)]
        code += [_jump(_EQUAL, number, 0, len(body)), *body]
    return b"".join([*code, _return(refused)])


def _instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _load(at: int) -> bytes:
    return _instruction(_LOAD, 0, 0, at)


def _argument(number: int) -> bytes:
    return _load(_ARGUMENTS_AT + 8 * number)  # its lower half


def _jump(test: int, value: int, yes: int, no: int) -> bytes:
    return _instruction(test, yes, no, value)


def _return(action: int) -> bytes:
    return _instruction(_RETURN, 0, 0, action)


def _when(test: int, value: int, action: int) -> list[bytes]:
    return [_jump(test, value, 0, 1), _return(action)]


def _unless(test: int, value: int, action: int) -> list[bytes]:
    return [_jump(test, value, 1, 0), _return(action)]


def _one_of(argument: int, *values: int) -> list[bytes]:
    return [_argument(argument), *(step for each in values for step in _when(_EQUAL, each, _ALLOW))]
