//! Generated protocol code and its conversions to the engine's types.
