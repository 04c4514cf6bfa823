from django.db import models


class Effect(models.Model):
    """What a step's function did, counted where no replay can hide it."""

    run = models.CharField(max_length=64, db_index=True)
    name = models.CharField(max_length=100)
    value = models.CharField(max_length=200, default="")
    pid = models.IntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Thing(models.Model):
    """Something that runs can be about."""

    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name
