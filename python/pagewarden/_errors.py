"""Exceptions: nothing at all could be looked at."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Nothing could be looked at.

    ``kind`` is one of ``not_found``, ``permission_denied``, ``io``, ``unrecognised``, ``in_use``,
    ``changed``, ``damaged``, ``incomplete``, ``lost_write``, ``no_space``, ``refused``; of databases ``address`` (a URL
    that means nothing), ``secret`` (a password that could not be had), ``connect``, ``gone``,
    ``unsupported``, ``state`` too. ``path`` is what could not be opened; of a database its URL without
    the password.
    """

    def __init__(self, message: str, kind: str = "io", path: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.path = path

    def __reduce__(self):
        # Exceptions of executors travel to the driver.
        return (type(self), (self.args[0], self.kind, self.path))


class NotFoundError(Error, FileNotFoundError):
    """There is no such file or folder."""


class PermissionDeniedError(Error, PermissionError):
    """The system does not allow it to this user."""


class UnrecognisedError(Error, ValueError):
    """No known format, or not the part of a database that was asked for."""


class NotPackedError(Error):
    """No pack was made, because of what was found: it would be a copy that is believed and should not be.

    ``kind`` is ``damaged`` or ``incomplete``; ``report`` is the :class:`Report` of the check.
    ``keep_damaged=True`` packs it as it is.
    """

    def __init__(self, message: str, kind: str, path: str, report: Any) -> None:
        super().__init__(message, kind, path)
        self.report = report

    def __reduce__(self):
        return (type(self), (self.args[0], self.kind, self.path, self.report))


class IncompleteWarning(UserWarning):
    """Not everything could be looked at, so that an empty table of findings proves nothing."""


_CLASSES = {
    "not_found": NotFoundError,
    "permission_denied": PermissionDeniedError,
    "unrecognised": UnrecognisedError,
}


def error_of(kind: str, path: str, message: str) -> Error:
    """The exception for a failure."""
    return _CLASSES.get(kind, Error)(message, kind, path)
