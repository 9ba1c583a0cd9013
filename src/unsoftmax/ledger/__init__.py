"""Every answer billed, budgeted, kept."""

from unsoftmax.ledger.asker import Asker, Exchange, median_answers
from unsoftmax.ledger.batches import BatchMemory
from unsoftmax.ledger.bill import VERIFICATION, Bill, Progress
from unsoftmax.ledger.binding import open_journal
from unsoftmax.ledger.journal import Entry, Journal, MemoryJournal
from unsoftmax.ledger.ledger import Ledger
from unsoftmax.ledger.sqlite_journal import SqliteJournal
from unsoftmax.ledger.statement import PhaseStatement, Statement, read_statement

__all__ = [
    "VERIFICATION",
    "Asker",
    "BatchMemory",
    "Bill",
    "Entry",
    "Exchange",
    "Journal",
    "Ledger",
    "MemoryJournal",
    "PhaseStatement",
    "Progress",
    "SqliteJournal",
    "Statement",
    "median_answers",
    "open_journal",
    "read_statement",
]
