"""Every answer billed, budgeted, kept."""

from unsoftmax.ledger.journal import Entry, Journal, MemoryJournal
from unsoftmax.ledger.ledger import VERIFICATION, Bill, Ledger, Progress

__all__ = ["VERIFICATION", "Bill", "Entry", "Journal", "Ledger", "MemoryJournal", "Progress"]
