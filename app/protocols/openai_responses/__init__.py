"""The Responses API of OpenAI: named events in, named events out.

``decoder`` turns upstream events into reply parts, ``encoder`` turns outputs into events for the client.
``whole_reply`` lays a whole response out as stream events, so that both kinds of reply take the same path. Each text
part of the output is a choice in the pipeline, numbered in order of arrival.
"""

from app.protocols.openai_responses.adapter import ResponsesAdapter

__all__ = ["ResponsesAdapter"]
