"""OAuth logins to servers, and the grants that they leave."""
