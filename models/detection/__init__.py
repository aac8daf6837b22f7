"""Detection of objects in images: a model, and all that its training and its evaluation need."""
