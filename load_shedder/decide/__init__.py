"""Decide what to give up: places, road map, controller. Pure: numbers and times come in, a plan comes out."""
