//! The link of mode ipvs, removed by netlink.

use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, Result};
use vipline_rtnl::{Client, Command};

use super::names;

/// The link of mode ipvs, with its addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

/// Displays as a shell command.
impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ip {}", Command::RemoveLink(names::link()))
    }
}

impl Link {
    /// Removes the link.
    ///
    /// # Errors
    ///
    /// The kernel rejects the removal.
    pub fn apply(&self) -> Result<()> {
        let mut client = Client::open().with_context(|| self.to_string())?;
        let remove = Command::RemoveLink(names::link());
        Ok(client.commit(&[remove].into_iter().collect())?)
    }
}

/// Returns the link, if it exists.
///
/// # Errors
///
/// The links cannot be dumped.
pub fn find() -> Result<Option<Link>> {
    let name = names::link();
    let context = || format!("list link {name}");
    let mut client = Client::open().with_context(context)?;
    let found = client.dump_link(&name).with_context(context)?;
    let addresses = found.of(&name).map(vipline_rtnl::Address::ip).collect();
    Ok(found.link(&name).map(|_| Link { addresses }))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use testkit::netns::Netns;

    use super::*;

    #[test]
    fn the_link_is_found_with_its_addresses_and_removed() {
        Netns::new().unwrap().run(|| {
            assert_eq!(find().unwrap(), None);
            for line in [
                // A veth, because not every kernel has the dummy driver.
                "link add kube-ipvs0 type veth peer name other",
                "address add 10.96.0.20/32 dev kube-ipvs0",
                "address add 192.0.2.7/32 dev other",
            ] {
                let status = Command::new("ip").args(line.split(' ')).status();
                assert!(status.unwrap().success(), "{line}");
            }
            let link = find().unwrap().unwrap();
            assert_eq!(link.addresses, [IpAddr::from([10, 96, 0, 20])]);
            assert_eq!(link.to_string(), "ip link delete kube-ipvs0");
            link.apply().unwrap();
            assert_eq!(find().unwrap(), None);
            let gone = link.apply().unwrap_err().to_string();
            assert!(gone.starts_with("ip link delete kube-ipvs0: "), "{gone}");
        });
    }
}
