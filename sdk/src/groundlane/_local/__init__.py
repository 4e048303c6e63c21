"""A judge in a separate process on this machine. It needs no gateway, and its packages are not imported here."""
