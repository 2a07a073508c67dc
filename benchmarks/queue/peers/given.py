"""What a run tells the programs of a queue, through the environment."""

import os

#: URL of an empty database, if the queue stores its jobs in one.
DATABASE = os.environ.get("PEERS_DATABASE", "")
#: URL of an empty Redis database, if the queue needs one.
BROKER = os.environ.get("PEERS_BROKER", "")
#: An empty folder.
FOLDER = os.environ.get("PEERS_FOLDER", "")
#: File to which jobs append their marks.
MARKS = os.environ.get("PEERS_MARKS", "")
#: Whether each worker process runs one job at a time, and the queue is told to recover fast.
IS_CRASH = os.environ.get("PEERS_CRASH") == "1"
