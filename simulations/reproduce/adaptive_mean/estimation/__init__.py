"""Mean estimation with sketches that tune themselves, with an untrusted and with a trusted server.

Source: arXiv 2307.10999, section 3; docs/mean-estimation.md.
"""
