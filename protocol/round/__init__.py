"""One round as both sides agree on it: parameters, setup, the client's half and its memory."""
