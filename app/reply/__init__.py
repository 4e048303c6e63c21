"""The reply of an upstream: read, held back, judged, edited and delivered."""
