"""The five papers' results run again, beside this project's own figures."""
