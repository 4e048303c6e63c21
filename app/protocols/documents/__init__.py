"""From a request body to documents and options: every way in which clients attach retrieved documents.

One module per API reads its requests (``chat``); they share the readers of ``request``, ``options``, ``documents`` and
``fields``. Bad input raises InvalidRequestError that names the field and what was expected; nothing is sent upstream
then.
"""

from app.protocols.documents.collection import Limits
from app.protocols.documents.options import Options
from app.protocols.documents.request import ParsedRequest
from app.protocols.openai_chat.request import read_chat

__all__ = ["Limits", "Options", "ParsedRequest", "read_chat"]
