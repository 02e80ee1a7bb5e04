//! Verifies draft blocks with the target model.
