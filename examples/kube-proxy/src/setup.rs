//! Engine and manifests, brought together.

use proxy_core::{Engine, Event};
use tracing::{debug, error, warn};
use vipline_nftables::Error as NftablesError;
use vipline_service_model::{DetectLocal, Kind};

use crate::failure::Failure;
use crate::interfaces;
use crate::manifests::Manifests;
use crate::manifests::fault::Key;
use crate::manifests::source::Update;
use crate::node::ThisNode;
use crate::settings::{Settings, Source};

/// Whether files are only read once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// They are.
    Once,
    /// They are watched.
    Watched,
}

/// An engine that has been told of all objects there are.
pub struct Setup {
    /// The engine.
    pub engine: Engine,
    /// Where the objects come from.
    pub manifests: Manifests,
    node: ThisNode,
}

impl Setup {
    /// Returns an engine that programs the kernel.
    ///
    /// Of the families those that the kernel has are programmed.
    ///
    /// # Errors
    ///
    /// What is wrong with the manifests, before the kernel is spoken to; or what
    /// the kernel lacks.
    pub fn open(mut settings: Settings, reading: Reading) -> Result<Self, Failure> {
        let (manifests, update) = read(&settings, reading)?;
        settings.config.families = interfaces::families();
        let engine = Engine::open(settings.config.clone())
            .map_err(|error| Failure::machine(chain(&error)))?;
        Self::new(engine, manifests, &settings, update)
    }

    /// Returns an engine that only plans, for both families.
    ///
    /// # Errors
    ///
    /// What is wrong with the manifests.
    pub fn plan_only(settings: &Settings) -> Result<Self, Failure> {
        let (manifests, update) = read(settings, Reading::Once)?;
        let engine = Engine::plan_only(settings.config.clone()).map_err(Failure::input)?;
        Self::new(engine, manifests, settings, update)
    }

    fn new(
        engine: Engine,
        manifests: Manifests,
        settings: &Settings,
        update: Update,
    ) -> Result<Self, Failure> {
        let name = settings.config.node_name.as_ref();
        let node = ThisNode {
            name: name.to_owned(),
            bind_address: settings.bind_address,
        };
        let has_object = manifests.holds(&Key::new(Kind::Node, "", name));
        let mut setup = Self {
            engine,
            manifests,
            node,
        };
        if !has_object {
            let addresses = interfaces::addresses().unwrap_or_else(|error| {
                warn!("{error:#}");
                Vec::new()
            });
            setup.apply(setup.node.without_object(&addresses));
        }
        setup.take(update);
        let node = setup.engine.store().node();
        if settings.config.detect_local == DetectLocal::NodeCidr && node.pod_cidrs.is_empty() {
            let needs = "--detect-local-mode=NodeCIDR needs the podCIDRs of this node";
            return Err(Failure::input(format_args!(
                "{needs}, but no Node {name} has any"
            )));
        }
        setup.apply(Event::Synced);
        Ok(setup)
    }

    /// Tells the engine what changed, and the user what is wrong.
    pub fn take(&mut self, update: Update) {
        for line in update.ignored {
            debug!("not read: {line}");
        }
        for error in update.errors {
            error!("{error}");
        }
        for event in update.events {
            self.apply(self.node.correct(event));
        }
    }

    fn apply(&mut self, event: Event) {
        for warning in self.engine.apply(event) {
            warn!("{warning}");
        }
    }

    /// Returns how many Services have a cluster IP of any family, and the ports
    /// and endpoints of them all.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let mut services = std::collections::HashSet::new();
        for port in self.engine.store().ports() {
            services.insert(port.name.service_name());
            counts.ports += 1;
            counts.endpoints += port.reachable().len();
        }
        counts.services = services.len();
        counts
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Services that are served.
    pub services: usize,
    /// Their ports, once per family.
    pub ports: usize,
    /// The endpoints of the ports.
    pub endpoints: usize,
}

fn read(settings: &Settings, reading: Reading) -> Result<(Manifests, Update), Failure> {
    let Source::Manifests(path) = &settings.source else {
        let reason = "--manifests: missing; nothing else is read yet";
        return Err(Failure::input(reason));
    };
    let read = match reading {
        Reading::Once => Manifests::load(path),
        Reading::Watched => Manifests::watch(path),
    };
    let (manifests, update) =
        read.map_err(|error| Failure::input(format_args!("{}: {error}", path.display())))?;
    if update.errors.is_empty() {
        return Ok((manifests, update));
    }
    Err(Failure::Input(
        update.errors.iter().map(ToString::to_string).collect(),
    ))
}

/// Says what the machine lacks, if it will lack it the next time as well.
pub fn hopeless(error: &proxy_core::Error) -> Option<Failure> {
    match error {
        proxy_core::Error::Nftables(
            error @ (NftablesError::Denied | NftablesError::Unsupported { .. }),
        ) => Some(Failure::machine(error)),
        _ => None,
    }
}

/// Returns an error with all its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use vipline_netlink::Errno;

    use super::*;

    #[test]
    fn what_no_retry_mends_ends_the_program_with_a_sentence() {
        let errno = Errno::OPNOTSUPP;
        let unsupported = NftablesError::Unsupported {
            option: "CONFIG_NF_TABLES",
            errno,
        };
        for (error, word) in [
            (unsupported, "CONFIG_NF_TABLES"),
            (NftablesError::Denied, "CAP_NET_ADMIN"),
        ] {
            let failure = hopeless(&error.into()).unwrap();
            assert!(failure.to_string().contains(word), "{failure}");
            assert_eq!(failure.to_string().lines().count(), 1);
            assert_eq!(failure.code(), ExitCode::FAILURE);
        }
        assert!(hopeless(&NftablesError::Timeout.into()).is_none());
    }

    #[test]
    fn an_error_is_one_line_with_its_causes() {
        let source = std::io::Error::other("no room");
        let error = NftablesError::Io {
            operation: "open a netlink socket",
            source,
        };
        assert_eq!(chain(&error), "open a netlink socket: no room");
    }
}
