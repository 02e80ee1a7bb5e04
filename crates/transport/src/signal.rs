//! When a process is asked to end.

use std::future::{Future, pending};

/// Resolves when the process is asked to end: SIGTERM or SIGINT, or, if `exit_on_stdin_close`, the end of standard input.
///
/// The signals are caught from the call on, not only once the future is awaited: one that comes while a service
/// still starts must not cut it off. Needs a tokio runtime around it.
///
/// A parent that starts services holds their standard input open; however it dies, the system closes the pipe,
/// and no orphan stays behind.
pub fn shutdown_signal(exit_on_stdin_close: bool) -> impl Future<Output = ()> + Send {
    let (terminate, interrupt) = (terminate(), interrupt());
    async move {
        tokio::select! {
            () = terminate => tracing::info!("shutting down: terminated"),
            () = interrupt => tracing::info!("shutting down: interrupted"),
            () = stdin_closed(exit_on_stdin_close) => tracing::info!("shutting down: the parent process closed standard input"),
        }
    }
}

#[cfg(unix)]
fn terminate() -> impl Future<Output = ()> + Send {
    caught(tokio::signal::unix::SignalKind::terminate(), "SIGTERM")
}

#[cfg(unix)]
fn interrupt() -> impl Future<Output = ()> + Send {
    caught(tokio::signal::unix::SignalKind::interrupt(), "SIGINT")
}

#[cfg(unix)]
fn caught(kind: tokio::signal::unix::SignalKind, name: &'static str) -> impl Future<Output = ()> + Send {
    let signal = tokio::signal::unix::signal(kind);
    async move {
        match signal {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(error) => unavailable(name, &error).await,
        }
    }
}

/// Other systems have only the interrupt.
#[cfg(not(unix))]
fn terminate() -> impl Future<Output = ()> + Send {
    pending()
}

#[cfg(not(unix))]
async fn interrupt() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        unavailable("SIGINT", &error).await;
    }
}

async fn stdin_closed(wanted: bool) {
    if !wanted {
        return pending().await;
    }
    let (closed, on_closed) = tokio::sync::oneshot::channel();
    // A thread of its own, because tokio's standard input cannot be cancelled: the runtime would wait for the
    // read when it is dropped, and the process would not end on SIGTERM. This thread is left behind instead.
    let watcher = std::thread::Builder::new().name("stdin-watch".to_owned()).spawn(move || {
        wait_for_end(std::io::stdin().lock());
        // Nobody listens any more when another signal came first.
        let _ = closed.send(());
    });
    match watcher {
        // The sender can only go away after it has sent.
        Ok(_) => drop(on_closed.await),
        Err(error) => unavailable("the end of standard input", &error).await,
    }
}

/// Reads and forgets until the other end closes. An error is an end too: there is nothing left to wait for.
fn wait_for_end(mut input: impl std::io::Read) {
    if let Err(error) = std::io::copy(&mut input, &mut std::io::sink()) {
        tracing::debug!(%error, "reading standard input failed");
    }
}

/// The other ways to end the process still work.
fn unavailable(what: &'static str, error: &std::io::Error) -> impl Future<Output = ()> + use<> {
    tracing::warn!(%error, "cannot wait for {what}");
    pending()
}
