"""What a check found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import Any

#: Findings that a notebook shows.
_SHOWN = 20


@dataclass(frozen=True)
class Finding:
    """What is wrong with one page or file. The names are those of ``check --json``."""

    #: The target: the path as it was named; of a backup set ``REPOSITORY#LABEL``.
    path: str
    #: The file, relative to the target.
    file: str
    #: The engine's own page number.
    page: int | None
    #: The byte offset in ``file``.
    offset: int | None
    #: ``damage``, ``suspect`` or ``notice``.
    severity: str
    #: ``checksum``, ``torn``, ``misplaced`` ...: see docs/json.md.
    kind: str
    database: str | None = None
    object: str | None = None
    #: The checksum on the page, hexadecimal.
    stored: str | None = None
    #: The checksum of its content, hexadecimal.
    computed: str | None = None
    #: The evidence in words.
    detail: str | None = None
    #: What to do next.
    hint: str | None = None
    #: Where the bytes are stored in a backup repository.
    stored_file: str | None = None
    stored_offset: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The finding as a dictionary."""
        return asdict(self)


_FIELDS = frozenset(field.name for field in fields(Finding))


class Report:
    """What a check found, in the words of ``pagewarden check --json``."""

    def __init__(self, text: str, picture: str = "") -> None:
        self._text = text.rstrip("\n")
        self._picture = picture
        self._json: dict[str, Any] = json.loads(text)
        self._findings = [
            Finding(path=target["path"], **{k: v for k, v in one.items() if k in _FIELDS})
            for target in self.targets
            for one in target["findings"]
        ]

    @property
    def verdict(self) -> str:
        """``damaged``, ``incomplete``, ``suspect``, ``unprotected`` or ``intact``: the worst of all."""
        return self._json["verdict"]

    @property
    def targets(self) -> list[dict[str, Any]]:
        """Each database with its counts, as in the JSON."""
        return self._json["targets"]

    @property
    def pages(self) -> dict[str, int]:
        """Pages of all targets by what they count as; ``total`` is their sum."""
        sums: dict[str, int] = {}
        for target in self.targets:
            for name, count in target["pages"].items():
                sums[name] = sums.get(name, 0) + count
        return sums

    @property
    def findings(self) -> list[Finding]:
        """What is wrong, in the order of the files."""
        return self._findings

    @property
    def unread(self) -> list[dict[str, Any]]:
        """What could not be read, each with the ``path`` of its target. It is in no count."""
        return [{"path": t["path"], **one} for t in self.targets for one in t["unread"]]

    @property
    def notes(self) -> list[dict[str, Any]]:
        """Circumstances worth knowing, each with the ``path`` of its target."""
        return [{"path": t["path"], **one} for t in self.targets for one in t["notes"]]

    @property
    def failed(self) -> list[dict[str, str]]:
        """Targets that could not be opened: ``path`` and ``error``. They make it incomplete."""
        return self._json.get("failed", [])

    @property
    def bytes(self) -> int:
        """Bytes that were read."""
        return self._json["bytes"]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self._json["seconds"]

    def to_json(self) -> str:
        """The object that ``pagewarden check --json`` prints."""
        return self._text

    def __repr__(self) -> str:
        pages = self.pages
        counts = [f"{pages.get('total', 0):,} pages"]
        for name in ("damaged", "suspect", "undecided", "unverifiable", "unprotected"):
            if pages.get(name):
                counts.append(f"{pages[name]:,} {name}")
        for name, number in (
            ("findings", len(self.findings)),
            ("unread", len(self.unread)),
            ("failed", len(self.failed)),
        ):
            if number:
                counts.append(f"{number:,} {name}")
        return f"<pagewarden.Report {self.verdict}: {', '.join(counts)}>"

    def _repr_html_(self) -> str:
        columns = ("path", "file", "page", "severity", "kind", "object", "detail", "hint")
        head = "".join(f"<th>{name}</th>" for name in columns)
        cell = lambda value: "<td></td>" if value is None else f"<td>{escape(str(value))}</td>"
        rows = "".join(
            "<tr>" + "".join(cell(getattr(one, name)) for name in columns) + "</tr>"
            for one in self.findings[:_SHOWN]
        )
        table = f"<table><tr>{head}</tr>{rows}</table>" if rows else ""
        more = len(self.findings) - _SHOWN
        left = f"<p>and {more:,} more findings</p>" if more > 0 else ""
        failed = "".join(f"<p>{escape(one['error'])}</p>" for one in self.failed)
        return f"<p><b>{escape(repr(self)[1:-1])}</b></p>{self._picture}{failed}{table}{left}"
