"""Processes that compute together: how they find one another, join, agree, and learn that one is gone."""
