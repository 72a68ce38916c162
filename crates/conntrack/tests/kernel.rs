//! Tests against the running kernel, compared with the output of `conntrack`.
//!
//! Each test runs in a new network namespace and fails if a program is missing.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "kernel/lab.rs"]
mod lab;

#[path = "kernel/filters.rs"]
mod filters;

#[path = "kernel/events.rs"]
mod events;

#[path = "kernel/event_stream.rs"]
mod event_stream;

#[path = "kernel/expectations.rs"]
mod expectations;

#[path = "../examples/conntrack-watch.rs"]
mod conntrack_watch;

#[path = "kernel/lists.rs"]
mod lists;

use std::net::{Ipv4Addr, UdpSocket};

use vipline_conntrack::{
    CpuStatistics, Deleted, Error, Family, Filter, Flow, Key, Labels, Layer4, Protocol, Sctp,
    SctpState, State, Status, Tcp, TcpState, Tuple, TupleFilter, Update,
};

use lab::{Lab, complete, keys, mixed, rejected, texts, udp};

/// Arguments with which `conntrack` creates flows: of each protocol, with and without
/// replies, marked, translated and in zones.
const FLOWS: &[&str] = &[
    "-p tcp -s 10.0.0.1 -d 10.0.0.2 --sport 1 --dport 80 --state ESTABLISHED -u ASSURED",
    "-p tcp -s 10.0.0.1 -d 10.0.0.2 --sport 2 --dport 80 --state SYN_SENT",
    "-p tcp -s fd00::1 -d fd00::2 --sport 3 --dport 80 --state TIME_WAIT -u SEEN_REPLY",
    "-p tcp -s fd00::1 -d fd00::2 --sport 4 --dport 80 --state CLOSE -u SEEN_REPLY,ASSURED",
    "-p udp -s 10.0.0.1 -d 10.0.0.2 --sport 5 --dport 53 -u SEEN_REPLY -m 7",
    "-p udp -s fd00::1 -d fd00::2 --sport 6 --dport 53 -w 5",
    "-p udp -s 10.0.0.1 -d 10.0.0.2 --sport 7 --dport 53 --orig-zone 6",
    "-p udp -s 10.0.0.1 -d 10.0.0.2 --sport 8 --dport 53 --reply-zone 7",
    "-p udplite -s 10.0.0.1 -d 10.0.0.2 --sport 9 --dport 53",
    "-p sctp -s 10.0.0.1 -d 10.0.0.2 --sport 10 --dport 53 --state ESTABLISHED \
     --orig-vtag 1 --reply-vtag 2",
    "-p sctp -s fd00::1 -d fd00::2 --sport 11 --dport 53 --state COOKIE_WAIT \
     --orig-vtag 3 --reply-vtag 0",
    "-p icmp -s 10.0.0.1 -d 10.0.0.2 --icmp-type 8 --icmp-code 0 --icmp-id 12",
    "-p icmpv6 -s fd00::1 -d fd00::2 --icmpv6-type 128 --icmpv6-code 0 --icmpv6-id 13",
    "-p gre -s 10.0.0.1 -d 10.0.0.2 --srckey 14 --dstkey 140",
    "-p 99 -s 10.0.0.1 -d 10.0.0.2",
    "-p tcp -s 10.0.0.1 -d 10.96.0.10 --sport 16 --dport 80 --state SYN_SENT \
     --dst-nat 10.1.0.7:8080",
    "-p udp -s 10.0.0.1 -d 10.0.0.2 --sport 17 --dport 80 --src-nat 10.0.0.9:4000",
    "-p tcp -s fd00::1 -d fd00::2 --sport 18 --dport 80 --state SYN_SENT --dst-nat fd00::9",
];

/// Creates the flows by `conntrack`.
fn created_by_conntrack() -> Lab {
    let lab = Lab::new();
    for flow in FLOWS {
        lab.conntrack(&format!("-I {flow} -t 1000"));
    }
    lab
}

