"""Serves the configured judge over HTTP, for remote gateways.

It uses the protocol in ``judges.cross_encoder.remote.groundlane_protocol``.

Any ASGI server can run it: ``uvicorn --factory groundlane_server.judge_server:build_app``. For Ray Serve, use
``groundlane_server.ray_serve``.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hmac import compare_digest
from http import HTTPStatus
from typing import Final

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.judge_runtime.remote_access import judge_access
from app.judge_runtime.stack import JudgeStack
from app.observability import configure_logging
from app.settings import Settings, SettingsError, load_settings
from judges.call_recording import recording
from judges.cross_encoder import open_scorer, spec_languages, spec_stages
from judges.cross_encoder.remote.groundlane_protocol import info_response, judge_response, parse_judge_request
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, PairScorer

_PAIRS: Final = 64
"""Maximum number of pairs per request."""
_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_NOT_SERVED: Final = frozenset({"http", "none"})

Handler = Callable[[Request], Awaitable[Response]]


def build_app() -> Starlette:
    """Build the application for one process, with settings from the environment. Raises SettingsError."""
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    return judge_app(settings)


def judge_app(settings: Settings) -> Starlette:
    """Build the application, whose lifespan loads and closes the judge. It serves the cross-encoder from ``settings``,
    or a cascade of several, with the configured threads, queue limit and cache. If a judge API key is set, callers must
    send it.

    Raises SettingsError if the settings name no judge or a remote judge.
    """
    judge = JudgeStack(settings, _open(settings)).scorer
    if judge is None:
        raise SettingsError("GROUNDLANE_JUDGE: no judge to serve")
    key = settings.judge_api_key.get_secret_value() if settings.judge_api_key else None
    server = _Server(judge, spec_languages(settings.judge))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await judge.start()
        await server.read_tokenizer()
        try:
            yield
        finally:
            await judge.aclose()

    return Starlette(
        routes=[
            Route("/healthz", _alive),
            Route("/info", _guarded(server.info, key)),
            Route("/tokenizer", _guarded(server.tokenizer, key)),
            Route("/judge", _guarded(server.judge, key), methods=["POST"]),
        ],
        lifespan=lifespan,
    )


class _Server:
    def __init__(self, judge: PairScorer, languages: frozenset[str] | None) -> None:
        self._judge = judge
        self._languages = languages
        self._described = ""
        self._tokenizer: bytes | None = None
        self._digest: str | None = None

    async def read_tokenizer(self) -> None:
        """Read the tokenizer of the loaded judge. In a cascade, the tokenizer may change when a different judge becomes
        available."""
        if self._described != (name := self._judge.name):
            self._tokenizer, self._digest = await asyncio.to_thread(_tokenizer, self._judge)
            self._described = name

    async def info(self, _request: Request) -> Response:
        await self.read_tokenizer()
        languages = self._languages or getattr(self._judge, "languages", None)
        return JSONResponse(info_response(self._judge, batch=_PAIRS, languages=languages, tokenizer=self._digest))

    async def tokenizer(self, _request: Request) -> Response:
        if self._tokenizer is None:
            return _refused(HTTPStatus.NOT_FOUND, "this judge has no tokenizer file")
        return Response(self._tokenizer, media_type="application/json")

    async def judge(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return _refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body exceeds the limit of {_MAX_BODY_BYTES} bytes"
            )
        try:
            # This doesn't use orjson, which rejects lone surrogates. A judge must accept them.
            pairs = parse_judge_request(json.loads(body), batch=_PAIRS)
        except (ValueError, RecursionError) as error:
            told = error if type(error) is ValueError else "the body is not JSON"
            return _refused(HTTPStatus.BAD_REQUEST, str(told))
        calls: list[LlmCall] = []
        try:
            with recording(calls.append):
                scores = await self._judge.score(pairs)
        except JudgeOverloadedError:
            return _refused(HTTPStatus.TOO_MANY_REQUESTS, "too many pairs are queued", {"Retry-After": "1"})
        except JudgeUnavailableError as error:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except JudgeError as error:
            return _refused(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        return Response(orjson.dumps(judge_response(scores, self._judge.name, calls)), media_type="application/json")


async def _alive(_request: Request) -> Response:
    return JSONResponse({"status": "alive"})


def _guarded(handler: Handler, key: str | None) -> Handler:
    if key is None:
        return handler
    expected = f"Bearer {key}".encode()

    async def checked(request: Request) -> Response:
        given = request.headers.get("authorization", "").encode("latin-1")
        if not compare_digest(given, expected):
            return _refused(HTTPStatus.UNAUTHORIZED, "wrong key", {"WWW-Authenticate": "Bearer"})
        return await handler(request)

    return checked


async def _body(request: Request) -> bytes | None:
    """Read the body up to the size limit. Return None if the body is longer than the limit."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            return None
    return bytes(body)


def _refused(status: HTTPStatus, error: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def _open(settings: Settings) -> PairScorer | None:
    try:
        stages = spec_stages(settings.judge)
        if any(stage.kind in _NOT_SERVED for stage in stages):
            raise ValueError(
                f"the judge server can't serve {settings.judge!r}: use 'http:' and 'none' only on the gateway"
            )
        return open_scorer(settings.judge, threads=settings.judge_threads, access=judge_access(settings))
    except ValueError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None


def _tokenizer(judge: PairScorer) -> tuple[bytes | None, str | None]:
    content: bytes | None = getattr(judge, "tokenizer_json", None)
    return content, None if content is None else hashlib.sha256(content).hexdigest()
