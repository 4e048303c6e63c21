"""A judge in a separate process on this machine. The judge needs no gateway, and its packages are not imported into
this process."""
