"""Anthropic's Messages API, whose requests and replies consist of content blocks.

``decoder`` converts upstream events to reply parts. ``encoder`` converts outputs to events for the client.
``whole_reply`` converts a whole message to stream events and back, so that both kinds of reply take the same path.
``document_numbers`` maps documents to their numbers in the API.

The pipeline treats the text blocks of a message as one text, because a model that adds citations begins new blocks
mid-sentence. If other content separates two text blocks, no sentence continues across it.
"""

from app.protocols.anthropic_messages.adapter import MessagesAdapter

__all__ = ["MessagesAdapter"]
