//! Sampling distributions, acceptance rules and coins of speculative decoding.
