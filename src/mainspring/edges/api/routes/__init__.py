"""Routes of the API, one file for each thing that it is about."""
