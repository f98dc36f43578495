"""Campaigns that improve the agent of the folder that the service runs in."""
