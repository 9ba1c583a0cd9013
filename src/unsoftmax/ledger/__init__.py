"""Every answer billed, budgeted, kept."""

from unsoftmax.ledger.batches import BatchMemory
from unsoftmax.ledger.journal import Entry, Journal, MemoryJournal
from unsoftmax.ledger.ledger import VERIFICATION, Bill, Ledger, Progress

__all__ = ["VERIFICATION", "BatchMemory", "Bill", "Entry", "Journal", "Ledger", "MemoryJournal", "Progress"]
