//! Removal of virtual servers, link and sets, by netlink.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use vipline_ipset::{self as ipset, Sets, Strictness};
use vipline_ipvs::{self as ipvs, ServiceKey};
use vipline_rtnl as rtnl;

use crate::Error;
use crate::Mode;
use crate::backend::ipvs::plan::cleanup::{Found, Object, names};
use crate::backend::ipvs::plan::names::link as link_name;
use crate::cleanup::{Leftovers, Remove, Search};

/// The mode's part of a removal.
pub(in crate::backend) const LEFTOVERS: Leftovers = Leftovers { find };

/// Maximum time that the kernel uses a set for rules that were removed. A work queue
/// releases it, which a loaded node delays.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Retry interval during that time.
const RETRY: Duration = Duration::from_millis(10);
/// Directory of loaded and built-in modules.
const MODULES: &str = "/sys/module";

/// Finds the objects of the mode outside of iptables.
fn find(search: &mut Search) -> Result<(), Error> {
    if !search.includes(Mode::Ipvs) {
        return Ok(());
    }
    let mut found = Found::default();
    let checks = [
        servers().map(|servers| found.servers = servers),
        link().map(|link| found.link = link),
        sets().map(|sets| found.sets = sets),
    ];
    let errors = checks.into_iter().filter_map(Result::err);
    errors.for_each(|error| search.unchecked(error));
    search.found(found);
    Ok(())
}

/// Returns all virtual servers. Empty if the kernel lacks IPVS.
fn servers() -> Result<Vec<ServiceKey>, Error> {
    if !is_loaded("ip_vs") {
        return Ok(Vec::new());
    }
    let listed = match ipvs::Client::open() {
        Err(ipvs::Error::Unsupported { .. }) => return Ok(Vec::new()),
        opened => opened.and_then(|mut client| client.servers()),
    };
    let servers = listed.map_err(Error::of("list IPVS virtual servers"))?;
    Ok(servers
        .into_iter()
        .map(|(server, _)| server.service)
        .collect())
}

/// Returns the addresses of the link, if it exists.
fn link() -> Result<Option<Vec<IpAddr>>, Error> {
    let name = link_name();
    let found = rtnl::Client::open()
        .and_then(|mut client| client.dump_link(&name))
        .map_err(Error::of(format_args!("list link {name}")))?;
    let addresses = found.of(&name).map(rtnl::Address::ip).collect();
    Ok(found.link(&name).map(|_| addresses))
}

/// Returns the sets of kube-proxy. Empty if the kernel lacks ip_set.
fn sets() -> Result<Sets, Error> {
    if !is_loaded("ip_set") {
        return Ok(Sets::default());
    }
    let listed = match ipset::Client::open() {
        Err(ipset::Error::Unsupported { .. }) => return Ok(Sets::default()),
        opened => opened.and_then(|mut client| {
            let headers = client.headers()?;
            let names = headers.iter().map(|listed| listed.set.name.clone());
            let owned: Vec<_> = names.filter(|name| names::is_set(name.as_str())).collect();
            client.dump(&owned)
        }),
    };
    listed.map_err(Error::of("list sets"))
}

/// Returns whether a kernel module is loaded or built in. Returns `true` if that is
/// unknown.
///
/// A module that is not loaded holds no state, and a request would load it.
fn is_loaded(name: &str) -> bool {
    is_shown(Path::new(MODULES), name)
}

fn is_shown(modules: &Path, name: &str) -> bool {
    !modules.exists() || modules.join(name).exists()
}

impl Remove for Object {
    fn remove(&self) -> Result<(), Error> {
        match self {
            Self::Server(service) => self.remove_server(*service),
            Self::Link => self.remove_link(),
            Self::Set(name) => self.destroy_set(name),
        }
    }
}

impl Object {
    fn remove_server(&self, service: ServiceKey) -> Result<(), Error> {
        let mut client = ipvs::Client::open().map_err(Error::of(self))?;
        let remove = ipvs::Command::Remove(service);
        match client.commit(&[remove].into_iter().collect()) {
            Err(error) if !error.is_not_found() => Err(Error::from(error)),
            _ => Ok(()),
        }
    }

    fn remove_link(&self) -> Result<(), Error> {
        let mut client = rtnl::Client::open().map_err(Error::of(self))?;
        let remove = rtnl::Command::RemoveLink(link_name());
        let removed = client.commit(&[remove].into_iter().collect());
        removed.map_err(Error::from)
    }

    /// Destroys a set. The kernel rejects the removal, for example, of a set that a rule
    /// of another program uses.
    fn destroy_set(&self, name: &ipset::Name) -> Result<(), Error> {
        let mut client = ipset::Client::open().map_err(Error::of(self))?;
        let destroy = ipset::Command::Destroy(name.clone(), Strictness::Exist);
        let commands = vec![destroy].into();
        let start = Instant::now();
        loop {
            match client.commit(&commands) {
                Ok(()) => return Ok(()),
                // nf_tables releases a set shortly after the removal of its rules.
                Err(error) if error.is_busy() && start.elapsed() < RELEASE_TIMEOUT => {
                    thread::sleep(RETRY)
                }
                Err(error) => match ipset::Reason::of(&error) {
                    Some(reason) => {
                        let (step, reason) = (self.to_string().into(), reason.to_string().into());
                        return Err(Error::NotRemoved { step, reason });
                    }
                    None => return Err(Error::of(self)(error)),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use testkit::netns::Netns;
    use testkit::scoped::Directory;

    use super::*;

    #[test]
    fn the_link_is_found_with_its_addresses_and_removed() {
        Netns::new().unwrap().run(|| {
            assert_eq!(link().unwrap(), None);
            for line in [
                // A veth, because not every kernel has the dummy driver.
                "link add kube-ipvs0 type veth peer name other",
                "address add 10.96.0.20/32 dev kube-ipvs0",
                "address add 192.0.2.7/32 dev other",
            ] {
                let status = Command::new("ip").args(line.split(' ')).status();
                assert!(status.unwrap().success(), "{line}");
            }
            let addresses = link().unwrap().unwrap();
            assert_eq!(addresses, [IpAddr::from([10, 96, 0, 20])]);
            assert_eq!(Object::Link.to_string(), "ip link delete kube-ipvs0");
            Object::Link.remove().unwrap();
            assert_eq!(link().unwrap(), None);
            let gone = Object::Link.remove().unwrap_err().to_string();
            assert!(gone.starts_with("ip link delete kube-ipvs0: "), "{gone}");
        });
    }

    #[test]
    fn a_module_missing_in_the_list_is_not_loaded() {
        let folder = Directory::new().unwrap();
        let modules = folder.path();
        std::fs::create_dir(modules.join("ip_vs")).unwrap();
        assert!(is_shown(modules, "ip_vs"));
        assert!(!is_shown(modules, "ip_set"));
        assert!(is_shown(&modules.join("absent"), "ip_set"));
    }
}
