"""Mean estimation with sketches that tune themselves, against an untrusted server and as published.

Source: arXiv 2307.10999, section 3; docs/mean-estimation.md.
"""
