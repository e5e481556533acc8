"""Who may do what: decisions about principals, resources and operations."""
