"""``groundlane demo``: a scripted upstream, documents and policies for trying the gateway without an account."""
