"""A sweep whose best model is deployed if it is good and somebody approves."""
