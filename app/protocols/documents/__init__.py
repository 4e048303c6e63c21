"""From a request body to documents and options: every way in which clients attach retrieved documents.

Each API has a module that reads its requests (``app.protocols.openai_chat.request``); they share the readers in this
package. Invalid input raises InvalidRequestError, which names the field and the expected value; nothing is sent
upstream then.
"""

from app.protocols.documents.collection import Limits
from app.protocols.documents.options import Options
from app.protocols.documents.request import ParsedRequest
from app.protocols.openai_chat.request import read_chat

__all__ = ["Limits", "Options", "ParsedRequest", "read_chat"]
