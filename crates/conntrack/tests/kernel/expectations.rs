//! Tests of expectations and of their changes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use vipline_conntrack::{Event, Events, Expectation, Filter, Groups, Layer4, Protocol, Tuple};

use crate::lab::{Lab, complete};

#[test]
fn a_helper_creates_an_expectation() {
    let mut lab = Lab::new();
    // Otherwise only flows that are created while a listener exists have events.
    let setting = "/proc/sys/net/netfilter/nf_conntrack_events";
    lab.netns.run(|| std::fs::write(setting, "1")).unwrap();
    let rules = "table ip t {\nct helper h { type \"ftp\" protocol tcp; }\n\
                 chain c { type filter hook output priority 0\ntcp dport 21 ct helper set \"h\"\n}\n}";
    lab.succeeds("nft", &["-f", "-"], rules);
    let (client, server) = lab.netns.run(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 21)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        // The helper parses only lines after a complete one.
        for line in ["USER x\r\n", "PORT 127,0,0,1,4,5\r\n"] {
            client.write_all(line.as_bytes()).unwrap();
            server.read_exact(&mut vec![0; line.len()]).unwrap();
        }
        (client, server)
    });
    let flows = lab.flows(&Filter::new().with_protocol(Protocol::TCP));
    let extension = flows[0].extension.as_ref().unwrap();
    assert_eq!(extension.helper.as_deref(), Some("ftp"));
    assert!(
        flows[0].to_string().contains(" helper=ftp "),
        "{}",
        flows[0]
    );

    let expected = complete(lab.client.expectations().unwrap());
    let [expected] = expected.as_slice() else {
        panic!("{expected:?}");
    };
    assert_eq!(expected.master, flows[0].original);
    assert_eq!(expected.tuple.destination_port(), Some(4 << 8 | 5));
    assert_eq!(expected.mask.destination_port(), Some(u16::MAX));
    assert_eq!(expected.mask.source_port(), Some(0));
    assert_eq!(expected.helper.as_deref(), Some("ftp"));
    let line = lab.conntrack("-L expect");
    assert!(
        line.contains(&format!("proto=6 {}", expected.tuple)),
        "{line}"
    );
    change_expectations(&mut lab, expected);
    drop((client, server));
}

/// Creates, updates and deletes expectations, and compares the events.
fn change_expectations(lab: &mut Lab, known: &Expectation) {
    let groups = Groups::EXPECTATION_NEW | Groups::EXPECTATION_DESTROY;
    let mut received = lab.netns.run(|| Events::open(groups, &[]).unwrap());
    let mut tuple = known.tuple;
    tuple.layer4 = Layer4::Ports {
        source: 0,
        destination: 4000,
    };
    let mut made = Expectation::new(known.master, tuple);
    made.mask = known.mask;
    made.timeout = Some(100);
    lab.client.create_expectation(&made).unwrap();
    let error = lab.client.create_expectation(&made).unwrap_err();
    assert!(error.is_already_exists(), "{error}");
    let found = |lab: &mut Lab| {
        let all = complete(lab.client.expectations().unwrap());
        all.into_iter().find(|one| one.tuple == tuple)
    };
    let first = found(lab).unwrap();
    // The policy of the helper sets the timeout.
    assert!((200..=300).contains(&first.timeout.unwrap()));
    made.timeout = Some(5000);
    lab.client.update_expectation(&made).unwrap();
    assert!(found(lab).unwrap().timeout.unwrap() > 4000);

    let mut wrong = first.clone();
    wrong.id = first.id.map(|id| !id);
    assert!(!lab.client.delete_expectation(&wrong).unwrap());
    assert!(lab.client.delete_expectation(&first).unwrap());
    assert!(!lab.client.delete_expectation(&first).unwrap());
    lab.client.create_expectation(&made).unwrap();
    assert!(lab.conntrack("-L expect").contains(&tuple.to_string()));
    lab.client.flush_expectations().unwrap();
    assert_eq!(complete(lab.client.expectations().unwrap()), []);

    // The helper allows one expectation, so the kernel replaced the known one.
    let received: Vec<(bool, Tuple)> = crate::events::read(&mut received, 5)
        .into_iter()
        .map(|event| match event {
            Event::NewExpectation(new) => (true, new.tuple),
            Event::DestroyExpectation(gone) => (false, gone.tuple),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (false, known.tuple),
        (true, tuple),
        (false, tuple),
        (true, tuple),
        (false, tuple),
    ];
    assert_eq!(received, expected);
}
