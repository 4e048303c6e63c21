"""``/dashboard/sessions``: active sessions. Admins see everyone's; others see only their own."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from app.api.admin.access.tokens import SessionId
from app.dashboard.page_security import DashboardRoute
from app.dashboard.session_cookie import OperatorDep
from app.dashboard.templating import page
from app.dependencies import IdentityDep
from app.identity import Operator, Principal, Role, requires

router = APIRouter(prefix="/sessions", route_class=DashboardRoute)


@router.get("")
@requires(Role.VIEWER)
async def show_sessions(request: Request, identity: IdentityDep, operator: OperatorDep) -> Response:
    """List the sessions that the operator may end."""
    return page(request, "access/sessions.html", sessions=await identity.sessions.list(_whose(operator)))


@router.post("/{session_id}/end")
@requires(Role.VIEWER)
async def end_session(identity: IdentityDep, operator: OperatorDep, session_id: SessionId) -> Response:
    """End a session. Only admins can end other users' sessions."""
    await identity.sessions.end(session_id, of=_whose(operator))
    return RedirectResponse("/dashboard/sessions", status_code=303)


def _whose(operator: Operator) -> Principal | None:
    """Return the actor whose sessions the operator may see and end, or None for everyone's."""
    return None if operator.may(Role.ADMIN) else operator.principal