#[test]
fn flows_created_by_conntrack_are_dumped_and_formatted() {
    let mut lab = created_by_conntrack();
    let all = lab.all();
    assert_eq!(all.len(), FLOWS.len());
    assert_eq!(texts(&all), lab.printed(""));
    let is_in_time = |flow: &Flow| (900..=1000).contains(&flow.timeout.unwrap());
    assert!(all.iter().all(is_in_time), "{all:?}");
    assert_eq!(all.iter().filter(|flow| flow.is_translated()).count(), 3);
    let sctp = |flow: &&Flow| flow.original.source_port() == Some(10);
    let sctp = all.iter().find(sctp).unwrap();
    // `conntrack` sends verification tags in host byte order.
    let told = Sctp {
        state: Some(SctpState::ESTABLISHED),
        vtag_original: Some(1_u32.to_be()),
        vtag_reply: Some(2_u32.to_be()),
    };
    assert_eq!(sctp.state, Some(State::Sctp(told)));
}

#[test]
fn counters_are_dumped_and_formatted() {
    let mut lab = Lab::new();
    let setting = "/proc/sys/net/netfilter/nf_conntrack_acct";
    lab.netns.run(|| std::fs::write(setting, "1")).unwrap();
    // Connections are tracked only if a rule requires that.
    let rules =
        "table ip t {\nchain c { type filter hook output priority 0\nct state new accept\n}\n}";
    lab.succeeds("nft", &["-f", "-"], rules);
    lab.netns.run(|| {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        one.send_to(b"1234", other.local_addr().unwrap()).unwrap();
    });
    let flow = lab.only();
    let counters = flow.counters.as_ref().unwrap().original;
    assert_eq!((counters.packets, counters.bytes), (1, 20 + 8 + 4));
    let lines = lab.conntrack("-L -o extended");
    let rest = |line: &str| line.split_once("src=").unwrap().1.trim_end().to_owned();
    assert_eq!(rest(&lines), rest(&flow.to_string()));
}

#[test]
fn created_flows_equal_the_flows_created_by_conntrack() {
    let (mut theirs, mut ours) = (created_by_conntrack(), Lab::new());
    let flows = theirs.all();
    assert_eq!(ours.client.create_all(flows).unwrap(), FLOWS.len());
    assert_eq!(ours.printed(""), theirs.printed(""));

    let flows = mixed(60);
    let mut lab = Lab::with(flows.clone());
    assert_eq!(lab.printed(""), texts(&lab.all()));
    let mut made = lab.all();
    made.iter_mut().for_each(|flow| flow.id = None);
    assert_eq!(keys(&made), keys(&flows));
}

#[test]
fn a_tcp_flow_is_created_with_its_state() {
    let mut lab = Lab::new();
    let mut flow = mixed(1).remove(0);
    flow.state = Some(State::Tcp(Tcp {
        state: Some(TcpState::FIN_WAIT),
        ..Tcp::default()
    }));
    lab.client.create(&flow).unwrap();
    let Some(State::Tcp(tcp)) = lab.only().state else {
        panic!("{:?}", lab.only());
    };
    assert_eq!(tcp.state, Some(TcpState::FIN_WAIT));
    assert!(lab.conntrack("-L").contains("FIN_WAIT"));
    let error = lab.client.create(&flow).unwrap_err();
    assert!(error.is_already_exists(), "{error}");
}

#[test]
fn labels_set_by_rules_are_dumped() {
    let mut lab = Lab::new();
    let rules = "table ip t {\nchain c { type filter hook output priority 0\nct label set 69\n}\n}";
    lab.succeeds("nft", &["-f", "-"], rules);
    lab.netns.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(b"1", socket.local_addr().unwrap()).unwrap();
    });
    let flow = lab.only();
    let labels = |flow: &Flow| flow.extension.as_ref().unwrap().labels.clone().unwrap();
    let set: Vec<u8> = labels(&flow).iter().collect();
    assert_eq!(set, [69]);
    let update = Update::new().with_labels(1 << 3 | 1 << 100, 1 << 3 | 1 << 69 | 1 << 100);
    lab.client.update(&flow.key(), update).unwrap();
    let set: Vec<u8> = labels(&lab.only()).iter().collect();
    assert_eq!(set, [3, 100]);
    assert_eq!(
        lab.flows(&Filter::new().with_label(3).with_label(100))
            .len(),
        1
    );
    assert_eq!(
        lab.flows(&Filter::new().with_label(3).with_label(69)).len(),
        0
    );

    assert!(lab.client.delete(&flow.key()).unwrap());
    let mut labelled = udp(1);
    let mut bytes = vec![0; 16];
    bytes[1] = 1;
    labelled.extension_mut().labels = Some(Labels(bytes));
    lab.client.create(&labelled).unwrap();
    assert_eq!(labels(&lab.only()), labels(&labelled));
}

