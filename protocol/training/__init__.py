"""A run of rounds that is paid for: charged sums, the records, and what is trained on them."""
