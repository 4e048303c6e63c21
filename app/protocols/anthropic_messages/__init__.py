"""Anthropic Messages: blocks of content in, blocks of content out.

``reading`` turns the upstream's events into parts, ``writing`` turns what comes out of the enforcement into the events
that the client gets; ``whole`` lays a whole message out as the events that would have brought it and puts one together
from events, so that both kinds of reply take the same way. ``references`` knows the documents as the API numbers them.

The text blocks of a message are one text to the pipeline, since a model that cites begins a new block in mid-sentence;
content of another kind between them ends a sentence.
"""

from app.protocols.anthropic_messages.adapter import MessagesAdapter

__all__ = ["MessagesAdapter"]
