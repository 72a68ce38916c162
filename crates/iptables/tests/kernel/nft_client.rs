//! The client over netlink makes the rules that `iptables-nft-restore --noflush` makes,
//! and reads the rules that `iptables-nft-save` prints.

use std::time::Duration;
use std::{iter, thread};

use vipline_iptables::{Chain, Contents, Family, Object, Policy, Position, nft};
use vipline_netlink::Errno;
use vipline_nftables as nftables;
use vipline_reconcile::Edit;

use crate::twins::{Twins, add, chain, name, remove, rule, saved, shared, table};

#[test]
fn chains_and_shared_rules_are_committed_like_restored_ones() {
    for family in Family::ALL {
        let mut twins = Twins::new(family);
        twins.assert_equal();
        let comment = "-m comment --comment \"our jump\" -j A";
        let first = [
            chain(
                "nat",
                "B",
                &[
                    "-p udp -m udp --dport 53 -j MARK --or-mark 0x4000",
                    "-j RETURN",
                ],
            ),
            chain("nat", "A", &["-p tcp -m tcp --dport 80 -j B"]),
            chain("mangle", "EMPTY", &[]),
            shared("filter", "SHARED"),
            rule("filter", "SHARED", Position::Head, "-p tcp -j ACCEPT"),
            rule("filter", "SHARED", Position::Tail, "-j DROP"),
            rule("filter", "INPUT", Position::Head, "-j SHARED"),
            rule("nat", "PREROUTING", Position::Head, comment),
            rule("nat", "OUTPUT", Position::Tail, comment),
        ];
        twins.commit(&add(first.clone()));
        let changed = chain("nat", "A", &["-p udp -m udp --dport 53 -j B", "-j ACCEPT"]);
        twins.commit(&[
            Edit::Change {
                old: first[1].clone(),
                new: changed.clone(),
            },
            Edit::Add(rule("filter", "SHARED", Position::Head, "-p udp -j ACCEPT")),
            Edit::Add(rule("filter", "SHARED", Position::Tail, "-p udp -j DROP")),
            Edit::Remove(first[4].clone()),
            Edit::Remove(first[7].clone()),
        ]);
        twins.commit(&[
            Edit::Remove(first[8].clone()),
            Edit::Remove(changed),
            Edit::Remove(first[0].clone()),
            Edit::Remove(first[2].clone()),
            Edit::Remove(first[6].clone()),
        ]);
        // A chain that exists already, with rules and jumps to it, and one that does not.
        twins.commit(&add([chain("filter", "THEIRS", &["-j RETURN"])]));
        twins.commit(&remove([chain("raw", "MISSING", &[])]));
    }
}

#[test]
fn a_policy_and_unmanaged_chains_are_committed_like_restored_ones() {
    for family in Family::ALL {
        let mut twins = Twins::new(family);
        let input = |policy, rules: &[&str]| {
            let rules = Contents::Rules(rules.iter().collect());
            let mut chain = Chain::new(table("filter"), name("INPUT")).with_contents(rules);
            chain.policy = Some(policy);
            Object::from(chain)
        };
        let unmanaged = Chain::new(table("mangle"), name("U")).with_contents(Contents::Unmanaged);
        twins.commit(&add([
            input(Policy::Drop, &["-p tcp -j ACCEPT"]),
            unmanaged.into(),
        ]));
        twins.commit(&[Edit::Change {
            old: input(Policy::Drop, &["-p tcp -j ACCEPT"]),
            new: input(Policy::Accept, &["-p udp -j ACCEPT"]),
        }]);
        twins.commit(&remove([input(Policy::Accept, &[])]));
    }
}

#[test]
fn histories_of_edits_end_in_the_rules_of_restored_documents() {
    let mut twins = Twins::new(Family::V4);
    let mut seed = 7_u32;
    let mut random = move |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % below
    };
    twins.commit(&add(
        (0..4).map(|number| chain("filter", &format!("C{number}"), &[]))
    ));
    twins.commit(&add([shared("filter", "S")]));
    let (mut installed, mut contents): (Vec<Object>, Vec<Object>) = (Vec::new(), Vec::new());
    contents.extend((0..4).map(|number| chain("filter", &format!("C{number}"), &[])));
    for _ in 0..12 {
        let mut edits = Vec::new();
        for _ in 0..=random(6) {
            let port = random(500);
            let text = format!("-p tcp -m tcp --dport {port} -j C{}", random(4));
            let position = [Position::Head, Position::Tail][usize::from(random(2) == 1)];
            let of = ["S", "OUTPUT"][usize::from(random(2) == 1)];
            let new = rule("filter", of, position, &text);
            if !installed.contains(&new) {
                installed.push(new.clone());
                edits.push(Edit::Add(new));
            }
        }
        let old = usize::try_from(random(u32::try_from(installed.len()).unwrap())).unwrap();
        let old = installed[old].clone();
        if !edits.contains(&Edit::Add(old.clone())) {
            installed.retain(|one| *one != old);
            edits.push(Edit::Remove(old));
        }
        let place = usize::try_from(random(4)).unwrap();
        let rules: Vec<String> = (0..random(4))
            .map(|_| format!("-s 10.0.{}.0/24 -j RETURN", random(200)))
            .collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let new = chain("filter", &format!("C{place}"), &rules);
        let old = std::mem::replace(&mut contents[place], new.clone());
        edits.push(Edit::Change { old, new });
        twins.commit(&edits);
    }
}

