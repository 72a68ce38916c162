//! State of the kernel: that of this node, or that of a saved dump.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use proxy_core::conntrack::{self, Filter, TupleFilter};
use proxy_core::evaluate::{InvalidState, KernelState, Rules, observed_host};
use proxy_core::netlink::Dump as NetlinkDump;
use proxy_core::nftables::evaluate::Host;
use proxy_core::{Config, Family, Mode};
use vipline_service_model::Protocol;

use super::answer::Answer;
use super::inquiry::{Facts, Kernel};
use crate::failure::{Failure, chain};
use crate::rejectedz;
use crate::settings::Settings;

/// Maximum number of entries of connection tracking in an answer.
const MAX_FLOWS: usize = 16;

/// The environment of an explanation.
pub(super) struct Observed {
    pub(super) host: Host,
    rules: State,
    /// Rejected objects of the running proxy, one line each.
    rejections: String,
}

/// Rules of the kernel.
enum State {
    /// The kernel of this node, with the configuration of the proxy.
    Live(Box<Config>),
    /// A saved kernel, with the mode of the proxy.
    Saved(Box<KernelState>, Mode),
    /// Not read, for a reason.
    None(Option<String>),
}

impl Observed {
    /// Reads addresses and routes of this node.
    pub(super) fn read(config: &Config) -> Result<Self, String> {
        let host = observed_host().map_err(|error| chain(&error))?;
        Ok(Self::new(host, State::Live(Box::new(config.clone()))))
    }

    /// Loads a saved kernel.
    pub(super) fn load(path: &Path, config: &Config) -> Result<Self, Failure> {
        let named = |reason: String| Failure::input(format!("{}: {reason}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let state: KernelState = text
            .parse()
            .map_err(|error: InvalidState| named(error.to_string()))?;
        let host = state.host();
        Ok(Self::new(host, State::Saved(Box::new(state), config.mode)))
    }

    /// Returns a state without rules.
    pub(super) fn planned(host: Host, note: Option<String>) -> Self {
        Self::new(host, State::None(note))
    }

    fn new(host: Host, rules: State) -> Self {
        Self {
            host,
            rules,
            rejections: String::new(),
        }
    }

    /// Adds the objects that the running proxy reports as rejected.
    pub(super) fn with_rejections(mut self, settings: &Settings) -> Self {
        let page = rejectedz::Page::request(settings);
        self.rejections = page.map(|page| page.comments()).unwrap_or_default();
        self
    }

    /// Returns why the kernel of this node is no subject of an explanation: it cannot be
    /// read, or no proxy in the mode has rules there.
    pub(super) fn probe(settings: &Settings) -> Result<(), String> {
        let config = &settings.config;
        let mode = config.mode;
        let mut config = config.clone();
        if let Some(choice) = mode.choose_iptables_backend(&config) {
            config.iptables.backend = choice.backend;
        }
        for &family in &config.families {
            match mode.installed_rules(&config, family) {
                Ok(Some(rules)) if rules.has_proxy() => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => return Err(format!("rules of mode {mode} cannot be evaluated")),
                Err(error) => return Err(chain(&error)),
            }
        }
        Err(no_rules(mode))
    }

    /// Reads the rules of the kernel in a family, or the reason why they are not read.
    pub(super) fn rules(&self, family: Family) -> Result<Option<Rules>, Option<String>> {
        match &self.rules {
            State::None(note) => Err(note.clone()),
            State::Saved(state, mode) => {
                mode.saved_rules(state).map_err(|error| Some(chain(&error)))
            }
            State::Live(config) => config
                .mode
                .installed_rules(config, family)
                .map_err(|error| Some(chain(&error))),
        }
    }

    /// Evaluates both sides and returns the answer.
    pub(super) fn answer(
        &self,
        facts: Facts,
        plan: Option<&Rules>,
        kernel: Result<Option<&Rules>, &Option<String>>,
    ) -> Answer {
        let plan = facts.side(plan, &self.host);
        let kernel = match kernel {
            Ok(rules) => Kernel::Read(facts.side(rules, &self.host)),
            Err(note) => Kernel::Skipped(note.clone()),
        };
        let flows = match self.rules {
            State::Live(_) => flows(facts.question.protocol, facts.question.destination),
            State::Saved(..) | State::None(_) => Vec::new(),
        };
        let mut answer = facts.answer(plan, kernel, flows);
        self.add_rejections(&mut answer);
        answer
    }

    /// Adds the rejected objects of the service port to the sentence.
    fn add_rejections(&self, answer: &mut Answer) {
        let Some(service) = &answer.service else {
            return;
        };
        let name = format!(" {}/{}", service.namespace, service.name);
        let mut lines = self.rejections.lines();
        if let Some(line) = lines.find(|line| line.contains(&name)) {
            let line = line.trim_start_matches("# ");
            answer.sentence += &format!(" The proxy retries an object {line}.");
        }
    }
}

fn no_rules(mode: Mode) -> String {
    format!("it has no rules of a kube-proxy in mode {mode}")
}

/// Returns the entries of connection tracking to a destination.
fn flows(protocol: Protocol, destination: SocketAddr) -> Vec<String> {
    let to = TupleFilter::new()
        .destination(destination.ip())
        .destination_port(destination.port());
    let protocol = conntrack::Protocol(protocol.number());
    let filter = Filter::new().protocol(protocol).original(to);
    let found = conntrack::Client::open().and_then(|mut client| client.flows(&filter));
    let Ok(NetlinkDump::Complete(flows) | NetlinkDump::Interrupted(flows)) = found else {
        return Vec::new();
    };
    flows
        .iter()
        .take(MAX_FLOWS)
        .map(ToString::to_string)
        .collect()
}
