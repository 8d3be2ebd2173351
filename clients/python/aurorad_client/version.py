"""The version of this package, in a module without imports: the build reads it."""

VERSION = "0.2.0"
