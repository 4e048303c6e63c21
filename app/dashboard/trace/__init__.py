"""The contents of a trace page: the reply, its claims and evidence, and the timeline."""
