//! Network namespaces, labs, traffic and generators for the tests of Vipline.
//!
//! - [`netns`]: network namespaces; [`privilege`]: the privilege to create them.
//! - [`lab`]: a small cluster of namespaces, connected by [`link`]s.
//! - [`traffic`]: servers that answer with their name, and probes that count answers.
//! - [`scoped`]: processes and directories that are removed when dropped.
//! - [`proxy`]: kube-proxy in a lab; [`commits`]: times of nf_tables commits.
//! - `generate`: Services with endpoints, as API objects and manifests.
//! - `container`: processes with the restrictions of a container.
//! - [`nft`]: the program `nft`, to check rulesets independently.
//! - [`silence`]: connections that die without being closed.
//! - [`iptables`]: iptables programs with a separate lock, and fake programs.
//! - [`program`]: scripts and copies of programs that can be executed immediately.
//! - [`flag`]: a flag that stops the threads of a test.
//! - [`allocation`]: bytes allocated by a function.
//! - [`cpu`]: CPU time used by a function.
//! - [`http`]: an HTTP client.
//! - [`golden`]: comparison with golden files.
//! - [`mod@figures`]: figures of passing tests, such as the number of cases.
//!
//! Tests change nothing outside their namespaces, and leave nothing behind when the
//! process exits.

pub mod netns;

pub mod privilege;

pub mod link;

pub mod lab;

pub mod traffic;

pub mod scoped;

pub mod proxy;

pub mod commits;

#[cfg(feature = "generate")]
pub mod generate;

#[cfg(feature = "container")]
pub mod container;

pub mod nft;

pub mod silence;

pub mod flag;

pub mod program;

pub mod iptables;

pub mod golden;

pub mod figures;

pub mod allocation;

pub mod cpu;

pub mod http;
