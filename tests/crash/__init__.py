"""Kill processes that write to a store, thousands of times, and check what the log promised."""

from tests.crash.campaign import ROUND, Options, run
from tests.crash.report import Report, Tally, Violation

__all__ = ["ROUND", "Options", "Report", "Tally", "Violation", "run"]
