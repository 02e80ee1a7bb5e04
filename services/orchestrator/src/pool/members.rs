//! The workers of one role: those given by address, and those found under a name.
//!
//! An address is one worker for good. A *name*, written `dns:///host:port` as gRPC writes it, is as many workers
//! as it has addresses: what a headless Kubernetes Service or a DNS round robin lists. Who looks names up is
//! [`names`](super::names); here is only what follows from an answer.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use foretoken_proto::v1;
use foretoken_transport::{ChannelConfig, ClientTls, TransportError, channel};

use super::worker::Worker;

/// How a name is told from an address.
const SCHEME: &str = "dns:///";

/// A name whose addresses are workers.
#[derive(Debug)]
pub(super) struct Name {
    /// Without the scheme, as resolvers take it.
    host_and_port: String,
    trusted: bool,
    /// How its addresses are connected to: verified, where they are, is the name.
    link: ChannelConfig,
    /// Why it has no addresses.
    trouble: RwLock<String>,
}

impl Name {
    /// What `address` names, if it is a name and not an address.
    fn parse(address: &str, trusted: bool, link: &ChannelConfig) -> Option<Result<Self, TransportError>> {
        let host_and_port = address.strip_prefix(SCHEME)?.to_owned();
        // The rules for host and port are the channel's; only the message must show what was given.
        let checked = channel(&host_and_port, link).map_err(|error| match error {
            TransportError::Address { reason, .. } => {
                TransportError::Address { address: address.to_owned(), reason }
            }
            other => other,
        });
        Some(checked.and_then(|_| {
            let host = host_and_port.rsplit_once(':').map_or(host_and_port.as_str(), |(host, _)| host);
            let tls = link.tls.as_ref().map(|tls| tls.verifying(host)).transpose()?;
            let trouble = RwLock::new("has not been looked up yet".to_owned());
            let link = ChannelConfig { tls, ..link.clone() };
            Ok(Self { host_and_port, trusted, link, trouble })
        }))
    }

    pub(super) fn host_and_port(&self) -> &str {
        &self.host_and_port
    }

    /// Remembers why it has no addresses; whether that is news.
    pub(super) fn set_trouble(&self, trouble: String) -> bool {
        let mut known = self.trouble.write().unwrap_or_else(PoisonError::into_inner);
        let news = *known != trouble;
        *known = trouble;
        news
    }

    fn state(&self) -> v1::WorkerState {
        v1::WorkerState {
            address: format!("{SCHEME}{}", self.host_and_port),
            reason: "UNRESOLVED".into(),
            message: self.trouble.read().unwrap_or_else(PoisonError::into_inner).clone(),
            ..v1::WorkerState::default()
        }
    }
}

/// All workers of a role.
#[derive(Debug, Default)]
pub(super) struct Members {
    names: Vec<Arc<Name>>,
    listed: RwLock<Vec<Member>>,
    link: ChannelConfig,
}

#[derive(Debug, Clone)]
struct Member {
    worker: Arc<Worker>,
    /// The name it was found under.
    name: Option<Arc<Name>>,
}

impl Members {
    /// Workers that are connected to with `tls`, if it is given.
    pub(super) fn over(tls: Option<ClientTls>) -> Self {
        Self { link: ChannelConfig::with_tls(tls), ..Self::default() }
    }

    /// Takes in configured addresses and names.
    ///
    /// # Errors
    /// If one is malformed.
    pub(super) fn add(&mut self, addresses: &[String], trusted: bool) -> Result<(), TransportError> {
        for address in addresses {
            match Name::parse(address, trusted, &self.link) {
                Some(name) => self.names.push(Arc::new(name?)),
                None => {
                    let worker = Arc::new(Worker::new(address, trusted, &self.link)?);
                    let listed = self.listed.get_mut().unwrap_or_else(PoisonError::into_inner);
                    listed.push(Member { worker, name: None });
                }
            }
        }
        Ok(())
    }

