"""Text of documents made safe: for markup, for file names."""

import html
import re
import unicodedata
from collections.abc import Iterable

# Neither XML nor a reader can do anything with these; the last ranges reverse the direction of what follows.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def printable(text: str) -> str:
    """Text without control characters."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escaped(text: str) -> str:
    """Text that stays text in HTML and XML, in elements and in attributes."""
    return html.escape(printable(text), quote=True)


def slugs(ids: Iterable[str]) -> list[str]:
    """A different name for each id, safe as a file name and as an anchor, close to the id."""
    taken: set[str] = set()
    result = []
    for text in ids:
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        base = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:80].strip("-") or "part"
        name, count = base, 1
        while name in taken:
            count += 1
            name = f"{base}-{count}"
        taken.add(name)
        result.append(name)
    return result
