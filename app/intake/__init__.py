"""From a request body to documents and options: every way in which clients attach retrieved documents.

One module per API reads its requests (``chat``); they share the readers of ``request``, ``options``, ``documents`` and
``fields``. Bad input raises InvalidRequestError that names the field and what was expected; nothing is sent upstream
then.
"""

from app.intake.chat import read_chat
from app.intake.documents import Limits
from app.intake.options import Options
from app.intake.request import Intake

__all__ = ["Intake", "Limits", "Options", "read_chat"]
