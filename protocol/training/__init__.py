"""A run of rounds that is paid for: charged sums, the books, and what is trained on them."""
