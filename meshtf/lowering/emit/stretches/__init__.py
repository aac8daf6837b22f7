"""What each core of a process runs by itself, between what all of them do at once."""
