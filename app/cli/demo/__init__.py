"""``groundlane demo``: a scripted upstream, documents and policies to try the gateway with, without an account."""
