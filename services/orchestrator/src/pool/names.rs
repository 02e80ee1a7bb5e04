//! Looks a name up again and again, so that workers that come are used and those that went are not asked for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::lookup_host;

use super::members::Name;
use super::{Inner, Role};

/// Pause between two look-ups: until there is a first address, and afterwards.
const FIRST: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(5);
/// A resolver that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses of a name at most: a wrong answer must not open connections without end.
const MOST: usize = 1024;

/// Keeps the workers under `name` in step with the resolver for as long as the pool lives.
///
/// A look-up that fails changes nothing: a resolver's trouble is not its workers', and their health is followed anyway.
pub(super) async fn follow(pool: Weak<Inner>, role: Role, name: Arc<Name>) {
    let mut pause = FIRST;
    loop {
        let answer = tokio::time::timeout(PATIENCE, lookup_host(name.host_and_port())).await;
        let Some(alive) = pool.upgrade() else { return };
        let trouble = match answer {
            Ok(Ok(addresses)) => {
                pause = AGAIN;
                let found: Vec<_> = addresses.take(MOST).collect();
                alive.agree(role, &name, &found).err().map(|error| error.to_string())
            }
            Ok(Err(error)) => Some(format!("cannot be looked up: {error}")),
            Err(_) => Some(format!("was not looked up within {} s", PATIENCE.as_secs())),
        };
        drop(alive);
        if let Some(message) = trouble
            && name.set_trouble(message.clone())
        {
            tracing::warn!(name = name.host_and_port(), message, "name not resolved");
        }
        tokio::time::sleep(pause).await;
    }
}