#[test]
fn rules_with_ip_sets_are_committed_and_read() {
    for family in Family::ALL {
        let mut twins = Twins::new(family);
        let set = match family {
            Family::V4 => "addresses",
            Family::V6 => "addresses6",
        };
        let rules = [
            format!("-m set --match-set {set} src -j ACCEPT"),
            format!("-m set ! --match-set {set} dst --return-nomatch ! --update-counters -j DROP"),
            format!("-m set --match-set {set} dst --packets-gt 5 ! --bytes-eq 7 -j DROP"),
            format!("-j SET --add-set {set} src --exist --timeout 5"),
            format!("-j SET --del-set {set} dst"),
        ];
        let texts: Vec<&str> = rules.iter().map(String::as_str).collect();
        twins.commit(&add([chain("filter", "SETS", &texts)]));
        let lines = twins.read();
        for rule in rules {
            assert!(
                lines.contains(&format!("[0:0] -A SETS {rule}")),
                "{rule}\n{lines:#?}"
            );
        }
        let missing = "-m set --match-set missing src -j ACCEPT";
        let error = twins.rejected(&add([chain("filter", "SETS", &[missing])]));
        let nft::Error::NotEncoded { request, reason } = &error else {
            panic!("{error:?}");
        };
        let reason = reason.downcast_ref::<nft::Unsupported>().unwrap();
        assert_eq!(
            (request.edit, reason.missing_set()),
            (Some(0), Some("missing"))
        );
        assert_eq!(
            error.to_string(),
            format!("table filter: -A SETS {missing}: IP set \"missing\" does not exist")
        );
    }
}

#[test]
fn listed_addresses_and_counters_are_committed_like_restored_ones() {
    let mut twins = Twins::new(Family::V4);
    let list = "-s 10.0.0.1,10.0.0.0/24 -d 10.1.0.1,10.1.0.2 -j ACCEPT";
    let (head, tail) = (Position::Head, Position::Tail);
    twins.commit(&add([
        chain("filter", "LISTS", &[list, "-j RETURN"]),
        rule("filter", "INPUT", head, list),
        rule("filter", "INPUT", tail, list),
    ]));
    let count = |twins: &Twins, chain: &str| {
        let start = format!("[0:0] -A {chain} -s 10.0.0.");
        let lines = saved(&twins.ours).into_iter();
        lines.filter(|line| line.starts_with(&start)).count()
    };
    assert_eq!((count(&twins, "LISTS"), count(&twins, "INPUT")), (4, 8));
    twins.commit(&remove([rule("filter", "INPUT", head, list)]));
    assert_eq!(count(&twins, "INPUT"), 4);
    // Three of four rules are no match.
    let other = "-s 10.0.0.1,10.0.0.9 -d 10.1.0.1,10.1.0.9 -j ACCEPT";
    let error = twins.rejected(&remove([rule("filter", "INPUT", head, other)]));
    assert_eq!(error.errno(), Some(Errno::NOENT), "{error}");
    let counted = rule("filter", "INPUT", head, "-c 3 4 -j RETURN");
    twins.client.commit(&add([counted])).unwrap();
    assert!(saved(&twins.ours).contains(&"[3:4] -A INPUT -j RETURN".to_owned()));
}

#[test]
fn the_lines_of_a_save_are_read() {
    for (family, document) in [
        (
            Family::V4,
            include_str!("../captures/kube-proxy-nft-v4.save"),
        ),
        (
            Family::V6,
            include_str!("../captures/kube-proxy-nft-v6.save"),
        ),
    ] {
        let mut twins = Twins::new(family);
        twins.ours.restore(document).unwrap();
        let mut lines = saved(&twins.ours);
        lines.retain(|line| !line.starts_with('*') && line != "COMMIT");
        let read = twins.read();
        // The program also prints built-in chains that do not exist.
        lines.retain(|line| read.contains(line) || !line.ends_with(" ACCEPT [0:0]"));
        lines.sort_unstable();
        assert_eq!(read, lines);
    }
}

