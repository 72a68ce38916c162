//! A network namespace with a client, compared with the output of `ip`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use testkit::netns::Netns;
use vipline_reconcile::{Edit, diff};
use vipline_rtnl::{Address, Client, Commands, Error, Link, Name, Object, Snapshot};

/// A network namespace and a client in it.
pub(crate) struct Lab {
    pub(crate) netns: Netns,
    pub(crate) client: Client,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        Self { netns, client }
    }

    pub(crate) fn commit(&mut self, edits: &[Edit<Object>]) -> Result<(), Error> {
        self.client.commit(&Commands::from_edits(edits))
    }

    /// Adds objects; fails if the kernel rejects one.
    #[track_caller]
    pub(crate) fn add(&mut self, objects: impl IntoIterator<Item = Object>) {
        let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
        self.commit(&edits).unwrap();
    }

    /// Commits the difference to the given objects of links, and checks the result.
    #[track_caller]
    pub(crate) fn reach(&mut self, names: &[Name], wanted: &[Object]) {
        let edits = diff(self.dump_links(names).into_objects(), wanted);
        self.commit(&edits).unwrap();
        let edits = diff(self.dump_links(names).into_objects(), wanted);
        assert!(edits.is_empty(), "{}", Commands::from_edits(&edits));
    }

    /// Dumps some links.
    pub(crate) fn dump_links(&mut self, names: &[Name]) -> Snapshot {
        let mut all = Snapshot::default();
        for name in names {
            all.extend(self.client.dump_link(name).unwrap().into_objects());
        }
        all
    }

    /// Runs `ip` in the namespace.
    pub(crate) fn try_ip(&self, args: &[&str], script: &str) -> Output {
        self.netns.run(|| {
            let mut child = Command::new("ip")
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("ip is installed");
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(script.as_bytes()).unwrap();
            drop(stdin);
            child.wait_with_output().unwrap()
        })
    }

    /// Runs `ip` in the namespace; fails if `ip` fails.
    #[track_caller]
    pub(crate) fn ip(&self, line: &str) -> String {
        let args: Vec<&str> = line.split(' ').collect();
        let output = self.try_ip(&args, "");
        assert!(output.status.success(), "ip {line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `ip -batch`; fails if a command fails.
    #[track_caller]
    pub(crate) fn batch(&self, script: &str) {
        let output = self.try_ip(&["-batch", "-"], script);
        assert!(output.status.success(), "{output:?}\n{script}");
    }

    /// Fails unless `ip` lists the links and addresses that the client dumps.
    ///
    /// The comparison is repeated, because the kernel changes the state of links and
    /// addresses asynchronously.
    #[track_caller]
    pub(crate) fn assert_judged(&mut self) {
        let mut both = self.listed();
        for _ in 0..20 {
            if both.0 == both.1 {
                return;
            }
            both = self.listed();
        }
        assert_eq!(both.0, both.1);
    }

    /// Returns links and addresses as dumped by the client and as listed by `ip`.
    #[track_caller]
    fn listed(&mut self) -> (Vec<String>, Vec<String>) {
        let listed: Value = serde_json::from_str(&self.ip("-json -details address")).unwrap();
        let dump = self.client.dump().unwrap();
        let mut ours: Vec<String> = dump.links().map(link_text).collect();
        ours.extend(dump.addresses().map(address_text));
        let mut theirs = listed_texts(&listed);
        ours.sort();
        theirs.sort();
        (ours, theirs)
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn address(interface: &str, net: &str) -> Address {
    Address::new(name(interface), net.parse().unwrap())
}

fn link_text(link: &Link) -> String {
    let kind = link.kind.name().unwrap_or("device");
    let up = link.is_up();
    format!("{} {} {kind}, up: {up}", link.index, link.name)
}

fn address_text(address: &Address) -> String {
    let Address {
        interface,
        net,
        peer,
        scope,
        flags,
        ..
    } = address;
    let flags: Vec<&str> = WORDS
        .into_iter()
        .filter(|(bit, _)| flags.bits() & bit != 0)
        .map(|(bit, word)| match (net.addr().is_ipv6(), bit) {
            (true, 1) => "temporary",
            _ => word,
        })
        .collect();
    let lasts = address.flags.bits() & 0x80 != 0;
    format!("{interface} {net} {peer:?} {scope} {flags:?}, lasts: {lasts}")
}

/// Flags of addresses with their names in `ip`.
const WORDS: [(u32, &str); 11] = [
    (0x1, "secondary"),
    (0x2, "nodad"),
    (0x4, "optimistic"),
    (0x8, "dadfailed"),
    (0x10, "home"),
    (0x20, "deprecated"),
    (0x40, "tentative"),
    (0x100, "mngtmpaddr"),
    (0x200, "noprefixroute"),
    (0x400, "autojoin"),
    (0x800, "stable-privacy"),
];

/// Returns the objects that `ip` lists, in the same format.
fn listed_texts(listed: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    for link in listed.as_array().unwrap() {
        let interface = link["ifname"].as_str().unwrap();
        let kind = link["linkinfo"]["info_kind"].as_str().unwrap_or("device");
        let up = link["flags"].as_array().unwrap().contains(&"UP".into());
        let index = &link["ifindex"];
        texts.push(format!("{index} {interface} {kind}, up: {up}"));
        for address in link["addr_info"].as_array().unwrap() {
            let text = |key: &str| address[key].as_str();
            let net = format!("{}/{}", text("local").unwrap(), address["prefixlen"]);
            let peer: Option<std::net::IpAddr> = text("address").map(|peer| peer.parse().unwrap());
            let mut words = WORDS.map(|(_, word)| word).to_vec();
            words.insert(0, "temporary");
            let flags: Vec<&str> = words
                .into_iter()
                .filter(|word| address[*word] == true)
                .collect();
            let scope = text("scope").unwrap();
            let lasts = address["dynamic"] != true;
            texts.push(format!(
                "{interface} {net} {peer:?} {scope} {flags:?}, lasts: {lasts}"
            ));
        }
    }
    texts
}
