"""The Messages API of Anthropic: content blocks in, content blocks out.

``decoder`` turns upstream events into reply parts, ``encoder`` turns outputs into events for the client.
``whole_reply`` lays a whole message out as stream events, and assembles one from events, so that both kinds of reply
take the same path. ``document_numbers`` knows the documents by the numbers that the API gives them.

To the pipeline, the text blocks of a message are one text, since a model that cites begins a new block in mid-sentence.
Content of another kind between them ends a sentence.
"""

from app.protocols.anthropic_messages.adapter import MessagesAdapter

__all__ = ["MessagesAdapter"]
