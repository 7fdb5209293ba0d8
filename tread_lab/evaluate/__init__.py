"""How good trained weights are: probes of the network, drawn images, features and metrics."""
