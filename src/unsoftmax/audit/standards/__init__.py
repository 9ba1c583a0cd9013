"""An audit in the words and formats of the trade."""
