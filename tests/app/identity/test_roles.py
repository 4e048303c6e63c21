"""Roles and their declarations."""

import pytest

from app.errors import ForbiddenError
from app.identity import Principal, Role, required_role, requires


def of(role: Role) -> Principal:
    return Principal(id="tok_1", kind="token", name="ci", role=role)


@requires(Role.EDITOR)
async def change() -> None: ...


async def undeclared() -> None: ...


def test_role_includes_lower_roles() -> None:
    assert [[role.includes(other) for other in Role] for role in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_handler_is_permitted_from_its_role_upwards() -> None:
    assert required_role(change) is Role.EDITOR
    of(Role.EDITOR).check(change)
    of(Role.ADMIN).check(change)
    with pytest.raises(ForbiddenError, match=r"requires the role editor, but 'ci' has the role viewer"):
        of(Role.VIEWER).check(change)


def test_undeclared_handler_is_permitted_to_nobody() -> None:
    with pytest.raises(ForbiddenError, match="doesn't declare"):
        of(Role.ADMIN).check(undeclared)
