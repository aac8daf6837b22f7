"""Safe access to files in shared folders: reads only regular files, and never writes through a planted link."""
