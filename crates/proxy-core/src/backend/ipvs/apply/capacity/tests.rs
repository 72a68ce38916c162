//! Capacities of ipsets in the kernel.

use std::net::Ipv4Addr;

use testkit::netns::Netns;
use vipline_ipset::{Client, Commands, Entry, Member, SetFamily, SetType};

use super::*;

const FULL: usize = DEFAULT_MAXELEM as usize;

fn set(maxelem: u32) -> Set {
    let name = Name::new("KUBE-IPVS-IPS").unwrap();
    Set::new(name, SetType::HashIp, SetFamily::V4).with_maxelem(maxelem)
}

/// Returns additions of the entries of a range.
fn additions(numbers: std::ops::Range<usize>) -> Vec<Edit<Object>> {
    let entries = numbers.map(|number| {
        let bits = 0x0a00_0000 + u32::try_from(number).unwrap();
        let member = Member::Ip(Ipv4Addr::from_bits(bits).into());
        Edit::Add(Entry::new(set(DEFAULT_MAXELEM).name, member).into())
    });
    entries.collect()
}

/// Returns removals of the entries of a range.
fn removals(numbers: std::ops::Range<usize>) -> Vec<Edit<Object>> {
    let entries = additions(numbers).into_iter();
    entries
        .map(|edit| Edit::Remove(edit.object().clone()))
        .collect()
}

/// A set in the kernel and its recorded capacity.
struct Installed {
    client: Client,
    capacities: Capacities,
}

impl Installed {
    fn new() -> Self {
        Self {
            client: Client::open().unwrap(),
            capacities: Capacities::default(),
        }
    }

    /// Commits edits as the kernel of the mode does.
    fn commit(&mut self, mut edits: Vec<Edit<Object>>) {
        self.capacities.fit(&mut edits);
        let commands = Commands::from_edits(&edits);
        self.client.commit(&commands).expect("all entries fit");
        self.capacities.wrote(&edits);
    }

    /// Returns `maxelem` in the kernel and as dumped for the plan, and the entry count.
    fn dump(&mut self) -> (u32, u32, usize) {
        let sets = self.client.dump(&[set(DEFAULT_MAXELEM).name]).unwrap();
        let maxelem = |sets: &Sets| sets.iter().next().unwrap().set.maxelem.unwrap();
        let (real, count) = (maxelem(&sets), sets.iter().next().unwrap().entries.len());
        (real, maxelem(&self.capacities.dumped(sets)), count)
    }
}

#[test]
fn a_set_is_larger_than_that_of_upstream_only_while_its_entries_need_it() {
    Netns::new().unwrap().run(|| {
        let mut installed = Installed::new();
        installed.commit(vec![Edit::Add(set(DEFAULT_MAXELEM).into())]);
        installed.commit(additions(0..FULL));
        assert_eq!(installed.dump(), (DEFAULT_MAXELEM, DEFAULT_MAXELEM, FULL));
        installed.commit(additions(FULL..FULL + 1));
        assert_eq!(installed.dump(), (LARGE, DEFAULT_MAXELEM, FULL + 1));
        installed.commit(additions(FULL + 1..FULL + 10));
        assert_eq!(installed.dump(), (LARGE, DEFAULT_MAXELEM, FULL + 10));
        installed.commit(removals(5..FULL + 10));
        assert_eq!(installed.dump(), (LARGE, LARGE, 5));
        let change = || Edit::Change {
            old: set(LARGE).into(),
            new: set(DEFAULT_MAXELEM).into(),
        };
        let growing = additions(5..FULL + 1);
        installed.commit([change()].into_iter().chain(growing).collect());
        assert_eq!(installed.dump(), (LARGE, DEFAULT_MAXELEM, FULL + 1));
        installed.commit(removals(5..FULL + 1));
        installed.commit(vec![change()]);
        assert_eq!(installed.dump(), (DEFAULT_MAXELEM, DEFAULT_MAXELEM, 5));
    });
}

#[test]
fn a_new_set_with_many_entries_is_large_from_the_start() {
    Netns::new().unwrap().run(|| {
        let mut installed = Installed::new();
        let new = [Edit::Add(set(DEFAULT_MAXELEM).into())];
        installed.commit(new.into_iter().chain(additions(0..FULL + 1)).collect());
        assert_eq!(installed.dump(), (LARGE, DEFAULT_MAXELEM, FULL + 1));
    });
}
