"""Protects every page: requires a session, checks CSRF tokens, renders errors as pages, and sets security headers."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlencode

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.auth.audit_log import act_as
from app.dashboard.error_messages import readable
from app.dashboard.session_cookie import COOKIE, CSRF_FIELD, CSRF_HEADER, GUEST_COOKIE, PATH, sessions_of, tokens_match
from app.dashboard.templating import page
from app.db.database import DatabaseUnavailableError
from app.errors import GatewayError
from app.identity import Operator

_log = structlog.stdlib.get_logger(__name__)

LARGEST_FORM = 8 * 1024 * 1024
"""The maximum size of a form, in bytes. It is large enough for documents pasted into the playground."""

_FORM = "application/x-www-form-urlencoded"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class _RefusedError(Exception):
    """The request is rejected. ``message`` is shown to the operator."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class _SignedOutError(Exception):
    """The request has no valid session."""


class OpenRoute(APIRoute):
    """A page that doesn't require a session. Changes still require the CSRF token of a form that was served to the same
    browser."""

    needs_operator: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                await self._admit(request)
                response = await handle(request)
            except _SignedOutError:
                response = _sign_in(request)
            except Exception as error:
                response = _error(request, error)
            _secure(response)
            return response

        return guarded

    async def _admit(self, request: Request) -> None:
        operator = await _session(request)
        if self.needs_operator:
            if operator is None:
                raise _SignedOutError
            operator.principal.check(self.endpoint)
        await _check_form(request, operator)


class DashboardRoute(OpenRoute):
    """A page that requires a session, which is available as ``request.state.operator``. The audit log attributes
    changes to the session's token or user. A POST must send the form field ``csrf``, or the header ``x-csrf-token`` if
    its body isn't a form.

    Every handler must declare its required role with ``app.identity.requires``. A handler without one responds with
    403.
    """

    needs_operator = True


async def _session(request: Request) -> Operator | None:
    """Return the request's session, if any, and attribute the request's changes to it."""
    cookie = request.cookies.get(COOKIE)
    request.state.operator = operator = await sessions_of(request).find(cookie) if cookie else None
    if operator is not None:
        act_as(operator.principal.actor)
    return operator


async def _check_form(request: Request, operator: Operator | None) -> None:
    if request.method not in ("GET", "HEAD"):
        nonce = request.cookies.get(GUEST_COOKIE)
        guest = sessions_of(request).guest(nonce) if nonce else None
        await _check_csrf(request, guest if operator is None else operator.csrf)


async def _check_csrf(request: Request, expected: str | None) -> None:
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise _RefusedError(403, "This request came from another site. Nothing was changed.")
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        raise _RefusedError(411, "The request has no Content-Length. Nothing was changed.")
    if int(length) > LARGEST_FORM:
        raise _RefusedError(413, f"The form is larger than {LARGEST_FORM // 1024 // 1024} MB. Nothing was changed.")
    given = request.headers.get(CSRF_HEADER)
    if given is None and request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
        field = (await request.form(max_fields=2_000)).get(CSRF_FIELD)
        given = field if isinstance(field, str) else None
    if given is None or expected is None or not tokens_match(given, expected):
        raise _RefusedError(403, "This form has expired. Nothing was changed. Go back, reload the page and try again.")


def _sign_in(request: Request) -> Response:
    """Redirect to the sign-in page, or return 401 if a script made the request."""
    if request.headers.get("sec-fetch-mode", "navigate") != "navigate":
        return JSONResponse({"error": "signed out"}, status_code=401)
    query = f"?{request.url.query}" if request.url.query else ""
    wanted = request.url.path + query if request.method == "GET" else f"{PATH}/"
    after = "" if wanted.rstrip("/") == PATH else "?" + urlencode({"next": wanted})
    return RedirectResponse(f"{PATH}/sign-in{after}", status_code=303)


def _error(request: Request, error: Exception) -> Response:
    match error:
        case _RefusedError():
            status, message = error.status, error.message
        case GatewayError():
            status, message = error.status, error.message
        case DatabaseUnavailableError():
            _log.warning("database_unavailable", path=request.url.path, error=str(error))
            status, message = (
                503,
                "The database is unavailable. The gateway may still serve requests; try again shortly.",
            )
        case RequestValidationError():
            first = error.errors()[0]
            status, message = 422, readable(first["msg"], ".".join(str(part) for part in first["loc"][1:]))
        case HTTPException():
            status, message = error.status_code, str(error.detail)
        case ClientDisconnect():
            return Response(status_code=499)
        case _:
            _log.error("unexpected_error", path=request.url.path, exc_info=error)
            status, message = 500, "Something went wrong. The gateway's log has the details."
    return page(request, "layout/error.html", status=status, title=HTTPStatus(status).phrase, message=message)


def _secure(response: Response) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
