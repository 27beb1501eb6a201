"""The form of tags that every cloud accepts, as patterns."""

TAG_NAME = "[a-z][-a-z0-9_]{0,62}"
TAG_VALUE = "[-a-z0-9_]{1,63}"
