"""What a user may choose about reading files, and nothing that belongs to one format alone."""

from typing import Literal, NamedTuple


class Options(NamedTuple):
    """How files are read; every field changes the text, so all of them are part of page keys."""

    parser: str = "auto"  # auto: the reader of the file's type; else the name of a plugin's
    ocr: Literal["auto", "always", "never"] = "auto"
    ocr_languages: tuple[str, ...] = ()  # kept for plugins; the built-in model reads them all
    row_size: int = 3000  # rows of a table that make one page
