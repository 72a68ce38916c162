//! The sets of mode ipvs, by netlink.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use vipline_ipset::{Client, Command, Error, Name, Sets, Strictness};

use super::{module, names};

/// For how long the kernel may use a set for rules that are gone.
const RELEASE: Duration = Duration::from_secs(1);
/// How often it is asked whether it still does.
const PAUSE: Duration = Duration::from_millis(10);

/// A set that is to be removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Set(Name);

/// Displays as a shell command.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipset destroy {}", self.0)
    }
}

impl Set {
    /// Removes it.
    ///
    /// # Errors
    ///
    /// What the kernel says: somebody else's rule may use it.
    pub fn apply(&self) -> Result<()> {
        let mut client = Client::open().with_context(|| self.to_string())?;
        let destroy = Command::Destroy(self.0.clone(), Strictness::Exist);
        let commands = vec![destroy].into();
        let start = Instant::now();
        loop {
            match client.commit(&commands) {
                Ok(()) => return Ok(()),
                // Rules of nf_tables let go of it a moment after they went.
                Err(error) if error.is_busy() && start.elapsed() < RELEASE => thread::sleep(PAUSE),
                Err(error) => match error.reason() {
                    Some(reason) => bail!("{self}: {reason}"),
                    None => return Err(error).with_context(|| self.to_string()),
                },
            }
        }
    }
}

/// Returns the sets that are to be removed.
pub fn plan(sets: &Sets) -> Vec<Set> {
    sets.iter()
        .map(|listed| Set(listed.set.name.clone()))
        .collect()
}

/// Returns the sets that are a kube-proxy's; a kernel without sets has none.
///
/// # Errors
///
/// What the kernel says.
pub fn look() -> Result<Sets> {
    if !module::is_loaded("ip_set") {
        return Ok(Sets::default());
    }
    let mut client = match Client::open() {
        Err(Error::Unsupported { .. }) => return Ok(Sets::default()),
        opened => opened.context("list sets")?,
    };
    let headers = client.headers().context("list sets")?;
    let names = headers.iter().map(|listed| listed.set.name.clone());
    let ours: Vec<_> = names.filter(|name| names::is_set(name.as_str())).collect();
    client.dump(&ours).context("list sets")
}

#[cfg(test)]
pub(super) mod tests {
    use vipline_ipset::{Commands, SetDump};

    use super::*;

    /// As ipset 7.17 saves it.
    const SAVED: &str = include_str!("captures/ipset.txt");

    /// Returns the sets that a kube-proxy would have found, of what `ipset save`
    /// says.
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
    fn upstreams_sets_of_both_families_go() {
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
