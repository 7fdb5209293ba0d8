"""What runs and images cost: parameters, MACs, FLOPs, memory and time under routes."""
