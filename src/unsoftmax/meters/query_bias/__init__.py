"""The score vector Wb + w0 of one head with a query bias."""
