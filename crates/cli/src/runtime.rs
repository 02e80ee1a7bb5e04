//! The process's async runtime.

use std::future::Future;

use anyhow::{Context, Result};

/// Runs `future` to its end. What still runs in the background then, like the loading of a model nobody wants any
/// more, does not hold up the end of the process.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}
