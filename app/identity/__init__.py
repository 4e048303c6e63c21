"""Access control for the admin API and the dashboard: roles, admin tokens, users and sessions."""

from app.identity.admin_tokens import AdminTokens, CreatedToken, StoredToken, TokenDraft
from app.identity.identity import Identity
from app.identity.roles import Principal, Role, required_role, requires
from app.identity.sessions import Operator, Sessions, StoredSession
from app.identity.users import Assigned, StoredUser, Users

__all__ = [
    "AdminTokens",
    "Assigned",
    "CreatedToken",
    "Identity",
    "Operator",
    "Principal",
    "Role",
    "Sessions",
    "StoredSession",
    "StoredToken",
    "StoredUser",
    "TokenDraft",
    "Users",
    "required_role",
    "requires",
]
