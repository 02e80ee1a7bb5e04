//! Owns the text: admits requests, runs rounds, applies the exact rule.
