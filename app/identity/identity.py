"""Identifies the caller of an admin API request."""

from datetime import timedelta

from app.auth.admin_token import AdminAuth
from app.db.database import Database
from app.identity.admin_tokens import AdminTokens
from app.identity.roles import Principal
from app.identity.sessions import Sessions
from app.identity.users import Users


class Identity:
    """The tokens, users and sessions of an installation. Sessions end after ``lifetime``, or earlier if they are unused
    for ``idle``."""

    def __init__(self, database: Database, admin: AdminAuth, *, idle: timedelta, lifetime: timedelta) -> None:
        self._admin = admin
        self.tokens = AdminTokens(database)
        self.users = Users(database)
        self.sessions = Sessions(database, admin, idle=idle, lifetime=lifetime)

    async def bearer(self, token: str) -> Principal | None:
        """Return the owner of ``token``, or None if the token is unknown, revoked or expired. While the database is
        unavailable, only the bootstrap token works. Raises DatabaseUnavailableError."""
        if self._admin.accepts(token):
            return self.sessions.bootstrap
        found = await self.tokens.find(token)
        return None if found is None else found.principal
