"""sqSGD's Figures 1 to 3 and 5, and its claims: `veilsum reproduce sqsgd`."""
