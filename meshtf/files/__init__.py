"""Files that may be another's: read only where they are files, written never through a link that another planted."""
