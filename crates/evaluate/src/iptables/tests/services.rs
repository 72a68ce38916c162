//! Rules like those of kube-proxy.

use super::*;

/// A Service with three endpoints.
const SERVICE: &str = "\
*filter
:FORWARD ACCEPT [0:0]
:FIREWALL - [0:0]
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"no endpoints\" -j FIREWALL
-A FIREWALL -d 10.9.0.2/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SERVICES - [0:0]
:SVC - [0:0]
:SEP1 - [0:0]
:SEP2 - [0:0]
:SEP3 - [0:0]
:MARK-MASQ - [0:0]
:MASQ - [0:0]
-A PREROUTING -m comment --comment portals -j SERVICES
-A POSTROUTING -j MASQ
-A SERVICES -d 10.9.0.1/32 -p tcp -m comment --comment \"a/b cluster IP\" -m tcp --dport 80 -j SVC
-A SVC ! -s 10.0.0.0/24 -j MARK-MASQ
-A SVC -m recent --rcheck --seconds 10800 --reap --name SEP2 --mask 255.255.255.255 --rsource -j SEP2
-A SVC -m statistic --mode random --probability 0.33333333349 -j SEP1
-A SVC -m statistic --mode random --probability 0.50000000000 -j SEP2
-A SVC -j SEP3
-A SEP1 -p tcp -m tcp -j DNAT --to-destination 10.1.0.2:8080
-A SEP2 -p tcp -m recent --set --name SEP2 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.1.0.3:8080
-A SEP3 -p tcp -m tcp -j DNAT --to-destination 10.1.0.4:8080
-A MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A MASQ -m mark ! --mark 0x4000/0x4000 -j RETURN
-A MASQ -j MARK --set-xmark 0x4000/0x0
-A MASQ -j MASQUERADE --random-fully
COMMIT
";

fn listed(is_listed: bool) -> Answers<impl Fn(&Question<'_>) -> Option<bool>> {
    Answers(host(), move |question| match question {
        Question::Recent(lookup) if lookup.name == "SEP2" => {
            assert_eq!(lookup.age.unwrap().as_secs(), 10_800);
            assert!(lookup.addr.is_ipv4() && lookup.hits.is_none());
            Some(is_listed)
        }
        _ => None,
    })
}

#[test]
fn endpoints_have_exact_probabilities() {
    let packet = tcp("10.9.0.1:80");
    let outcomes = evaluate(SERVICE, &packet, &listed(false)).unwrap();
    let shares: Vec<_> = outcomes
        .iter()
        .map(|it| (it.packet.to_string(), it.probability.to_string()))
        .collect();
    let to = |addr: &str| format!("tcp 10.0.0.9:40000 -> {addr}:8080");
    let expected = [
        // 0.33333333349 is 715,827,883 of 2³¹ parts.
        (to("10.1.0.2"), "715827883/2147483648".to_owned()),
        (to("10.1.0.3"), "1431655765/4294967296".to_owned()),
        (to("10.1.0.4"), "1431655765/4294967296".to_owned()),
    ];
    assert_eq!(shares, expected);
    assert!(
        outcomes
            .iter()
            .all(|it| it.disposition == Disposition::Sent("eth1".into()))
    );
    assert!(outcomes[0].lists.is_empty() && outcomes[2].lists.is_empty());
    let [ListUpdate::Recent { name, addr, .. }] = &*outcomes[1].lists else {
        panic!("{:?}", outcomes[1].lists);
    };
    assert_eq!(
        (name.as_str(), addr.to_string()),
        ("SEP2", "10.0.0.9".to_owned())
    );
}

#[test]
fn affinity_selects_the_recent_endpoint() {
    let packet = tcp("10.9.0.1:80");
    let outcomes = evaluate(SERVICE, &packet, &listed(true)).unwrap();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].packet.destination().to_string(), "10.1.0.3");
    let error = evaluate(SERVICE, &packet, &host()).unwrap_err();
    let unknown = "unknown: whether recent list SEP2 has 10.0.0.9";
    assert!(error.to_string().ends_with(unknown), "{error}");
}

#[test]
fn a_marked_packet_is_masqueraded() {
    let packet = Packet::tcp(end("192.0.2.7:40000"), end("10.9.0.1:80")).with_input("eth0");
    let outcomes = evaluate(SERVICE, &packet, &listed(true)).unwrap();
    let last = &outcomes[0];
    assert_eq!(last.packet.source().to_string(), "10.1.0.1");
    assert_eq!((last.packet.source_port(), last.packet.mark()), (None, 0));
    let status = last.connection.as_ref().unwrap().status;
    assert!(status.contains(CtStatus::SNAT | CtStatus::DNAT));
    let trace = last.trace.to_string();
    let line = "postrouting ip nat MASQ rule 3: -A MASQ -j MASQUERADE --random-fully\n";
    assert!(trace.contains(line), "{trace}");
}

#[test]
fn a_service_without_endpoints_is_rejected() {
    let host = host().with_route("10.9.0.0/24".parse().unwrap(), "eth1");
    let outcomes = evaluate(SERVICE, &tcp("10.9.0.2:80"), &host).unwrap();
    let rejected = Disposition::Rejected(RejectType::Icmp(3));
    assert_eq!(outcomes[0].disposition, rejected);
    let invalid = tcp("10.9.0.2:80").with_tracking(Tracking::Invalid);
    let outcomes = evaluate(SERVICE, &invalid, &host).unwrap();
    assert_eq!(outcomes[0].disposition, Disposition::Dropped);
}

#[test]
fn two_hundred_endpoints_have_probabilities_that_sum_to_one() {
    let mut rules = String::from("*nat\n:SVC - [0:0]\n-A PREROUTING -p tcp -j SVC\n");
    for left in (1..=200_u32).rev() {
        let addr = format!("10.1.{}.{}", left / 100, left % 100);
        let sample = vipline_iptables::matches::Probability::one_in(left);
        rules += &format!("-A SVC -p tcp -m statistic --mode random --probability {sample} ");
        rules += &format!("-j DNAT --to-destination {addr}:80\n");
    }
    rules += "COMMIT\n";
    let host = host().with_route("10.1.0.0/16".parse().unwrap(), "eth1");
    let outcomes = evaluate(&rules, &tcp("10.9.0.1:80"), &host).unwrap();
    assert_eq!(outcomes.len(), 200);
    let sum = outcomes.iter().map(|it| &it.probability);
    let sum = sum.cloned().reduce(|sum, it| sum.either(&it).unwrap());
    assert_eq!(sum, Some(crate::Probability::ONE));
    let share = |it: &Outcome| (it.probability.as_f64() * 200.0 - 1.0).abs() < 1e-4;
    assert!(outcomes.iter().all(share));
}
