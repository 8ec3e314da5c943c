"""Verifies every page of database files, live or at rest, without the server.

    >>> import pagewarden
    >>> report = pagewarden.check("shop.sqlite")  # doctest: +SKIP
    >>> report.verdict  # doctest: +SKIP
    'intact'

Nothing is written to what is checked or packed. Damage is a result and never an exception; an exception means
that nothing could be looked at. What was not read is in no count, and makes a verdict ``incomplete``.
"""

from ._pagewarden import FORMATS, __version__
from ._check import Findings, Pages, check, findings, pages
from ._errors import (
    Error,
    IncompleteWarning,
    NotFoundError,
    NotPackedError,
    PermissionDeniedError,
    UnrecognisedError,
)
from ._pack import Pack, PackEntry, read
from ._packing import Packed, Reading, pack
from ._report import Finding, Report
from ._servers import (
    Comparison,
    Difference,
    TableChecksum,
    TableChecksums,
    TableComparison,
    checksum,
    compare,
)

__all__ = [
    "FORMATS",
    "Comparison",
    "Difference",
    "Error",
    "Finding",
    "Findings",
    "IncompleteWarning",
    "NotFoundError",
    "NotPackedError",
    "Pack",
    "PackEntry",
    "Packed",
    "Pages",
    "PermissionDeniedError",
    "Reading",
    "Report",
    "TableChecksum",
    "TableChecksums",
    "TableComparison",
    "UnrecognisedError",
    "__version__",
    "check",
    "checksum",
    "compare",
    "findings",
    "pack",
    "pages",
    "read",
]
