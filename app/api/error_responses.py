"""Maps every error to an HTTP response in the format that the client expects: RFC 9457 problem JSON under ``/admin``,
Anthropic's format for its Messages API, and OpenAI's format everywhere else."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.db.database import DatabaseUnavailableError
from app.errors import AdminError, GatewayError, InvalidRequestError, UnauthorizedError, WrongKeyError
from app.policy_admin.policy_document import document_error
from app.protocols.anthropic_messages.errors import error_body

_log = structlog.stdlib.get_logger(__name__)


_MESSAGES = "/v1/messages"
_CLIENT_CLOSED_REQUEST = 499


class _UnavailableError(AdminError):
    status = 503
    title = "Service unavailable"


class _HttpError(AdminError):
    """An error raised by the framework, such as path not found or method not allowed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, status=status)
        self.title = HTTPStatus(status).phrase
        self.type = "invalid_request_error" if status < 500 else "server_error"


class _UnexpectedError(AdminError):
    status = 500
    title = "Internal server error"


def install_error_handlers(app: FastAPI) -> None:
    """Make ``app`` handle every exception. Clients see only the messages of GatewayError, never a traceback."""
    for kind, handler in _HANDLERS.items():
        app.exception_handler(kind)(handler)


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the response that the handlers from ``install_error_handlers`` would give."""
    handler = next(_HANDLERS[kind] for kind in type(error).__mro__ if kind in _HANDLERS)
    return await handler(request, error)


async def _gateway_error(request: Request, error: GatewayError) -> JSONResponse:
    return error_response(request, error)


async def _validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
    errors: Sequence[Mapping[str, Any]] = [
        {"loc": [part for part in item["loc"] if part != "body"], "msg": item["msg"]} for item in error.errors()
    ]
    problem = document_error(errors)
    if _is_admin(request):
        return _answer(request, problem)
    where = ".".join(str(part) for part in errors[0]["loc"])
    return _answer(request, InvalidRequestError(problem.message, param=where or None))


async def _http_error(request: Request, error: HTTPException) -> JSONResponse:
    return _answer(request, _HttpError(error.status_code, str(error.detail)), error.headers)


async def _database_unavailable(request: Request, error: DatabaseUnavailableError) -> JSONResponse:
    _log.warning("database_unavailable", path=request.url.path, error=str(error))
    return _answer(request, _UnavailableError("The database is unavailable. Try again."), {"Retry-After": "1"})


async def _client_gone(_request: Request, _error: ClientDisconnect) -> Response:
    """The client disconnected while sending the request, so nobody reads this response."""
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("unexpected_error", path=request.url.path, exc_info=error)
    return _answer(request, _UnexpectedError("Internal error. See the gateway's log."))


_HANDLERS: Mapping[type[Exception], Callable[..., Awaitable[Response]]] = {
    GatewayError: _gateway_error,
    RequestValidationError: _validation_error,
    HTTPException: _http_error,
    DatabaseUnavailableError: _database_unavailable,
    ClientDisconnect: _client_gone,
    Exception: _unexpected,
}


def error_response(request: Request, error: GatewayError) -> JSONResponse:
    """Return ``error`` in the format that the client expects."""
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthorizedError | WrongKeyError) else error.headers
    return _answer(request, error, headers)


def _answer(request: Request, error: GatewayError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    if not _is_admin(request):
        body = error_body(error) if request.url.path.rstrip("/") == _MESSAGES else error.body()
        return JSONResponse(body, status_code=error.status, headers=headers)
    problem = error if isinstance(error, AdminError) else _HttpError(error.status, error.message)
    return JSONResponse(
        problem.problem(), status_code=error.status, headers=headers, media_type="application/problem+json"
    )


def _is_admin(request: Request) -> bool:
    path = request.url.path
    return path == "/admin" or path.startswith("/admin/")
