"""Text to image: the network sees the tokens of a caption, by a frozen CLIP, instead of a class."""
