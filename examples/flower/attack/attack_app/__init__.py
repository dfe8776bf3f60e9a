"""An app that a site should not have to trust."""
