"""Message classes generated from proto/gemmd/v1 when the package is built."""
