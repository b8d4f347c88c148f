"""Fewer steps: what will be sampled is guessed, fed at once, and verified. Engine thread only.

What is sampled is what would have been sampled without a guess: each token is chosen from the model's own logits, by
the same sampler in the same order, and the guess is dropped where it differs.
"""
