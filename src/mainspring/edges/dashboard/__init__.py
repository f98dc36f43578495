"""The dashboard: its page, and the routes that it needs beside the API's. Its source is in
`/dashboard`; `make dashboard` builds it into `static`.
"""
