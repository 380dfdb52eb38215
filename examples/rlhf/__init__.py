"""Reinforcement learning from preferences on one mesh: rollouts give way to training, and go on afterwards."""
