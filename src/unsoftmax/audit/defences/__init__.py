"""What would have stopped the attack, and what that costs honest users."""
