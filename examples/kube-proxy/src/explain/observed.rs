//! State of the kernel: that of this node, or that of a saved dump.

use std::fs;
use std::path::Path;

use proxy_core::evaluate::{KernelState, Rules, observed_host};
use proxy_core::evaluator::Host;
use proxy_core::{Config, Family, Mode};

use super::answer::Answer;
use super::inquiry::{Facts, Kernel};
use super::{assumptions, stale};
use crate::failure::{Failure, chain};
use crate::rejectedz;
use crate::settings::Settings;

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
            .map_err(|error: proxy_core::Error| named(error.to_string()))?;
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
        for &family in &config.engine.families {
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
            Ok(rules) => {
                let side = facts.side(rules, &self.host);
                let is_absent = rules.is_some_and(|it| !it.has_proxy());
                let unread = rules.map(|it| it.unread().join("; "));
                Kernel::Read {
                    side,
                    absence: is_absent.then(|| self.absence(facts.mode)),
                    unread: unread.filter(|it| !it.is_empty()),
                }
            }
            Err(note) => Kernel::Skipped {
                absence: (*note == Some(no_rules(facts.mode))).then(|| self.absence(facts.mode)),
                note: note.clone(),
            },
        };
        let entries = match self.rules {
            State::Live(_) => stale::read(facts.question.protocol, facts.question.destination),
            State::Saved(..) | State::None(_) => Vec::new(),
        };
        let mut answer = facts.answer(plan, kernel, &entries);
        self.add_rejections(&mut answer);
        answer
    }

    /// Returns the sentence that no proxy in the mode has rules, with the modes that do.
    fn absence(&self, mode: Mode) -> String {
        let others = match &self.rules {
            State::Live(config) => assumptions::installed(config),
            State::Saved(state, _) => {
                let has_rules = |it: &&Mode| {
                    let rules = it.saved_rules(state);
                    matches!(rules, Ok(Some(rules)) if rules.has_proxy())
                };
                Mode::BUILT_IN.iter().filter(has_rules).copied().collect()
            }
            State::None(_) => assumptions::installed(&Config::new("").with_mode(mode)),
        };
        let others: Vec<&str> = others.iter().map(|it| it.name()).collect();
        let others = match &*others {
            [] => String::new(),
            names => format!(
                ", but one in mode {} has (--proxy-mode)",
                names.join(" and ")
            ),
        };
        format!("No kube-proxy in mode {mode} has rules on this node{others}.")
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
