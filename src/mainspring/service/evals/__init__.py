"""Suites on a schedule, grades and service levels of real sessions, and alarms about them."""
