"""What all packages share: argument checks, files, processes, progress and text."""
