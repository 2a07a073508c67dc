"""A plugin that watches: it notes each folder that a process opens, and how large the process is.

It changes nothing of what it watches. Lines are `pid, resident bytes, folder`.
"""

import os
import sys
from pathlib import Path
from typing import Any

import psutil

TRACE = Path(os.environ.get("QUIRE_HOME", ".")) / "folders.txt"


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "os.scandir" or "/crawl" not in str(arguments[0]):
        return
    resident = psutil.Process().memory_info().rss
    fd = os.open(TRACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{os.getpid()} {resident} {arguments[0]}\n".encode())
    os.close(fd)


sys.addaudithook(watch)