#[test]
fn rejected_edits_are_named_with_table_line_and_error_number() {
    let mut twins = Twins::new(Family::V4);
    let error = twins.rejected(&add([
        chain("nat", "A", &["-j RETURN", "-j MISSING"]),
        chain("nat", "B", &["-j RETURN"]),
    ]));
    let nft::Error::Rejected {
        rejected,
        more: Some(0),
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    let [one] = &**rejected else {
        panic!("{rejected:?}");
    };
    assert_eq!((one.request.edit, one.errno), (Some(0), Errno::NOENT));
    assert_eq!(
        (one.request.table, &*one.request.line),
        (Some(table("nat")), "-A A -j MISSING")
    );

    let gone = |chain, rule_text| rule("filter", chain, Position::Head, rule_text);
    let error = twins.rejected(&remove([gone("INPUT", "-j DROP"), gone("NONE", "-j DROP")]));
    let nft::Error::Rejected {
        rejected,
        more: Some(0),
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (rejected[0].request.edit, rejected[0].errno),
        (Some(0), Errno::NOENT)
    );
    assert!(
        error
            .to_string()
            .starts_with("table filter: -D INPUT -j DROP: "),
        "{error}"
    );

    let error = twins.rejected(&remove([chain("filter", "THEIRS", &[])]));
    assert_eq!(error.errno(), Some(Errno::BUSY), "{error}");
    assert!(
        error.to_string().starts_with("table filter: -X THEIRS: "),
        "{error}"
    );

    let error = twins.rejected(&add([chain("filter", "A", &["-m unknown --option 7"])]));
    let nft::Error::NotEncoded { request, reason } = &error else {
        panic!("{error:?}");
    };
    assert!(reason.is::<nft::Unsupported>(), "{reason}");
    assert_eq!(&*request.line, "-A A -m unknown --option 7");
    twins.assert_equal();
}

#[test]
fn a_commit_is_repeated_if_another_program_commits_meanwhile() {
    let mut twins = Twins::new(Family::V4);
    let Twins { ours, client, .. } = &mut twins;
    let jump = |number: u32| {
        let text = format!("-p tcp -m tcp --dport {number} -j ACCEPT");
        rule("filter", "INPUT", Position::Tail, &text)
    };
    let mut other = ours.netns.run(nftables::Client::open).unwrap();
    let foreign = nftables::Name::new("other").unwrap();
    let foreign = nftables::TableId::new(nftables::Family::Ip, foreign);
    thread::scope(|scope| {
        let commits = scope.spawn(move || {
            for _ in 0..100 {
                let mut batch = other.batch(None);
                batch.add_table(&foreign);
                other.commit_batch(batch).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        for number in 0..50 {
            client.commit(&add([jump(number)])).unwrap();
            client.commit(&remove([jump(number)])).unwrap();
        }
        commits.join().unwrap();
    });
    assert_eq!(saved(&twins.ours), saved(&twins.theirs));
}

#[test]
fn many_rules_are_one_batch() {
    const RULES: usize = 20_000;
    let mut twins = Twins::new(Family::V4);
    let rules = iter::repeat_n("-m comment --comment \"a rule\" -j RETURN", RULES);
    let many = Chain::new(table("nat"), name("MANY")).with_rules(rules.collect());
    let before = twins.client.counters();
    twins.client.commit(&add([many.into()])).unwrap();
    let after = twins.client.counters();
    // A request for the generation, and the batch.
    assert_eq!(after.sends - before.sends, 2);
    assert!(after.bytes_sent - before.bytes_sent > 300 * RULES as u64);
    let rule = "[0:0] -A MANY -m comment --comment \"a rule\" -j RETURN";
    let read = twins.read();
    assert_eq!(read.iter().filter(|line| *line == rule).count(), RULES);
}

#[test]
fn a_dump_sends_one_request_per_chain() {
    let mut twins = Twins::new(Family::V4);
    let chains = (0..100).map(|number| chain("nat", &format!("C{number}"), &["-j RETURN"]));
    twins.client.commit(&add(chains)).unwrap();
    let before = twins.client.counters();
    let lines = twins.read();
    let chains = lines.iter().filter(|line| line.starts_with(':')).count();
    let after = twins.client.counters();
    // The generation before and after, and the chains.
    let requests = u64::try_from(chains + 3).unwrap();
    assert_eq!(after.sends - before.sends, requests);
}

#[test]
fn support_and_chains_are_detected() {
    for family in Family::ALL {
        let mut twins = Twins::new(family);
        assert!(twins.client.has_compat().unwrap());
        assert!(
            twins
                .client
                .has_chain(table("filter"), name("THEIRS"))
                .unwrap()
        );
        assert!(
            !twins
                .client
                .has_chain(table("mangle"), name("THEIRS"))
                .unwrap()
        );
        assert!(
            !twins
                .client
                .has_chain(table("filter"), name("OURS"))
                .unwrap()
        );
        let before = twins.client.generation().unwrap();
        assert_eq!(twins.client.commit(&[]).unwrap(), before);
    }
}
