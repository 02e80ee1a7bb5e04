//! Table models, scripted workers and an in-process cluster, for tests only.