#[test]
fn a_flow_with_another_id_is_not_deleted() {
    let mut lab = Lab::with([udp(1), udp(2)]);
    let flow = lab.client.flow(&udp(1).key()).unwrap().unwrap();
    let key = flow.key();
    let other = Key {
        id: key.id.map(|id| !id),
        ..key
    };
    assert!(!lab.client.delete(&other).unwrap());
    assert_eq!(lab.client.flow(&other).unwrap(), None);
    let outcome = lab.client.delete_all([other, udp(9).key()]).unwrap();
    let missing = |missing| Deleted {
        deleted: 0,
        missing,
    };
    assert_eq!(outcome, missing(2));
    assert_eq!(lab.all().len(), 2);

    assert!(lab.client.delete(&key).unwrap());
    assert!(!lab.client.delete(&key).unwrap());
    assert_eq!(lab.client.delete_all([key]).unwrap(), missing(1));
    assert_eq!(lab.client.flow(&key).unwrap(), None);
    assert_eq!(lab.only().original, udp(2).original);
    assert!(lab.client.delete(&udp(2).original.into()).unwrap());
    assert_eq!(lab.conntrack("-L"), "");
}

#[test]
fn many_flows_are_deleted_in_few_datagrams_even_if_some_are_missing() {
    let mut lab = Lab::with((0..1000).map(udp));
    let before = lab.client.counters().sends;
    let outcome = lab
        .client
        .delete_all((500..2000).map(|number| udp(number).key()));
    let expected = Deleted {
        deleted: 500,
        missing: 1000,
    };
    assert_eq!(outcome.unwrap(), expected);
    assert_eq!(lab.client.counters().sends - before, 12);
    let left: Vec<Key> = (0..500).map(|number| udp(number).key()).collect();
    let mut all = lab.all();
    all.iter_mut().for_each(|flow| flow.id = None);
    assert_eq!(keys(&all), left);
}

#[test]
fn an_invalid_key_is_rejected_and_all_other_flows_are_deleted() {
    let mut lab = Lab::with([udp(1), udp(2)]);
    // The kernel rejects UDP flows without ports.
    let mut without = udp(1).key();
    without.original.layer4 = Layer4::None;
    let (count, first) = rejected(lab.client.delete_all([udp(1).key(), without, udp(3).key()]));
    assert_eq!((count, first[0].request.key), (1, without));
    assert_eq!(lab.only().original, udp(2).original);
    let change = Update::new().with_mark(7, u32::MAX);
    let updated = lab.client.update_all([without, udp(2).key()], change);
    assert_eq!(rejected(updated).0, 1);
    assert_eq!(lab.only().mark, Some(7));
}

