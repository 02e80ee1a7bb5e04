//! Logs, OpenTelemetry traces and their propagation.
