"""One round as a client and a server agree on it: parameters, setup, the client's half and its memory."""
