"""Sample data sets: Adult and the app store's twin come with fdml, others are read from packages that carry them."""
