"""This project's own questions, run as campaigns: no paper has them."""
