"""Joins secagg, dp and sketch into rounds; still without sockets, threads or clocks."""
