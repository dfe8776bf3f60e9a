"""Published results run again, beside this project's own figures."""
