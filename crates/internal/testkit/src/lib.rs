//! Namespaces, labs, traffic and generators for the tests of Vipline.
//!
//! - [`netns`]: one network namespace; [`privilege`]: being allowed to make it.
//! - [`lab`]: a small cluster of them, joined by [`link`]s.
//! - [`traffic`]: servers that answer with their name, clients that count.
//! - [`leftovers`]: processes and directories that go with their value.
//! - [`proxy`]: a kube-proxy at work in a lab; [`commits`]: when rules change.
//! - `generate`: Services with endpoints, as API objects and manifests.
//! - `container`: programs started as a container runtime starts them.
//! - [`nft`]: what an independent reader says of a ruleset.
//! - [`iptables`]: its programs, with a lock of their own, and made-up ones.
//! - [`program`]: scripts and copies of programs that can be run at once.
//! - [`allocation`]: how many bytes a piece of work allocates.
//! - [`processor`]: how much time of a processor a piece of work takes.
//! - [`golden`]: comparison with texts that were reviewed and kept.
//!
//! Nothing outside of the namespaces made here is changed, and nothing is left
//! when the process ends.

pub mod netns;

pub mod privilege;

pub mod link;

pub mod lab;

pub mod traffic;

pub mod leftovers;

pub mod proxy;

pub mod commits;

#[cfg(feature = "generate")]
pub mod generate;

#[cfg(feature = "container")]
pub mod container;

pub mod nft;

pub mod over;

pub mod program;

pub mod iptables;

pub mod golden;

pub mod allocation;

pub mod processor;
