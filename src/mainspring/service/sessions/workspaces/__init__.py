"""The files of the service's sessions: mounted, delivered, expired."""
