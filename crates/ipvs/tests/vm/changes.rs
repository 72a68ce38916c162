//! Accepted and rejected commands.

use std::net::IpAddr;

use vipline_ipvs::netlink::Errno;
use vipline_ipvs::{
    Commands, Error, Object, RealServer, Scheduler, ServiceKey, Table, Transport, VirtualServer,
};
use vipline_reconcile::{Edit, diff};

use crate::{check, commands, compare, ipvsadm, saved, with_client};

#[test]
fn rejections_are_classified_and_name_their_commands() {
    with_client(|client| {
        let server = "-A -t 10.0.0.1:80 -s rr\n";
        let real = "-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m\n";
        client
            .commit(&commands(&format!("{server}{real}")))
            .unwrap();
        let mut rejection = |text: &str| {
            let error = client.commit(&commands(text)).unwrap_err();
            let Error::Rejected { rejected, .. } = &error else {
                panic!("{text}: {error}");
            };
            assert_eq!(rejected.len(), text.lines().count(), "{error}");
            error
        };
        assert!(rejection(&format!("{server}{real}")).is_already_exists());
        for absent in [
            "-E -t 10.0.0.2:80 -s rr",
            "-D -t 10.0.0.2:80",
            "-a -t 10.0.0.2:80 -r 10.1.0.1 -m",
            "-d -t 10.0.0.2:80 -r 10.1.0.1",
            "-e -t 10.0.0.1:80 -r 10.1.0.2 -m",
            "-d -t 10.0.0.1:80 -r 10.1.0.2",
        ] {
            assert!(rejection(absent).is_not_found(), "{absent}");
        }
        assert!(rejection("-E -t 10.0.0.1:80 -s nosuch").is_unsupported());
        let heavy = rejection("-a -t 10.0.0.1:80 -r 10.1.0.3:80 -m -w 4294967295");
        let is_out_of_range = |error: &Error| error.all_rejected(|one| one.errno == Errno::RANGE);
        assert!(is_out_of_range(&heavy), "{heavy}");
        let thresholds = rejection("-a -t 10.0.0.1:80 -r 10.1.0.3:80 -m -x 1 -y 2");
        assert!(is_out_of_range(&thresholds), "{thresholds}");
        let mixed = rejection("-A -t 10.0.0.1:80 -s rr\n-D -t 10.0.0.2:80");
        assert!(!mixed.is_already_exists() && !mixed.is_not_found());
        assert_eq!(saved().len(), 2);
    });
}

#[test]
fn a_batch_needs_few_sends_and_continues_after_a_rejection() {
    with_client(|client| {
        let mut edits = Vec::new();
        for number in 0..300_u16 {
            let [high, low] = number.to_be_bytes();
            let address = IpAddr::from([10, 0, high, low]);
            let service = ServiceKey::new(Transport::Tcp, address, 80);
            let server = VirtualServer::new(service, Scheduler::RoundRobin);
            edits.push(Edit::Add(Object::VirtualServer(server)));
            let real = RealServer::new(IpAddr::from([10, 1, high, low]), 80);
            edits.push(Edit::Add(Object::Destination(service, real)));
        }
        let batch = Commands::from_edits(&edits);
        // Another program has added two of the servers.
        let taken = ["-A -t 10.0.0.5:80 -s rr", "-A -t 10.0.1.9:80 -s rr"];
        for line in taken {
            ipvsadm(&line.replace("-s rr", "-s wrr"));
        }
        let before = client.counters().sends;
        let error = client.commit(&batch).unwrap_err();
        assert_eq!(client.counters().sends - before, 5);
        assert!(error.is_already_exists());
        let Error::Rejected { rejected, .. } = &error else {
            panic!("{error}");
        };
        let rejected: Vec<String> = rejected.iter().map(|one| one.request.to_string()).collect();
        assert_eq!(rejected, taken);
        assert_eq!(saved().len(), 600);
        // A dump and a diff correct the rejected commands.
        let wanted: Vec<Object> = edits.iter().map(|edit| *edit.object()).collect();
        let mend = Commands::from_edits(&diff(client.dump().unwrap().objects(), &wanted));
        assert_eq!(mend.as_slice().len(), 2);
        client.commit(&mend).unwrap();
        let dump = client.dump().unwrap();
        assert!(diff(dump.objects(), &wanted).is_empty());
        // All commands are rejected and reported.
        let Err(Error::Rejected { rejected, .. }) = client.commit(&batch) else {
            panic!("all are there");
        };
        assert_eq!(rejected.len(), 600);
    });
}

