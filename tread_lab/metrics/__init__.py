"""How good generated images are: distances, precision and recall in named feature spaces."""