#[test]
fn an_update_sets_the_masked_mark_bits_and_the_timeout() {
    let mut lab = Lab::with([udp(1), udp(2), udp(3)]);
    let key = |number| udp(number).key();
    let change = Update::new().with_mark(0xff00, u32::MAX);
    lab.client.update(&key(1), change).unwrap();
    let change = Update::new().with_mark(0xabcd, 0xf0).with_timeout(5000);
    assert_eq!(
        lab.client
            .update_all([key(1), key(2), key(8)], change)
            .unwrap(),
        2
    );
    let flow = |lab: &mut Lab, number| lab.client.flow(&key(number)).unwrap().unwrap();
    assert_eq!(flow(&mut lab, 1).mark, Some(0xffc0));
    assert_eq!(flow(&mut lab, 2).mark, Some(0xc0));
    assert!(flow(&mut lab, 2).timeout.unwrap() > 4000);
    assert_eq!(flow(&mut lab, 3).mark, Some(0));
    assert!(flow(&mut lab, 3).timeout.unwrap() <= 1000);
    let marked = lab.conntrack(&format!("-L -m {}", 0xffc0));
    assert!(marked.contains("sport=1 "), "{marked}");

    let error = lab.client.update(&key(8), change).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let text = "update udp src=10.0.0.1 dst=10.0.0.2 sport=8 dport=53: ";
    assert!(error.to_string().starts_with(text), "{error}");
}

#[test]
fn an_update_of_a_fixed_timeout_is_not_reported_as_a_missing_capability() {
    let mut fixed = udp(1);
    fixed.status |= Status::FIXED_TIMEOUT;
    let mut lab = Lab::with([fixed.clone(), udp(2)]);
    let change = Update::new().with_timeout(5000);
    let error = lab.client.update(&fixed.key(), change).unwrap_err();
    let text = "update udp src=10.0.0.1 dst=10.0.0.2 sport=1 dport=53: ";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(matches!(error, Error::Kernel { .. }), "{error}");
    let all = [fixed.key(), udp(2).key()];
    let (count, first) = rejected(lab.client.update_all(all, change));
    assert_eq!((count, first[0].request.key), (1, fixed.key()));
    let other = lab.client.flow(&udp(2).key()).unwrap().unwrap();
    assert!(other.timeout.unwrap() > 4000);
}

#[test]
fn all_rejected_changes_are_listed() {
    let mut lab = Lab::with((100..200).map(udp));
    let again = lab.client.create_all((0..300).map(udp));
    let text = again.as_ref().unwrap_err().to_string();
    assert!(text.starts_with("create udp src=10.0.0.1 "), "{text}");
    assert!(text.ends_with("; and 97 more"), "{text}");
    assert!(again.as_ref().unwrap_err().is_already_exists(), "{text}");
    let (count, first) = rejected(again);
    assert_eq!((count, first.len()), (100, 100));
    for (number, one) in (100..).zip(&first) {
        assert_eq!(one.request.key, udp(number).key());
    }
    assert_eq!(lab.all().len(), 300);
    // The kernel rejects a creation without a timeout.
    let mut without = udp(1000);
    without.timeout = None;
    let (count, first) = rejected(lab.client.create_all([without.clone(), udp(1001)]));
    assert_eq!((count, first.len()), (1, 1));
    assert_eq!(first[0].request.key, without.key());
    assert_eq!(lab.all().len(), 301);
}

#[test]
fn statistics_and_usage_equal_the_output_of_conntrack() {
    let mut lab = Lab::with((0..300).map(udp));
    let usage = lab.client.usage().unwrap();
    assert_eq!(usage.entries, 300);
    assert_eq!(lab.conntrack("-C").trim(), "300");
    assert!(usage.max_entries.is_none_or(|most| most >= 300));

    let line = |one: &CpuStatistics| {
        format!(
            "cpu={} found={} invalid={} insert={} insert_failed={} drop={} early_drop={} \
             error={} search_restart={} clash_resolve={} chaintoolong={}",
            one.cpu,
            one.found,
            one.invalid,
            one.insert,
            one.insert_failed,
            one.drop,
            one.early_drop,
            one.error,
            one.search_restart,
            one.clash_resolve,
            one.chain_too_long
        )
    };
    let statistics = lab.client.statistics().unwrap();
    assert_eq!(statistics.iter().map(|one| one.insert).sum::<u32>(), 300);
    let ours: Vec<String> = statistics.iter().map(line).collect();
    let theirs = lab.conntrack("-S");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ours, theirs.lines().map(words).collect::<Vec<_>>());
}

/// Number of flows of a large table.
const MANY: u32 = 20_000;

