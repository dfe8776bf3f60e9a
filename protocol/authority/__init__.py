"""Who may announce rounds to a site, and who may be in them: signed registries and sessions."""