    /// Whether none was configured.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.read(<[Member]>::is_empty)
    }

    pub(super) fn names(&self) -> &[Arc<Name>] {
        &self.names
    }

    /// The workers of this moment.
    pub(super) fn all(&self) -> Vec<Arc<Worker>> {
        self.read(|listed| listed.iter().map(|member| Arc::clone(&member.worker)).collect())
    }

    /// Makes the workers under `name` those at `addresses`, and returns the new ones.
    ///
    /// One whose address is gone is dismissed: it gets no new sessions, those it has go on.
    ///
    /// # Errors
    /// If an address cannot be used; then nothing changes.
    pub(super) fn agree(
        &self,
        name: &Arc<Name>,
        addresses: &[SocketAddr],
    ) -> Result<Vec<Arc<Worker>>, TransportError> {
        let mut listed = self.listed.write().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let ours = |member: &Member| member.name.as_ref().is_some_and(|other| Arc::ptr_eq(other, name));
        let is_new = |address: &&String| {
            !listed.iter().any(|member| ours(member) && member.worker.address() == *address)
        };
        let mut new = Vec::new();
        for address in found.iter().filter(is_new) {
            new.push(Arc::new(Worker::new(address, name.trusted, &name.link)?));
        }
        listed.retain(|member| {
            let stays = !ours(member) || found.iter().any(|address| address == member.worker.address());
            if !stays {
                member.worker.dismiss();
            }
            stays
        });
        listed.extend(
            new.iter().map(|worker| Member { worker: Arc::clone(worker), name: Some(Arc::clone(name)) }),
        );
        Ok(new)
    }

    /// What Describe says: of each worker, and of each name without any.
    pub(super) fn states(&self) -> Vec<v1::WorkerState> {
        self.read(|listed| {
            let bare = |name: &&Arc<Name>| {
                !listed
                    .iter()
                    .any(|member| member.name.as_ref().is_some_and(|other| Arc::ptr_eq(other, name)))
            };
            let workers = listed.iter().map(|member| member.worker.state());
            workers.chain(self.names.iter().filter(bare).map(|name| name.state())).collect()
        })
    }

    fn read<T>(&self, f: impl FnOnce(&[Member]) -> T) -> T {
        f(&self.listed.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(addresses: &[&str]) -> Result<Members, TransportError> {
        let mut members = Members::default();
        let addresses: Vec<_> = addresses.iter().map(|&address| address.to_owned()).collect();
        members.add(&addresses, true).map(|()| members)
    }

    fn at(hosts: &[u8]) -> Vec<SocketAddr> {
        hosts.iter().map(|&host| SocketAddr::from(([10, 0, 0, host], 7451))).collect()
    }

    fn addresses(members: &Members) -> Vec<String> {
        members.states().into_iter().map(|state| state.address).collect()
    }

    #[tokio::test]
    async fn a_name_is_as_many_workers_as_it_has_addresses() {
        let members = members(&["127.0.0.1:1", "dns:///verifiers:7451", "dns:///others:7451"]).unwrap();
        assert_eq!(addresses(&members), ["127.0.0.1:1", "dns:///verifiers:7451", "dns:///others:7451"]);
        let [name, other] = [0, 1].map(|index| Arc::clone(&members.names()[index]));

        assert_eq!(members.agree(&name, &at(&[1, 2])).unwrap().len(), 2);
        assert_eq!(members.agree(&other, &at(&[1])).unwrap().len(), 1);
        let before = members.all();
        assert!(members.agree(&name, &at(&[2, 1])).unwrap().is_empty());
        assert!(before.iter().zip(members.all()).all(|(old, now)| Arc::ptr_eq(old, &now)));

        let new = members.agree(&name, &at(&[2, 3])).unwrap();
        assert_eq!(new.iter().map(|worker| worker.address()).collect::<Vec<_>>(), ["10.0.0.3:7451"]);
        // The fixed one, the one that stayed, the other name's of the same address, the new one.
        assert_eq!(addresses(&members), ["127.0.0.1:1", "10.0.0.2:7451", "10.0.0.1:7451", "10.0.0.3:7451"]);
        assert_eq!(
            before.iter().map(|worker| worker.is_dismissed()).collect::<Vec<_>>(),
            [false, true, false, false]
        );
    }

    #[tokio::test]
    async fn a_name_without_addresses_says_why() {
        let members = members(&["dns:///verifiers:7451"]).unwrap();
        assert!(!members.is_empty() && members.all().is_empty());
        assert!(members.names()[0].set_trouble("no such host".into()));
        assert!(!members.names()[0].set_trouble("no such host".into()));
        let states = members.states();
        assert_eq!((states[0].reason.as_str(), states[0].message.as_str()), ("UNRESOLVED", "no such host"));
    }

    #[tokio::test]
    async fn malformed_names_are_shown_as_given() {
        for (name, reason) in [("dns:///verifiers", "port is missing"), ("dns:///:7451", "host is missing")] {
            let error = members(&[name]).unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}")) && error.contains(reason), "{error}");
        }
    }
}