/// Returns one of many flows: 1 % with port 53, 10 % of TCP, every seventh without a
/// reply.
fn one_of(number: u32) -> Flow {
    let mut flow = udp(0);
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 8, 0, 0).to_bits() + number / 1000);
    let port = if number.is_multiple_of(100) { 53 } else { 5353 };
    let client = (address.into(), 1024 + u16::try_from(number % 1000).unwrap());
    let protocol = match number % 10 {
        3 => Protocol::TCP,
        _ => Protocol::UDP,
    };
    flow.original = Tuple::ports(protocol, client, ("10.0.0.2".parse().unwrap(), port));
    flow.reply = flow.original.inverted();
    if number % 50 == 1 {
        flow.status |= Status::DST_NAT;
        flow.reply = Tuple::ports(protocol, ("10.1.0.9".parse().unwrap(), 8080), client);
    }
    if !number.is_multiple_of(7) {
        flow.status |= Status::SEEN_REPLY;
    }
    flow.mark = Some(number % 16);
    flow
}

/// Returns whether the line of a flow matches a filter.
type ByHand = fn(&str) -> bool;

/// Returns whether the `nth` value of a key in the line of a flow is that of `word`.
fn has_value(line: &str, nth: usize, word: &str) -> bool {
    let (key, _) = word.split_once('=').unwrap();
    let of_key = |text: &&str| text.split_once('=').is_some_and(|(each, _)| each == key);
    line.split(' ').filter(of_key).nth(nth) == Some(word)
}

#[test]
fn filters_select_the_right_flows_of_a_large_table_and_many_rejections_are_one_error() {
    let mut lab = Lab::new();
    let all = || (0..MANY).map(one_of);
    let many = usize::try_from(MANY).unwrap();
    assert_eq!(lab.client.create_all(all()).unwrap(), many);
    let (count, first) = rejected(lab.client.create_all(all()));
    assert_eq!((count, first.len()), (many, many));

    let listed = lab.printed("");
    assert_eq!(listed.len(), many);
    let all = Filter::new();
    let udp = all.with_family(Family::V4).with_protocol(Protocol::UDP);
    let dns = udp.with_original(TupleFilter::new().with_destination_port(53));
    let side = |address: &str| TupleFilter::new().with_source(address.parse().unwrap());
    let by_hand: [(Filter, ByHand); 6] = [
        (dns, |line| {
            line.contains(" udp ") && has_value(line, 0, "dport=53")
        }),
        (
            all.with_family(Family::V4).with_protocol(Protocol::TCP),
            |line| line.contains(" tcp "),
        ),
        (all.with_original(side("10.8.0.7")), |line| {
            has_value(line, 0, "src=10.8.0.7")
        }),
        (all.with_reply(side("10.1.0.9")), |line| {
            has_value(line, 1, "src=10.1.0.9")
        }),
        (
            all.with_status(Status::empty(), Status::SEEN_REPLY),
            |line| line.contains("[UNREPLIED]"),
        ),
        (all.with_mark(7, u32::MAX), |line| {
            has_value(line, 0, "mark=7")
        }),
    ];
    for (filter, is_meant) in by_hand {
        let meant = listed.iter().filter(|line| is_meant(line));
        let meant: Vec<_> = meant.cloned().collect();
        let some = many / 200..many / 5;
        assert!(some.contains(&meant.len()), "{filter:?}: {}", meant.len());
        // `assert_eq!` would print all flows.
        assert!(texts(&lab.flows(&filter)) == meant, "{filter:?}");
    }
    let ours = lab.flows(&dns);
    assert_eq!(texts(&ours), lab.printed("-p udp --orig-port-dst 53"));

    let mut count = 0;
    complete(lab.client.dump(&Filter::new(), |_| count += 1).unwrap());
    assert_eq!(count, MANY);
    let dns_flows = u32::try_from(ours.len()).unwrap();
    let _ = lab.client.flush(&dns).unwrap();
    assert_eq!(lab.client.usage().unwrap().entries, MANY - dns_flows);
    assert_eq!(lab.flows(&dns), []);
}
