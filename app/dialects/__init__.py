"""One adapter an API: upstream bytes to events, outputs to client bytes. Nothing here decides anything."""
