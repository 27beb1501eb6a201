"""Trials of a program on this computer, before anything is rented: does it run, and does it
resume?"""
