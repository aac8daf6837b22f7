"""Connects processes that compute together: how they find one another, join, agree, and detect a lost process."""
