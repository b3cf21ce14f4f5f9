"""The floor that all rooms stand on: checks, files, progress, processes, text and the compiled library."""
