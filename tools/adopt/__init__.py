"""`lambda-svc adopt`: what exporting a team's own SavedModel or frozen graph would bring, on its recorded requests."""

from .errors import AdoptError, NoDensePart, RequestsError

__all__ = ["AdoptError", "NoDensePart", "RequestsError"]
