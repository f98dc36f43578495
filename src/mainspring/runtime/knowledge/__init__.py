"""Knowledge: documents that an agent can search and cite."""
