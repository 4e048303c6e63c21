"""Roles, and a decorator that declares which role an operation requires."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeVar

from app.errors import ForbiddenError

_ATTRIBUTE = "__required_role__"
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class Role(StrEnum):
    """The permissions of a person or token. Each role includes the permissions of the roles before it.

    A viewer can read everything except secrets, tokens and users. An editor can also change policies, give feedback,
    run simulations and use the playground. An admin can also manage keys, secrets, tokens, users, sessions and budgets.
    """

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Return whether this role permits everything that ``other`` permits."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller of a request, which is either a user or an admin token. ``id`` and ``name`` are those of the user or
    token."""

    id: str
    kind: Literal["token", "user"]
    name: str
    role: Role

    @property
    def actor(self) -> str:
        """The caller's name in the audit log."""
        return f"{self.kind}:{self.name}"

    def check(self, handler: Callable[..., Any]) -> None:
        """Check that the role permits ``handler``. Raises ForbiddenError if it doesn't, or if ``handler`` declares no
        role."""
        needed = required_role(handler)
        if needed is None:
            raise ForbiddenError("This operation doesn't declare which role it requires, so no one can use it.")
        if not self.role.includes(needed):
            raise ForbiddenError(
                f"This operation requires the role {needed}, but {self.name!r} has the role {self.role}."
            )


def requires(role: Role) -> Callable[[_Handler], _Handler]:
    """Declare the minimum role required to use a handler. Place this decorator below the router's decorator. If a
    handler of the admin API or of a signed-in page declares no role, every request gets a 403."""

    def declare(handler: _Handler) -> _Handler:
        setattr(handler, _ATTRIBUTE, role)
        return handler

    return declare


def required_role(handler: Callable[..., Any]) -> Role | None:
    """Return the role that ``handler`` declares, or None if it declares none."""
    role: Role | None = getattr(handler, _ATTRIBUTE, None)
    return role
