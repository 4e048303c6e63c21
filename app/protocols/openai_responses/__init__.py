"""OpenAI Responses: named events in, named events out.

``reading`` turns the upstream's events into parts, ``writing`` turns what comes out of the enforcement into the events
that the client gets; ``whole`` lays a whole response out as the events that would have brought it, so that both kinds
of reply take the same way. Each text part of the output is a choice to the pipeline, numbered in order of arrival.
"""

from app.protocols.openai_responses.adapter import ResponsesAdapter

__all__ = ["ResponsesAdapter"]
