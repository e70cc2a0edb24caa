"""Importing this puts rota in Gloo's place: programs that ask for "gloo" get rota."""
from . import register

register("gloo")
