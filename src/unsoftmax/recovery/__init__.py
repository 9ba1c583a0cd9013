"""From a target to a result: choose a learner, learn, judge."""
