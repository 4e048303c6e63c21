"""The ``grounding`` field of a request."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import InvalidRequestError
from app.protocols.documents.fields import join_path, refuse


class Reported(BaseModel):
    """What the caller's own pipeline reports."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    grounding_scores: list[Annotated[float, Field(ge=0, le=1)]] = []
    citations: list[str] = []
    unsupported_claims: list[str] = []
    output_confidence: Annotated[float, Field(ge=0, le=1)] | None = None


class Options(BaseModel):
    """The caller's options for a request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    agent: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    run_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    query: str | None = None
    inject: Literal["none", "system", "user"] = "none"
    include: list[Literal["claims", "decisions", "documents"]] | None = None
    reported: Reported = Reported()

    def shows(self, part: str) -> bool:
        """Whether the client asked for this part of the result; by default, it gets all."""
        return self.include is None or part in self.include

    @property
    def silent(self) -> bool:
        """The client wants a byte-clean reply."""
        return self.include == []


_UNSAID = Options()
_FROM_HEADERS = (("agent", "x-groundlane-agent"), ("run_id", "x-groundlane-run-id"))


def read_options(value: Any, headers: Mapping[str, str], path: str = "grounding") -> Options:
    """The ``grounding`` field, with agent and run from the headers unless the body names them.

    ``headers`` has lower-case names; ``path`` is the path of the field. Raises InvalidRequestError.
    """
    if value is None and not any(headers.get(header) for _, header in _FROM_HEADERS):
        return _UNSAID
    value = {} if value is None else value
    if not isinstance(value, dict):
        refuse(path, "an object", value)
    for name, header in _FROM_HEADERS:
        if value.get(name) is None and headers.get(header):
            value = {**value, name: headers[header]}
    if isinstance(value.get("reported"), dict):
        value = {**value, "reported": {k: v for k, v in value["reported"].items() if v is not None}}
    try:
        return Options.model_validate({k: v for k, v in value.items() if v is not None or k == "include"})
    except ValidationError as error:
        first = error.errors()[0]
        where = join_path(path, first["loc"])
        message = "unknown field" if first["type"] == "extra_forbidden" else first["msg"]
        raise InvalidRequestError(f"{where}: {message}.", param=where) from None