#[test]
fn servers_of_other_programs_remain_unchanged() {
    with_client(|client| {
        ipvsadm("-A -u 192.0.2.1:53 -s mh -b mh-port");
        ipvsadm("-a -u 192.0.2.1:53 -r 192.0.2.2:53 -m -w 9");
        let foreign = saved();
        let ours: Table = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w 1\n"
            .parse()
            .unwrap();
        let add: Vec<_> = ours.objects().map(Edit::Add).collect();
        client.commit(&Commands::from_edits(&add)).unwrap();
        assert_eq!(saved().len(), 4);
        let remove: Vec<_> = ours.objects().map(Edit::Remove).collect();
        client.commit(&Commands::from_edits(&remove)).unwrap();
        assert_eq!(saved(), foreign);
        client.flush().unwrap();
        assert!(saved().is_empty());
    });
}

#[test]
fn a_batch_that_races_another_program_names_the_rejected_commands() {
    with_client(|client| {
        let table: Table = "-A -t 10.0.0.1:80 -s rr
            -a -t 10.0.0.1:80 -r 10.1.0.1:80 -m
            -a -t 10.0.0.1:80 -r 10.1.0.2:80 -m
            -A -t 10.0.0.2:80 -s rr"
            .parse()
            .unwrap();
        check(client, &table);
        let batch = commands(
            "-A -t 10.0.0.3:80 -s rr
             -a -t 10.0.0.1:80 -r 10.1.0.3:80 -m
             -d -t 10.0.0.1:80 -r 10.1.0.1:80
             -D -t 10.0.0.2:80
             -e -t 10.0.0.1:80 -r 10.1.0.2:80 -m -w 5",
        );
        // Another program is faster.
        ipvsadm("-d -t 10.0.0.1:80 -r 10.1.0.1:80");
        ipvsadm("-D -t 10.0.0.2:80");
        let error = client.commit(&batch).unwrap_err();
        assert!(error.is_not_found(), "{error}");
        let Error::Rejected { rejected, .. } = error else {
            panic!("{error}");
        };
        let names: Vec<_> = rejected.iter().map(|one| one.request).collect();
        assert_eq!(names, batch.as_slice()[2..4]);
        // The other commands are applied.
        let left = "-A -t 10.0.0.1:80 -s rr
            -a -t 10.0.0.1:80 -r 10.1.0.2:80 -m -w 5
            -a -t 10.0.0.1:80 -r 10.1.0.3:80 -m
            -A -t 10.0.0.3:80 -s rr";
        compare(client, &left.parse().unwrap());
    });
}

#[test]
fn replacing_an_endpoint_needs_two_messages_and_no_dump() {
    with_client(|client| {
        let text = "-A -t 10.0.0.1:80 -s rr
            -a -t 10.0.0.1:80 -r 10.1.0.1:80 -m
            -a -t 10.0.0.1:80 -r 10.1.0.2:80 -m";
        let installed: Table = text.parse().unwrap();
        check(client, &installed);
        let wanted: Table = text.replace("10.1.0.2", "10.1.0.3").parse().unwrap();
        let objects: Vec<Object> = wanted.objects().collect();
        let commands = Commands::from_edits(&diff(installed.objects(), &objects));
        let before = client.counters();
        client.commit(&commands).unwrap();
        let after = client.counters();
        assert_eq!(
            (after.sends - before.sends, after.receives - before.receives),
            (1, 1)
        );
        assert_eq!(after.messages - before.messages, 2, "{commands}");
        // A message is a 16-byte header and a payload; nothing else is sent.
        let bytes = commands.as_slice().iter().map(|command| {
            let mut payload = Vec::new();
            command.encode(&mut payload);
            16 + payload.len() as u64
        });
        assert_eq!(after.bytes_sent - before.bytes_sent, bytes.sum::<u64>());
        compare(client, &wanted);
    });
}
