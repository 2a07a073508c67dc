"""Makes the boxes of a worker's children read with `poison_server`.

Loaded into the children of a worker only. A file in the home gives the job kinds other limits.
"""

import json
import os
from pathlib import Path

from quire.ingest import kinds
from quire.model.contracts import MARK
from quire.parse import boxed_reader

_limits = Path(os.environ["QUIRE_HOME"], "limits.json")
for _handler in (kinds.document, kinds.pages, kinds.swap):
    _given = json.loads(_limits.read_text()) if _limits.exists() else {}
    for _name, _value in {"backoff": 0.05, **_given}.items():
        object.__setattr__(getattr(_handler, MARK), _name, _value)

boxed_reader.SERVER = "tests.integration.ingest.poison_server"
