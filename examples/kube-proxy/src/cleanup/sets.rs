//! The ipsets of mode ipvs, removed by netlink.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use vipline_ipset::{Client, Command, Error, Name, Sets, Strictness};

use super::{module, names};

/// Maximum time that the kernel uses a set for rules that were removed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// Retry interval during that time.
const RETRY: Duration = Duration::from_millis(10);

/// A set to remove.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Set(Name);

/// Displays as a shell command.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipset destroy {}", self.0)
    }
}

impl Set {
    /// Removes the set.
    ///
    /// # Errors
    ///
    /// The kernel rejects the removal, for example because another program's
    /// rule uses the set.
    pub fn apply(&self) -> Result<()> {
        let mut client = Client::open().with_context(|| self.to_string())?;
        let destroy = Command::Destroy(self.0.clone(), Strictness::Exist);
        let commands = vec![destroy].into();
        let start = Instant::now();
        loop {
            match client.commit(&commands) {
                Ok(()) => return Ok(()),
                // nf_tables releases a set shortly after the removal of its
                // rules.
                Err(error) if error.is_busy() && start.elapsed() < RELEASE_TIMEOUT => {
                    thread::sleep(RETRY)
                }
                Err(error) => match error.reason() {
                    Some(reason) => bail!("{self}: {reason}"),
                    None => return Err(error).with_context(|| self.to_string()),
                },
            }
        }
    }
}

/// Returns the sets to remove.
pub fn plan(sets: &Sets) -> Vec<Set> {
    sets.iter()
        .map(|listed| Set(listed.set.name.clone()))
        .collect()
}

/// Returns the sets of kube-proxy. Empty if the kernel lacks ip_set.
///
/// # Errors
///
/// The sets cannot be dumped.
pub fn find() -> Result<Sets> {
    if !module::is_loaded("ip_set") {
        return Ok(Sets::default());
    }
    let mut client = match Client::open() {
        Err(Error::Unsupported { .. }) => return Ok(Sets::default()),
        opened => opened.context("list sets")?,
    };
    let headers = client.headers().context("list sets")?;
    let names = headers.iter().map(|listed| listed.set.name.clone());
    let owned: Vec<_> = names.filter(|name| names::is_set(name.as_str())).collect();
    client.dump(&owned).context("list sets")
}

#[cfg(test)]
pub(super) mod tests {
    use vipline_ipset::{Commands, SetDump};

    use super::*;

    /// Output of `ipset save`, ipset 7.17.
    const SAVED: &str = include_str!("captures/ipset.txt");

    /// Returns the sets of kube-proxy in the output of `ipset save`.
    pub(crate) fn found(saved: &str) -> Sets {
        let commands = Commands::parse(saved, &[]).unwrap();
        let mut found: Vec<SetDump> = Vec::new();
        for command in commands.as_slice() {
            match command {
                Command::Create(set, _) => found.push(SetDump::new((**set).clone())),
                Command::Add(entry, _) => {
                    let mut sets = found.iter_mut();
                    let set = sets.find(|listed| listed.set.name == entry.set).unwrap();
                    set.entries.push((**entry).clone());
                }
                _ => {}
            }
        }
        let mut sets = Sets::default();
        sets.extend(
            found
                .into_iter()
                .filter(|listed| names::is_set(listed.set.name.as_str())),
        );
        sets
    }

    #[test]
    fn upstreams_sets_of_both_families_are_removed() {
        let shown: Vec<_> = plan(&found(SAVED))
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = [
            "ipset destroy KUBE-6-LOAD-BALANCER-SOURCE-CID",
            "ipset destroy KUBE-CLUSTER-IP",
            "ipset destroy KUBE-NODE-PORT-TCP",
        ];
        assert_eq!(shown, expected);
    }
}
