"""Reinforcement learning from preferences on one mesh: training preempts rollouts, which continue afterwards."""
