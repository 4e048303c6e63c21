"""What the page of one request shows: the reply, its claims and evidence, and the timeline."""
