"""Bytes and threads: gRPC and in process."""
