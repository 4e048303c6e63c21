"""Extracts documents and options from a request body. Supports every format that clients use to attach retrieved
documents.

Each API has a module that reads its requests, such as ``app.protocols.openai_chat.request``. These modules share the
readers in this package. Invalid input raises InvalidRequestError, which names the field and the expected value. In that
case, nothing is sent upstream.
"""

from app.protocols.documents.document_extraction import Limits
from app.protocols.documents.parsed_request import Options, ParsedRequest
from app.protocols.openai_chat.request import read_chat

__all__ = ["Limits", "Options", "ParsedRequest", "read_chat"]
