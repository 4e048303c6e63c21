"""``groundlane demo``: lets you try the gateway without an account, with a scripted upstream, documents and
policies."""
