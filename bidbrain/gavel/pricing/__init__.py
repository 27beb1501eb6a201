"""The price analysis of chapter 6 of the dissertation: what a training job costs on markets whose prices move."""
