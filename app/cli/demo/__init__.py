"""A tour without an account: a scripted upstream, documents and policies to try the gateway on."""
