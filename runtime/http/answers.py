"""Answers: typed models as whole responses."""

from collections.abc import Mapping

from starlette.responses import Response

from tenuto.runtime.http.shape import Shape


def answered(shape: Shape, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A whole response in JSON."""
    return Response(shape.encode(), status, headers, "application/json")
