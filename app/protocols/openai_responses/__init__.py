"""OpenAI's Responses API, whose streams consist of named events.

``decoder`` converts upstream events to reply parts. ``encoder`` converts outputs to events for the client.
``whole_reply`` converts a whole response to stream events, so that both kinds of reply take the same path. In the
pipeline, each text part of the output is a choice. The choices are numbered in order of arrival.
"""

from app.protocols.openai_responses.adapter import ResponsesAdapter

__all__ = ["ResponsesAdapter"]
