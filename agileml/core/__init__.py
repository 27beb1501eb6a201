"""The pure core: what there is to do, who does it, where parameters live. Events in, instructions out."""
